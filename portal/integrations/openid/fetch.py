"""Reads JSON from a provider, at an address that was checked and that the name can't change."""

import json
import ssl
import time
from collections.abc import Mapping
from threading import BoundedSemaphore
from typing import Any

import httpx

from portal.words import refusal_text
from tenants.rules.webhooks import BadTarget, target_read
from tenants.services.outgoing.targets import target_address
from tenants.services.outgoing.tls import tls_context
from tenants.words import fault_text

SETTING = "SIGN_ON_ALLOW"
SECONDS = 5
MAX_BYTES = 256 * 1024
# Providers that hang must not hold all threads of the operators' process, which has four.
AT_ONCE = 2
_places = BoundedSemaphore(AT_ONCE)


class ProviderFault(Exception):
    """The provider can't be used, or its answer is not right. The message is for people."""


def fetch_json(
    url: str,
    *,
    form: Mapping[str, str] | None = None,
    credentials: tuple[str, str] | None = None,
    bearer: str = "",
) -> dict[str, Any]:
    """Returns the JSON object at the URL, within five seconds; with `form` by POST.

    Raises:
        ProviderFault: The address is not allowed, nobody answers, or the answer is no JSON object.
    """
    if not _places.acquire(timeout=1):
        raise ProviderFault(refusal_text("provider_busy"))
    try:
        status, body = _exchange(url, form, credentials, bearer)
    except BadTarget as fault:
        raise ProviderFault(fault_text(fault)) from None
    except (httpx.HTTPError, ssl.SSLError, OSError) as fault:
        raise ProviderFault(_sentence(url, fault)) from None
    finally:
        _places.release()
    return _read(url, status, body)


def _exchange(
    url: str, form: Mapping[str, str] | None, credentials: tuple[str, str] | None, bearer: str
) -> tuple[int, bytes]:
    target = target_read(url)
    address = target_address(target, SETTING)
    transport = httpx.HTTPTransport(verify=tls_context(), trust_env=False, retries=0)
    deadline = time.monotonic() + SECONDS
    body = b""
    with (
        httpx.Client(transport=transport, follow_redirects=False, timeout=SECONDS) as client,
        client.stream(
            "GET" if form is None else "POST",
            target.at(address),
            data=form,
            auth=None if credentials is None else httpx.BasicAuth(*credentials),
            headers={
                "Host": target.header,
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                **({"Authorization": f"Bearer {bearer}"} if bearer else {}),
            },
            extensions={"sni_hostname": target.host},
        ) as response,
    ):
        for part in response.iter_raw():
            body += part
            if len(body) > MAX_BYTES:
                raise ProviderFault(refusal_text("provider_long"))
            if time.monotonic() > deadline:
                raise ProviderFault(
                    refusal_text("provider_slow", host=target.host, seconds=SECONDS)
                )
        return response.status_code, body


def _read(url: str, status: int, body: bytes) -> dict[str, Any]:
    host = target_read(url).host
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not 200 <= status < 300:
        code = found.get("error") if isinstance(found, dict) else None
        why = f" ({code[:60]})" if isinstance(code, str) and code.isascii() else ""
        raise ProviderFault(refusal_text("provider_status", host=host, status=status, why=why))
    if not isinstance(found, dict):
        raise ProviderFault(refusal_text("provider_json", host=host))
    return found


def _sentence(url: str, fault: Exception) -> str:
    host = target_read(url).host
    if isinstance(fault, httpx.TimeoutException):
        return refusal_text("provider_slow", host=host, seconds=SECONDS)
    if "CERTIFICATE" in str(fault):
        return refusal_text("provider_certificate", host=host)
    if isinstance(fault, httpx.ConnectError | ConnectionError):
        return refusal_text("provider_connection", host=host)
    return refusal_text("provider_http", host=host)
