"""Pages of terms and training: of a tenant for everybody, and of GPU classes for operators."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from allocation.features.requirements.checks import (
    RequirementState,
    acceptances_of,
    requirement_states,
    requirements_open,
)
from allocation.features.requirements.models import Acceptance, Requirement
from allocation.features.requirements.services import (
    RequirementTerms,
    TrainingTerms,
    class_requirement_end,
    class_requirement_set,
    requirement_accept,
    tier_requirement_end,
    tier_requirement_set,
    training_record,
)
from tenants.access import Actor, PlatformActor
from tenants.models import GpuClass, KnownPerson, Project, Tier
from tenants.platform.terms import term, terms
from tenants.rules.operator_roles import Area
from tenants.web.form_page import Act, form_page, operator_form_page

MOST_SHOWN = 200
SET = "{row} applies to new bookings and changes in the {row.target}."
ENDED = "{row.name} is no longer demanded."


@terms
class TierForm(RequirementTerms):
    """A requirement as an admin states it for a tier."""

    of: Literal["tier", "class"] = term(default="tier")


@terms
class ClassForm(RequirementTerms):
    """A requirement as an operator states it for a class, in all projects."""

    of: Literal["tier", "class"] = term(default="class")
    target: str = term("Class", max_length=40)
    projects: tuple[str, ...] = term(default=())


def _shown(actor: Actor, now: datetime) -> dict[str, Any]:
    """What classes and tiers demand of the reader; admins see who meets it."""
    rows = requirements_open(actor.tenant_id)
    states = requirement_states(rows, actor.tenant_id, actor.user_id, now)
    cards = [(state, _held(actor, state.requirement)) for state in states]
    return {"cards": cards, "is_admin": actor.is_tenant_admin}


def _held(actor: Actor, row: Requirement) -> Iterable[Acceptance]:
    return acceptances_of(actor.tenant_id, row)[:MOST_SHOWN] if actor.is_tenant_admin else ()


def _of_classes(actor: PlatformActor, now: datetime) -> dict[str, Any]:
    rows = Requirement.objects.filter(tenant=None, ended=None).order_by("name", "id")
    return {"cards": [(RequirementState(row, None, is_met=False), ()) for row in rows]}


def _kinds(_: object) -> Iterable[tuple[object, object]]:
    return Requirement.Kind.choices


def _tiers(_: Actor) -> Iterable[tuple[str, str]]:
    return Tier.objects.values_list("slug", "name")


def _classes(_: PlatformActor) -> Iterable[tuple[str, str]]:
    return GpuClass.objects.values_list("slug", "label")


def _projects(actor: Actor) -> Iterable[tuple[str, str]]:
    rows = Project.objects.filter(tenant_id=actor.tenant_id, is_open=True).order_by("name")
    return rows.values_list("slug", "name")


def _people(actor: Actor) -> list[tuple[str, str]]:
    if not actor.is_tenant_admin:
        return []
    known = KnownPerson.objects.filter(tenant_id=actor.tenant_id, disabled=None).select_related("user")
    return [(row.user.username, row.user.display_name) for row in known.order_by("user__username")]


urlpatterns = [
    form_page(
        "requirements",
        "requirements",
        "requirements/page.html",
        _shown,
        Act(
            "accept",
            requirement_accept,
            "You accepted {row.requirement}. Book again now.",
            key="requirement",
        ),
        Act(
            "set",
            tier_requirement_set,
            SET,
            terms=TierForm,
            choices={"target": _tiers, "kind": _kinds, "projects": _projects},
        ),
        Act("end", tier_requirement_end, ENDED, key="requirement"),
        Act(
            "record",
            training_record,
            "Training recorded for {row.user.display_name}.",
            key="requirement",
            terms=TrainingTerms,
            choices={"user": _people},
        ),
    ),
    operator_form_page(
        "requirements",
        "ops-requirements",
        "requirements/ops.html",
        _of_classes,
        Act(
            "set",
            class_requirement_set,
            SET,
            terms=ClassForm,
            choices={"target": _classes, "kind": _kinds},
        ),
        Act("end", class_requirement_end, ENDED, key="requirement"),
        area=Area.RULES,
    ),
]
