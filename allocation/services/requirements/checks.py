"""Which requirements a person meets, and the refusal of a request that needs another one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from allocation.models import Acceptance, Requirement
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
    requirements: Iterable[Requirement], *, tenant_id: UUID, person_id: int, now: datetime
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


def requirements_check(
    *,
    tenant_id: UUID,
    person_id: int | None,
    tier: str,
    project: str,
    classes: Sequence[str],
    now: datetime,
) -> None:
    """Checks what the tier in the project (its slug) and each of the classes demand of the person.

    Raises:
        Refused: `terms_missing` or `training_missing`.
    """
    found = requirement_missing(
        tenant_id=tenant_id,
        person_id=person_id,
        tier=tier,
        project=project,
        classes=classes,
        now=now,
    )
    if found is not None:
        raise found


def requirement_missing(
    *,
    tenant_id: UUID,
    person_id: int | None,
    tier: str,
    project: str,
    classes: Sequence[str],
    now: datetime,
) -> Refused | None:
    """Returns the refusal for the first requirement that the person does not meet.

    A service account stands for the person who created it.
    """
    wanted = [
        each
        for each in requirements_open(tenant_id)
        if (each.tier_id == tier and (not each.projects or project in each.projects))
        or each.gpu_class_id in classes
    ]
    if not wanted or person_id is None:
        return None
    of = ServiceAccount.objects.filter(user=person_id).values_list("created_by", flat=True)
    person = next(iter(of), person_id)
    for state in requirement_states(wanted, tenant_id=tenant_id, person_id=person, now=now):
        if not state.is_met:
            return _refusal(state)
    return None


def requirements_of(tenant_id: UUID) -> Q:
    """The requirements that a tenant sees, also ended ones."""
    return Q(tenant=None) | Q(tenant=tenant_id)


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
