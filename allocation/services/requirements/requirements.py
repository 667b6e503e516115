"""Sets and ends requirements, and records who accepted a text or had a training."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Max

from allocation.models import Acceptance, Requirement
from allocation.services.requirements.checks import requirements_of
from allocation.words.refusals import refusal_text
from tenants.access import Actor, require_tenant_admin
from tenants.audit import audit_record, platform_record
from tenants.models import GpuClass, KnownPerson, Project, Tier, User
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.text import first_invisible
from tenants.services.input_values import name_read

LONGEST_TEXT = 20_000
MOST_DAYS = 3650
MOST_OPEN = 100
FARTHEST_ZONE = timedelta(hours=14)


@dataclass(frozen=True, slots=True)
class RequirementTerms:
    """A requirement as an operator states it for a class, or an admin for a tier."""

    target: str
    kind: str
    name: str
    text: str
    valid_days: int | None = None
    projects: Sequence[str] = ()
    """Slugs of the projects in which a tier demands it; empty: in all."""


def class_requirement_set(*, operator: User, terms: RequirementTerms, now: datetime) -> Requirement:
    """Sets what a GPU class demands of everybody. In `operator_tx`.

    Raises:
        Refused: `not_found`, `bad_kind`, `bad_name`, `bad_text`, `bad_days`.
    """
    if terms.projects:
        raise invalid("bad_projects", refusal_text("class_for_all_projects"), "projects")
    gpu_class = GpuClass.objects.filter(slug=terms.target).first()
    if gpu_class is None:
        raise missing("GPU class", "target")
    row = _set(Requirement(gpu_class=gpu_class, created_by=operator), terms, now)
    platform_record(
        operator_id=operator.pk,
        action="requirement.set",
        target=("requirement", row.id),
        now=now,
        before={"version": row.version - 1 or None},
        after=_values(row),
    )
    return row


def tier_requirement_set(*, actor: Actor, terms: RequirementTerms, now: datetime) -> Requirement:
    """Sets what a tier demands of the tenant's people.

    Raises:
        Refused: `not_allowed`, and as `class_requirement_set`; `not_found` for a project.
    """
    require_tenant_admin(actor)
    tier = Tier.objects.filter(slug=terms.target).first()
    if tier is None:
        raise missing("tier", "target")
    made = Requirement(tenant_id=actor.tenant_id, tier=tier, created_by_id=actor.user_id)
    named = sorted(set(terms.projects))
    if Project.objects.filter(tenant_id=actor.tenant_id, slug__in=named).count() < len(named):
        raise missing("project", "projects")
    made.projects = named
    row = _set(made, terms, now)
    _audit(actor, "requirement.set", row, now, _values(row))
    return row


@transaction.atomic
def class_requirement_end(*, operator: User, requirement_id: UUID, now: datetime) -> Requirement:
    """Ends a requirement of a GPU class. In `operator_tx`. Raises Refused `not_found`."""
    row = _locked(requirement_id, tenant_id=None)
    # Times of REST are whole seconds, and a page's may be later in the same second.
    row.ended = max(now, row.created)
    row.save(update_fields=["ended"])
    before = {"name": row.name, "ended": None}
    after = {"name": row.name, "ended": now.isoformat()}
    platform_record(
        operator.pk, "requirement.ended", ("requirement", row.id), now, before=before, after=after
    )
    return row


@transaction.atomic
def tier_requirement_end(*, actor: Actor, requirement_id: UUID, now: datetime) -> Requirement:
    """Ends a requirement of the tenant. Raises Refused `not_allowed` or `not_found`."""
    require_tenant_admin(actor)
    row = _locked(requirement_id, tenant_id=actor.tenant_id)
    # Times of REST are whole seconds, and a page's may be later in the same second.
    row.ended = max(now, row.created)
    row.save(update_fields=["ended"])
    _audit(actor, "requirement.ended", row, now, {})
    return row


def requirement_accept(*, actor: Actor, requirement_id: UUID, address: str, now: datetime) -> Acceptance:
    """Accepts this version of a text, for the person who asks.

    Raises:
        Refused: `not_found`, `not_a_text`, or `new_version` if the text has ended meanwhile.
    """
    row = _seen(actor, requirement_id)
    if row.kind != Requirement.Kind.TERMS:
        raise Refused("not_a_text", refusal_text("training_not_accepted"))
    if row.ended is not None:
        raise Refused("new_version", refusal_text("text_replaced"))
    found = _acceptance(actor, row, actor.user_id, now, now, address)
    _audit(actor, "requirement.accepted", row, now, {"version": row.version})
    return found


def training_record(
    *, actor: Actor, requirement_id: UUID, user_id: int, day: date, now: datetime
) -> Acceptance:
    """Records the day on which a person of the tenant had a training.

    Raises:
        Refused: `not_allowed`, `not_found`, `not_a_training`, `bad_day`.
    """
    require_tenant_admin(actor)
    row = _seen(actor, requirement_id)
    if row.kind != Requirement.Kind.TRAINING:
        raise Refused("not_a_training", refusal_text("text_not_recorded"))
    if not KnownPerson.objects.filter(tenant_id=actor.tenant_id, user=user_id).exists():
        raise missing("person", "user")
    at = datetime.combine(day, time(), tzinfo=now.tzinfo)
    if not now - timedelta(days=MOST_DAYS) <= at <= now + FARTHEST_ZONE:
        raise invalid("bad_day", refusal_text("training_day"), "day")
    # Today has begun in the admin's zone before it begins in UTC.
    at = min(at, now)
    found = _acceptance(actor, row, user_id, at, now, "")
    _audit(actor, "requirement.recorded", row, now, {"user": user_id, "day": day.isoformat()})
    return found


def _acceptance(
    actor: Actor, row: Requirement, user_id: int, at: datetime, now: datetime, address: str
) -> Acceptance:
    return Acceptance.objects.create(
        tenant_id=actor.tenant_id,
        requirement=row,
        user_id=user_id,
        at=at,
        until=at + timedelta(days=row.valid_days) if row.valid_days else None,
        address=address or None,
        recorded=now,
        recorded_by_id=actor.user_id,
    )


@transaction.atomic
def _set(row: Requirement, terms: RequirementTerms, now: datetime) -> Requirement:
    """Saves it as a new version of the requirement of the same name."""
    if terms.kind not in Requirement.Kind.values:
        raise invalid(
            "bad_kind",
            refusal_text("requirement_kind", values=", ".join(Requirement.Kind.values)),
            "kind",
        )
    if terms.valid_days is not None and not 1 <= terms.valid_days <= MOST_DAYS:
        raise invalid("bad_days", refusal_text("requirement_days", most_days=MOST_DAYS), "valid_days")
    row.kind, row.valid_days, row.created = terms.kind, terms.valid_days, now
    row.name, row.text = name_read(terms.name), _text_read(terms.text)
    same = Requirement.objects.filter(
        tenant=row.tenant_id, gpu_class=row.gpu_class, tier=row.tier, name=row.name
    )
    same.filter(ended=None).select_for_update().update(ended=now)
    row.version = (same.aggregate(most=Max("version"))["most"] or 0) + 1
    row.save(force_insert=True)
    if Requirement.objects.filter(tenant=row.tenant_id, ended=None).count() > MOST_OPEN:
        raise Refused("too_many_requirements", refusal_text("too_many_requirements", most_open=MOST_OPEN))
    return row


def _text_read(text: str) -> str:
    plain = text.replace("\r\n", "\n").strip()
    if not 1 <= len(plain) <= LONGEST_TEXT:
        raise invalid("bad_text", refusal_text("text_length", longest_text=f"{LONGEST_TEXT:,}"), "text")
    if first_invisible(plain.replace("\n", "").replace("\t", "")):
        raise invalid("bad_text", refusal_text("text_invisible"), "text")
    return plain


def _seen(actor: Actor, requirement_id: UUID) -> Requirement:
    row = (Requirement.objects.filter(requirements_of(actor.tenant_id)).filter(id=requirement_id)).first()
    if row is None:
        raise missing("requirement")
    return row


def _locked(requirement_id: UUID, *, tenant_id: UUID | None) -> Requirement:
    rows = Requirement.objects.select_for_update(of=("self",)).filter(tenant=tenant_id, ended=None)
    row = rows.filter(id=requirement_id).first()
    if row is None:
        raise missing("requirement")
    return row


def _audit(actor: Actor, action: str, row: Requirement, now: datetime, detail: dict[str, object]) -> None:
    audit_record(
        tenant_id=actor.tenant_id,
        actor_id=actor.user_id,
        action=action,
        target=("requirement", row.id),
        now=now,
        detail={"name": row.name, "version": row.version, **detail},
    )


def _values(row: Requirement) -> dict[str, object]:
    return {
        "target": row.target,
        "kind": row.kind,
        "name": row.name,
        "version": row.version,
        "valid_days": row.valid_days,
        "projects": row.projects,
    }
