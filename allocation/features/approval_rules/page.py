"""The page of approval rules: leads change those of their projects, admins all of them."""

from collections.abc import Iterator, Sequence
from datetime import datetime, time
from typing import Any

from allocation.features.approval_rules.services import (
    CURRENCY,
    DAYS,
    ApprovalRuleTerms,
    Hours,
    RuleConditions,
    approval_rule_retire,
    approval_rule_set,
    may_set_rule,
    rules_shown,
)
from allocation.models import ApprovalRule
from allocation.rules.approvals import Role, Step
from allocation.web.parts.approvals import step_words
from allocation.web.parts.times import length_words
from billing.rules import money_text
from tenants.access import Actor, led_projects
from tenants.models import GpuClass, Tier
from tenants.platform.terms import term, terms
from tenants.web.form_page import Act, form_page
from tenants.web.parts import counted

STEPS: dict[str, tuple[str, tuple[Role, ...]]] = {
    "lead": ("A lead of the project", ("lead",)),
    "admin": ("An admin of the organisation", ("admin",)),
    "both": ("A lead, then an admin", ("lead", "admin")),
}


@terms
class RuleForm(RuleConditions):
    """A rule as the page asks for it."""

    outside: bool = term("It could run outside of these hours", default=False)
    weekdays: Sequence[str] = term("Days", default=DAYS[:5])
    hours_begin: time = term("from", default=time(8))
    hours_end: time = term("to", default=time(18))
    is_first: bool = term("It is the person's first booking in the project", default=False)
    steps: str = term("Decided by", default="lead")
    needed: int = term("People per step", default=1)
    hours: int = term("Hours to decide, per step", default=72)
    escalates: bool = term(
        "If no lead decides in time, an admin does. Otherwise the request expires.", default=False
    )


def _add(*, actor: Actor, terms: RuleForm, now: datetime) -> ApprovalRule:
    days = [each for each in DAYS if each in terms.weekdays]
    hours = Hours(weekdays=days, begins=terms.hours_begin, ends=terms.hours_end)
    _, roles = STEPS.get(terms.steps, STEPS["lead"])
    rule = ApprovalRuleTerms(
        **{name: getattr(terms, name) for name in RuleConditions.__dataclass_fields__},
        outside=hours if terms.outside else None,
        is_first=terms.is_first,
        steps=[Step(role, terms.needed, terms.hours, terms.escalates) for role in roles],
    )
    return approval_rule_set(actor=actor, terms=rule, now=now)


def _shown(actor: Actor, now: datetime) -> dict[str, Any]:
    """The rules in force; their owners add and end them."""
    return {
        "rules": [_row(actor, rule) for rule in rules_shown(actor)],
        "may_add": bool(_projects(actor)),
        "zone_name": actor.time_zone,
    }


def _projects(actor: Actor) -> list[tuple[str, str]]:
    whole = [("", "All projects")] if actor.is_tenant_admin else []
    return [*whole, *led_projects(actor)]


def _row(actor: Actor, rule: ApprovalRule) -> dict[str, Any]:
    """The rule, and it in words."""
    where = rule.project.name if rule.project else "their project"
    return {
        "rule": rule,
        "conditions": [*_amounts(rule), *_others(rule)],
        "steps": [_step_text(step, where) for step in rule.step_list],
        "may_end": may_set_rule(actor, rule.project),
    }


def _step_text(step: Step, project: str) -> str:
    escalates = ", then an admin" if step.escalates else ""
    return f"{step_words(step, project)} within {length_words(step.hours * 3_600)}{escalates}"


def _amounts(rule: ApprovalRule) -> Iterator[str]:
    if rule.min_cost is not None:
        yield f"costs {money_text(rule.min_cost, CURRENCY)} or more in 24 hours"
    if rule.min_gpu_hours is not None:
        yield f"{counted(f'{rule.min_gpu_hours.normalize():f}', 'GPU-hour')} or more in 24 hours"
    if rule.min_gpus is not None:
        yield f"{counted(rule.min_gpus, 'GPU')} or more at once"
    if rule.min_seconds is not None:
        yield f"{length_words(rule.min_seconds)} or longer"


def _others(rule: ApprovalRule) -> Iterator[str]:
    if rule.classes:
        yield f"class {' or '.join(rule.classes)}"
    if rule.tiers:
        yield f"tier {' or '.join(rule.tiers)}"
    if rule.hours_begin is not None and rule.hours_end is not None:
        days = " ".join(DAYS[day] for day in rule.weekdays)
        yield f"can run outside {days} {rule.hours_begin:%H:%M}–{rule.hours_end:%H:%M} ({rule.zone})"
    if rule.is_first:
        yield "a person's first booking in the project"


urlpatterns = [
    form_page(
        "approvals/rules",
        "approval-rules",
        "approval_rules/page.html",
        _shown,
        Act(
            "add",
            _add,
            "{row.name} is in force. It applies to new bookings.",
            terms=RuleForm,
            choices={
                "project": _projects,
                "classes": lambda _: GpuClass.objects.values_list("slug", "label"),
                "tiers": lambda _: Tier.objects.values_list("slug", "name"),
                "weekdays": lambda _: zip(DAYS, DAYS, strict=True),
                "steps": lambda _: [(key, label) for key, (label, _) in STEPS.items()],
            },
        ),
        Act(
            "end",
            approval_rule_retire,
            "{row.name} has ended. Requests that wait by it still need a decision.",
            key="rule",
        ),
    )
]
