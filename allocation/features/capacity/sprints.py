"""Sprints: what a started one rents for its project, and how a closed one gives it back."""

import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from django.db import transaction

from allocation.features.capacity.models import CapacityPlan, SprintRule
from allocation.features.capacity.rules import MOST_GPUS
from allocation.features.capacity.services import (
    LONGEST,
    MOST_COST,
    TASK,
    Cause,
    PlanTerms,
    plan_close,
    plan_create,
    project_may_plan,
)
from allocation.points import Sprint, SprintAct
from allocation.words.refusals import refusal_text
from billing.rules import money_text
from tenants.access import Actor, access_project, may_still_lead
from tenants.audit import audited
from tenants.models import GpuClass
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.terms import term, terms

# A sprint without an end lasts so long.
USUAL = timedelta(days=14)
ISSUE = re.compile(r"[A-Z][A-Z0-9_]{1,19}-[1-9][0-9]{0,11}")
LOGGED = ("project", "mode", "gpu_class_id", "gpus", "most_cost", "issue")
Mode = Literal["off", "propose", "rent"]


@terms
class SprintRuleTerms:
    """What each sprint of a project may rent, beyond what it books of the site's own GPUs."""

    mode: Mode = term("When a sprint starts", says="`propose` waits for a lead, `rent` does not.")
    gpu_class: str = term("GPU class", max_length=40)
    count: int = term("GPUs, at most", "At the same time.", min_value=1, max_value=MOST_GPUS)
    most_cost: Decimal = term(
        "Money for one sprint, at most",
        says="In the currency of the offers.",
        max_digits=12,
        decimal_places=2,
        min_value=Decimal("0.01"),
        max_value=MOST_COST,
    )
    issue: str = term(
        "Jira issue for comments (optional)",
        "Such as GPU-1. The portal writes there what was rented.",
        says="An issue of the Jira project; empty: only the log of the connection has it.",
        default="",
        max_length=40,
        allow_blank=True,
    )


def sprint_rule_set(*, actor: Actor, project: str, terms: SprintRuleTerms, now: datetime) -> SprintRule:
    """Sets what sprints of a project rent.

    Raises:
        Refused: `not_found`, `not_allowed`, `bad_issue` or `unknown_choice`.
    """
    row = project_may_plan(actor, project)
    if terms.mode not in SprintRule.Mode.values:
        raise invalid("unknown_choice", refusal_text("sprint_mode"), "mode")
    if not GpuClass.objects.filter(slug=terms.gpu_class).exists():
        raise missing("GPU class", "gpu_class")
    if terms.issue and not ISSUE.fullmatch(terms.issue):
        raise invalid("bad_issue", refusal_text("sprint_issue"), "issue")
    facts = {
        "mode": terms.mode,
        "gpu_class_id": terms.gpu_class,
        "gpus": terms.count,
        "most_cost": terms.most_cost,
        "issue": terms.issue,
        "changed": now,
        "changed_by_id": actor.user_id,
    }
    with transaction.atomic():
        rule, _ = SprintRule.objects.update_or_create(tenant_id=actor.tenant_id, project=row, defaults=facts)
        audited(actor, "sprint_rule.set", rule, now, *LOGGED)
    return rule


def sprint_rule_of(actor: Actor, project: str) -> SprintRule:
    """The rule of a project. Raises Refused `not_found`."""
    row = access_project(actor, project)
    rule = SprintRule.objects.filter(project=row).select_related("project", "changed_by").first()
    if rule is None:
        raise missing("sprint rule")
    return rule


def sprint_act(sprint: Sprint, now: datetime) -> SprintAct | None:
    """Plans for a sprint that has started, as the rule of its project says, or ends its plans."""
    if not sprint.is_started:
        return _closed(sprint, now)
    rule = SprintRule.objects.filter(project=sprint.project).first()
    if rule is None or rule.mode == SprintRule.Mode.OFF:
        return None
    made = CapacityPlan.objects.filter(
        project=sprint.project, reference=sprint.reference, state__in=CapacityPlan.OPEN
    )
    if made.exists():
        return None
    return SprintAct(_planned(sprint, rule, now), rule.issue)


def _planned(sprint: Sprint, rule: SprintRule, now: datetime) -> str:
    """Makes the plan of a sprint; returns what came of it."""
    until = min(sprint.ends or now + USUAL, now + LONGEST)
    asked = PlanTerms(
        project=sprint.project.slug,
        gpu_class=rule.gpu_class_id,
        count=rule.gpus,
        until=until,
        most_cost=rule.most_cost,
        source="sprint",
    )
    # Who set the rule decides by it, as long as they lead the project.
    is_rented = rule.mode == SprintRule.Mode.RENT and may_still_lead(rule.changed_by_id, sprint.project)
    decided_by = rule.changed_by_id if is_rented else None
    cause = Cause(reference=sprint.reference, decided_by=decided_by, is_proposal=not is_rented)
    try:
        with transaction.atomic():
            plan = plan_create(
                actor=sprint.actor,
                terms=asked,
                now=now,
                cause=cause,
            )
    except Refused as refusal:
        return f"Nothing is rented for the sprint: {refusal.sentence}"
    what = f"up to {plan.gpus} {plan.gpu_class.label}, at most {money_text(plan.most_cost, plan.currency)}"
    if plan.state == plan.State.ACTIVE:
        return f"For the sprint bookings that would wait may use rented GPUs: {what}."
    return f"Proposed for the sprint: {what}. A lead approves it at /t/{sprint.actor.tenant_slug}/capacity."


def _closed(sprint: Sprint, now: datetime) -> SprintAct | None:
    """Ends the open plans of a closed sprint; what runs on their machines runs to its end."""
    plans = CapacityPlan.objects.select_for_update(of=("self",)).filter(
        project=sprint.project, reference=sprint.reference, state__in=CapacityPlan.OPEN
    )
    found = list(plans.order_by("created", "id"))
    for plan in found:
        plan.note = "The sprint was closed."
        plan_close(plan, plan.State.CANCELLED, now)
    if not found:
        return None
    task_request(TASK)
    used = sum((plan.committed for plan in found), Decimal(0))
    rule = SprintRule.objects.filter(project=sprint.project).first()
    words = f"Nothing more is rented for the sprint; its machines cost {money_text(used, found[0].currency)}."
    return SprintAct(words, rule.issue if rule else "")
