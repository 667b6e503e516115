"""ID tokens as an attacker or a broken provider would send them, signed by real keys."""

from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from portal.integrations.openid.fetch import ProviderFault
from portal.integrations.openid.id_token import Expected, id_token_read, with_userinfo
from tenants.services.sign_on.people import Claims

KEY = RSAKey.generate_key(2048, {"kid": "1", "use": "sig"})
CURVE = ECKey.generate_key("P-256", {"kid": "2"})
KEYS = KeySet([KEY, CURVE]).as_dict(private=False)
NOW = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)
EXPECTED = Expected("https://login.example", "portal", "n-1")
AT = int(NOW.timestamp())
VALID: dict[str, Any] = {
    "iss": "https://login.example",
    "aud": "portal",
    "sub": "mara",
    "nonce": "n-1",
    "iat": AT,
    "exp": AT + 300,
    "groups": ["a", "b", "*", "", 3, None],
    "preferred_username": "mara.lind",
}


def signed(claims: dict[str, Any], key: RSAKey | ECKey = KEY, alg: str = "RS256") -> str:
    header = {"alg": alg, "kid": key.kid} if key.kid else {"alg": alg}
    return jwt.encode(header, claims, key, algorithms=[alg])


def read(token: str) -> Claims:
    return id_token_read(token, KEYS, EXPECTED, "groups", NOW)


def test_a_valid_token_is_read() -> None:
    claims = read(signed(VALID))
    assert (claims.subject, claims.username) == ("mara", "mara.lind")
    assert claims.groups == {"a", "b"}
    assert read(signed({**VALID, "aud": ["portal"]}, CURVE, "ES256")).subject == "mara"
    assert read(signed({**VALID, "groups": "one"})).groups == {"one"}
    skewed = {**VALID, "iat": AT + 59, "exp": AT - 59}
    assert read(signed(skewed)).subject == "mara", "clocks may be a minute apart"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"aud": "other"}, "another application"),
        ({"aud": []}, "another application"),
        ({"aud": ["portal", "other"]}, "another application"),
        ({"azp": "other"}, "another application"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"nonce": "n-2"}, "another sign-in"),
        ({"exp": AT - 61}, "has expired"),
        ({"iat": AT + 61}, "in the future"),
        ({"nbf": AT + 61}, "not valid yet"),
        ({"exp": "tomorrow"}, "has expired"),
        ({"sub": ""}, "sub"),
        ({"sub": "x" * 256}, "too long"),
        ({"sub": 7}, "sub"),
        ({"groups": [str(each) for each in range(2_001)]}, "more than 2,000 groups"),
        *[({name: None}, f"lacks {name}") for name in ("aud", "iss", "nonce", "exp", "iat", "sub")],
    ],
)
def test_wrong_audience_issuer_nonce_and_clock_are_refused(change: dict[str, Any], why: str) -> None:
    claims = {name: value for name, value in {**VALID, **change}.items() if value is not None}
    with pytest.raises(ProviderFault, match=why):
        read(signed(claims))


def test_only_signatures_of_the_providers_keys_count() -> None:
    outsider = RSAKey.generate_key(2048, {"kid": "1"})
    valid = signed(VALID)
    unsigned = urlsafe_b64encode(b'{"alg": "none"}').decode().rstrip("=")
    head, body, signature = valid.split(".")
    for forged in [
        signed(VALID, outsider),
        jwt.encode(
            {"alg": "HS256"},
            VALID,
            OctKey.import_key("the client's secret" * 2),
            algorithms=["HS256"],
        ),
        f"{unsigned}.{body}.",
        f"{head}.{body}.",
        f"{head}.{body[:-2]}AA.{signature}",
        "",
        "..",
        "x.y.z",
        "\ud800.a.b",
    ]:
        with pytest.raises(ProviderFault, match="not signed by a key"):
            read(forged)
    for keys in ({}, {"keys": 1}, {"keys": [1, {}, {"kty": "RSA"}, {"kty": "oct", "k": "AA"}]}):
        with pytest.raises(ProviderFault, match="not signed by a key"):
            id_token_read(valid, keys, EXPECTED, "groups", NOW)


def test_userinfo_adds_groups_and_a_verified_address_of_the_same_person() -> None:
    claims = read(signed({**VALID, "email": "mara@uni.example"}))
    assert claims.email == "", "nobody has verified it"
    found = {"sub": "mara", "groups": ["c"], "email": "m@uni.example", "email_verified": True}
    more = with_userinfo(claims, found, "groups")
    assert more.groups == {"a", "b", "c"}
    assert more.email == "m@uni.example"
    assert (more.subject, more.username) == ("mara", "mara.lind")
    assert with_userinfo(claims, {**found, "email_verified": "true"}, "groups").email == ""
    assert with_userinfo(claims, {}, "groups") == claims
    with pytest.raises(ProviderFault, match="another person"):
        with_userinfo(claims, {**found, "sub": "eve"}, "groups")
