"""The backlog: what a project rents by itself when its bookings would wait for too long."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.features.capacity.burst import offer_for
from allocation.features.capacity.models import BacklogRule, CapacityPlan
from allocation.features.capacity.providers import offers
from allocation.features.capacity.rules import MOST_GPUS, Offer, best_offer
from allocation.features.capacity.services import MOST_COST, Cause, PlanTerms, plan_create, project_may_plan
from allocation.features.capacity.sprints import Mode
from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.words.refusals import refusal_text
from billing.rules import ceil_to_cents, money_text
from tenants.access import Actor, access_project, actor_by_id, may_still_lead
from tenants.audit import audited
from tenants.models import GpuClass
from tenants.platform.errors import Refused, missing
from tenants.platform.terms import term, terms

LOGGED = ("project", "mode", "gpu_class_id", "wait_minutes", "gpus", "hours", "most_cost")
MOST_BOOKINGS = 200
"""Of a project's queue that are looked at."""


@terms
class BacklogRuleTerms:
    """What a project rents when its bookings of a class would wait for too long."""

    mode: Mode = term("A long wait makes", says="`propose` waits for a lead, `rent` does not.")
    gpu_class: str = term("Class", says="Each class has a rule of its own.", max_length=40)
    wait_minutes: int = term(
        "Longest wait",
        "In minutes, from when a booking could begin to its expected start.",
        min_value=10,
        max_value=7 * 24 * 60,
    )
    count: int = term("GPUs", "At once, at most.", min_value=1, max_value=MOST_GPUS)
    hours: int = term("For", "Hours that a plan is open.", min_value=1, max_value=7 * 24)
    most_cost: Decimal = term(
        "At most in a month",
        "Of all plans that the rule makes in a calendar month (UTC).",
        says="In the currency of the offers.",
        max_digits=12,
        decimal_places=2,
        min_value=Decimal("0.01"),
        max_value=MOST_COST,
    )


@dataclass(frozen=True, slots=True)
class Backlog:
    """Bookings that would wait for too long, and the GPUs that they ask for."""

    bookings: int
    gpus: int


def backlog_rule_set(*, actor: Actor, project: str, terms: BacklogRuleTerms, now: datetime) -> BacklogRule:
    """Sets what the backlog of a project rents of a class.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    row = project_may_plan(actor, project)
    if not GpuClass.objects.filter(slug=terms.gpu_class).exists():
        raise missing("GPU class", "gpu_class")
    facts = {
        "mode": terms.mode,
        "wait_minutes": terms.wait_minutes,
        "gpus": terms.count,
        "hours": terms.hours,
        "most_cost": terms.most_cost,
        "note": "",
        "changed": now,
        "changed_by_id": actor.user_id,
    }
    with transaction.atomic():
        rule, _ = BacklogRule.objects.update_or_create(
            tenant_id=actor.tenant_id, project=row, gpu_class_id=terms.gpu_class, defaults=facts
        )
        audited(actor, "backlog_rule.set", rule, now, *LOGGED)
    return rule


def backlog_rules_of(actor: Actor, project: str) -> QuerySet[BacklogRule]:
    """The rules of a project. Raises Refused `not_found`."""
    rules = BacklogRule.objects.filter(project=access_project(actor, project))
    return rules.select_related("project", "gpu_class", "changed_by").order_by("gpu_class")


def backlogs_due(now: datetime) -> QuerySet[BacklogRule]:
    """The rules that may have something to do: something of their project waits."""
    waiting = Booking.objects.filter(state=State.QUEUED, pool="").values("project")
    return BacklogRule.objects.exclude(mode=BacklogRule.Mode.OFF).filter(project__in=waiting)


def backlog_plan(rule_id: int, now: datetime) -> CapacityPlan | None:
    """Makes the plan of a rule whose bookings would wait for too long, unless one is open; keeps on the
    rule why it made none."""
    with transaction.atomic():
        rule = (
            BacklogRule.objects.select_for_update(of=("self",))
            .select_related("project", "tenant", "gpu_class")
            .get(id=rule_id)
        )
        of_rule = CapacityPlan.objects.filter(project=rule.project, reference=rule.reference)
        if of_rule.filter(state__in=CapacityPlan.OPEN).exists():
            return None
        known = offers()
        backlog = _backlog_of(rule, known, now)
        if not backlog.gpus:
            return None
        try:
            with transaction.atomic():
                return _planned(rule, backlog, _left(rule, of_rule, now), known, now)
        except Refused as refusal:
            _note(rule, refusal.sentence)
            return None


def _planned(
    rule: BacklogRule, backlog: Backlog, left: Decimal, known: list[Offer], now: datetime
) -> CapacityPlan:
    count, length = min(rule.gpus, backlog.gpus), timedelta(hours=rule.hours)
    offer = best_offer(known, rule.gpu_class_id, count, length.total_seconds())
    if offer is None or left <= 0:
        most = "" if offer is None else money_text(rule.most_cost, offer.currency)
        raise Refused("backlog_spent", refusal_text("backlog_spent", most=most), "budget")
    # No more is held than its machines cost for all of its time.
    cost = ceil_to_cents(offer.cost(length.total_seconds()) * offer.machines_for(count))
    # Who set the rule decides by it, as long as they lead the project.
    is_rented = rule.mode == BacklogRule.Mode.RENT and may_still_lead(rule.changed_by_id, rule.project)
    plan = plan_create(
        actor=actor_by_id(rule.changed_by_id, rule.tenant.slug),
        terms=PlanTerms(
            project=rule.project.slug,
            gpu_class=rule.gpu_class_id,
            count=count,
            until=now + length,
            most_cost=min(left, cost),
            source="backlog",
        ),
        now=now,
        cause=Cause(
            reference=rule.reference,
            decided_by=rule.changed_by_id if is_rented else None,
            is_proposal=not is_rented,
        ),
    )
    plan.note = refusal_text("backlog_found", bookings=backlog.bookings, gpus=backlog.gpus)
    plan.save(update_fields=["note"])
    _note(rule, "")
    return plan


def _note(rule: BacklogRule, words: str) -> None:
    if rule.note != words[:300]:
        rule.note = words[:300]
        rule.save(update_fields=["note"])


def _left(rule: BacklogRule, made: QuerySet[CapacityPlan], now: datetime) -> Decimal:
    """What is left of the month's money: plans that are over count with what their machines cost."""
    month = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    spent = sum(made.filter(created__gte=month).values_list("committed", flat=True), Decimal(0))
    return rule.most_cost - spent


def _backlog_of(rule: BacklogRule, known: list[Offer], now: datetime) -> Backlog:
    counts = list(_late(rule, known, now))
    return Backlog(len(counts), sum(counts))


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
