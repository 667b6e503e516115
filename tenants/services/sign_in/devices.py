"""Sign-in of a device without a browser, such as a terminal (the flow of RFC 8628).

The device gets two codes: a long one that it keeps, and a short one that a person types into a page
of a browser that is signed in. The cache has both as digests until the person has decided, for ten
minutes at most. The device's code is a private key: the token that the person grants is encrypted
for it, so nobody who reads the cache learns a token.
"""

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.core.cache import cache
from joserfc import jwe
from joserfc.jwk import OKPKey
from redis.exceptions import RedisError

from tenants.access import Actor
from tenants.models import Scope
from tenants.platform.errors import Refused, invalid
from tenants.services.credentials.tokens import TokenLimits, token_create
from tenants.services.input_values import name_read
from tenants.words import refusal_text

LIFETIME = timedelta(minutes=10)
POLL_SECONDS = 5
# A device that asks a little early is not refused.
_POLL_TOLERANCE_SECONDS = 1
# Consonants only (RFC 8628, 6.1): they form no words, and none looks like a digit.
_ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
_HALF = 4
_WAITS = "waits"
_SEAL = {"alg": "ECDH-ES", "enc": "A256GCM"}
_CURVE = {"kty": "OKP", "crv": "X25519"}


@dataclass(frozen=True, slots=True)
class DeviceCodes:
    """The codes of a new sign-in: `device_code` for the device, `user_code` for the person."""

    device_code: str
    user_code: str


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """What a device asks for. `device` is the digest of its code, `public_key` belongs to it."""

    device: str
    public_key: str
    name: str
    scopes: tuple[str, ...]
    address: str
    asked: datetime

    @property
    def scope_labels(self) -> tuple[str, ...]:
        """Returns what the token may do, as text for people."""
        return tuple(Scope(scope).label for scope in self.scopes)


@dataclass(frozen=True, slots=True)
class _Decision:
    """What a person decided: a token that is encrypted for `public_key`, or none."""

    public_key: str
    sealed_token: str | None


def device_sign_in_start(*, name: str, scopes: Sequence[str], address: str, now: datetime) -> DeviceCodes:
    """Begins a sign-in of the device `name`, which called from the network address `address`.

    Raises:
        Refused: `bad_name` or `busy`.
    """
    key = OKPKey.generate_key("X25519").as_dict(private=True)
    codes = DeviceCodes(str(key["d"]), _user_code())
    wanted = DeviceRequest(
        device=_digest(codes.device_code),
        public_key=str(key["x"]),
        name=name_read(name),
        scopes=tuple(each for each in Scope.values if each in scopes),
        address=address,
        asked=now,
    )
    with _answering():
        cache.set(_code_key(codes.user_code), wanted, LIFETIME.total_seconds())
        cache.set(_state_key(wanted.device), _WAITS, LIFETIME.total_seconds())
    return codes


def device_request(user_code: str) -> DeviceRequest:
    """Returns what the device with this code asks for; case and punctuation don't matter.

    Raises:
        Refused: `device_code_unknown` or `busy`.
    """
    with _answering():
        found = cache.get(_code_key(user_code))
    if not isinstance(found, DeviceRequest):
        raise _unknown()
    return found


def device_grant(*, actor: Actor, user_code: str, days: int, now: datetime) -> DeviceRequest:
    """Creates a token of the actor for the device. Run inside the tenant's transaction.

    Of two decisions only the first one is taken. If the transaction fails afterwards, the device
    gets a token that does not exist and is refused.

    Raises:
        Refused: `device_code_unknown`, `busy`, or by `token_create`.
    """
    wanted = device_request(user_code)
    limits = TokenLimits(wanted.scopes)
    _, clear = token_create(actor=actor, name=wanted.name, days=days, now=now, limits=limits)
    key = OKPKey.import_key({**_CURVE, "x": wanted.public_key})
    _decide(user_code, wanted, jwe.encrypt_compact(_SEAL, clear.encode(), key))
    return wanted


def device_decline(user_code: str) -> DeviceRequest:
    """Declines the device's sign-in.

    Raises:
        Refused: `device_code_unknown` or `busy`.
    """
    wanted = device_request(user_code)
    _decide(user_code, wanted, None)
    return wanted


def device_token_take(device_code: str) -> str:
    """Returns the token that was granted to the device, once.

    Raises:
        Refused: `authorization_pending` or `slow_down` while nobody has decided, `access_denied`
            or `expired_token` afterwards, with the codes of RFC 8628; or `busy`.
    """
    device = _digest(device_code)
    with _answering():
        found = cache.get(_state_key(device))
        if found == _WAITS:
            raise _not_yet(device)
        # Of two programs with the same code, the one that deletes the answer gets it.
        if not isinstance(found, _Decision) or not cache.delete(_state_key(device)):
            raise Refused("expired_token", refusal_text("expired_token"))
    if found.sealed_token is None:
        raise Refused("access_denied", refusal_text("access_denied"), "denied")
    key = OKPKey.import_key({**_CURVE, "x": found.public_key, "d": device_code})
    return (jwe.decrypt_compact(found.sealed_token, key).plaintext or b"").decode()


def _not_yet(device: str) -> Refused:
    numbers = {"retry_after_seconds": POLL_SECONDS}
    if cache.add(f"device:poll:{device}", 1, POLL_SECONDS - _POLL_TOLERANCE_SECONDS):
        sentence = refusal_text("authorization_pending")
        return Refused("authorization_pending", sentence, numbers=numbers)
    return Refused("slow_down", refusal_text("slow_down", poll_seconds=POLL_SECONDS), numbers=numbers)


def _decide(user_code: str, wanted: DeviceRequest, sealed_token: str | None) -> None:
    """Stores the decision, unless another one came first. Raises Refused."""
    with _answering():
        if not cache.delete(_code_key(user_code)):
            raise _unknown()
        decision = _Decision(wanted.public_key, sealed_token)
        cache.set(_state_key(wanted.device), decision, LIFETIME.total_seconds())


@contextmanager
def _answering() -> Iterator[None]:
    """Raises Refused `busy` if the cache does not answer."""
    try:
        yield
    except RedisError as error:
        raise Refused("busy", refusal_text("busy")) from error


def _unknown() -> Refused:
    return invalid(
        "device_code_unknown",
        refusal_text("device_code_unknown"),
        "code",
    )


def _user_code() -> str:
    letters = "".join(secrets.choice(_ALPHABET) for _ in range(2 * _HALF))
    return f"{letters[:_HALF]}-{letters[_HALF:]}"


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def _code_key(user_code: str) -> str:
    return f"device:code:{_digest(''.join(filter(str.isalnum, user_code)).upper())}"


def _state_key(device: str) -> str:
    return f"device:state:{device}"
