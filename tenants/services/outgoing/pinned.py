"""HTTP to an address that was checked and that the name of a receiver can't change."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache

import httpx

from tenants.rules.webhooks import Target, target_read
from tenants.services.outgoing.targets import resolvers, target_resolve

SECONDS = 10
ANSWER_BYTES_MAX = 1024 * 1024


@cache
def tls_context() -> ssl.SSLContext:
    """The machine's certificate authorities and no environment; reading all of them takes long."""
    return httpx.create_ssl_context(trust_env=False)


class TooLong(Exception):
    """The body of an answer is longer than what is read."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A client, and the address that a name had when it was checked."""

    client: httpx.AsyncClient
    target: Target
    origin: str

    @asynccontextmanager
    async def send(
        self, method: str, path: str, *, content: bytes | None, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        """Sends one request with the name in TLS and in `Host`; the body is not read yet."""
        async with self.client.stream(
            method,
            self.origin + path,
            content=content,
            headers={**headers, "Host": self.target.header, "Accept-Encoding": "identity"},
            extensions={"sni_hostname": self.target.host},
        ) as response:
            yield response


@asynccontextmanager
async def pinned(url: str, setting: str = "WEBHOOK_ALLOW") -> AsyncIterator[Pinned]:
    """Resolves the name of `url` and connects to the checked address only.

    `setting` names the networks of the site that are allowed. Redirects are not followed and
    proxies are not used. Raises BadTarget.
    """
    target = target_read(url)
    loop = asyncio.get_running_loop()
    address = await loop.run_in_executor(resolvers(), target_resolve, target, setting)
    transport = httpx.AsyncHTTPTransport(verify=tls_context(), trust_env=False, retries=0)
    async with httpx.AsyncClient(transport=transport, follow_redirects=False, timeout=SECONDS) as client:
        yield Pinned(client, target, target.at(address).removesuffix(target.path))


async def body_read(response: httpx.Response) -> bytes:
    """Returns the body of an answer. Raises TooLong for more than a mebibyte."""
    found = b""
    async for part in response.aiter_bytes():
        found += part
        if len(found) > ANSWER_BYTES_MAX:
            raise TooLong
    return found


def fault_sentence(fault: Exception) -> str:
    """Returns why an attempt has no answer."""
    if isinstance(fault, httpx.ConnectError) and "CERTIFICATE" in str(fault):
        return "The certificate was not accepted."
    if isinstance(fault, httpx.ConnectError | ConnectionError):
        return "The connection failed."
    if isinstance(fault, httpx.ProtocolError):
        return "The answer was not HTTP."
    return "The connection broke."
