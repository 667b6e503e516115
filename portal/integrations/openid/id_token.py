"""Checks an ID token (OpenID Connect Core, 3.1.3.7) and reads the claims of a person."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from joserfc import jwt
from joserfc.errors import (
    ExpiredTokenError,
    InvalidClaimError,
    JoseError,
    MissingClaimError,
)
from joserfc.jwk import KeySet

from portal.integrations.openid.fetch import ProviderFault
from portal.words import refusal_text
from tenants.services.sign_on.people import Claims

# Signatures with public keys only: a client secret is no signing key, and "none" is no signature.
ALGORITHMS = [
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
]
LEEWAY_SECONDS = 60
LONGEST_SUBJECT = 255
MAX_GROUPS = 2_000
# Claims whose fault has a sentence of its own.
_WRONG = frozenset({"iss", "aud", "azp", "nonce", "exp", "iat", "nbf"})


@dataclass(frozen=True, slots=True)
class Expected:
    """What the ID token of an attempt has to say."""

    issuer: str
    client_id: str
    nonce: str


def id_token_read(
    token: str, keys: Mapping[str, Any], expected: Expected, claim: str, now: datetime
) -> Claims:
    """Returns the claims of a valid ID token; `claim` is the name of the groups.

    Raises:
        ProviderFault: It is not signed by one of the keys, or was issued by or for another party,
            for another attempt, or for another time.
    """
    claims = _verified(token, keys)
    wanted = jwt.JWTClaimsRegistry(
        now=int(now.timestamp()),
        leeway=LEEWAY_SECONDS,
        iss={"essential": True, "value": expected.issuer},
        aud={"essential": True, "value": expected.client_id},
        nonce={"essential": True, "value": expected.nonce},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
    )
    try:
        wanted.validate(claims)
    except MissingClaimError as fault:
        raise _fault("id_token_lacks", claim=fault.claim) from None
    except (InvalidClaimError, ExpiredTokenError) as fault:
        raise (
            _fault(f"id_token_{fault.claim}")
            if fault.claim in _WRONG
            else _fault("id_token_claim", claim=fault.claim)
        ) from None
    _parties_check(claims, expected)
    return _claims_of(claims, expected.issuer, claim)


def _verified(token: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    try:
        known = KeySet.import_key_set({"keys": _signing(keys)})
        return jwt.decode(token, known, algorithms=ALGORITHMS).claims
    except (JoseError, ValueError, TypeError, KeyError, RecursionError):
        raise _fault("id_token_unsigned") from None


def _signing(keys: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the keys of the set that sign, of the kinds that are known."""
    found = keys.get("keys")
    rows = found if isinstance(found, list) else []
    return [
        each
        for each in rows
        if isinstance(each, dict)
        and each.get("kty") in ("RSA", "EC", "OKP")
        and each.get("use", "sig") == "sig"
    ]


def _parties_check(claims: Mapping[str, Any], expected: Expected) -> None:
    """Of several audiences one has to be the authorized party, and that is this application."""
    audience, party = claims["aud"], claims.get("azp")
    is_shared = isinstance(audience, list) and len(audience) > 1
    if (is_shared or party is not None) and party != expected.client_id:
        raise _fault("id_token_azp")


def _claims_of(claims: Mapping[str, Any], issuer: str, claim: str) -> Claims:
    subject = claims["sub"]
    if not 1 <= len(subject) <= LONGEST_SUBJECT or not _is_storable(subject):
        raise _fault("id_token_subject")
    return Claims(
        issuer=issuer,
        subject=subject,
        username=_text(claims, "preferred_username") or _text(claims, "email"),
        name=_text(claims, "name"),
        groups=_groups(claims.get(claim)),
        email=_text(claims, "email") if claims.get("email_verified") is True else "",
    )


def with_userinfo(claims: Claims, found: Mapping[str, Any], claim: str) -> Claims:
    """Returns the claims with what UserInfo adds: groups, a verified address, and names.

    Raises:
        ProviderFault: UserInfo is of another subject (OpenID Connect Core, 5.3.2).
    """
    if not found:
        return claims
    if found.get("sub") != claims.subject:
        raise ProviderFault(refusal_text("provider_userinfo"))
    more = _claims_of(found, claims.issuer, claim)
    return Claims(
        issuer=claims.issuer,
        subject=claims.subject,
        username=claims.username or more.username,
        name=claims.name or more.name,
        groups=claims.groups | more.groups,
        email=claims.email or more.email,
    )


def _groups(value: object) -> frozenset[str]:
    """Returns the names of groups; a single text counts as one group."""
    rows = value if isinstance(value, list) else [value]
    names = {each for each in rows if isinstance(each, str) and _is_storable(each)}
    if len(names) > MAX_GROUPS:
        raise _fault("id_token_groups", max_groups=f"{MAX_GROUPS:,}")
    # Nobody is in a group named like the one that means everybody.
    return frozenset(names - {"", "*"})


def _is_storable(text: str) -> bool:
    """Whether PostgreSQL takes the text: JSON may have NUL and halves of letters."""
    return not any(each == "\x00" or "\ud800" <= each <= "\udfff" for each in text)


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str):
        return ""
    return value.encode("utf-8", "ignore").decode().replace("\x00", "")


def _fault(code: str, **facts: str) -> ProviderFault:
    return ProviderFault(refusal_text("id_token", why=refusal_text(code, **facts)))
