"""Django's authentication backend (`AUTHENTICATION_BACKENDS`)."""

from django.contrib.auth.backends import BaseBackend
from django.http import HttpRequest

from tenants.models import User
from tenants.services.sign_in.passwords import password_holder, password_prove


class PasswordBackend(BaseBackend):
    """Authenticates by name and password; `user.proof` binds the session (tenants.web.sessions)."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **_: object,
    ) -> User | None:
        """Returns the active person with this name and password."""
        if username is None or password is None:
            return None
        proof = password_prove(username, password)
        user = password_holder(proof)
        if user is not None:
            user.proof = proof
        return user

    def get_user(self, user_id: int) -> None:
        """Returns None: an id is no proof.

        `tenants.web.sessions.AuthenticationMiddleware` loads the person by the session's key.
        """
