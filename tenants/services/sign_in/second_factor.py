"""Second factors: an authenticator app (TOTP, RFC 6238) and recovery codes. In `operator_tx`.

A passkey (`tenants.services.sign_in.passkeys`) is a second factor as well.

Only the operators' process can check a code: a web process has neither the table nor the key from
which secrets are derived.
"""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import pyotp
from django.conf import settings
from django.db import connection, transaction

from tenants.audit import platform_record
from tenants.models import Passkey, PasswordProof, SecondFactor, Session, User
from tenants.platform.errors import Refused, invalid
from tenants.words import refusal_text

STEP_SECONDS = 30
# Clocks of phones may be off by one step.
STEPS = (-1, 0, 1)
RECOVERY_CODES = 10
# 80 random bits.
RECOVERY_BYTES = 10
# A dangerous act needs a code that is at most so old.
FRESH = timedelta(minutes=15)
# A secret that was begun has to be confirmed within this time, in the browser that shows it.
BEGUN = timedelta(minutes=15)
ISSUER = "GPU Portal"
LONGEST_CODE = 40


@dataclass(frozen=True, slots=True)
class WaitingSignIn:
    """A session, and the person who signs in or has signed in with it."""

    user: User
    is_signed_in: bool
    only_tenant_id: UUID | None = None
    """The tenant whose provider vouched for the person; no other one is open to the session."""


def second_factor_needed(proof: PasswordProof) -> bool:
    """Whether the person with this password has a second factor. For web processes."""
    return _asked("SELECT portal_second_factor_needed(%s, %s)", proof.username, proof.presented)


def has_second_factor(credential: bytes, now: datetime) -> bool:
    """Whether the person behind the credential has a second factor. For web processes."""
    return _asked("SELECT portal_second_factor_of(%s, %s)", credential, now)


def factor_is_fresh(credential: bytes, now: datetime) -> bool:
    """Whether the session's second factor is fresh, or its person has none. For web processes."""
    return _asked("SELECT portal_factor_is_fresh(%s, %s)", credential, now - FRESH)


def factor_of(user: User) -> SecondFactor | None:
    """The person's second factor; it may not be confirmed yet."""
    return SecondFactor.objects.filter(user=user).first()


def is_protected(user: User) -> bool:
    """Whether sign-in asks the person for more than a password: for a code or a passkey."""
    if Passkey.objects.filter(user=user).exists():
        return True
    return SecondFactor.objects.filter(user=user).exclude(confirmed=None).exists()


def factor_begin(*, user: User, now: datetime) -> SecondFactor:
    """Creates a new secret, which sign-in does not ask for until it is confirmed.

    Raises:
        Refused: `second_factor_set`.
    """
    found = factor_of(user)
    if found is not None and found.confirmed is not None:
        raise Refused("second_factor_set", refusal_text("second_factor_set"))
    factor, _ = SecondFactor.objects.update_or_create(
        user=user,
        defaults={"salt": secrets.token_bytes(32), "created": now, "last_step": 0, "recovery": []},
    )
    return factor


def factor_uri(factor: SecondFactor) -> str:
    """The `otpauth:` address of the secret, as authenticator apps scan it."""
    return _totp(factor).provisioning_uri(name=factor.user.username, issuer_name=ISSUER)


def factor_secret(factor: SecondFactor) -> str:
    """The secret in base 32, to be typed instead of scanned."""
    return str(_totp(factor).secret)


def is_begun(factor: SecondFactor | None, mark: str, now: datetime) -> bool:
    """Whether the secret waits to be confirmed by the browser that has its `mark`.

    Another browser of the person, which may be a thief's, neither sees nor confirms it.
    """
    if factor is None or factor.confirmed is not None or factor.created <= now - BEGUN:
        return False
    return hmac.compare_digest(factor_mark(factor).encode(), mark.encode())


def factor_mark(factor: SecondFactor) -> str:
    """What the browser keeps in its session that began the secret."""
    return bytes(factor.salt).hex()


@transaction.atomic
def factor_confirm(*, user: User, mark: str, code: str, now: datetime) -> list[str]:
    """Turns the second factor on after a first code; returns the recovery codes, shown once.

    Raises:
        Refused: `wrong_code`, or `second_factor_set` if this browser has nothing to confirm.
    """
    factor = SecondFactor.objects.select_for_update().filter(user=user).first()
    if factor is None or not is_begun(factor, mark, now):
        raise Refused("second_factor_set", refusal_text("second_factor_not_begun"))
    if not _is_current(factor, code, now):
        raise _wrong()
    factor.confirmed = now
    codes = _recovery_renew(factor)
    _note(user, "second_factor.set", now, before={"set": False}, after={"set": True})
    return codes


