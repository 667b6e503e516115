"""Makes one attempt: posts a message, or calls a tracker."""

import asyncio
import ssl
import time
from datetime import datetime

import httpx

from portal.integrations.answers import Answer
from portal.integrations.jira.call import jira_call
from portal.integrations.webhooks.message import Message
from tenants.rules.webhooks import BadTarget, retry_after
from tenants.services.outgoing.pinned import SECONDS, fault_sentence, pinned
from tenants.words import fault_text

GONE = 410


async def post(message: Message, now: datetime) -> Answer:
    """Sends the message within ten seconds. The body of the answer is not read.

    The name is resolved for each attempt and the connection goes to the address that was checked.
    """
    began = time.monotonic()
    answer = Answer(None, "The secret's key is gone. Rotate the secret.")
    if message.secrets:
        try:
            async with asyncio.timeout(SECONDS):
                answer = await _attempt(message, now)
        except TimeoutError:
            answer = Answer(None, f"No answer within {SECONDS} s.")
        except BadTarget as fault:
            answer = Answer(None, fault_text(fault))
        except (httpx.HTTPError, ssl.SSLError, OSError) as fault:
            answer = Answer(None, fault_sentence(fault))
    return answer.after(round((time.monotonic() - began) * 1000))


async def _attempt(message: Message, now: datetime) -> Answer:
    async with pinned(message.url) as receiver:
        if message.call is not None:
            return await jira_call(receiver, message.call)
        path, body = receiver.target.path, message.body.encode()
        sending = receiver.send("POST", path, content=body, headers=message.headers(now))
        async with sending as response:
            wait = retry_after(response.headers.get("retry-after", ""))
            error = "Redirects are not followed." if response.is_redirect else ""
            return Answer(response.status_code, error, wait=wait)
