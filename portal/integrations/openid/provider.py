"""The requests of the authorization code flow: discovery, the way to the provider, the code."""

import base64
import hashlib
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlencode

from portal.integrations.openid.fetch import ProviderFault, fetch_json
from portal.words import refusal_text
from tenants.models import SignOnAttempt, SignOnProvider
from tenants.rules.webhooks import BadTarget, target_read
from tenants.services.sign_on.providers import Endpoints, client_secret, endpoints_of

WELL_KNOWN = "/.well-known/openid-configuration"
SCOPES = "openid profile email"
LONGEST_ISSUER = 200


def discover(issuer: str) -> Endpoints:
    """Returns the endpoints from the provider's discovery document, and reads its keys once.

    Raises:
        ProviderFault: It can't be read, is another issuer's, or lacks what sign-in needs.
    """
    if not issuer or len(issuer) > LONGEST_ISSUER or "?" in issuer:
        raise ProviderFault(refusal_text("provider_address"))
    found = fetch_json(issuer.removesuffix("/") + WELL_KNOWN)
    if found.get("issuer") != issuer:
        raise ProviderFault(refusal_text("provider_name", issuer=repr(str(found.get("issuer"))[:200])))
    if "code" not in _words(found, "response_types_supported", "code"):
        raise ProviderFault(refusal_text("provider_flow"))
    if "S256" not in _words(found, "code_challenge_methods_supported", "S256"):
        raise ProviderFault(refusal_text("provider_pkce"))
    endpoints = Endpoints(
        authorization=_address(found, "authorization_endpoint"),
        token=_address(found, "token_endpoint"),
        keys=_address(found, "jwks_uri"),
        userinfo=_address(found, "userinfo_endpoint") if "userinfo_endpoint" in found else "",
        has_issuer_in_answer=found.get("authorization_response_iss_parameter_supported") is True,
    )
    if not isinstance(fetch_json(endpoints.keys).get("keys"), list):
        raise ProviderFault(refusal_text("provider_keys"))
    return endpoints


def authorization_url(provider: SignOnProvider, attempt: SignOnAttempt, state: str, to: str) -> str:
    """Returns the address at which the provider signs the person in and sends them to `to`."""
    endpoint = endpoints_of(provider).authorization
    challenge = hashlib.sha256(attempt.verifier.encode()).digest()
    query = urlencode(
        {
            "response_type": "code",
            "client_id": provider.client_id,
            "redirect_uri": to,
            "scope": SCOPES,
            "state": state,
            "nonce": attempt.nonce,
            "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
    )
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What the provider gave for a code, and its present keys."""

    id_token: str
    access_token: str
    keys: dict[str, Any]


def userinfo_read(provider: SignOnProvider, access_token: str) -> dict[str, Any]:
    """Returns the claims of UserInfo; none if the provider has no such endpoint.

    Raises:
        ProviderFault: The provider does not answer or refuses.
    """
    address = endpoints_of(provider).userinfo
    return fetch_json(address, bearer=access_token) if address and access_token else {}


def code_exchange(provider: SignOnProvider, attempt: SignOnAttempt, code: str, to: str) -> Exchanged:
    """Exchanges the code; returns the tokens and the provider's present keys.

    Raises:
        ProviderFault: The provider does not answer or refuses.
        Refused: `secret_lost`.
    """
    endpoints = endpoints_of(provider)
    answer = fetch_json(
        endpoints.token,
        form={
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": to,
            "code_verifier": attempt.verifier,
        },
        # RFC 6749 encodes both before they become Basic credentials.
        credentials=(quote_plus(provider.client_id), quote_plus(client_secret(provider))),
    )
    token = answer.get("id_token")
    if not isinstance(token, str):
        raise ProviderFault(refusal_text("provider_no_token"))
    access = answer.get("access_token")
    # It is sent back in a header.
    if not isinstance(access, str) or not (access.isascii() and access.isprintable()):
        access = ""
    return Exchanged(token, access, fetch_json(endpoints.keys))


def _words(found: dict[str, Any], name: str, default: str) -> list[Any]:
    """Returns a list of the document; providers may leave out what is usual."""
    value = found.get(name, [default])
    return value if isinstance(value, list) else []


def _address(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    try:
        if isinstance(value, str):
            target_read(value)
            return value
    except BadTarget:
        pass
    raise ProviderFault(refusal_text("provider_discovery", name=name))
