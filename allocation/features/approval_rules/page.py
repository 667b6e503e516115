"""The page of approval rules: leads change those of their projects, admins all of them."""

from collections.abc import Iterator, Sequence
from datetime import datetime, time
from decimal import Decimal
from typing import Any

from allocation.features.approval_rules.services import (
    DAYS,
    ApprovalRuleTerms,
    Hours,
    RuleConditions,
    approval_rule_change,
    approval_rule_retire,
    approval_rule_set,
    may_set_rule,
    rule_terms,
    rules_shown,
)
from allocation.models import ApprovalRule
from allocation.rules.approvals import Role, Step
from allocation.web.parts.approvals import step_words
from allocation.web.parts.times import length_words
from billing.price_books import currency_latest
from billing.rules import money_text
from tenants.access import Actor, led_projects
from tenants.models import GpuClass, Tier
from tenants.platform.forms.actions import id_text_read
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


@terms
class RuleChangeForm(RuleForm):
    """A rule as its row asks for it, in the version that was shown."""

    rule: str = term("Rule")
    version: int = term("Version")


def _add(*, actor: Actor, terms: RuleForm, now: datetime) -> ApprovalRule:
    return approval_rule_set(actor=actor, terms=_terms(terms), now=now)


def _change(*, actor: Actor, terms: RuleChangeForm, now: datetime) -> ApprovalRule:
    rule_id = id_text_read(terms.rule, "rule", "approval rule")
    hours = rule_terms(actor, rule_id).outside
    return approval_rule_change(
        actor=actor,
        rule_id=rule_id,
        version=terms.version,
        terms=_terms(terms, hours.zone if hours else ""),
        now=now,
    )


def _terms(form: RuleForm, zone: str = "") -> ApprovalRuleTerms:
    days = [each for each in DAYS if each in form.weekdays]
    hours = Hours(weekdays=days, begins=form.hours_begin, ends=form.hours_end, zone=zone)
    _, roles = STEPS.get(form.steps, STEPS["lead"])
    return ApprovalRuleTerms(
        **{name: getattr(form, name) for name in RuleConditions.__dataclass_fields__},
        outside=hours if form.outside else None,
        is_first=form.is_first,
        steps=[Step(role, form.needed, form.hours, form.escalates) for role in roles],
    )


def _initial(actor: Actor, edit: str = "") -> dict[str, Any]:
    """The inputs of the rule that is edited, as it is."""
    rule = next((each for each in rules_shown(actor) if str(each.id) == edit), None)
    if rule is None:
        return {}
    found = rule_terms(actor, rule.id)
    first = rule.step_list[0]
    values = {name: getattr(found, name) for name in RuleConditions.__dataclass_fields__} | {
        "min_cost": _amount_typed(rule.min_cost),
        "min_gpu_hours": _amount_typed(rule.min_gpu_hours),
        "min_seconds": _length_typed(rule.min_seconds),
        "is_first": rule.is_first,
        "steps": _steps_key(rule),
        "needed": first.needed,
        "hours": first.hours,
        "escalates": first.escalates,
        "rule": rule.id,
        "version": rule.version,
    }
    if found.outside is not None:
        hours = found.outside
        values |= {"outside": True, "weekdays": hours.weekdays}
        values |= {"hours_begin": hours.begins, "hours_end": hours.ends}
    return values


def _steps_key(rule: ApprovalRule) -> str:
    """Which of the form's choices its steps are; empty if the form can't show them."""
    steps = rule.step_list
    roles = tuple(step.role for step in steps)
    alike = len({(step.needed, step.hours) for step in steps}) == 1
    return next((key for key, (_, those) in STEPS.items() if alike and those == roles), "")


def _amount_typed(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount.normalize():f}"


def _length_typed(seconds: int | None) -> str | None:
    """`1d 2h`, as the input reads it."""
    if seconds is None:
        return None
    left, parts = seconds, []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        count, left = divmod(left, size)
        parts += [f"{count}{unit}"] if count else []
    return " ".join(parts)


def _shown(actor: Actor, now: datetime, edit: str = "") -> dict[str, Any]:
    """The rules in force; their owners add, change and end them."""
    rows = [_row(actor, rule) for rule in rules_shown(actor)]
    edited = next((row for row in rows if row["may_edit"] and str(row["rule"].id) == edit), None)
    rule = edited["rule"] if edited else None
    return {
        "rules": rows,
        "edited": rule,
        "may_add": bool(_projects(actor)),
        "zone_name": rule.zone if rule and rule.hours_begin else actor.time_zone,
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
        "may_end": (may := may_set_rule(actor, rule.project)),
        "may_edit": may and bool(_steps_key(rule)),
    }


def _step_text(step: Step, project: str) -> str:
    escalates = ", then an admin" if step.escalates else ""
    return f"{step_words(step, project)} within {length_words(step.hours * 3_600)}{escalates}"


def _amounts(rule: ApprovalRule) -> Iterator[str]:
    if rule.min_cost is not None:
        yield f"costs {money_text(rule.min_cost, currency_latest())} or more in 24 hours"
    if rule.min_gpu_hours is not None:
        yield f"takes {counted(f'{rule.min_gpu_hours.normalize():f}', 'GPU-hour')} or more in 24 hours"
    if rule.min_gpus is not None:
        yield f"has {counted(rule.min_gpus, 'GPU')} or more at once"
    if rule.min_seconds is not None:
        yield f"takes {length_words(rule.min_seconds)} or longer"


def _others(rule: ApprovalRule) -> Iterator[str]:
    if rule.classes:
        yield f"is on class {' or '.join(rule.classes)}"
    if rule.tiers:
        yield f"is in tier {' or '.join(rule.tiers)}"
    if rule.hours_begin is not None and rule.hours_end is not None:
        days = " ".join(DAYS[day] for day in rule.weekdays)
        yield f"can run outside {days} {rule.hours_begin:%H:%M}–{rule.hours_end:%H:%M} ({rule.zone})"
    if rule.is_first:
        yield "is the person's first booking in the project"


CHOICES = {
    "project": _projects,
    "classes": lambda _: GpuClass.objects.values_list("slug", "label"),
    "tiers": lambda _: Tier.objects.values_list("slug", "name"),
    "weekdays": lambda _: zip(DAYS, DAYS, strict=True),
    "steps": lambda _: [(key, label) for key, (label, _) in STEPS.items()],
}
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
            choices=CHOICES,
        ),
        Act(
            "change",
            _change,
            "{row.name} is changed. It applies to new bookings; requests that wait keep their steps.",
            terms=RuleChangeForm,
            choices=CHOICES,
            initial=_initial,
        ),
        Act(
            "end",
            approval_rule_retire,
            "{row.name} has ended. Requests that wait by it still need a decision.",
            key="rule",
            noun="approval rule",
        ),
        queries=("edit",),
    )
]
