"""Passkeys (WebAuthn): added, named and removed by their person, checked at sign-in and before
dangerous acts. In `operator_tx`.

Only the operators' process can check a passkey: a web process has no right to the tables. A
passkey counts as both factors, because the authenticator itself verifies its user.
"""

import hashlib
import struct
from datetime import datetime, timedelta
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.db import transaction
from webauthn import (
    generate_authentication_options,
    generate_registration_options,
    options_to_json,
    verify_authentication_response,
    verify_registration_response,
)
from webauthn.helpers import (
    parse_authentication_credential_json,
    parse_client_data_json,
    parse_registration_credential_json,
)
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.structs import (
    AuthenticationCredential,
    AuthenticatorSelectionCriteria,
    AuthenticatorTransport,
    PublicKeyCredentialDescriptor,
    RegistrationCredential,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from tenants.audit import platform_record
from tenants.models import Passkey, PasskeyChallenge, User
from tenants.platform.errors import Refused, invalid, missing
from tenants.services.input_values import name_read
from tenants.words import refusal_text

LIFETIME = timedelta(minutes=5)
PASSKEYS_MOST = 10
LONGEST_NAME = 60
LONGEST_ANSWER = 20_000
RP_NAME = "GPU Portal"
# What the library raises for an answer that is no answer, besides its own exceptions.
MALFORMED = (WebAuthnException, ValueError, TypeError, KeyError, IndexError, struct.error, RecursionError)
UNANSWERED = (
    "This passkey was not accepted. Try again: the question is valid for five minutes, once, in one browser."
)


def passkeys_of(user: User) -> list[Passkey]:
    """The person's passkeys, the oldest first."""
    return list(Passkey.objects.filter(user=user).order_by("created", "id"))


def passkey_creation_options(*, user: User, session: bytes, now: datetime) -> str:
    """Options in JSON with which the browser creates a passkey. Check the password before.

    Raises:
        Refused: `too_many_passkeys`.
    """
    held = passkeys_of(user)
    _count_check(len(held))
    options = generate_registration_options(
        rp_id=_rp_id(),
        rp_name=RP_NAME,
        user_id=str(user.pk).encode(),
        user_name=user.username,
        user_display_name=user.display_name,
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.REQUIRED,
            user_verification=UserVerificationRequirement.REQUIRED,
        ),
        exclude_credentials=[_descriptor(each) for each in held],
    )
    _keep(options.challenge, PasskeyChallenge.Use.ADD, session, user, now)
    return options_to_json(options)


def passkey_add(*, user: User, session: bytes, answer: str, name: str, now: datetime) -> Passkey:
    """Stores the passkey that the browser created.

    Raises:
        Refused: `bad_name`, `too_many_passkeys`, or `passkey_refused` for an answer to no question of
            this person in this browser, or from another site.
    """
    name = name_read(name, longest=LONGEST_NAME)
    # Several can be begun before the first is added. Those that are added at once wait for each other.
    User.objects.select_for_update(no_key=True).get(pk=user.pk)
    _count_check(Passkey.objects.filter(user=user).count())
    try:
        read = parse_registration_credential_json(answer[:LONGEST_ANSWER])
        challenge = _taken(read, PasskeyChallenge.Use.ADD, session, user, now)
        found = verify_registration_response(
            credential=read,
            expected_challenge=challenge,
            expected_rp_id=_rp_id(),
            expected_origin=settings.PUBLIC_URL,
            require_user_verification=True,
        )
    except MALFORMED as error:
        raise _refused() from error
    if Passkey.objects.filter(credential=found.credential_id).exists():
        raise _refused()
    passkey = Passkey.objects.create(
        user=user,
        credential=found.credential_id,
        public_key=found.credential_public_key,
        sign_count=found.sign_count,
        transports=[each.value for each in read.response.transports or ()],
        name=name,
        created=now,
    )
    _note(user, user, "passkey.added", now, {"name": name})
    return passkey


def _count_check(held: int) -> None:
    if held >= PASSKEYS_MOST:
        sentence = refusal_text("too_many_passkeys", passkeys_most=PASSKEYS_MOST)
        raise Refused("too_many_passkeys", sentence)


def passkey_request_options(*, user: User | None, session: bytes, now: datetime) -> str:
    """Options in JSON with which the browser signs with a passkey: the person's, or anybody's."""
    options = generate_authentication_options(
        rp_id=_rp_id(),
        allow_credentials=[_descriptor(each) for each in passkeys_of(user)] if user else [],
        user_verification=UserVerificationRequirement.REQUIRED,
    )
    _keep(options.challenge, PasskeyChallenge.Use.CHECK, session, user, now)
    return options_to_json(options)


