"""Adding rules that send bookings to an approver, and ending them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, time
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.models import ApprovalRule
from allocation.rules.approvals import Step
from allocation.words.refusals import refusal_text
from tenants.access import Actor, access_project, require_tenant_admin
from tenants.audit import actor_record
from tenants.models import GpuClass, Project, Tier
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.terms import term, terms
from tenants.services.input_values import name_read

Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
DAYS: tuple[Day, ...] = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MOST_RULES = 50
MOST_HOURS = 30 * 24
MOST = {"min_cost": 10**9, "min_gpu_hours": 10**6, "min_gpus": 10**6, "min_seconds": 366 * 86_400}


@terms
class Hours:
    """Hours of weekdays."""

    weekdays: Sequence[Day] = term(min_length=1, max_length=7)
    begins: time = term(says="`08:00`")
    ends: time = term()
    zone: str = term(default="", max_length=64)


@terms
class RuleConditions:
    """Conditions of a rule. Those that are left out do not matter."""

    name: str = term("Name", "Shown to people who meet it.", reads=name_read, max_length=80)
    project: str = term("For bookings in", says="Without it: every one.", default="", max_length=40)
    min_cost: Decimal | None = term("Costs at least", "In the site's currency.", default=None)
    min_gpu_hours: Decimal | None = term("GPU-hours, at least", default=None, decimal_places=3)
    min_gpus: int | None = term("GPUs at once, at least", default=None)
    min_seconds: int | None = term("Length, at least", asks="length", example="24h", default=None)
    classes: Sequence[str] = term("GPU classes", default=(), max_length=32, child_kwargs={"max_length": 40})
    tiers: Sequence[str] = term("Tiers", default=(), max_length=32, child_kwargs={"max_length": 40})


@terms
class ApprovalRuleTerms(RuleConditions):
    """A new rule. Conditions that are left out do not matter; at least one is needed."""

    outside: Hours | None = term(default=None)
    is_first: bool = term(default=False)
    steps: Sequence[Step] = term()


@terms
class ApprovalRuleChangeTerms(ApprovalRuleTerms):
    """What becomes different; what is left out stays, and null or an empty list removes a condition."""

    version: int = term(says="The version that you have read.", min_value=1)
    name: str = term(default="", max_length=80)
    steps: Sequence[Step] = term(default=())


def approval_rule_set(*, actor: Actor, terms: ApprovalRuleTerms, now: datetime) -> ApprovalRule:
    """Adds a rule for new bookings. Bookings that exist are not asked for again.

    Raises:
        Refused: `not_allowed`, `bad_name`, `no_condition`, `out_of_range`, `unknown_class`,
            `unknown_tier`, `bad_hours`, `bad_steps`, `too_many_rules`.
    """
    values = _values(actor, terms)
    rule = ApprovalRule(tenant_id=actor.tenant_id, created=now, created_by_id=actor.user_id, **values)
    with transaction.atomic():
        in_force = ApprovalRule.objects.filter(tenant_id=actor.tenant_id, retired=None)
        if in_force.count() >= MOST_RULES:
            sentence = refusal_text("too_many_rules", most_rules=MOST_RULES)
            raise invalid("too_many_rules", sentence, "name")
        rule.save(force_insert=True)
        _audit(actor, "approval_rule.set", rule, now)
    return rule


def approval_rule_change(
    *, actor: Actor, rule_id: UUID, version: int, terms: ApprovalRuleTerms, now: datetime
) -> ApprovalRule:
    """Changes a rule for new bookings. Requests that wait by it keep their steps.

    Raises:
        Refused: `not_found`, `rule_changed` if it has another version or has ended, and as
            `approval_rule_set`.
    """
    with transaction.atomic():
        rule = _locked(actor, rule_id)
        if rule.version != version or rule.retired is not None:
            text = refusal_text("rule_changed", name=rule.name)
            raise Refused("rule_changed", text, numbers={"version": rule.version})
        values = _values(actor, terms)
        before = _logged(rule)
        for name, value in values.items():
            setattr(rule, name, value)
        if _logged(rule) != before:
            rule.version += 1
            rule.save(update_fields=[*values, "version"])
            _audit(actor, "approval_rule.changed", rule, now, {"before": before})
    return rule


def rule_terms(actor: Actor, rule_id: UUID) -> ApprovalRuleTerms:
    """Returns the terms that would make a rule as it is. Raises Refused `not_found`."""
    rule = _rules(actor).select_related("project").filter(id=rule_id).first()
    if rule is None:
        raise missing("approval rule")
    outside = None
    if rule.hours_begin is not None and rule.hours_end is not None:
        days = [DAYS[each] for each in rule.weekdays]
        outside = Hours(weekdays=days, begins=rule.hours_begin, ends=rule.hours_end, zone=rule.zone)
    return ApprovalRuleTerms(
        name=rule.name,
        project=rule.project.slug if rule.project else "",
        **{name: getattr(rule, name) for name in MOST},
        classes=rule.classes,
        tiers=rule.tiers,
        outside=outside,
        is_first=rule.is_first,
        steps=rule.step_list,
    )


def approval_rule_retire(*, actor: Actor, rule_id: UUID, now: datetime) -> ApprovalRule:
    """Ends a rule. Requests that wait for an approval by it still need their decision. Idempotent.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    with transaction.atomic():
        rule = _locked(actor, rule_id)
        if rule.retired is None:
            rule.retired, rule.retired_by_id = now, actor.user_id
            rule.save(update_fields=["retired", "retired_by"])
            _audit(actor, "approval_rule.retired", rule, now)
    return rule


def rules_shown(actor: Actor) -> QuerySet[ApprovalRule]:
    """The rules in force that the actor's projects have, the organisation's first."""
    rows = _rules(actor).filter(retired=None).select_related("project", "created_by")
    return rows.order_by("project__name", "created", "id")


