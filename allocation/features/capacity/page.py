"""Pages of capacity: plans and machines of an organisation, and the machines of the site."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.features.capacity.causes.backlog import BacklogRuleTerms, backlog_rule_set
from allocation.features.capacity.causes.forecast import ForecastRuleTerms, forecast_rule_set
from allocation.features.capacity.causes.renting import rules_of
from allocation.features.capacity.mix.load import Whose
from allocation.features.capacity.mix.questions import (
    MixQuery,
    SiteMixQuery,
    mixes_of,
    question_read,
    whose_mix,
)
from allocation.features.capacity.mix.shown import mix_context, mix_csv
from allocation.features.capacity.models import (
    BacklogRule,
    CapacityMachine,
    CapacityPlan,
    CapacitySpend,
    ForecastRule,
    RentingRule,
    RuleMode,
    SprintRule,
)
from allocation.features.capacity.orphans import orphan_release
from allocation.features.capacity.providers import offers, providers
from allocation.features.capacity.rules import Offer
from allocation.features.capacity.services import (
    PlanTerms,
    plan_approve,
    plan_cancel,
    plan_create,
    plans_visible,
    project_may_plan,
)
from allocation.features.capacity.sprints import SprintRuleTerms, sprint_rule_set
from allocation.rules.ask.words.times import duration_words
from allocation.words.amounts import class_name
from billing.rules import money_text
from tenants.access import Actor, PlatformActor, led_projects
from tenants.models import GpuClass, Project, User
from tenants.platform.costly import costly
from tenants.platform.errors import Refused
from tenants.platform.rest.fields import single_values, validated
from tenants.rules.operator_roles import Area
from tenants.web.form_page import Act, form_page, operator_form_page
from tenants.web.frame import operator_page, tenant_page

PLANS_SHOWN = 50
MACHINES_SHOWN = 50
ALL = Whose("all organisations")
PILLS: Mapping[str, str] = {
    "active": "ok", "ready": "ok", "proposed": "wait", "requested": "wait", "booting": "wait",
    "draining": "wait", "releasing": "wait", "lost": "bad", "orphan": "bad", "refused": "bad",
}  # fmt: skip


def _shown(actor: Actor, now: datetime) -> dict[str, Any]:
    plans = list(plans_visible(actor).prefetch_related("machines")[:PLANS_SHOWN])
    return {
        "plans": [_plan_shown(each, actor, now) for each in plans],
        "offers": [_offer_shown(each) for each in offers()],
        "may_plan": bool(_projects(actor)) and bool(offers()),
        "led": [(slug, name) for slug, name in led_projects(actor)],
    }


def _plan_shown(plan: CapacityPlan, actor: Actor, now: datetime) -> dict[str, Any]:
    is_open = plan.state in CapacityPlan.OPEN
    return {
        "plan": plan,
        "pill": PILLS.get(plan.state, ""),
        "most": money_text(plan.most_cost, plan.currency),
        "committed": money_text(plan.committed, plan.currency),
        "charged": money_text(plan.charged, plan.currency),
        "machines": [machine_shown(each) for each in plan.machines.all()],
        "may_cancel": is_open and (plan.created_by_id == actor.user_id or actor.may_lead(plan.project_id)),
        "may_approve": plan.state == plan.State.PROPOSED and actor.may_lead(plan.project_id),
    }


def machine_shown(machine: CapacityMachine) -> dict[str, Any]:
    """A machine as pages show it."""
    return {
        "machine": machine,
        "pill": PILLS.get(machine.state, ""),
        "cost": money_text(machine.cost, machine.currency) if machine.currency else "",
    }


def _offer_shown(offer: Offer) -> dict[str, Any]:
    return {
        "offer": offer,
        "gpu_class": class_name(offer.gpu_class),
        "price": money_text(offer.price, offer.currency),
        "lead": duration_words(offer.lead_seconds),
        "least": duration_words(offer.least_seconds),
        "period": duration_words(offer.period_seconds),
    }


def _projects(actor: Actor) -> list[tuple[str, str]]:
    rows = Project.objects.filter(tenant_id=actor.tenant_id, is_open=True).order_by("name")
    return [(row.slug, row.name) for row in rows if actor.may_book(row.id)]


def _classes(_: object) -> list[tuple[str, str]]:
    offered = {each.gpu_class for each in offers()}
    return [(row.slug, row.label) for row in GpuClass.objects.filter(slug__in=offered).order_by("slug")]


def _initial(actor: Actor) -> Mapping[str, Any]:
    until = timezone.localtime(timezone.now() + timedelta(hours=4))
    return {"count": 4, "until": until.strftime("%Y-%m-%dT%H:%M")}


def _sprints_shown(actor: Actor, now: datetime, project: str) -> dict[str, Any]:
    row = project_may_plan(actor, project)
    plans = plans_visible(actor).filter(project=row, source=CapacityPlan.Source.SPRINT)
    return {
        "project": row,
        "plans": [_plan_shown(each, actor, now) for each in plans.prefetch_related("machines")[:10]],
    }


def _sprint_initial(actor: Actor, project: str) -> Mapping[str, Any]:
    rule = SprintRule.objects.filter(tenant_id=actor.tenant_id, project__slug=project).first()
    if rule is None:
        return {"mode": "propose", "count": 4}
    return {
        "mode": rule.mode,
        "gpu_class": rule.gpu_class_id,
        "count": rule.gpus,
        "most_cost": f"{rule.most_cost:.2f}",
        "issue": rule.issue,
    }


_HEADINGS = {"backlog": "Long waits of {project}", "forecast": "Expected shortages for {project}"}


def _rules_shown(kind: type[RentingRule], actor: Actor, now: datetime, project: str) -> dict[str, Any]:
    """The rules of a project, and the newest plans that they made."""
    row = project_may_plan(actor, project)
    plans = plans_visible(actor).filter(project=row, source=kind.SOURCE)
    currency = next((each.currency for each in offers()), "")
    return {
        "project": row,
        "heading": _HEADINGS[kind.SOURCE].format(project=row.name),
        "rules": [
            {"rule": each, "most": money_text(each.most_cost, currency)}
            for each in rules_of(kind, actor, project)
        ],
        "plans": [_plan_shown(each, actor, now) for each in plans.prefetch_related("machines")[:10]],
    }


def _backlog_initial(actor: Actor, project: str) -> Mapping[str, Any]:
    return {"mode": "propose", "wait_minutes": 240, "count": 4, "hours": 12}


def _forecast_initial(actor: Actor, project: str) -> Mapping[str, Any]:
    return {"mode": "propose", "hours": 8, "days": 7, "count": 4}


def _made(plan: CapacityPlan) -> str:
    if plan.state == plan.State.ACTIVE:
        return f"The plan is active: up to {money_text(plan.most_cost, plan.currency)} are held for it."
    return "A lead of the project decides the plan."


def _ops_shown(actor: PlatformActor, now: datetime) -> dict[str, Any]:
    known, fault = _providers_shown(now)
    machines: Iterable[CapacityMachine] = CapacityMachine.objects.select_related(
        "plan__project", "tenant", "gpu_class"
    )
    return {
        "providers": known,
        "fault": fault,
        "machines": [machine_shown(each) for each in list(machines)[:MACHINES_SHOWN]],
        "plans": CapacityPlan.objects.select_related("project", "tenant")[:PLANS_SHOWN],
    }


def _providers_shown(now: datetime) -> tuple[list[dict[str, Any]], str]:
    """Each provider with what it has and costs, or what is wrong with the file."""
    try:
        found = providers()
    except Refused as refusal:
        return [], refusal.sentence
    month = now.date().replace(day=1)
    spent = dict(CapacitySpend.objects.filter(month=month).values_list("provider", "committed"))
    held = CapacityMachine.objects.filter(state__in=CapacityMachine.OPEN)
    return [
        {
            "provider": each,
            "machines": held.filter(provider=each.name).count(),
            "spent": money_text(spent.get(each.name, each.most_cost * 0), each.currency),
            "most": money_text(each.most_cost, each.currency),
            "offers": [_offer_shown(offer) for offer in each.offers],
        }
        for each in found
    ], ""


def _release(*, actor: PlatformActor, machine_id: UUID, now: datetime) -> CapacityMachine:
    return orphan_release(operator_id=actor.user_id, machine_id=machine_id, now=now)


@costly("statement")
@require_safe
@tenant_page
def mix(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows what mixes cost for the demand of a project, of all that a lead leads, or of the organisation."""
    led, project = led_projects(actor), request.GET.get("project", "")
    whose = whose_mix(actor, project if project in dict(led) else "")
    context = mix_context(_filled_in(request), MixQuery, whose, timezone.now())
    everything = "The whole organisation" if actor.is_tenant_admin else "All that I lead"
    context |= {"is_site": False, "projects": led, "project": project, "everything": everything}
    return render(request, "capacity/mix.html", context)


