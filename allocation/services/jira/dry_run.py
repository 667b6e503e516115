"""What a message of Jira would lead to. Nothing is written."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from allocation.models import JiraConnection
from allocation.rules.jira import BadMessage, Said, message_read
from allocation.services.jira.outcome import Outcome
from allocation.services.jira.process import outcome_of
from allocation.words.refusals import coded_text, refusal_text
from tenants.platform.errors import invalid
from tenants.platform.rows import rows_in_turn
from tenants.services.policy_hooks.questions import hook_unasked


@dataclass(frozen=True, slots=True)
class DryRun:
    """What was read, and what would come of it. `booking` has no number, because it is not kept."""

    said: Said
    state: str
    answer: str
    comment: str


def dry_run(connection: JiraConnection, data: Mapping[str, Any], now: datetime) -> DryRun:
    """Reads a message without signature and acts on it in a transaction that is undone.

    Raises:
        Refused: `bad_message`.
    """
    try:
        said = message_read({"timestamp": int(now.timestamp() * 1000), **data})
    except BadMessage as fault:
        raise invalid("bad_message", coded_text(fault.text), "sample") from None
    with transaction.atomic(), rows_in_turn(), hook_unasked():
        outcome: Outcome = outcome_of(connection, said, now)
        transaction.set_rollback(True)
    return DryRun(said, outcome.state, outcome.answer, outcome.comment)


def sample_read(text: str) -> dict[str, Any]:
    """Returns the object of a JSON text. Raises Refused `bad_message`."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise invalid("bad_message", refusal_text("bad_message"), "sample")
    return found


def sample_text(key: str) -> str:
    """Returns the body of an automation rule's web request, for a project."""
    issue = {
        "key": f"{key}-7",
        "fields": {"summary": "Train the ablation", "customfield_10050": "2 h100 6h"},
    }
    return json.dumps({"issue": issue}, indent=2)
