"""The backlog: what a project rents by itself when its bookings would wait for too long."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial

from django.db.models import Q, QuerySet

from allocation.features.capacity.burst import offer_for
from allocation.features.capacity.causes.renting import Need, rule_plan, rule_set
from allocation.features.capacity.models import BacklogRule, CapacityPlan
from allocation.features.capacity.providers import offers
from allocation.features.capacity.rules import MOST_GPUS, Offer
from allocation.features.capacity.services import MOST_COST
from allocation.features.capacity.sprints import Mode
from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.platform.terms import term, terms

MOST_BOOKINGS = 200
"""Of a project's queue that are looked at."""


@terms
class BacklogRuleTerms:
    """What a project rents when its bookings of a class would wait for too long."""

    mode: Mode = term("When bookings wait too long", says="`propose` waits for a lead, `rent` does not.")
    gpu_class: str = term("GPU class", says="Each class has a rule of its own.", max_length=40)
    wait_minutes: int = term(
        "Longest wait in minutes",
        "From when a booking could begin to its expected start.",
        min_value=10,
        max_value=7 * 24 * 60,
    )
    count: int = term("GPUs, at most", "At the same time.", min_value=1, max_value=MOST_GPUS)
    hours: int = term("Rent for so many hours", "From when the rule acts.", min_value=1, max_value=7 * 24)
    most_cost: Decimal = term(
        "Money in a month, at most",
        "For all that the rule rents in a calendar month (UTC).",
        says="In the currency of the offers.",
        max_digits=12,
        decimal_places=2,
        min_value=Decimal("0.01"),
        max_value=MOST_COST,
    )


def backlog_rule_set(*, actor: Actor, project: str, terms: BacklogRuleTerms, now: datetime) -> BacklogRule:
    """Sets what the backlog of a project rents of a class.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    facts: dict[str, object] = {
        "mode": terms.mode,
        "wait_minutes": terms.wait_minutes,
        "gpus": terms.count,
        "hours": terms.hours,
        "most_cost": terms.most_cost,
    }
    return rule_set(
        BacklogRule, actor=actor, project=project, gpu_class=terms.gpu_class, facts=facts, now=now
    )


def backlogs_due(now: datetime) -> QuerySet[BacklogRule]:
    """The rules that may have something to do: something of their project waits."""
    waiting = Booking.objects.filter(state=State.QUEUED, pool="").values("project")
    return BacklogRule.objects.exclude(mode=BacklogRule.Mode.OFF).filter(project__in=waiting)


def backlog_plan(rule_id: int, now: datetime) -> CapacityPlan | None:
    """Makes the plan of a rule whose bookings would wait for too long, unless one is open; keeps on the
    rule why it made none."""
    return rule_plan(BacklogRule, rule_id, partial(_need, now=now), now)


def _need(rule: BacklogRule, now: datetime) -> Need | None:
    counts = list(_late(rule, offers(), now))
    if not counts:
        return None
    length = timedelta(hours=rule.hours)
    why = refusal_text("backlog_found", bookings=len(counts), gpus=sum(counts))
    return Need(min(rule.gpus, sum(counts)), now, now + length, length.total_seconds(), why)


def _late(rule: BacklogRule, known: list[Offer], now: datetime) -> Iterator[int]:
    """The GPUs of each booking that would wait for too long, and that what the rule may rent serves."""
    limit = timedelta(minutes=rule.wait_minutes)
    rows = Booking.objects.filter(
        Q(planned_starts=None) | Q(planned_starts__gt=now),
        project=rule.project,
        state=State.QUEUED,
        pool="",
        starts=None,
        is_drained=False,
        awaits_parents=False,
    ).exclude(id__in=CapacityPlan.objects.filter(booking__isnull=False).values("booking"))
    mine = [each for each in known if each.gpu_class == rule.gpu_class_id]
    for row in rows.order_by("submitted", "id")[:MOST_BOOKINGS]:
        ask = AskDocument.from_json(row.ask)
        began = max(row.submitted, row.not_before)
        waits = (row.planned_starts or now) - began
        fits = ask.count <= rule.gpus and rule.gpu_class_id in ask.classes
        if fits and waits > limit and offer_for(ask, row.duration_seconds, mine) is not None:
            yield ask.count