@transaction.atomic
def factor_check(*, user: User, code: str, now: datetime) -> bool:
    """Whether the code is the app's present one or an unused recovery code; uses it up."""
    factor = _confirmed(user)
    if factor is None:
        return False
    if _is_current(factor, code, now):
        factor.save(update_fields=["last_step"])
        return True
    digest = _recovery_digest(code)
    left = [each for each in factor.recovery if bytes(each) != digest]
    if len(left) == len(factor.recovery):
        return False
    factor.recovery = left
    factor.save(update_fields=["recovery"])
    _note(user, "second_factor.recovery_used", now, after={"left": len(left)})
    return True


@transaction.atomic
def recovery_codes_renew(*, user: User, now: datetime) -> list[str]:
    """Replaces the recovery codes; returns the new ones. Call it after `factor_check`.

    Raises:
        Refused: `no_second_factor`.
    """
    factor = _confirmed(user)
    if factor is None:
        raise Refused("no_second_factor", refusal_text("no_second_factor"))
    _note(user, "second_factor.codes_renewed", now, after={"left": RECOVERY_CODES})
    return _recovery_renew(factor)


@transaction.atomic
def factor_remove(*, user: User, by: User, now: datetime) -> None:
    """Removes the second factor: of one's own after `factor_check`, or, as an operator, another's.

    An operator's removal includes passkeys, so that a person who lost them can sign in again.

    Raises:
        Refused: `no_second_factor`.
    """
    deleted, _ = SecondFactor.objects.filter(user=user).delete()
    if by.pk != user.pk:
        deleted += Passkey.objects.filter(user=user).delete()[0]
    if not deleted:
        raise Refused("no_second_factor", refusal_text("no_second_factor"))
    platform_record(
        operator_id=by.pk,
        action="second_factor.removed",
        target=("user", user.pk),
        now=now,
        before={"set": True},
        after={"set": False},
    )


def waiting_sign_in(digest: bytes, now: datetime) -> WaitingSignIn | None:
    """Who signs in with the session, or has; None for a session of nobody."""
    held = Session.objects.select_related("user", "pending").filter(digest=digest, expires__gt=now).first()
    user = None if held is None else held.user or held.pending
    if held is None or user is None or not user.is_active:
        return None
    return WaitingSignIn(user, held.user_id is not None, held.only_tenant_id)


def session_complete(digest: bytes, user: User, now: datetime, only_tenant_id: UUID | None = None) -> None:
    """Signs the person in with the session, after `factor_check`; for one tenant, if given."""
    Session.objects.filter(digest=digest).update(
        user=user, pending=None, verified=now, only_tenant_id=only_tenant_id
    )
    platform_record(user.pk, "sign_in.done", ("user", user.pk), now)


def session_verify(digest: bytes, now: datetime) -> None:
    """Marks the session's second factor as given now."""
    Session.objects.filter(digest=digest).update(verified=now)


def is_fresh(user: User, digest: bytes, now: datetime) -> bool:
    """Whether a dangerous act may be done: the second factor, if there is one, was just given."""
    if not is_protected(user):
        return True
    return Session.objects.filter(digest=digest, verified__gt=now - FRESH).exists()


def _confirmed(user: User) -> SecondFactor | None:
    found = SecondFactor.objects.select_for_update().filter(user=user)
    return found.exclude(confirmed=None).first()


def _totp(factor: SecondFactor) -> pyotp.TOTP:
    key = settings.AGENTS_MASTER_KEY.encode()
    message = b"second factor" + bytes(factor.salt)
    secret = hmac.new(key, message, hashlib.sha256).digest()[:20]
    return pyotp.TOTP(base64.b32encode(secret).decode(), interval=STEP_SECONDS)


def _is_current(factor: SecondFactor, code: str, now: datetime) -> bool:
    """Whether it is the code of this moment; a code and those before it then stop working."""
    typed = code.replace(" ", "")[:LONGEST_CODE].encode("utf-8", "surrogatepass")
    totp = _totp(factor)
    present = int(now.timestamp()) // STEP_SECONDS
    for step in (present + each for each in STEPS):
        right = totp.generate_otp(step).encode()
        if step > factor.last_step and hmac.compare_digest(right, typed):
            factor.last_step = step
            return True
    return False


def _recovery_renew(factor: SecondFactor) -> list[str]:
    codes = [_recovery_code() for _ in range(RECOVERY_CODES)]
    factor.recovery = [_recovery_digest(code) for code in codes]
    factor.save()
    return codes


def _recovery_code() -> str:
    text = base64.b32encode(secrets.token_bytes(RECOVERY_BYTES)).decode().lower()
    return "-".join(text[at : at + 4] for at in range(0, len(text), 4))


def _recovery_digest(code: str) -> bytes:
    text = code.lower().replace("-", "").replace(" ", "")[:LONGEST_CODE]
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _wrong() -> Refused:
    return invalid("wrong_code", refusal_text("wrong_code"), "code")


def _note(
    user: User,
    action: str,
    now: datetime,
    *,
    before: dict[str, object] | None = None,
    after: dict[str, object],
) -> None:
    platform_record(user.pk, action, ("user", user.pk), now, before=before, after=after)


def _asked(statement: str, *given: str | bytes | datetime) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(statement, given)
        row = cursor.fetchone()
    return bool(row and row[0])
