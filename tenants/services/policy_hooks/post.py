"""One HTTP call of a policy hook: signed, to a checked address, within its time."""

import asyncio
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import httpx
from standardwebhooks import Webhook as Signer

from tenants.rules.webhooks import BadTarget
from tenants.services.outgoing.pinned import (
    ANSWER_BYTES_MAX,
    TooLong,
    body_read,
    fault_sentence,
    pinned,
)

TYPE = "policy_hook.question"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `error` says why there is no answer to read."""

    status: int | None = None
    body: bytes = b""
    error: str = ""
    milliseconds: int = 0


def hook_post(
    url: str,
    *,
    data: Mapping[str, Any],
    key: UUID,
    secrets: tuple[str, ...],
    timeout_ms: int,
    now: datetime,
) -> Reply:
    """Asks the hook. Call it outside of every transaction: it takes up to `timeout_ms`."""
    body = json.dumps(
        {"id": f"phk_{key.hex}", "type": TYPE, "timestamp": now.isoformat(), "data": data},
        ensure_ascii=False,
        separators=(",", ":"),
        sort_keys=True,
    )
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        "User-Agent": "gpu-portal-policy-hook/1",
        "webhook-id": f"phk_{key.hex}",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(Signer(s).sign(f"phk_{key.hex}", now, body) for s in secrets),
    }
    if not secrets:
        return Reply(error="The secret's key is gone. Make a new secret.")
    began = time.monotonic()
    found = asyncio.run(_within(url, body.encode(), headers, timeout_ms / 1000))
    took = round((time.monotonic() - began) * 1000)
    return Reply(found.status, found.body, found.error, took)


async def _within(url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Reply:
    try:
        async with asyncio.timeout(seconds):
            return await _exchange(url, body, headers)
    except TimeoutError:
        return Reply(error=f"No answer within {seconds:g} s.")
    except httpx.TimeoutException:
        return Reply(error=f"No answer within {seconds:g} s.")
    except BadTarget as fault:
        return Reply(error=str(fault))
    except TooLong:
        return Reply(error=f"The answer has more than {ANSWER_BYTES_MAX // 1024} KiB.")
    except (httpx.HTTPError, ssl.SSLError, OSError) as fault:
        return Reply(error=fault_sentence(fault))


async def _exchange(url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
    async with pinned(url) as receiver:
        path = receiver.target.path
        async with receiver.send("POST", path, content=body, headers=headers) as response:
            status = response.status_code
            if response.is_redirect:
                return Reply(status, error="Redirects are not followed.")
            if response.headers.get("content-encoding", "identity") != "identity":
                return Reply(status, error="The answer is compressed.")
            found = await body_read(response)
            error = "" if status == 200 else f"The hook answered with status {status}."
            return Reply(status, found, error)
