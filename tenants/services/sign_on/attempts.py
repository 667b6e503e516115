"""Sign-ins on their way to a provider and back. In `operator_tx`."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from tenants.models import SignOnAttempt, SignOnProvider

LIFETIME = timedelta(minutes=10)
# 256 random bits; PKCE asks for at least 43 characters of base 64.
RANDOM_BYTES = 32


@dataclass(frozen=True, slots=True)
class StartedAttempt:
    """An attempt, and the state that the provider sends back."""

    attempt: SignOnAttempt
    state: str


def attempt_start(
    provider: SignOnProvider,
    *,
    session: bytes,
    after: str,
    now: datetime,
    user_id: int | None,
) -> StartedAttempt:
    """Stores a new attempt of the browser with this session. `user_id` connects their account."""
    state = secrets.token_urlsafe(RANDOM_BYTES)
    attempt = SignOnAttempt.objects.create(
        digest=_digest(state),
        session=session,
        tenant_id=provider.tenant_id,
        user_id=user_id,
        nonce=secrets.token_urlsafe(RANDOM_BYTES),
        verifier=secrets.token_urlsafe(RANDOM_BYTES),
        after=after,
        expires=now + LIFETIME,
    )
    return StartedAttempt(attempt, state)


def attempt_take(*, state: str, session: bytes, tenant_id: UUID, now: datetime) -> SignOnAttempt | None:
    """Removes and returns the attempt; None for another browser's, another tenant's or an old one.

    An answer of a provider therefore counts once.
    """
    rows = SignOnAttempt.objects.select_for_update().filter(
        digest=_digest(state), session=session, tenant_id=tenant_id
    )
    found = rows.first()
    if found is None:
        return None
    SignOnAttempt.objects.filter(digest=bytes(found.digest)).delete()
    return found if found.expires > now else None


def attempts_sweep(now: datetime) -> None:
    """Removes expired attempts."""
    SignOnAttempt.objects.filter(expires__lte=now).delete()


def _digest(state: str) -> bytes:
    return hashlib.sha256(state.encode("utf-8", "surrogatepass")).digest()
