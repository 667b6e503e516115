"""The queue of deliveries: which are due, how each attempt is made, and what it changes.

The sender has one event loop, so that a slow receiver holds no other up.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import httpx
from django.db import DatabaseError, close_old_connections, transaction

from portal.integrations.answers import Answer
from portal.integrations.jira.call import jira_call
from portal.integrations.webhooks.message import Message, message_of
from tenants.failures import FailureLog
from tenants.features.webhooks.services import webhook_disable
from tenants.models import Webhook, WebhookDelivery
from tenants.platform.watchdog.pulses import pulse
from tenants.rules.event_types import TEST
from tenants.rules.webhooks import RETRY_PERIOD, BadTarget, next_try, retry_after
from tenants.services.members.messages import PeopleMessage, people_message_put
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


# A sender that dies returns its deliveries after this time; an attempt takes at most ten seconds.
CLAIM = timedelta(seconds=60)
# Attempts at once for one webhook and for one tenant, over all senders: receivers that hang, and
# names that resolve slowly, hold up nobody else.
AT_ONCE_EACH, AT_ONCE_TENANT = 4, 40

# A message that fails holds up later ones of its subject for this long: if the receiver has taken
# others since, and otherwise. Its own attempts continue for a day.
HELD_UP, HELD_UP_SILENT = timedelta(minutes=15), timedelta(hours=2)

# Deliveries of one subject wait for each other, but not for one that is held up for too long since
# it was queued. The first of every webhook comes before the second of any.
_DUE = """
WITH busy AS (
  SELECT tenant_id, webhook_id, count(*) AS many FROM tenants_webhookdelivery
  WHERE state = 'pending' AND claimed_until > %(now)s GROUP BY 1, 2),
due AS (
  SELECT d.id, d.tenant_id, d.webhook_id, d.due,
         row_number() OVER (PARTITION BY d.webhook_id ORDER BY d.due, d.id) AS place,
         row_number() OVER (PARTITION BY d.tenant_id ORDER BY d.due, d.id) AS of_tenant
  FROM tenants_webhookdelivery d JOIN tenants_webhook w ON w.id = d.webhook_id
  WHERE d.state = 'pending' AND d.due <= %(now)s
    AND d.webhook_id NOT IN (
      SELECT id FROM tenants_webhook
      WHERE made_with_id IS NOT NULL AND NOT portal_token_lives(made_with_id, %(now)s))
    AND (d.claimed_until IS NULL OR d.claimed_until <= %(now)s)
    AND (d.subject IS NULL OR NOT EXISTS (
      SELECT FROM tenants_webhookdelivery e
      WHERE e.webhook_id = d.webhook_id AND e.subject = d.subject AND e.state = 'pending'
        AND e.id < d.id
        AND (e.first_tried IS NULL OR e.claimed_until > %(now)s
          OR e.created > %(silent)s AND NOT (
            e.created <= %(held)s AND coalesce(w.last_delivered > e.first_tried, false))))))
SELECT due.id FROM due
WHERE due.place + coalesce(
    (SELECT b.many FROM busy b WHERE b.webhook_id = due.webhook_id), 0) <= %(each)s
  AND due.of_tenant + coalesce(
    (SELECT sum(b.many) FROM busy b
     WHERE b.tenant_id IS NOT DISTINCT FROM due.tenant_id), 0) <= %(tenant)s
ORDER BY due.place, due.due, due.id LIMIT %(most)s
"""
logger = logging.getLogger(__name__)

QUEUE = "webhooks"
FAILED = "The portal failed on this message."
AT_ONCE = 200
LOOK_SECONDS = 1.0
# What sends pulses to the watchdog.
DELIVERIES = "deliveries"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A message, and when its attempt began."""

    message: Message
    at: datetime


