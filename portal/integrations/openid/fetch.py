"""Reads JSON from a provider, at an address that was checked and that the name can't change."""

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import Mapping
from threading import BoundedSemaphore
from typing import Any
from urllib.parse import urlencode

import httpx

from portal.words import refusal_text
from tenants.rules.webhooks import BadTarget, target_read
from tenants.services.outgoing.pinned import pinned
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
        headers = _headers(form, credentials, bearer)
        status, body = asyncio.run(_within_time(url, form, headers))
    except BadTarget as fault:
        raise ProviderFault(fault_text(fault)) from None
    except (TimeoutError, httpx.HTTPError, ssl.SSLError, OSError) as fault:
        raise ProviderFault(_sentence(url, fault)) from None
    finally:
        _places.release()
    return _read(url, status, body)


async def _within_time(
    url: str, form: Mapping[str, str] | None, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    """Returns status and body. A provider that sends byte by byte has the same time as others."""
    async with asyncio.timeout(SECONDS), pinned(url, SETTING) as provider:
        asked = provider.send(
            "GET" if form is None else "POST",
            provider.target.path,
            content=None if form is None else urlencode(form).encode(),
            headers=headers,
        )
        async with asked as response:
            body = b""
            async for part in response.aiter_raw():
                body += part
                if len(body) > MAX_BYTES:
                    raise ProviderFault(refusal_text("provider_long"))
            return response.status_code, body


def _headers(
    form: Mapping[str, str] | None, credentials: tuple[str, str] | None, bearer: str
) -> dict[str, str]:
    headers = {"Accept": "application/json"}
    if form is not None:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    if credentials is not None:
        headers["Authorization"] = f"Basic {b64encode(':'.join(credentials).encode()).decode()}"
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    return headers


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
    if isinstance(fault, TimeoutError | httpx.TimeoutException):
        return refusal_text("provider_slow", host=host, seconds=SECONDS)
    if "CERTIFICATE" in str(fault):
        return refusal_text("provider_certificate", host=host)
    if isinstance(fault, httpx.ConnectError | ConnectionError):
        return refusal_text("provider_connection", host=host)
    return refusal_text("provider_http", host=host)
