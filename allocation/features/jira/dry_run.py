"""What a message of Jira would lead to. Nothing is written."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from rest_framework import serializers

from allocation.features.jira.process import Outcome, outcome_of
from allocation.features.jira.rules import BadMessage, Said, message_read
from allocation.features.jira.services import connection_one
from allocation.words.refusals import coded_text, refusal_text
from tenants.access import Actor
from tenants.platform.errors import invalid
from tenants.platform.rows import rows_in_turn
from tenants.platform.terms import term, terms
from tenants.services.policy_hooks.questions import hook_unasked


def sample_read(text: str, *, param: str) -> dict[str, Any]:
    """Returns the object of a JSON text. Raises Refused `bad_message`."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise invalid("bad_message", refusal_text("bad_message"), param)
    return found


@terms
class JiraDryRunTerms:
    """A message as Jira sends it, without its signature."""

    message: Mapping[str, Any] = term(
        "Message",
        "The body of a webhook or of a web request, without its signature.",
        asks="paragraphs",
        name="sample",
        reads=sample_read,
        body=serializers.DictField(),
    )


@dataclass(frozen=True, slots=True)
class DryRun:
    """What was read, and what would come of it. `booking` has no number, because it is not kept."""

    said: Said
    state: str
    answer: str
    comment: str


def dry_run(*, actor: Actor, connection_id: UUID, terms: JiraDryRunTerms, now: datetime) -> DryRun:
    """Reads a message without signature and acts on it in a transaction that is undone.

    Raises:
        Refused: `not_found` or `bad_message`.
    """
    connection, data = connection_one(actor, connection_id), terms.message
    try:
        said = message_read({"timestamp": int(now.timestamp() * 1000), **data})
    except BadMessage as fault:
        raise invalid("bad_message", coded_text(fault.text), "sample") from None
    with transaction.atomic(), rows_in_turn(), hook_unasked():
        outcome: Outcome = outcome_of(connection, said, now)
        transaction.set_rollback(True)
    return DryRun(said, outcome.state, outcome.answer, outcome.comment)


def sample_text(key: str) -> str:
    """Returns the body of an automation rule's web request, for a project."""
    issue = {
        "key": f"{key}-7",
        "fields": {"summary": "Train the ablation", "customfield_10050": "2 h100 6h"},
    }
    return json.dumps({"issue": issue}, indent=2)