def deliveries_claim(most: int, now: datetime) -> list[Attempt]:
    """Claims due deliveries for this sender and counts the attempt. Any number of senders may run.

    An attempt is counted before it is made: a message that ends its sender is given up some day.
    """
    with transaction.atomic():
        wanted = [
            row.pk
            for row in WebhookDelivery.objects.raw(
                _DUE,
                {
                    "now": now,
                    "each": AT_ONCE_EACH,
                    "tenant": AT_ONCE_TENANT,
                    "most": most,
                    "held": now - HELD_UP,
                    "silent": now - HELD_UP_SILENT,
                },
            )
        ]
        rows = list(
            WebhookDelivery.objects.select_for_update(skip_locked=True, of=("self",))
            .filter(id__in=wanted, state=WebhookDelivery.State.PENDING)
            .exclude(claimed_until__gt=now)
            .select_related("webhook__jira", "event")
            .order_by("id")
        )
        for row in rows:
            row.claimed_until, row.tries = now + CLAIM, row.tries + 1
            row.first_tried = row.first_tried or now
        WebhookDelivery.objects.bulk_update(rows, ["claimed_until", "tries", "first_tried"])
    return _attempts(rows, now) if rows else []


def _attempts(rows: Sequence[WebhookDelivery], now: datetime) -> list[Attempt]:
    """The attempts of claimed deliveries. One that cannot be composed is set apart, and counts as
    an attempt that failed."""
    failures = FailureLog(QUEUE, now)
    found: list[Attempt] = []
    for row in rows:
        error = failures.attempt(partial(_compose, row, found, now))
        if error is not None:
            failures.note(row.id, error, tenant_id=row.tenant_id)
            _put_off(row, now)
    failures.clear(*(each.message.delivery for each in found))
    return found


def _compose(row: WebhookDelivery, found: list[Attempt], now: datetime) -> None:
    found.append(Attempt(message_of(row, now), now))


def _put_off(row: WebhookDelivery, now: datetime) -> None:
    """Sets the next attempt of a delivery that cannot be composed, or gives it up."""
    again = next_try(row.tries, row.first_tried or now, now)
    row.claimed_until, row.due = None, again or row.due
    if again is None:
        row.state, row.settled = WebhookDelivery.State.FAILED, now
    row.attempts = [*row.attempts, _line(now, Answer(None, FAILED))]
    row.save(update_fields=["claimed_until", "due", "state", "settled", "attempts"])


def attempt_settle(attempt: Attempt, answer: Answer, now: datetime) -> None:
    """Records the outcome: delivered, tried again later, given up, or the webhook is switched off.

    A delivery that was settled meanwhile, or whose webhook was deleted, stays as it is.
    """
    with transaction.atomic():
        # The order of locks is that of the services: the webhook, then its deliveries.
        rows = Webhook.objects.select_for_update(no_key=True)
        webhook = rows.filter(id=attempt.message.webhook).first()
        found = WebhookDelivery.objects.select_for_update().filter(id=attempt.message.delivery)
        delivery = found.filter(state=WebhookDelivery.State.PENDING).first()
        if webhook is None or delivery is None:
            return
        delivery.claimed_until = None
        delivery.attempts = [*delivery.attempts, _line(attempt.at, answer)]
        _apply(webhook, delivery, answer, now)


def _apply(webhook: Webhook, delivery: WebhookDelivery, answer: Answer, now: datetime) -> None:
    first = delivery.first_tried or now
    # A test is for a person who looks at the answer now.
    is_last = answer.is_final or answer.status == GONE or delivery.type == TEST
    again = None if is_last else next_try(delivery.tries, first, now)
    if answer.is_delivered:
        delivery.state, delivery.settled = WebhookDelivery.State.DELIVERED, now
        webhook.last_delivered = now
        webhook.save(update_fields=["last_delivered"])
    elif again is not None:
        delivery.due = max(again, now + answer.wait)
    else:
        delivery.state, delivery.settled = WebhookDelivery.State.FAILED, now
    delivery.save()
    if delivery.state == WebhookDelivery.State.FAILED and webhook.disabled_at is None:
        _disable(webhook, delivery, answer, now)


def _disable(webhook: Webhook, delivery: WebhookDelivery, answer: Answer, now: datetime) -> None:
    """Switches off a webhook that is gone or took nothing for a day."""
    if answer.is_final:
        return
    if answer.status == GONE:
        _switch_off(webhook, "The receiver answered 410 Gone.", now)
    elif delivery.type != TEST and _took_nothing_since(webhook, now - RETRY_PERIOD):
        _switch_off(webhook, "No message was delivered for 24 hours.", now)


