"""A provider whose answers are false signs nobody in, holds no thread long, and breaks nothing."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from ipaddress import ip_network
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone
from joserfc import jwe
from joserfc.jwk import OctKey
from pytest_django import Settings

from portal.integrations.openid.fetch import SECONDS
from tenants.models import SignOnIdentity, SignOnProvider
from tenants.platform.wall import operator_tx
from tenants.services.sign_on.providers import Editor, Endpoints, provider_endpoints_set
from tests.roles import as_owner, as_system
from tests.servers.servers import Servers
from tests.web.sign_on.hostile_provider import (
    KEY,
    NEW_KEY,
    PUBLIC,
    Answer,
    Attack,
    Hostile,
    a_hostile_provider,
    signed,
)
from tests.web.sign_on.provider import Provider, sent_to
from tests.web.sign_on.test_sign_on import SECRET, Site, a_site

pytestmark = [pytest.mark.turn]
NOW = int(time.time())


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    with a_hostile_provider() as running:
        yield running


@pytest.fixture(autouse=True)
def _loopback_is_allowed(settings: Settings) -> None:
    settings.SIGN_ON_ALLOW = [ip_network("127.0.0.1/32")]
    settings.CALL_LIMITS = {**settings.CALL_LIMITS, "sign_on": 10_000}


def a_hostile_site(hostile: Hostile, slug: str = "helix") -> Site:
    """A tenant with this provider; its endpoints are those that the provider answers at."""
    site, url = a_site(Provider(hostile.port), slug), hostile.issuer
    with operator_tx():
        provider_endpoints_set(
            editor=Editor(site.tenant, site.admin.user_id),
            endpoints=Endpoints(f"{url}/authorize", f"{url}/token", f"{url}/jwks", f"{url}/me"),
            now=timezone.now(),
        )
    hostile.says["/me"] = Answer({"sub": "mara"})
    return site


def back(way: str, slug: str = "helix") -> str:
    state = parse_qs(urlsplit(way).query)["state"][0]
    return f"/sso/{slug}/callback?state={state}&code=c-1"


def part(said: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")


def changed(**claims: object) -> Attack:
    return lambda it, way: it.gives(signed(it.claims(way, **claims)))


def with_access(token: object) -> Attack:
    """The truth, with this token of access."""
    return lambda it, way: it.gives(signed(it.claims(way)), access_token=token)


def keyed(keys: object) -> Attack:
    return lambda it, way: it.gives(signed(it.claims(way)), keys)


def headed(**header: object) -> Attack:
    return lambda it, way: it.gives(signed(it.claims(way), NEW_KEY, **header))


def unsigned(it: Hostile, way: str, alg: str = "none") -> None:
    it.gives(f"{part({'alg': alg})}.{part(it.claims(way))}.")


def shared(key: bytes) -> Attack:
    """Signed with a key that is no secret of the provider, as if it were one for HS256."""

    def attack(it: Hostile, way: str) -> None:
        text = f"{part({'alg': 'HS256', 'kid': '1'})}.{part(it.claims(way))}"
        digest = hmac.digest(key, text.encode(), hashlib.sha256)
        it.gives(f"{text}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}")

    return attack


def deep(it: Hostile, way: str) -> None:
    nest = "[" * 60_000
    payload = base64.urlsafe_b64encode(nest.encode()).decode().rstrip("=")
    it.gives(f"{part({'alg': 'RS256'})}.{payload}.AAAA")


def deep_head(it: Hostile, way: str) -> None:
    head = base64.urlsafe_b64encode(b"[" * 60_000).decode().rstrip("=")
    it.gives(f"{head}.{part(it.claims(way))}.AAAA")


def encrypted(it: Hostile, way: str) -> None:
    key = OctKey.generate_key(256)
    text = json.dumps(it.claims(way)).encode()
    it.gives(jwe.encrypt_compact({"alg": "dir", "enc": "A256GCM"}, text, key))


def answers(path: str, answer: Answer) -> Attack:
    def attack(it: Hostile, way: str) -> None:
        it.gives(signed(it.claims(way)))
        it.says[path] = answer

    return attack


def elsewhere(path: str) -> Attack:
    """The address redirects to one that has the right answer."""

    def attack(it: Hostile, way: str) -> None:
        it.gives(signed(it.claims(way)))
        it.says["/right"] = it.says[path]
        it.says[path] = Answer({}, 302, {"Location": f"{it.issuer}/right"})

    return attack


HUGE = Answer({"id_token": "x", "more": "x" * 400_000})
ATTACKS: dict[str, Attack] = {
    "alg none": unsigned,
    "alg None": lambda it, way: unsigned(it, way, "None"),
    "HS256 with the public key": shared(KEY.as_pem(private=False)),
    "HS256 with the set of keys": shared(json.dumps(PUBLIC).encode()),
    "HS256 with the client's secret": shared(SECRET.encode()),
    "another key with the same id": headed(kid="1"),
    "a key that nobody published": headed(),
    "a key in the token": headed(jwk=NEW_KEY.as_dict(private=False)),
    "a token that names its keys": headed(jku="http://127.0.0.1:1/jwks"),
    "an encrypted token": encrypted,
    "another issuer": changed(iss="https://login.example"),
    "nearly the issuer": lambda it, way: it.gives(signed(it.claims(way, iss=it.issuer + "/"))),
    "no issuer": changed(iss=None),
    "a list of issuers": lambda it, way: it.gives(signed(it.claims(way, iss=[it.issuer]))),
    "another audience": changed(aud="other"),
    "an audience in capitals": changed(aud="PORTAL"),
    "two audiences": changed(aud=["portal", "other"]),
    "two audiences and the other's party": changed(aud=["portal", "other"], azp="other"),
    "another party": changed(azp="other"),
    "no audience": changed(aud=None),
    "another nonce": changed(nonce="n"),
    "no nonce": changed(nonce=None),
    "an empty nonce": changed(nonce=""),
    "expired": changed(exp=NOW - 3600),
    "never expires": changed(exp=None),
    "expires in words": changed(exp="never"),
    "issued tomorrow": changed(iat=NOW + 86_400),
    "not issued": changed(iat=None),
    "not valid yet": changed(nbf=NOW + 3600),
    "no subject": changed(sub=None),
    "an empty subject": changed(sub=""),
    "a subject that is a list": changed(sub=["mara"]),
    "a subject with a NUL": changed(sub="mara\x00"),
    "a subject with half a letter": changed(sub="mara\ud800"),
    "a subject without end": changed(sub="x" * 60_000),
    "no member of a group": changed(groups=["\ud800", "\x00", "*", 7, None]),
    "brackets without end": deep,
    "a head without end": deep_head,
    "no token": lambda it, _: it.gives(None),
    "a token that is an object": lambda it, way: it.gives(it.claims(way)),
    "no keys": keyed({"keys": []}),
    "keys that are none": keyed({"keys": [1, "x", {"kty": "RSA"}, {"kty": "oct", "k": "AA"}]}),
    "a list for keys": keyed([]),
    "keys for encryption": keyed({"keys": [{**PUBLIC["keys"][0], "use": "enc"}]}),
    "a huge answer": answers("/token", HUGE),
    "huge keys": answers("/jwks", HUGE),
    "a huge head": answers("/token", Answer({}, 200, {"X": "x" * 200_000})),
    "compressed": answers("/jwks", Answer(b"\x1f\x8b\x08", 200, {"Content-Encoding": "gzip"})),
    "no JSON": answers("/token", Answer(b"<html>")),
    "brackets for an answer": answers("/token", Answer(b"[" * 100_000)),
    "a number without end": answers("/jwks", Answer(b'{"keys": ' + b"9" * 10_000 + b"}")),
    "an error": answers("/token", Answer({"error": "<b>\r\n"}, 400)),
    "a success that is none": answers("/token", Answer({}, 204)),
    "a redirect of the token": elsewhere("/token"),
    "a redirect of the keys": elsewhere("/jwks"),
    "another person's details": answers("/me", Answer({"sub": "eve", "groups": ["gpu-users"]})),
}


def signs_in(hostile: Hostile, attack: Attack) -> tuple[Client, Any]:
    browser = Client()
    way = sent_to(browser, "helix")
    attack(hostile, way)
    return browser, browser.get(back(way))


@pytest.mark.django_db
def test_no_lie_signs_anybody_in(hostile: Hostile) -> None:
    a_hostile_site(hostile)
    wrong = {}
    for name, attack in ATTACKS.items():
        hostile.says["/me"] = Answer({"sub": "mara"})
        browser, answer = signs_in(hostile, attack)
        if answer.status_code not in (403, 422) or browser.get("/account").status_code == 200:
            wrong[name] = answer.status_code
    assert wrong == {}
    with as_system():
        assert not SignOnIdentity.objects.exists()
    # The same with the truth; a token of access that no header takes is not sent anywhere.
    hostile.says["/me"] = Answer({"sub": "mara"})
    for number, odd in enumerate(("a\r\nHost: x", "é", "\ud800", "", 7, None)):
        hostile.got.clear()
        browser, answer = signs_in(hostile, with_access(odd))
        assert (answer.status_code, answer["Location"]) == (302, "/account"), number
        assert browser.get("/account").status_code == 200
        assert "/me" not in [path for path, _ in hostile.got]


@pytest.mark.django_db
def test_changed_keys_count_at_once_and_old_ones_no_more(hostile: Hostile) -> None:
    a_hostile_site(hostile)
    new = {"keys": [NEW_KEY.as_dict(private=False)]}
    _, answer = signs_in(hostile, lambda it, way: it.gives(signed(it.claims(way), NEW_KEY), new))
    assert answer.status_code == 302
    _, answer = signs_in(hostile, lambda it, way: it.gives(signed(it.claims(way)), new))
    assert answer.status_code == 422


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/token", "/jwks"])
@pytest.mark.parametrize("drips", ["head", "body"])
def test_a_provider_that_drips_holds_no_thread_for_long(hostile: Hostile, path: str, drips: str) -> None:
    """Each byte comes in time, all of them would take minutes."""
    a_hostile_site(hostile)
    began = time.monotonic()
    said = Answer({"keys": [], "x": "x" * 600}, drips=drips)
    _, answer = signs_in(hostile, answers(path, said))
    assert answer.status_code == 422
    assert f"within {SECONDS}" in answer.content.decode()
    assert time.monotonic() - began < 3 * SECONDS


def test_a_code_is_exchanged_once_also_at_the_same_moment(real_db: Servers, hostile: Hostile) -> None:
    a_hostile_site(hostile)
    browser = Client()
    way = sent_to(browser, "helix")
    hostile.gives(signed(hostile.claims(way)))
    cookies = dict(browser.cookies)

    def answer(_: int) -> int:
        one = Client()
        one.cookies.update(cookies)
        try:
            return one.get(back(way)).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        said = sorted(threads.map(answer, range(4)))
    assert said == [302, 422, 422, 422]
    (form,) = [form for path, form in hostile.got if path == "/token"]
    # The verifier is that of the challenge (PKCE), so that a stolen code is worth nothing.
    challenge = parse_qs(urlsplit(way).query)["code_challenge"][0]
    digest = hashlib.sha256(form["code_verifier"][0].encode()).digest()
    assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == challenge
    assert answer(0) == 422, "again later"


@pytest.mark.django_db
def test_a_token_for_one_tenant_opens_no_other(hostile: Hostile) -> None:
    """Both trust the same provider, with the same client: the nonce is the attempt's."""
    a_hostile_site(hostile, "helix")
    a_hostile_site(hostile, "orion")
    browser, other = Client(), Client()
    theirs, ours = sent_to(other, "orion"), sent_to(browser, "helix")
    hostile.gives(signed(hostile.claims(theirs)))
    assert browser.get(back(ours)).status_code == 422
    # A provider that was replaced or switched off while the browser was there.
    for change in ({"is_on": False}, {"issuer": "https://login.example"}):
        ours = sent_to(browser, "helix")
        hostile.gives(signed(hostile.claims(ours)))
        with as_owner():
            SignOnProvider.objects.filter(tenant__slug="helix").update(**change)
        assert browser.get(back(ours)).status_code in (404, 422), change
        with as_owner():
            SignOnProvider.objects.filter(tenant__slug="helix").update(is_on=True, issuer=hostile.issuer)
    with as_system():
        assert not SignOnIdentity.objects.exists()