def may_set_rule(actor: Actor, project: Project | None) -> bool:
    """Returns whether the actor may add or end a rule of the project, or of the organisation."""
    return actor.is_tenant_admin if project is None else actor.may_lead(project.id)


def _rules(actor: Actor) -> QuerySet[ApprovalRule]:
    rows = ApprovalRule.objects.filter(tenant_id=actor.tenant_id)
    if actor.is_tenant_admin:
        return rows
    return rows.filter(Q(project=None) | Q(project__in=list(actor.roles)))


def _locked(actor: Actor, rule_id: UUID) -> ApprovalRule:
    """A rule that the actor may change. Raises Refused."""
    rows = _rules(actor).select_for_update(of=("self",)).select_related("project")
    rule = rows.filter(id=rule_id).first()
    if rule is None:
        raise missing("approval rule")
    if not may_set_rule(actor, rule.project):
        raise denied(refusal_text("approval_rule_admins_only"))
    return rule


def _values(actor: Actor, terms: ApprovalRuleTerms) -> dict[str, Any]:
    """The fields of a rule with these terms. Raises Refused as `approval_rule_set`."""
    amounts = {name: getattr(terms, name) for name in MOST}
    values = {
        "project": _project_read(actor, terms.project),
        "name": name_read(terms.name),
        "classes": _known(terms.classes, GpuClass, "unknown_class", "classes"),
        "tiers": _known(terms.tiers, Tier, "unknown_tier", "tiers"),
        "is_first": terms.is_first,
        "steps": _steps_data(terms.steps),
        **amounts,
        **_hours_data(terms.outside, actor.time_zone),
    }
    for name, value in amounts.items():
        if value is not None and not 0 < value <= MOST[name]:
            sentence = refusal_text("condition_out_of_range", most=f"{MOST[name]:,}")
            raise invalid("out_of_range", sentence, name)
    others = (values["classes"], values["tiers"], terms.outside, terms.is_first)
    if all(each is None for each in amounts.values()) and not any(others):
        raise invalid("no_condition", refusal_text("no_condition"), "min_cost")
    return values


def _project_read(actor: Actor, slug: str) -> Project | None:
    if not slug:
        require_tenant_admin(actor)
        return None
    project = access_project(actor, slug, "project")
    if not actor.may_lead(project.id):
        raise denied(refusal_text("leads_only"))
    return project


def _known(slugs: Sequence[str], model: type[GpuClass] | type[Tier], code: str, param: str) -> list[str]:
    known = set(model.objects.filter(slug__in=slugs).values_list("slug", flat=True))
    unknown = [each for each in slugs if each not in known]
    if unknown:
        raise invalid(code, refusal_text("no_such_name", name=f"{unknown[0][:40]!r}"), param)
    return sorted(known)


def _hours_data(outside: Hours | None, own_zone: str) -> dict[str, Any]:
    if outside is None:
        return {"hours_begin": None, "hours_end": None, "weekdays": [], "zone": "UTC"}
    if outside.ends <= outside.begins:
        raise invalid("bad_hours", refusal_text("hours_backward"), "hours_end")
    if not outside.weekdays:
        raise invalid("bad_hours", refusal_text("hours_days_missing"), "weekdays")
    zone = outside.zone or own_zone
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise invalid("bad_hours", refusal_text("unknown_zone"), "zone") from error
    days = sorted({DAYS.index(each) for each in outside.weekdays})
    return {"hours_begin": outside.begins, "hours_end": outside.ends, "weekdays": days, "zone": zone}


def _steps_data(steps: Sequence[Step]) -> list[dict[str, object]]:
    if not steps or len({step.role for step in steps}) != len(steps):
        raise invalid("bad_steps", refusal_text("bad_steps"), "steps")
    for step in steps:
        if not 1 <= step.needed <= 5:
            raise invalid("bad_steps", refusal_text("bad_step_people"), "needed")
        if not 1 <= step.hours <= MOST_HOURS:
            raise invalid("bad_steps", refusal_text("bad_step_hours", most_hours=MOST_HOURS), "hours")
    return [
        {
            "role": step.role,
            "needed": step.needed,
            "hours": step.hours,
            "escalates": step.escalates and step.role == "lead",
        }
        for step in steps
    ]


def _audit(
    actor: Actor,
    action: str,
    rule: ApprovalRule,
    now: datetime,
    more: Mapping[str, object] = MappingProxyType({}),
) -> None:
    actor_record(actor, action, ("approval_rule", rule.id), now, {**_logged(rule), **more})


def _logged(rule: ApprovalRule) -> dict[str, Any]:
    return {
        "name": rule.name,
        "project": rule.project.slug if rule.project else "",
        "cost": "" if rule.min_cost is None else str(rule.min_cost),
        "gpu_hours": "" if rule.min_gpu_hours is None else str(rule.min_gpu_hours),
        "gpus": rule.min_gpus or "",
        "seconds": rule.min_seconds or "",
        "classes": ", ".join(rule.classes),
        "tiers": ", ".join(rule.tiers),
        "outside": _hours_text(rule),
        "first": rule.is_first,
        "steps": ", ".join(_step_text(step) for step in rule.step_list),
    }


def _hours_text(rule: ApprovalRule) -> str:
    if rule.hours_begin is None or rule.hours_end is None:
        return ""
    days = " ".join(DAYS[day] for day in rule.weekdays)
    return f"{days} {rule.hours_begin:%H:%M}-{rule.hours_end:%H:%M} {rule.zone}"


def _step_text(step: Step) -> str:
    escalates = ", then an admin" if step.escalates else ""
    return f"{step.needed} {step.role} in {step.hours} h{escalates}"