def _switch_off(webhook: Webhook, reason: str, now: datetime) -> None:
    """Switches the webhook off and notifies the person who made it, or all operators."""
    webhook_disable(webhook, reason, now)
    is_of_platform = webhook.tenant_id is None
    message = PeopleMessage(
        kind="webhook.failing",
        title=f"{webhook.name} was switched off",
        text=f"{reason} Waiting messages were dropped; send them again when it works.",
        path=_page(webhook),
        audience="operators" if is_of_platform else "people",
        people=[] if is_of_platform else [webhook.created_by_id],
    )
    people_message_put(webhook.tenant_id, message, now)


def _page(webhook: Webhook) -> str:
    if webhook.tenant_id is None:
        return f"/ops/webhooks/{webhook.id}"
    is_jira = webhook.kind == Webhook.Kind.JIRA
    return "settings/jira" if is_jira else f"settings/webhooks/{webhook.id}"


def _took_nothing_since(webhook: Webhook, at: datetime) -> bool:
    return webhook.last_delivered is None or webhook.last_delivered <= at


def _line(at: datetime, answer: Answer) -> dict[str, object]:
    return {
        "at": at.isoformat(),
        "status": answer.status,
        "error": answer.error,
        "milliseconds": answer.milliseconds,
    }


class Sender:
    """Claims due deliveries every second and sends them at once; `stop` waits for those begun."""

    def __init__(
        self, clock: Callable[[], datetime], seen: Callable[[datetime], object] | None = None
    ) -> None:
        """`clock` returns the time; `seen` is called with it at every look."""
        self._clock = clock
        self._seen = seen
        self._busy: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        # Django's connections belong to threads: one of them does all the queries.
        self._database = ThreadPoolExecutor(1, thread_name_prefix="webhooks")

    def stop(self) -> None:
        """Ends `run` after the attempts that have begun."""
        self._stopped.set()

    async def run(self) -> None:
        """Sends until `stop`. While the database does not answer it tries again each second."""
        stopped = asyncio.create_task(self._stopped.wait())
        while not stopped.done():
            await self.look()
            # A delivery that is settled may let the next one of its booking go.
            await asyncio.wait({stopped, *self._busy}, timeout=LOOK_SECONDS, return_when="FIRST_COMPLETED")
        await self.finish()

    async def look(self) -> int:
        """Begins the attempts that are due; returns how many."""
        now = self._clock()
        if self._seen is not None:
            self._seen(now)
        try:
            attempts: list[Attempt] = await self._query(deliveries_claim, AT_ONCE - len(self._busy), now)
        except DatabaseError as error:
            logger.warning("Webhooks wait for the database: %s", type(error).__name__)
            return 0
        pulse(DELIVERIES)
        for attempt in attempts:
            task = asyncio.create_task(self._send(attempt))
            self._busy.add(task)
            task.add_done_callback(self._busy.discard)
        return len(attempts)

    async def finish(self) -> None:
        """Waits for the attempts that have begun."""
        while self._busy:
            await asyncio.wait(set(self._busy))

    async def _send(self, attempt: Attempt) -> None:
        answer = await self._posted(attempt)
        try:
            await self._query(attempt_settle, attempt, answer, self._clock())
        except DatabaseError as error:
            # Its claim ends in a minute; then it is sent again.
            logger.warning("An attempt was not recorded: %s", type(error).__name__)

    async def _posted(self, attempt: Attempt) -> Answer:
        """Sends the message; an error of ours counts as an attempt that failed."""
        try:
            return await post(attempt.message, self._clock())
        except Exception as error:  # noqa: BLE001 (whatever it is must stop no other message)
            try:
                await self._query(_failure_note, attempt, error, self._clock())
            except DatabaseError:
                logger.exception("Delivery %s failed", attempt.message.delivery, exc_info=error)
            return Answer(None, FAILED)

    async def _query(self, work: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401
        return await asyncio.get_running_loop().run_in_executor(self._database, _with_connection, work, args)


def _failure_note(attempt: Attempt, error: Exception, now: datetime) -> None:
    FailureLog(QUEUE, now).note(attempt.message.delivery, error)


def _with_connection(work: Callable[..., Any], args: tuple[object, ...]) -> Any:  # noqa: ANN401
    close_old_connections()
    return work(*args)
