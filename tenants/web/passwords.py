"""How Django asks who somebody is (`AUTHENTICATION_BACKENDS`)."""

from django.contrib.auth.backends import BaseBackend
from django.http import HttpRequest

from tenants.models import User
from tenants.services.passwords import password_holder, password_prove


class PasswordBackend(BaseBackend):
    """By name and password; `user.proof` then makes the session theirs (tenants.web.sessions)."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **_: object,
    ) -> User | None:
        """The active person of this name and password."""
        if username is None or password is None:
            return None
        proof = password_prove(username, password)
        user = password_holder(proof)
        if user is not None:
            user.proof = proof
        return user

    def get_user(self, user_id: int) -> None:
        """Nobody: a number is no proof. `tenants.web.sessions.AuthenticationMiddleware` asks for
        the person of a session by its key."""