def passkey_check(*, user: User | None, session: bytes, answer: str, now: datetime) -> User:
    """The person whose passkey signed the challenge of this browser; `user` if one is expected.

    The challenge is used up in any case.

    Raises:
        Refused: `passkey_refused`.
    """
    try:
        read = parse_authentication_credential_json(answer[:LONGEST_ANSWER])
        challenge = _taken(read, PasskeyChallenge.Use.CHECK, session, user, now)
        passkey = _passkey(read)
        if user is not None and passkey.user_id != user.pk:
            raise _refused()
        signed = verify_authentication_response(
            credential=read,
            expected_challenge=challenge,
            expected_rp_id=_rp_id(),
            expected_origin=settings.PUBLIC_URL,
            credential_public_key=bytes(passkey.public_key),
            # The library refuses a count that does not grow; this one is noted first, see below.
            credential_current_sign_count=0,
            require_user_verification=True,
        )
    except MALFORMED as error:
        raise _refused() from error
    if passkey.sign_count and signed.new_sign_count <= passkey.sign_count:
        _note(passkey.user, passkey.user, "passkey.copy_refused", now, {"name": passkey.name})
        raise _refused(
            "Its counter went back, as that of a copy would. Remove this passkey and add a new one."
        )
    passkey.sign_count, passkey.last_used = signed.new_sign_count, now
    passkey.save(update_fields=["sign_count", "last_used"])
    return passkey.user


@transaction.atomic
def passkey_rename(*, user: User, passkey_id: UUID, name: str, now: datetime) -> Passkey:
    """Gives one of the person's passkeys another name. Raises Refused `not_found`, `bad_name`."""
    passkey = _own(user, passkey_id)
    passkey.name = name_read(name, longest=LONGEST_NAME)
    passkey.save(update_fields=["name"])
    _note(user, user, "passkey.renamed", now, {"name": passkey.name})
    return passkey


@transaction.atomic
def passkey_remove(*, user: User, passkey_id: UUID, now: datetime) -> Passkey:
    """Removes a passkey of the person; call it after `is_fresh`. Raises Refused `not_found`."""
    passkey = _own(user, passkey_id)
    Passkey.objects.filter(id=passkey.id).delete()
    _note(user, user, "passkey.removed", now, {"name": passkey.name})
    return passkey


def passkey_challenges_sweep(now: datetime) -> None:
    """Removes expired challenges."""
    PasskeyChallenge.objects.filter(expires__lte=now).delete()


def _own(user: User, passkey_id: UUID) -> Passkey:
    found = Passkey.objects.select_for_update().filter(user=user, id=passkey_id).first()
    if found is None:
        raise missing("passkey", "passkey")
    return found


def _passkey(read: AuthenticationCredential) -> Passkey:
    """The stored passkey of an answer, locked. Raises Refused for an unknown or a closed account's.

    The handle of a discoverable passkey must be that of its person.
    """
    found = (
        Passkey.objects.select_for_update(of=("self",))
        .select_related("user")
        .filter(credential=read.raw_id, user__is_active=True)
        .first()
    )
    handle = read.response.user_handle
    if found is None or (handle and handle != str(found.user_id).encode()):
        raise _refused()
    return found


def _keep(
    challenge: bytes,
    use: PasskeyChallenge.Use,
    session: bytes,
    user: User | None,
    now: datetime,
) -> None:
    PasskeyChallenge.objects.create(
        digest=hashlib.sha256(challenge).digest(),
        session=session,
        use=use,
        user=user,
        expires=now + LIFETIME,
    )


def _taken(
    read: AuthenticationCredential | RegistrationCredential,
    use: PasskeyChallenge.Use,
    session: bytes,
    user: User | None,
    now: datetime,
) -> bytes:
    """The challenge that was signed, which is used up by that. Raises Refused if it is not ours."""
    client = parse_client_data_json(read.response.client_data_json)
    challenge = client.challenge
    kept = PasskeyChallenge.objects.filter(
        digest=hashlib.sha256(challenge).digest(), session=session, use=use, user=user
    )
    deleted, _ = kept.filter(expires__gt=now).delete()
    # The library does not look whether another site had framed the page that signed.
    if not deleted or client.cross_origin:
        raise _refused()
    return challenge


def _descriptor(passkey: Passkey) -> PublicKeyCredentialDescriptor:
    known = {each.value for each in AuthenticatorTransport}
    transports = [AuthenticatorTransport(each) for each in passkey.transports if each in known]
    return PublicKeyCredentialDescriptor(id=bytes(passkey.credential), transports=transports)


def _rp_id() -> str:
    return urlsplit(settings.PUBLIC_URL).hostname or ""


def _refused(sentence: str = UNANSWERED) -> Refused:
    return invalid("passkey_refused", sentence, "credential")


def _note(user: User, by: User, action: str, now: datetime, after: dict[str, object]) -> None:
    platform_record(by.pk, action, ("user", user.pk), now, after=after)
