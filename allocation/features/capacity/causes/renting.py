"""Plans that rules of projects make by themselves."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TypeVar

from django.db import transaction
from django.db.models import QuerySet

from allocation.features.capacity.models import CapacityPlan, RentingRule
from allocation.features.capacity.providers import offers
from allocation.features.capacity.rules import best_offer
from allocation.features.capacity.services import Cause, PlanTerms, plan_create, project_may_plan
from allocation.words.refusals import refusal_text
from billing.rules import ceil_to_cents, money_text
from tenants.access import Actor, access_project, actor_by_id, may_still_lead
from tenants.audit import audited
from tenants.models import GpuClass
from tenants.platform.errors import Refused, missing

Rule = TypeVar("Rule", bound=RentingRule)
NOTE_LENGTH = 300
_ACTIONS = {"backlog": "backlog_rule.set", "forecast": "forecast_rule.set"}


@dataclass(frozen=True, slots=True)
class Need:
    """What a rule would rent: GPUs in [starts, ends), paid for so many seconds, and why in words."""

    gpus: int
    starts: datetime
    ends: datetime
    seconds: float
    why: str


def rule_set(
    kind: type[Rule], *, actor: Actor, project: str, gpu_class: str, facts: dict[str, object], now: datetime
) -> Rule:
    """Sets the rule of a project for a class.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    row = project_may_plan(actor, project)
    if not GpuClass.objects.filter(slug=gpu_class).exists():
        raise missing("GPU class", "gpu_class")
    facts = {**facts, "note": "", "changed": now, "changed_by_id": actor.user_id}
    with transaction.atomic():
        rule, _ = kind._default_manager.update_or_create(
            tenant_id=actor.tenant_id, project=row, gpu_class_id=gpu_class, defaults=facts
        )
        logged = [name for name in facts if name not in ("note", "changed", "changed_by_id", "checked")]
        audited(actor, _ACTIONS[kind.SOURCE], rule, now, "project", "gpu_class_id", *logged)
    return rule


def rules_of(kind: type[Rule], actor: Actor, project: str) -> QuerySet[Rule]:
    """The rules of a project. Raises Refused `not_found`."""
    rules = kind._default_manager.filter(project=access_project(actor, project))
    return rules.select_related("project", "gpu_class", "changed_by").order_by("gpu_class")


def rule_plan(
    kind: type[Rule], rule_id: int, need: Callable[[Rule], Need | None], now: datetime
) -> CapacityPlan | None:
    """Makes the plan of a rule that needs one, unless one is open; keeps on the rule why it made none."""
    with transaction.atomic():
        rule = (
            kind._default_manager.select_for_update(of=("self",))
            .select_related("project", "tenant", "gpu_class")
            .get(id=rule_id)
        )
        if plans_made(rule).filter(state__in=CapacityPlan.OPEN).exists():
            return None
        found = need(rule)
        if found is None:
            return None
        try:
            with transaction.atomic():
                plan = _planned(rule, found, now)
        except Refused as refusal:
            rule_note(rule, refusal.sentence)
            return None
        rule_note(rule, "")
        return plan


def plans_made(rule: RentingRule) -> QuerySet[CapacityPlan]:
    """All plans that a rule has made."""
    return CapacityPlan.objects.filter(project=rule.project, reference=rule.reference)


def _planned(rule: RentingRule, need: Need, now: datetime) -> CapacityPlan:
    left = _left(rule, now)
    offer = best_offer(offers(), rule.gpu_class_id, need.gpus, need.seconds)
    if offer is None or left <= 0:
        most = "" if offer is None else money_text(rule.most_cost, offer.currency)
        raise Refused("rule_spent", refusal_text("rule_spent", most=most), "budget")
    # No more is held than its machines cost for all of its time.
    cost = ceil_to_cents(offer.cost(need.seconds) * offer.machines_for(need.gpus))
    # Who set the rule decides by it, as long as they lead the project.
    is_rented = rule.mode == rule.Mode.RENT and may_still_lead(rule.changed_by_id, rule.project)
    plan = plan_create(
        actor=actor_by_id(rule.changed_by_id, rule.tenant.slug),
        terms=PlanTerms(
            project=rule.project.slug,
            gpu_class=rule.gpu_class_id,
            count=need.gpus,
            starts=need.starts,
            until=need.ends,
            most_cost=min(left, cost),
            source=rule.SOURCE,
        ),
        now=now,
        cause=Cause(
            reference=rule.reference,
            decided_by=rule.changed_by_id if is_rented else None,
            is_proposal=not is_rented,
        ),
    )
    plan.note = need.why[:NOTE_LENGTH]
    plan.save(update_fields=["note"])
    return plan


def rule_note(rule: RentingRule, words: str) -> None:
    """Keeps on a rule why it could make no plan."""
    if rule.note != words[:NOTE_LENGTH]:
        rule.note = words[:NOTE_LENGTH]
        rule.save(update_fields=["note"])


def _left(rule: RentingRule, now: datetime) -> Decimal:
    """What is left of the month's money: plans that are over count with what their machines cost."""
    month = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    made = plans_made(rule).filter(created__gte=month)
    return rule.most_cost - sum(made.values_list("committed", flat=True), Decimal(0))
