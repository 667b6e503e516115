"""Rules that send bookings to an approver: leads set those of their project, admins all."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.db import transaction

from allocation.models import ApprovalRule
from allocation.rules.approvals import Step
from allocation.words.refusals import refusal_text
from tenants.access import Actor, access_project, require_tenant_admin
from tenants.audit import audit_record
from tenants.models import GpuClass, Project, Tier
from tenants.platform.errors import denied, invalid, missing
from tenants.services.input_values import name_read

MOST_RULES = 50
MOST_HOURS = 30 * 24
MOST_COST = Decimal(10) ** 9
MOST_NUMBER = 10**6


@dataclass(frozen=True, slots=True)
class RuleTerms:
    """A rule as a person states it: a booking that meets all conditions needs its steps."""

    name: str
    steps: Sequence[Step]
    project: str = ""
    min_cost: Decimal | None = None
    min_gpu_hours: Decimal | None = None
    min_gpus: int | None = None
    min_seconds: int | None = None
    classes: Sequence[str] = ()
    tiers: Sequence[str] = ()
    hours_begin: time | None = None
    hours_end: time | None = None
    weekdays: Sequence[int] = ()
    zone: str = "UTC"
    is_first: bool = False


def approval_rule_set(*, actor: Actor, terms: RuleTerms, now: datetime) -> ApprovalRule:
    """Adds a rule for new bookings. Bookings that exist are not asked for again.

    Raises:
        Refused: `not_allowed`, `bad_name`, `no_condition`, `out_of_range`, `unknown_class`,
            `unknown_tier`, `bad_hours`, `bad_steps`, `too_many_rules`.
    """
    project = _project_read(actor, terms.project)
    rule = ApprovalRule(
        tenant_id=actor.tenant_id,
        project=project,
        name=name_read(terms.name),
        min_cost=terms.min_cost,
        min_gpu_hours=terms.min_gpu_hours,
        min_gpus=terms.min_gpus,
        min_seconds=terms.min_seconds,
        classes=_known(terms.classes, GpuClass, "unknown_class", "classes"),
        tiers=_known(terms.tiers, Tier, "unknown_tier", "tiers"),
        hours_begin=terms.hours_begin,
        hours_end=terms.hours_end,
        weekdays=sorted(set(terms.weekdays)),
        zone=terms.zone,
        is_first=terms.is_first,
        steps=_steps_data(terms.steps),
        created=now,
        created_by_id=actor.user_id,
    )
    _amounts_check(terms)
    _hours_check(terms)
    _states_something_check(rule)
    with transaction.atomic():
        in_force = ApprovalRule.objects.filter(tenant_id=actor.tenant_id, retired=None)
        if in_force.count() >= MOST_RULES:
            sentence = refusal_text("too_many_rules", most_rules=MOST_RULES)
            raise invalid("too_many_rules", sentence, "name")
        rule.save(force_insert=True)
        _audit(actor, "approval_rule.set", rule, now)
    return rule


def approval_rule_retire(*, actor: Actor, rule_id: UUID, now: datetime) -> ApprovalRule:
    """Ends a rule. Requests that wait for an approval by it still need their decision. Idempotent.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    with transaction.atomic():
        rows = ApprovalRule.objects.select_for_update(of=("self",)).select_related("project")
        rule = rows.filter(tenant_id=actor.tenant_id, id=rule_id).first()
        if rule is None or not _may_see(actor, rule):
            raise missing("approval rule")
        if not may_set_rule(actor, rule.project):
            raise denied(refusal_text("approval_rule_admins_only"))
        if rule.retired is None:
            rule.retired, rule.retired_by_id = now, actor.user_id
            rule.save(update_fields=["retired", "retired_by"])
            _audit(actor, "approval_rule.retired", rule, now)
    return rule


def may_set_rule(actor: Actor, project: Project | None) -> bool:
    """Returns whether the actor may add or end a rule of the project, or of the organisation."""
    return actor.is_tenant_admin if project is None else actor.may_lead(project.id)


def _may_see(actor: Actor, rule: ApprovalRule) -> bool:
    return rule.project_id is None or actor.role_in(rule.project_id) is not None


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


def _amounts_check(terms: RuleTerms) -> None:
    amounts: tuple[tuple[str, Decimal | int | None, Decimal | int], ...] = (
        ("min_cost", terms.min_cost, MOST_COST),
        ("min_gpu_hours", terms.min_gpu_hours, MOST_NUMBER),
        ("min_gpus", terms.min_gpus, MOST_NUMBER),
        ("min_seconds", terms.min_seconds, 366 * 86_400),
    )
    for name, value, most in amounts:
        if value is not None and not 0 < value <= most:
            raise invalid("out_of_range", refusal_text("condition_out_of_range", most=f"{most:,}"), name)


def _hours_check(terms: RuleTerms) -> None:
    if terms.hours_begin is None and terms.hours_end is None:
        if terms.weekdays:
            raise invalid("bad_hours", refusal_text("hours_missing"), "hours_begin")
        return
    if terms.hours_begin is None or terms.hours_end is None:
        raise invalid("bad_hours", refusal_text("hours_half"), "hours_begin")
    if terms.hours_end <= terms.hours_begin:
        raise invalid("bad_hours", refusal_text("hours_backward"), "hours_end")
    if not terms.weekdays or not set(terms.weekdays) <= set(range(7)):
        raise invalid("bad_hours", refusal_text("hours_days_missing"), "weekdays")
    try:
        ZoneInfo(terms.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise invalid("bad_hours", refusal_text("unknown_zone"), "zone") from error


def _states_something_check(rule: ApprovalRule) -> None:
    stated = (rule.min_cost, rule.min_gpu_hours, rule.min_gpus, rule.min_seconds)
    others = (rule.classes, rule.tiers, rule.hours_begin, rule.is_first)
    if all(each is None for each in stated) and not any(others):
        raise invalid("no_condition", refusal_text("no_condition"), "min_cost")


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


def _audit(actor: Actor, action: str, rule: ApprovalRule, now: datetime) -> None:
    detail = {
        "name": rule.name,
        "project": rule.project.slug if rule.project else "",
        "cost": "" if rule.min_cost is None else str(rule.min_cost),
        "gpu_hours": "" if rule.min_gpu_hours is None else str(rule.min_gpu_hours),
        "gpus": rule.min_gpus or "",
        "seconds": rule.min_seconds or "",
        "classes": ", ".join(rule.classes),
        "tiers": ", ".join(rule.tiers),
        "outside": f"{rule.hours_begin:%H:%M}-{rule.hours_end:%H:%M}" if rule.hours_begin else "",
        "first": rule.is_first,
    }
    audit_record(
        tenant_id=actor.tenant_id,
        actor_id=actor.user_id,
        action=action,
        target=("approval_rule", rule.id),
        now=now,
        detail={**detail, "steps": ", ".join(step.role for step in rule.step_list)},
    )
