"""Sends one message by HTTP, to an address that was checked and that the name can't change."""

import asyncio
import ssl
import time
from dataclasses import dataclass
from datetime import datetime, timedelta

import httpx

from portal.integrations.tls import tls_context
from portal.integrations.webhooks.message import Message
from tenants.rules.webhooks import BadTarget, Target, retry_after, target_read
from tenants.services.webhook_targets import resolvers, target_resolve

SECONDS = 10
GONE = 410


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of an attempt: a status, or why there is none."""

    status: int | None
    error: str
    milliseconds: int
    wait: timedelta = timedelta()

    @property
    def is_delivered(self) -> bool:
        """Returns whether the receiver took the message."""
        return self.status is not None and 200 <= self.status < 300


async def post(message: Message, now: datetime) -> Answer:
    """Sends the message within ten seconds. The body of the answer is not read.

    The name is resolved for each attempt and the connection goes to the address that was checked,
    with the name in TLS and in `Host`. Redirects are not followed and proxies are not used.
    """
    began = time.monotonic()
    status, error, wait = None, "", timedelta()
    if not message.secrets:
        return Answer(None, "The secret's key is gone. Rotate the secret.", 0)
    try:
        async with asyncio.timeout(SECONDS):
            target = target_read(message.url)
            address = await asyncio.get_running_loop().run_in_executor(
                resolvers(), target_resolve, target
            )
            status, asked = await _send(target, target.at(address), message, now)
            wait = retry_after(asked)
    except TimeoutError:
        error = f"No answer within {SECONDS} s."
    except BadTarget as fault:
        error = str(fault)
    except (httpx.HTTPError, ssl.SSLError, OSError) as fault:
        error = _sentence(fault)
    if status is not None and 300 <= status < 400:
        error = "Redirects are not followed."
    return Answer(status, error, round((time.monotonic() - began) * 1000), wait)


async def _send(target: Target, url: str, message: Message, now: datetime) -> tuple[int, str]:
    """Returns the status and the header `Retry-After`."""
    transport = httpx.AsyncHTTPTransport(verify=tls_context(), trust_env=False, retries=0)
    async with (
        httpx.AsyncClient(transport=transport, follow_redirects=False, timeout=SECONDS) as client,
        client.stream(
            "POST",
            url,
            content=message.body.encode(),
            headers={**message.headers(now), "Host": target.header, "Accept-Encoding": "identity"},
            extensions={"sni_hostname": target.host},
        ) as response,
    ):
        return response.status_code, response.headers.get("retry-after", "")


def _sentence(fault: Exception) -> str:
    if isinstance(fault, httpx.ConnectError) and "CERTIFICATE" in str(fault):
        return "The certificate was not accepted."
    if isinstance(fault, httpx.ConnectError | ConnectionError):
        return "The connection failed."
    if isinstance(fault, httpx.ProtocolError):
        return "The answer was not HTTP."
    return "The connection broke."
