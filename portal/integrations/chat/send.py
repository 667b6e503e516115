"""Sends the chat messages that are due, in batches, each in a child process."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from django.conf import settings
from django.db import transaction

from tenants.failures import FailureLog
from tenants.features.chat.services import TASK, TEST
from tenants.models import ChatChannel, ChatMessage
from tenants.outbox import task_request
from tenants.rules.chat import next_chat_try
from tenants.services.credentials.seals import token_open
from tenants.words import refusal_text

logger = logging.getLogger(__name__)

QUEUE = "chat"
BATCH = 20
AT_ONCE_EACH = 4
"""Messages of one channel in a batch: a slow service holds up no other for long."""
CHILD_SECONDS = 25
"""Less than a task may take; what is not sent by then is tried again."""
CLAIM = timedelta(minutes=1)
_UNFINISHED = "The service did not answer in time."
_CANDIDATES = 200


def chat_send(now: datetime) -> int:
    """Sends a batch of what is due; returns how many messages were sent. Any number of senders may
    run; the next task sends the rest.

    An attempt is counted before it is made, so a message that ends its sender is given up one day.
    """
    failures = FailureLog(QUEUE, now)
    rows = _claim(failures.held_back(), now)
    if not rows:
        return 0
    asked: dict[int, dict[str, object]] = {}
    for row in rows:
        failures.handle(row.id, partial(_ask, row, asked), tenant_id=row.tenant_id)
    answers = _sent(list(asked.values()))
    if len(rows) == BATCH:
        task_request(TASK)
    asking = [row for row in rows if row.id in asked]
    return sum(_settle(row, answers.get(row.id, _UNFINISHED), now) for row in asking)


def _claim(held_back: Iterable[str], now: datetime) -> list[ChatMessage]:
    """Claims due messages: they are due again after `CLAIM` if this process ends."""
    with transaction.atomic():
        due = ChatMessage.objects.select_for_update(skip_locked=True, of=("self",))
        due = due.filter(state=ChatMessage.State.PENDING, due__lte=now)
        due = due.exclude(id__in=[int(key) for key in held_back])
        found: list[ChatMessage] = []
        of_channel: dict[object, int] = {}
        for row in due.select_related("channel", "tenant").order_by("due", "id")[:_CANDIDATES]:
            if of_channel.get(row.channel_id, 0) < AT_ONCE_EACH and len(found) < BATCH:
                of_channel[row.channel_id] = of_channel.get(row.channel_id, 0) + 1
                found.append(row)
        for row in found:
            row.tries, row.due = row.tries + 1, now + CLAIM
        ChatMessage.objects.bulk_update(found, ["tries", "due"])
    return found


def _ask(row: ChatMessage, asked: dict[int, dict[str, object]]) -> None:
    """Adds what the child process is asked to send."""
    asked[row.id] = {
        "id": row.id,
        "url": token_open(row.tenant_id, row.channel.sealed) or "",
        "title": row.title,
        "body": _body(row),
    }


def _sent(messages: Sequence[Mapping[str, object]]) -> Mapping[int, str]:
    """Sends in a child process; returns the error of each message, empty for none."""
    asked = {"allow": [str(each) for each in settings.WEBHOOK_ALLOW], "messages": messages}
    # The child gets none of this process's secrets, and no proxy.
    environment = {name: os.environ[name] for name in ("PATH", "SSL_CERT_FILE") if name in os.environ}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "portal.integrations.chat.child"],
            input=json.dumps(asked).encode(),
            capture_output=True,
            timeout=CHILD_SECONDS,
            cwd=settings.BASE_DIR,
            env={**environment, "HOME": "/nonexistent"},
            check=False,
        )
        output = done.stdout
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
    answers = {}
    for line in output.splitlines():
        answer = json.loads(line)
        code, facts = answer["error"] or ("", {})
        answers[int(answer["id"])] = refusal_text(code, **facts) if code else ""
    return answers


def _body(row: ChatMessage) -> str:
    """The text and the link of the page; titles are bold in most services."""
    link = f"{settings.PUBLIC_URL}/t/{row.tenant.slug}/{row.path}"
    return f"{row.text}\n{link}" if row.text else link


def _settle(row: ChatMessage, error: str, now: datetime) -> bool:
    """Records the outcome; returns whether it was sent."""
    channel: dict[str, object] = {"last_error": error[:200]}
    row.error = error[:200]
    if not error:
        row.state, row.settled = ChatMessage.State.SENT, now
        channel["last_sent"] = now
    else:
        # A test is for a person who looks at the answer now.
        again = None if row.kind == TEST else next_chat_try(row.tries, now)
        if again is None:
            row.state, row.settled = ChatMessage.State.FAILED, now
        else:
            row.due = again
    row.save(update_fields=["state", "settled", "due", "error"])
    ChatChannel.objects.filter(id=row.channel_id).update(**channel)
    return not error
