"""Pages of terms and training: of a tenant for everybody, and of GPU classes for operators."""

from dataclasses import dataclass
from datetime import date
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import Acceptance, Requirement
from allocation.services.requirements.checks import (
    RequirementState,
    requirement_states,
    requirements_open,
)
from allocation.services.requirements.requirements import (
    RequirementTerms,
    class_requirement_end,
    class_requirement_set,
    requirement_accept,
    tier_requirement_end,
    tier_requirement_set,
    training_record,
)
from allocation.words.refusals import refusal_text
from tenants.access import Actor, client_address
from tenants.models import GpuClass, KnownPerson, Project, Tier, User
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.rules.operator_roles import Area
from tenants.services import whole_read, whole_sent
from tenants.web.frame import operator_page, tenant_page
from tenants.web.parts import Field

MOST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class RequirementCard:
    """A requirement with the reader's state and, for admins, who meets it."""

    state: RequirementState
    may_end: bool
    people: tuple[Acceptance, ...]


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def requirements_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows what classes and tiers demand of the reader, who accepts texts here."""
    refusal = None
    now = timezone.now()
    if request.method == "POST":
        acts: dict[str, FormAction] = {
            "accept": lambda form: _accept(request, actor, form),
            "set": lambda form: _tier_set(actor, form),
            "end": lambda form: _tier_end(actor, form),
            "record": lambda form: _record(actor, form),
        }
        refusal = form_action_run(request, acts)
        if refusal is None:
            return redirect("requirements", tenant=actor.tenant_slug)
    states = requirement_states(
        requirements_open(actor.tenant_id),
        tenant_id=actor.tenant_id,
        person_id=actor.user_id,
        now=now,
    )
    cards = [_card(actor, state) for state in states]
    is_admin = actor.is_tenant_admin
    context = {
        "cards": cards,
        "people": _people(actor) if is_admin else [],
        "form": _form(request, refusal, Tier.objects.values_list("slug", "name"), "Tier")
        | {"projects": _projects(request, actor, refusal)}
        if is_admin
        else None,
        "refusal": refusal,
        "today": f"{timezone.localdate():%Y-%m-%d}",
    }
    status = 422 if refusal else 200
    return render(request, "allocation/requirements/page.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.RULES)
def ops_requirements(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows what GPU classes demand, and the form of a new requirement."""
    refusal = None
    if request.method == "POST":
        acts: dict[str, FormAction] = {
            "set": lambda form: _class_set(operator, form),
            "end": lambda form: _class_end(operator, form),
        }
        refusal = form_action_run(request, acts)
        if refusal is None:
            return redirect("ops-requirements")
    rows = Requirement.objects.filter(tenant=None, ended=None).order_by("name", "id")
    context = {
        "cards": [
            RequirementCard(RequirementState(row, None, is_met=False), may_end=True, people=())
            for row in rows
        ],
        "form": _form(request, refusal, GpuClass.objects.values_list("slug", "label"), "Class"),
        "refusal": refusal,
    }
    status = 422 if refusal else 200
    return render(request, "allocation/requirements/ops.html", context, status=status)


def _projects(request: HttpRequest, actor: Actor, refusal: Refused | None) -> list[tuple[str, str, bool]]:
    """The projects of the tenant, with those that were ticked in a refused form."""
    ticked = set(request.POST.getlist("projects")) if refusal is not None else set()
    rows = Project.objects.filter(tenant_id=actor.tenant_id, is_open=True).order_by("name")
    return [(row.slug, row.name, row.slug in ticked) for row in rows]


def _card(actor: Actor, state: RequirementState) -> RequirementCard:
    row = state.requirement
    people: tuple[Acceptance, ...] = ()
    if actor.is_tenant_admin:
        same = Acceptance.objects.filter(
            tenant_id=actor.tenant_id,
            requirement__name=row.name,
            requirement__tier=row.tier_id,
            requirement__gpu_class=row.gpu_class_id,
        )
        people = tuple(same.select_related("user", "requirement", "recorded_by")[:MOST_SHOWN])
    may_end = actor.is_tenant_admin and row.tenant_id is not None
    return RequirementCard(state, may_end, people)


def _people(actor: Actor) -> list[tuple[str, str]]:
    known = KnownPerson.objects.filter(tenant_id=actor.tenant_id, disabled=None)
    users = User.objects.filter(id__in=known.values("user_id")).order_by("username")
    return [(str(user.pk), user.display_name) for user in users]


def _accept(request: HttpRequest, actor: Actor, form: QueryDict) -> str:
    found = requirement_accept(
        actor=actor,
        requirement_id=id_read(form, "requirement", "requirement"),
        address=client_address(request.META),
        now=timezone.now(),
    )
    return f"You accepted {found.requirement}. Book again now."


def _terms(form: QueryDict) -> RequirementTerms:
    return RequirementTerms(
        target=form.get("target", ""),
        kind=form.get("kind", ""),
        name=form.get("name", ""),
        text=form.get("text", ""),
        valid_days=whole_sent(form, "valid_days"),
        projects=form.getlist("projects"),
    )


def _tier_set(actor: Actor, form: QueryDict) -> str:
    row = tier_requirement_set(actor=actor, terms=_terms(form), now=timezone.now())
    return f"{row} applies to new bookings and changes in the {row.target}."


def _class_set(operator: User, form: QueryDict) -> str:
    row = class_requirement_set(operator=operator, terms=_terms(form), now=timezone.now())
    return f"{row} applies to new bookings and changes in the {row.target}."


def _tier_end(actor: Actor, form: QueryDict) -> str:
    key = id_read(form, "requirement", "requirement")
    row = tier_requirement_end(actor=actor, requirement_id=key, now=timezone.now())
    return f"{row.name} is no longer demanded."


def _class_end(operator: User, form: QueryDict) -> str:
    key = id_read(form, "requirement", "requirement")
    row = class_requirement_end(operator=operator, requirement_id=key, now=timezone.now())
    return f"{row.name} is no longer demanded."


def _record(actor: Actor, form: QueryDict) -> str:
    try:
        day = date.fromisoformat(form.get("day", ""))
    except ValueError:
        raise invalid("bad_day", refusal_text("day_example"), "day") from None
    found = training_record(
        actor=actor,
        requirement_id=id_read(form, "requirement", "requirement"),
        user_id=whole_read(form.get("user", ""), param="user"),
        day=day,
        now=timezone.now(),
    )
    return f"Training recorded for {found.user.display_name}."


def _form(
    request: HttpRequest,
    refusal: Refused | None,
    targets: Any,  # noqa: ANN401 (a query of pairs)
    label: str,
) -> dict[str, object]:
    typed = request.POST if refusal is not None else QueryDict()

    def field(name: str, label: str, hint: str = "", **more: Any) -> Field:  # noqa: ANN401 (a Field's)
        error = refusal.sentence if refusal is not None and refusal.param == name else ""
        return Field(name, label, typed.get(name, ""), hint=hint, error=error, id=f"new-{name}", **more)

    return {
        "target": field("target", label, choices=list(targets)),
        "kind": field("kind", "Kind", choices=Requirement.Kind.choices),
        "name": field("name", "Name", "The same name again makes a new version.", maxlength=80),
        "valid_days": field("valid_days", "Valid for days", "Empty: without an end.", required=False),
        "text": typed.get("text", ""),
        "text_error": refusal.sentence if refusal is not None and refusal.param == "text" else "",
    }


urlpatterns = [
    path("t/<slug:tenant>/requirements", requirements_page, name="requirements"),
    path("ops/requirements", ops_requirements, name="ops-requirements"),
]
