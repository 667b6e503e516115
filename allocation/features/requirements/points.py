"""What requirements add to the core: what they demand, a first step, own data, a task, and words."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from allocation.features.requirements.checks import requirement_states, requirement_unmet, requirements_open
from allocation.features.requirements.models import Acceptance, Requirement
from allocation.features.requirements.tasks import requirements_expiring
from allocation.points.people import DEMANDS, FIRST_STEPS, OWN_DATA, Step
from allocation.words.refusals import sentences_add
from tenants.access import Actor
from tenants.rules.audit_words import ACTIONS, NAMED_BY

__all__ = ["requirements_expiring"]


def _first_step(actor: Actor, now: datetime) -> Iterator[Step]:
    texts = [each for each in requirements_open(actor.tenant_id) if each.kind == Requirement.Kind.TERMS]
    if texts:
        states = requirement_states(texts, actor.tenant_id, actor.user_id, now)
        yield Step(
            "Accept the terms",
            "Some tiers and GPU classes ask for it before you book.",
            f"/t/{actor.tenant_slug}/requirements",
            "Read them",
            is_done=all(each.is_met for each in states),
        )


def _accepted(tenant_id: UUID, person_id: int) -> list[Mapping[str, Any]]:
    rows = Acceptance.objects.filter(tenant_id=tenant_id, user_id=person_id).select_related("requirement")
    return [
        {
            "name": row.requirement.name,
            "version": row.requirement.version,
            "at": row.at.isoformat(),
            "until": row.until.isoformat() if row.until is not None else None,
            "address": row.address,
        }
        for row in rows
    ]


DEMANDS.append(requirement_unmet)
FIRST_STEPS.append(_first_step)
OWN_DATA["accepted"] = _accepted
sentences_add(
    {
        "terms_missing": (
            "The %(target)s asks you to accept “%(name)s”, version %(version)s. Read and accept it, "
            "then book again."
        ),
        "training_missing": (
            "The %(target)s asks for the training “%(name)s”. An admin records its date under Terms and "
            "training."
        ),
        "training_over": (
            "The %(target)s asks for the training “%(name)s”; yours was valid until %(until)s. An "
            "admin records a new date under Terms and training."
        ),
        "class_for_all_projects": "A class demands it in every project.",
        "training_not_accepted": "A training is recorded by an admin, not accepted.",
        "text_replaced": "This version was replaced. Read the new one.",
        "text_not_recorded": "People accept a text themselves.",
        "training_day": "The day of a training is today or before.",
        "requirement_days": "Between 1 and %(most_days)s days, or none.",
        "too_many_requirements": "At most %(most_open)s. End one first.",
        "text_length": "A text has 1 to %(longest_text)s characters.",
        "text_invisible": "A text has no control or invisible characters.",
    }
)
ACTIONS["requirement.set"] = "set the requirement {object}"
ACTIONS["requirement.ended"] = "ended the requirement {object}"
ACTIONS["requirement.accepted"] = "accepted {object}"
ACTIONS["requirement.recorded"] = "recorded the training {object} of a person"
NAMED_BY["requirement"] = ("name",)
