"""Celery tasks of the integrations and the audit seals."""

import logging
import time
from dataclasses import dataclass

from celery import shared_task
from django.utils import timezone
from redis.exceptions import RedisError

from allocation.features.jira.process import messages_process, messages_sweep
from allocation.features.policy_lab.guards import guard_check
from allocation.features.policy_lab.process import trial_process_ensure
from allocation.features.policy_lab.shadows import shadows_run
from allocation.services.record.liveness import program_seen
from portal.integrations.chat.send import chat_send as chats_send
from portal.integrations.live.push import beat
from portal.integrations.mail.queueing import resets_queue
from portal.integrations.mail.send import mails_send, mails_sweep
from portal.integrations.relay import outbox_relay as relay
from portal.integrations.relay import outbox_sweep as sweep
from portal.integrations.webhooks.publish import events_sweep
from portal.storage.audit_sources import audit_seal_all
from tenants.failures import steps_apart
from tenants.features.chat.services import chat_sweep
from tenants.outbox import task_request_clear
from tenants.services.notifications import notifications_sweep

logger = logging.getLogger(__name__)

# The relay waits this long, so that messages which are committed one by one are sent together.
BATCHING_SECONDS = 0.05
# After a relay that sent as many, more will come: they are sent together if it waits longer.
BUSY_MESSAGES, BUSY_BATCHING_SECONDS = 20, 0.2


@dataclass(slots=True)
class _Relay:
    """How many messages the last relay of this process has sent."""

    sent: int = 0


_last = _Relay()


@shared_task(name="outbox.relay")
def outbox_relay() -> None:
    """Sends the messages of the outbox. A commit during the wait needs no second task."""
    time.sleep(BUSY_BATCHING_SECONDS if _last.sent >= BUSY_MESSAGES else BATCHING_SECONDS)
    task_request_clear("outbox.relay")
    _last.sent = relay(timezone.now())


@shared_task(name="outbox.sweep")
def outbox_sweep() -> None:
    """Removes messages, mails, notifications and events that were sent long ago."""
    steps_apart(
        "outbox.sweep",
        timezone.now(),
        sweep,
        mails_sweep,
        notifications_sweep,
        chat_sweep,
        events_sweep,
        messages_sweep,
    )


@shared_task(name="mail.send")
def mail_send() -> None:
    """Sends the mails that are due, with those that were requested for forgotten passwords."""
    task_request_clear("mail.send")
    steps_apart("mail.send", timezone.now(), resets_queue, mails_send)


@shared_task(name="chat.send")
def chat_send() -> None:
    """Sends the chat messages that are due."""
    task_request_clear("chat.send")
    chats_send(timezone.now())


@shared_task(name="jira.process")
def jira_process() -> None:
    """Acts on the messages of Jira that wait."""
    task_request_clear("jira.process")
    messages_process(timezone.now())


@shared_task(name="policy_lab.trials")
def policy_lab_trials() -> None:
    """Starts the process that plays trials of the policy, if one waits."""
    task_request_clear("policy_lab.trials")
    trial_process_ensure(timezone.now())


@shared_task(name="policy_lab.shadows")
def policy_lab_shadows() -> None:
    """Decides a stored decision again for each version of the policy that is in shadow."""
    shadows_run(timezone.now)


@shared_task(name="policy_lab.guard")
def policy_lab_guard() -> None:
    """Takes the live version of the policy back if a figure has left the band of its guard."""
    guard_check(timezone.now())


@shared_task(name="live.beat")
def live_beat() -> None:
    """Sends open pages a heartbeat with the number of the last message."""
    program_seen("worker", timezone.now())
    try:
        beat()
    except RedisError:
        logger.warning("Redis did not answer; open pages show that they are disconnected.")


@shared_task(name="audit.seal")
def audit_seal() -> None:
    """Seals the rows that were written since the last seal."""
    audit_seal_all(timezone.now())
