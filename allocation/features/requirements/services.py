"""Sets and ends requirements, and records who accepted a text or had a training."""

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import Literal
from uuid import UUID

from django.db import transaction
from django.db.models import Max
from rest_framework import serializers

from allocation.features.requirements.checks import requirements_of
from allocation.features.requirements.models import Acceptance, Requirement
from allocation.words.refusals import refusal_text
from tenants.access import Actor, PlatformActor, require_tenant_admin
from tenants.audit import acting_address, actor_record, platform_record
from tenants.models import GpuClass, KnownPerson, Project, Tier
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.rest.fields import Text
from tenants.platform.terms import term, terms
from tenants.platform.text import first_invisible
from tenants.services.input_values import name_read

LONGEST_TEXT = 20_000
MOST_DAYS = 3650
MOST_OPEN = 100
FARTHEST_ZONE = timedelta(hours=14)


@terms
class RequirementTerms:
    """A text or training. One of the same name for the same target is replaced by a new version."""

    of: Literal["tier", "class"] = term(says="`class` is for operators, `tier` for tenant admins.")
    target: str = term("Tier", says="Slug of the tier or class.", max_length=40)
    kind: Literal["terms", "training"] = term("Kind")
    name: str = term("Name", "The same name again makes a new version.", max_length=80)
    text: str = term(
        "Text",
        "What people accept, or how they get the training.",
        asks="paragraphs",
        body=serializers.CharField(max_length=LONGEST_TEXT),
        max_length=LONGEST_TEXT,
    )
    valid_days: int | None = term("Valid for days", "Empty: without an end.", default=None)
    projects: Sequence[str] = term(
        "Only in these projects (none: in all)",
        default=(),
        body=serializers.ListField(
            child=Text(max_length=40),
            required=False,
            default=list,
            max_length=100,
            help_text="Slugs of the projects in which the tier demands it; left out: in all.",
        ),
    )


@terms
class TrainingTerms:
    """The day on which a person had the training."""

    user: str = term("Person", says="Sign-in name.", max_length=150)
    day: date = term("Day of the training")


def class_requirement_set(*, actor: PlatformActor, terms: RequirementTerms, now: datetime) -> Requirement:
    """Sets what a GPU class demands of everybody. In `operator_tx`.

    Raises:
        Refused: `bad_projects`, `not_found`, `bad_name`, `bad_text` or `bad_days`.
    """
    if terms.projects:
        raise invalid("bad_projects", refusal_text("class_for_all_projects"), "projects")
    gpu_class = GpuClass.objects.filter(slug=terms.target).first()
    if gpu_class is None:
        raise missing("GPU class", "target")
    row = _set(Requirement(gpu_class=gpu_class, created_by_id=actor.user_id), terms, now)
    platform_record(
        actor.user_id,
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
def class_requirement_end(*, actor: PlatformActor, requirement_id: UUID, now: datetime) -> Requirement:
    """Ends a requirement of a GPU class. In `operator_tx`. Raises Refused `not_found`."""
    row = _ended(requirement_id, None, now)
    before = {"name": row.name, "ended": None}
    after = {"name": row.name, "ended": now.isoformat()}
    platform_record(
        actor.user_id, "requirement.ended", ("requirement", row.id), now, before=before, after=after
    )
    return row


@transaction.atomic
def tier_requirement_end(*, actor: Actor, requirement_id: UUID, now: datetime) -> Requirement:
    """Ends a requirement of the tenant. Raises Refused `not_allowed` or `not_found`."""
    require_tenant_admin(actor)
    row = _ended(requirement_id, actor.tenant_id, now)
    _audit(actor, "requirement.ended", row, now, {})
    return row


def requirement_accept(*, actor: Actor, requirement_id: UUID, now: datetime) -> Acceptance:
    """Accepts this version of a text, for the person who asks, from the address of the request.

    Raises:
        Refused: `not_found`, `not_a_text`, or `new_version` if the text has ended meanwhile.
    """
    row = requirement_seen(actor, requirement_id)
    if row.kind != Requirement.Kind.TERMS:
        raise Refused("not_a_text", refusal_text("training_not_accepted"))
    if row.ended is not None:
        raise Refused("new_version", refusal_text("text_replaced"))
    found = _acceptance(actor, row, actor.user_id, now, now, acting_address())
    _audit(actor, "requirement.accepted", row, now, {"version": row.version})
    return found


def training_record(*, actor: Actor, requirement_id: UUID, terms: TrainingTerms, now: datetime) -> Acceptance:
    """Records the day on which a person of the tenant had a training.

    Raises:
        Refused: `not_allowed`, `not_found`, `not_a_training`, `bad_day`.
    """
    require_tenant_admin(actor)
    row = requirement_seen(actor, requirement_id)
    if row.kind != Requirement.Kind.TRAINING:
        raise Refused("not_a_training", refusal_text("text_not_recorded"))
    known = KnownPerson.objects.filter(tenant_id=actor.tenant_id, user__username=terms.user).first()
    if known is None:
        raise missing("person", "user")
    at = datetime.combine(terms.day, time(), tzinfo=now.tzinfo)
    if not now - timedelta(days=MOST_DAYS) <= at <= now + FARTHEST_ZONE:
        raise invalid("bad_day", refusal_text("training_day"), "day")
    # Today has begun in the admin's zone before it begins in UTC.
    at = min(at, now)
    found = _acceptance(actor, row, known.user_id, at, now, "")
    detail = {"user": known.user_id, "day": terms.day.isoformat()}
    _audit(actor, "requirement.recorded", row, now, detail)
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


def requirement_seen(actor: Actor, requirement_id: UUID) -> Requirement:
    """Returns a requirement of the tenant or of all, also an ended one. Raises Refused `not_found`."""
    row = Requirement.objects.filter(requirements_of(actor.tenant_id), id=requirement_id).first()
    if row is None:
        raise missing("requirement")
    return row


def _ended(requirement_id: UUID, tenant_id: UUID | None, now: datetime) -> Requirement:
    rows = Requirement.objects.select_for_update(of=("self",)).filter(tenant=tenant_id, ended=None)
    row = rows.filter(id=requirement_id).first()
    if row is None:
        raise missing("requirement")
    # Times of REST are whole seconds, and a page's may be later in the same second.
    row.ended = max(now, row.created)
    row.save(update_fields=["ended"])
    return row


def _audit(actor: Actor, action: str, row: Requirement, now: datetime, detail: dict[str, object]) -> None:
    detail = {"name": row.name, "version": row.version, **detail}
    actor_record(actor, action, ("requirement", row.id), now, detail)


def _values(row: Requirement) -> dict[str, object]:
    return {
        "target": row.target,
        "kind": row.kind,
        "name": row.name,
        "version": row.version,
        "valid_days": row.valid_days,
        "projects": row.projects,
    }