@costly("statement")
@require_safe
@operator_page(Area.FLEET)
def site_mix(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows what mixes cost for the demand of all organisations."""
    context = mix_context(_filled_in(request), SiteMixQuery, ALL, timezone.now())
    return render(request, "capacity/mix.html", context | {"is_site": True})


@costly("statement")
@require_safe
@tenant_page
def mix_file(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Returns the mixes of the page, and without a class of all."""
    now, sent = timezone.now(), _filled_in(request)
    question = question_read(validated(MixQuery, sent), now)
    return mix_csv(mixes_of(whose_mix(actor, sent.get("project", "")), question, now))


@costly("statement")
@require_safe
@operator_page(Area.FLEET)
def site_mix_file(request: HttpRequest, operator: User) -> HttpResponse:
    """Returns the mixes of the site's page."""
    now = timezone.now()
    question = question_read(validated(SiteMixQuery, _filled_in(request)), now)
    return mix_csv(mixes_of(ALL, question, now))


def _filled_in(request: HttpRequest) -> dict[str, str]:
    return {name: value for name, value in single_values(request.GET).items() if value}


MODES = (
    (RuleMode.OFF, "Do nothing"),
    (RuleMode.PROPOSE, "Propose to rent; a lead approves it"),
    (RuleMode.RENT, "Rent without asking"),
)
"""What a rule can do, as a person chooses it."""

urlpatterns = [
    form_page(
        "capacity",
        "capacity",
        "capacity/page.html",
        _shown,
        Act(
            "plan",
            plan_create,
            _made,
            terms=PlanTerms,
            choices={"project": _projects, "gpu_class": _classes},
            initial=_initial,
        ),
        Act("approve", plan_approve, "The plan is active.", key="plan"),
        Act("cancel", plan_cancel, "The plan is cancelled.", key="plan"),
    ),
    form_page(
        "capacity/sprints/<slug:project>",
        "capacity-sprints",
        "capacity/sprints.html",
        _sprints_shown,
        Act(
            "set",
            sprint_rule_set,
            "Sprints that start from now on follow the rule.",
            terms=SprintRuleTerms,
            choices={"mode": lambda _: MODES, "gpu_class": _classes},
            initial=_sprint_initial,
        ),
    ),
    form_page(
        "capacity/backlog/<slug:project>",
        "capacity-backlog",
        "capacity/backlog.html",
        partial(_rules_shown, BacklogRule),
        Act(
            "set",
            backlog_rule_set,
            "The rule holds from now on.",
            terms=BacklogRuleTerms,
            choices={"mode": lambda _: MODES, "gpu_class": _classes},
            initial=_backlog_initial,
        ),
    ),
    form_page(
        "capacity/forecast/<slug:project>",
        "capacity-forecast",
        "capacity/forecast.html",
        partial(_rules_shown, ForecastRule),
        Act(
            "set",
            forecast_rule_set,
            "The rule holds from now on.",
            terms=ForecastRuleTerms,
            choices={"mode": lambda _: MODES, "gpu_class": _classes},
            initial=_forecast_initial,
        ),
    ),
    operator_form_page(
        "machines",
        "ops-machines",
        "capacity/machines.html",
        _ops_shown,
        Act("release", _release, "{row.name} goes back to its provider.", key="machine", is_dangerous=True),
        area=Area.FLEET,
    ),
    path("t/<slug:tenant>/capacity/mix", mix, name="capacity-mix"),
    path("t/<slug:tenant>/capacity/mix.csv", mix_file, name="capacity-mix-csv"),
    path("ops/mix", site_mix, name="ops-mix"),
    path("ops/mix.csv", site_mix_file, name="ops-mix-csv"),
]