DISCOVERIES: dict[str, dict[str, object]] = {
    "another issuer": {"issuer": "https://login.example"},
    "an address with half a letter": {"token_endpoint": "http://127.0.0.1/\ud800"},
    "an address with a NUL": {"jwks_uri": "http://127.0.0.1/\x00"},
    "an address that is a file": {"token_endpoint": "file:///etc/passwd"},
    "an address that is a script": {"authorization_endpoint": "javascript:alert(1)"},
    "an address of the machine": {"jwks_uri": "http://[::ffff:169.254.169.254]/keys"},
    "an address in decimal": {"jwks_uri": "http://2130706434/keys"},
    "an address in octal": {"jwks_uri": "http://0177.0.0.2/keys"},
    "no address": {"jwks_uri": None},
    "no PKCE": {"code_challenge_methods_supported": ["plain"]},
    "no code": {"response_types_supported": ["id_token"]},
}


@pytest.mark.django_db
def test_no_lie_of_a_discovery_document_is_stored(hostile: Hostile) -> None:
    site, url = a_hostile_site(hostile), hostile.issuer
    right: dict[str, object] = {
        "issuer": url,
        "authorization_endpoint": f"{url}/authorize",
        "jwks_uri": f"{url}/jwks",
        "token_endpoint": f"{url}/token",
        "code_challenge_methods_supported": ["S256"],
    }
    hostile.says["/jwks"] = Answer(PUBLIC)
    form = {"act": "save", "issuer": url, "client_id": "portal", "groups_claim": "groups"}
    found = "/.well-known/openid-configuration"
    for name, lie in DISCOVERIES.items():
        hostile.says[found] = Answer({**right, **lie})
        assert site.browser.post(site.page, form).status_code == 422, name
    hostile.says[found] = Answer(right)
    assert site.browser.post(site.page, form).status_code == 302
    hostile.says["/right"] = hostile.says[found]
    hostile.says[found] = Answer({}, 301, {"Location": f"{url}/right"})
    assert site.browser.post(site.page, form).status_code == 422, "a redirect"
    with as_system():
        held = SignOnProvider.objects.get()
    assert held.endpoints["token"] == f"{url}/token"
    assert held.checked > timezone.now() - timedelta(minutes=1)
