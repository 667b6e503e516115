"""Sessions as the portal's, for tests that sign somebody in without a password (`force_login`)."""

from django.contrib.auth import SESSION_KEY

from tenants.models import Session
from tenants.services.sign_in.sessions import session_digest
from tenants.web.sessions import SessionStore as PortalsStore
from tests.roles import as_owner


class SessionStore(PortalsStore):
    """Makes a session a person's without proof, by the right of another database role."""

    def sign_in(self, user_id: int) -> None:
        """By the password if there is one, as the portal does; else by decree."""
        if self.proof is not None:
            super().sign_in(user_id)
            return
        with as_owner():
            digest = session_digest(self.session_key or "")
            Session.objects.filter(digest=digest).update(user_id=user_id)
        self.person = user_id


__all__ = ["SESSION_KEY", "SessionStore"]
