"""The page of approval rules: leads change those of their projects, admins all of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import ApprovalRule
from allocation.queries.bookings.approvals import rules_in_force
from allocation.rules.approvals import Role, Step
from allocation.services.bookings.approval.rules import (
    RuleTerms,
    approval_rule_retire,
    approval_rule_set,
    may_set_rule,
)
from allocation.web.parts.approvals import step_words
from allocation.web.parts.times import length_words
from allocation.words.refusals import refusal_text
from billing.rules import money_text
from tenants.access import Actor
from tenants.models import GpuClass, Project, Tier
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.services import seconds_read, whole_read, whole_sent
from tenants.web.frame import tenant_page
from tenants.web.parts import Field

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
STEPS: dict[str, tuple[str, tuple[Role, ...]]] = {
    "lead": ("A lead of the project", ("lead",)),
    "admin": ("An admin of the organisation", ("admin",)),
    "both": ("A lead, then an admin", ("lead", "admin")),
}
_CURRENCY = "EUR"


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule in words."""

    id: UUID
    name: str
    scope: str
    conditions: tuple[str, ...]
    steps: tuple[str, ...]
    may_end: bool


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def rules_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the rules in force; their owners add and end them."""
    refusal = None
    if request.method == "POST":
        acts: dict[str, FormAction] = {
            "add": lambda form: _add(actor, form),
            "end": lambda form: _end(actor, form),
        }
        refusal = form_action_run(request, acts)
        if refusal is None:
            return redirect("approval-rules", tenant=actor.tenant_slug)
    projects = _projects(actor)
    context = {
        "rules": [_row(actor, rule) for rule in rules_in_force(actor)],
        "form": _form(actor, projects, request.POST, refusal) if _may_add(actor, projects) else None,
        "refusal": refusal,
    }
    return render(request, "allocation/approvals/rules.html", context, status=422 if refusal else 200)


def _projects(actor: Actor) -> list[Project]:
    rows = Project.objects.filter(tenant_id=actor.tenant_id, is_open=True).order_by("name", "id")
    return [project for project in rows if actor.may_lead(project.id)]


def _may_add(actor: Actor, projects: Sequence[Project]) -> bool:
    return actor.is_tenant_admin or bool(projects)


def _add(actor: Actor, form: QueryDict) -> str:
    hours = form.get("hours", "").strip()
    within = whole_read(hours, param="hours") if hours else 72
    needed = whole_read(form.get("needed", "1"), param="needed")
    _, roles = STEPS.get(form.get("steps", ""), STEPS["lead"])
    steps = [Step(role, needed, within, "escalates" in form) for role in roles]
    outside = "outside" in form
    rule = approval_rule_set(
        actor=actor,
        terms=RuleTerms(
            name=form.get("name", ""),
            steps=steps,
            project=form.get("project", ""),
            min_cost=_decimal(form, "min_cost"),
            min_gpu_hours=_decimal(form, "min_gpu_hours"),
            min_gpus=whole_sent(form, "min_gpus"),
            min_seconds=_seconds(form, "min_seconds"),
            classes=form.getlist("classes"),
            tiers=form.getlist("tiers"),
            hours_begin=_time(form, "hours_begin") if outside else None,
            hours_end=_time(form, "hours_end") if outside else None,
            weekdays=[DAYS.index(d) for d in form.getlist("weekdays") if d in DAYS] if outside else (),
            zone=actor.time_zone,
            is_first="is_first" in form,
        ),
        now=timezone.now(),
    )
    return f"{rule.name} is in force. It applies to new bookings."


def _end(actor: Actor, form: QueryDict) -> str:
    rule = approval_rule_retire(
        actor=actor, rule_id=id_read(form, "rule", "approval rule"), now=timezone.now()
    )
    return f"{rule.name} has ended. Requests that wait by it still need a decision."


def _decimal(form: QueryDict, name: str) -> Decimal | None:
    text = form.get(name, "").strip()
    if not text:
        return None
    if not text.isascii() or not set(text) <= set("0123456789.") or len(text) > 20:
        raise invalid("bad_number", refusal_text("number_example"), name)
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise invalid("bad_number", refusal_text("number_example"), name) from error


def _seconds(form: QueryDict, name: str) -> int | None:
    text = form.get(name, "").strip()
    return seconds_read(text, param=name) if text else None


def _time(form: QueryDict, name: str) -> time:
    try:
        return time.fromisoformat(form.get(name, ""))
    except ValueError as error:
        raise invalid("bad_hours", refusal_text("clock_example"), name) from error


def _row(actor: Actor, rule: ApprovalRule) -> RuleRow:
    project = rule.project.name if rule.project else "their project"
    return RuleRow(
        id=rule.id,
        name=rule.name,
        scope=rule.project.name if rule.project else "All projects",
        conditions=tuple(_conditions(rule)),
        steps=tuple(_step_text(step, project) for step in rule.step_list),
        may_end=may_set_rule(actor, rule.project),
    )


def _step_text(step: Step, project: str) -> str:
    escalates = ", then an admin" if step.escalates else ""
    return f"{step_words(step, project)} within {length_words(step.hours * 3_600)}{escalates}"


def _conditions(rule: ApprovalRule) -> list[str]:
    found = [*_amounts(rule)]
    if rule.classes:
        found.append(f"class {' or '.join(rule.classes)}")
    if rule.tiers:
        found.append(f"tier {' or '.join(rule.tiers)}")
    if rule.hours_begin is not None and rule.hours_end is not None:
        days = " ".join(DAYS[day] for day in rule.weekdays)
        hours = f"{rule.hours_begin:%H:%M}–{rule.hours_end:%H:%M}"
        found.append(f"can run outside {days} {hours} ({rule.zone})")
    if rule.is_first:
        found.append("a person's first booking in the project")
    return found


def _amounts(rule: ApprovalRule) -> Iterator[str]:
    if rule.min_cost is not None:
        yield f"costs {money_text(rule.min_cost, _CURRENCY)} or more in 24 hours"
    if rule.min_gpu_hours is not None:
        yield f"{rule.min_gpu_hours.normalize():f} GPU-hours or more in 24 hours"
    if rule.min_gpus is not None:
        yield f"{rule.min_gpus} GPUs or more at once"
    if rule.min_seconds is not None:
        yield f"{length_words(rule.min_seconds)} or longer"


def _form(
    actor: Actor, projects: Sequence[Project], sent: QueryDict, refusal: Refused | None
) -> dict[str, Any]:
    """The form of a new rule: empty, or as typed when it was refused."""
    typed = sent if refusal is not None and sent.get("act") == "add" else QueryDict()

    def field(name: str, label: str, hint: str = "", **more: Any) -> Field:  # noqa: ANN401 (a Field's)
        is_wrong = refusal is not None and refusal.param == name
        error = refusal.sentence if refusal is not None and is_wrong else ""
        value = typed.get(name, more.pop("value", ""))
        return Field(name, label, value, hint=hint, error=error, required=False, id=f"new-{name}", **more)

    scopes: list[tuple[str, str]] = [(each.slug, each.name) for each in projects]
    if actor.is_tenant_admin:
        scopes.insert(0, ("", "All projects"))
    chosen = {name: set(typed.getlist(name)) for name in ("classes", "tiers", "weekdays")}
    days = chosen["weekdays"] or set(DAYS[:5])
    return {
        "name": field("name", "Name", "Shown to people who meet it.", maxlength=80),
        "project": field("project", "For bookings in", choices=scopes),
        "amounts": [
            field("min_cost", f"Costs at least ({_CURRENCY})", inputmode="decimal"),
            field("min_gpu_hours", "GPU-hours, at least", inputmode="decimal"),
            field("min_gpus", "GPUs at once, at least", inputmode="numeric"),
            field("min_seconds", "Length, at least", placeholder="24h"),
        ],
        "classes": _checks(GpuClass.objects.values_list("slug", "label"), chosen["classes"]),
        "tiers": _checks(Tier.objects.values_list("slug", "name"), chosen["tiers"]),
        "weekdays": [(day, day, day in days) for day in DAYS],
        "outside": "outside" in typed,
        "is_first": "is_first" in typed,
        "escalates": "escalates" in typed,
        "hours_begin": field("hours_begin", "from", type="time", value="08:00"),
        "hours_end": field("hours_end", "to", type="time", value="18:00"),
        "zone": actor.time_zone,
        "steps": field("steps", "Decided by", choices=[(key, label) for key, (label, _) in STEPS.items()]),
        "needed": field("needed", "People per step", value="1", inputmode="numeric"),
        "hours": field("hours", "Hours to decide, per step", value="72", inputmode="numeric"),
    }


def _checks(
    rows: Sequence[tuple[str, str]] | Any,  # noqa: ANN401 (a query's rows)
    chosen: set[str],
) -> list[tuple[str, str, bool]]:
    return [(slug, label, slug in chosen) for slug, label in rows]


urlpatterns = [path("t/<slug:tenant>/approvals/rules", rules_page, name="approval-rules")]
