"""Which requirements a person meets, and the refusal of a request that needs another one."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet

from allocation.features.requirements.models import Acceptance, Requirement
from allocation.points.people import IntendedUse
from allocation.services.record.refusals import refusal
from allocation.words.refusals import refusal_text
from tenants.models import ServiceAccount
from tenants.platform.errors import Refused
from tenants.platform.reference import by_version


@dataclass(frozen=True, slots=True)
class RequirementState:
    """A requirement, and a person's newest acceptance of it or date of training."""

    requirement: Requirement
    acceptance: Acceptance | None
    is_met: bool


@by_version
def _open() -> tuple[Requirement, ...]:
    """The requirements in force: the reader's tenant's and all's."""
    return tuple(Requirement.objects.filter(ended=None).order_by("name", "id"))


def requirements_open(tenant_id: UUID) -> list[Requirement]:
    """The requirements in force for a tenant, by name."""
    return [each for each in _open() if each.tenant_id in (None, tenant_id)]


def requirement_states(
    requirements: Iterable[Requirement], tenant_id: UUID, person_id: int, now: datetime
) -> list[RequirementState]:
    """Whether the person meets each of these requirements."""
    wanted = list(requirements)
    rows = Acceptance.objects.filter(
        tenant_id=tenant_id, user_id=person_id, requirement_id__in=[each.id for each in wanted]
    )
    newest: dict[UUID, Acceptance] = {}
    for row in rows.order_by("at", "recorded", "id"):
        newest[row.requirement_id] = row
    return [
        RequirementState(each, newest.get(each.id), _is_valid(newest.get(each.id), now)) for each in wanted
    ]


def requirement_unmet(use: IntendedUse, now: datetime) -> Refused | None:
    """Returns the refusal for the first requirement of the tier or a class that the person does not meet.

    A service account stands for the person who created it.
    """
    wanted = [
        each
        for each in requirements_open(use.tenant_id)
        if (each.tier_id == use.tier and (not each.projects or use.project in each.projects))
        or each.gpu_class_id in use.classes
    ]
    if not wanted or use.person_id is None:
        return None
    of = ServiceAccount.objects.filter(user=use.person_id).values_list("created_by", flat=True)
    person = next(iter(of), use.person_id)
    states = requirement_states(wanted, use.tenant_id, person, now)
    return next((_refusal(each) for each in states if not each.is_met), None)


def requirements_of(tenant_id: UUID) -> Q:
    """Returns the filter of the requirements that a tenant sees, also ended ones."""
    return Q(tenant=None) | Q(tenant=tenant_id)


def acceptances_of(tenant_id: UUID, requirement: Requirement) -> QuerySet[Acceptance]:
    """Returns acceptances of all versions of a requirement by people of a tenant, the newest first."""
    rows = Acceptance.objects.filter(
        tenant_id=tenant_id,
        requirement__name=requirement.name,
        requirement__tier=requirement.tier_id,
        requirement__gpu_class=requirement.gpu_class_id,
    )
    return rows.select_related("user", "requirement", "recorded_by")


def _is_valid(row: Acceptance | None, now: datetime) -> bool:
    return row is not None and (row.until is None or now < row.until)


def _refusal(state: RequirementState) -> Refused:
    wanted, held = state.requirement, state.acceptance
    is_terms = wanted.kind == Requirement.Kind.TERMS
    code = "terms_missing" if is_terms else "training_missing"
    facts = {"target": wanted.target, "name": wanted.name}
    if is_terms:
        sentence = refusal_text(code, version=str(wanted.version), **facts)
    elif held is not None and held.until is not None:
        sentence = refusal_text("training_over", until=f"{held.until:%Y-%m-%d}", **facts)
    else:
        sentence = refusal_text(code, **facts)
    return refusal(
        code,
        sentence,
        "denied",
        "request",
        owner="operator" if wanted.tenant_id is None else "tenant_admin",
        numbers={"requirement": str(wanted.id), "version": wanted.version, **facts},
        to_accept=str(wanted.id) if is_terms else "",
    )
