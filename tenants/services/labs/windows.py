"""Writes limits at some times: until a date, at night, on weekends."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.db import transaction

from tenants.access import Actor, require_tenant_admin
from tenants.audit import audit_record, platform_record
from tenants.models import LabQuota, PersonQuota, Quota, QuotaWindow, Tenant, User
from tenants.platform.errors import invalid, missing
from tenants.services.labs.labs import lab_read
from tenants.services.labs.limits import member_to_limit, person_scope, project_to_limit
from tenants.services.labs.room import class_read, require_admin_or_lab_lead
from tenants.services.limit_changes import Cut, LimitChange, LimitOf, Most, limit_changed
from tenants.words import refusal_text

MOST_WINDOWS = 20


@dataclass(frozen=True, slots=True)
class WindowTerms:
    """The most units at once, and when: days and hours by the clocks of the zone.

    Without weekdays it is every day. The hour of the end is on the next day if it is not after the
    first.
    """

    limit_units: int
    first_day: date | None = None
    last_day: date | None = None
    weekdays: Sequence[int] = ()
    first_hour: int = 0
    end_hour: int = 24
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class WindowOf:
    """Whose limit it is: of a project, of a lab, or of a person in a project or everywhere."""

    project: str | None = None
    lab: str | None = None
    username: str | None = None


@transaction.atomic
def window_add(
    *,
    actor: Actor,
    of: WindowOf,
    gpu_class: str,
    terms: WindowTerms,
    now: datetime,
    cut: Cut | None = None,
) -> QuotaWindow:
    """Adds a limit of a project or lab at some times, or of a person in a project or the tenant. `cut`
    says what happens to bookings above it at these times; without an answer what runs stays.

    Leads set those of persons in their projects and labs, as their limits at all times.

    Raises:
        Refused: `not_allowed`, `not_found`, `bad_window`, `too_many_windows`.
    """
    row = QuotaWindow(tenant_id=actor.tenant_id, created_by_id=actor.user_id)
    if of.username is not None:
        if of.lab is not None:
            raise invalid("bad_window", refusal_text("window_person"), "lab")
        row.project = person_scope(actor, of.project)
        row.user = member_to_limit(actor, row.project, of.username)
    elif of.project is not None:
        row.project = project_to_limit(actor, of.project)
        require_admin_or_lab_lead(actor, row.project)
    else:
        require_tenant_admin(actor)
        row.lab = lab_read(actor, of.lab or "", "lab")
    _save(row, gpu_class, terms, now)
    _record(row, "quota_window.added", actor.user_id, now)
    _added(row, actor.user_id, cut, now)
    return row


@transaction.atomic
def tenant_window_add(
    *,
    operator: User,
    tenant: Tenant,
    gpu_class: str,
    terms: WindowTerms,
    now: datetime,
    cut: Cut | None = None,
) -> QuotaWindow:
    """Adds a limit of a tenant at some times. In `operator_tx`. `cut` as in `window_add`.

    Raises:
        Refused: `not_found`, `bad_window`, `too_many_windows`.
    """
    row = QuotaWindow(tenant=tenant, created_by=operator)
    _save(row, gpu_class, terms, now)
    _record(row, "quota_window.added", operator.id, now)
    _added(row, operator.id, cut, now)
    return row


@transaction.atomic
def window_remove(*, actor: Actor, window_id: UUID, now: datetime, cut: Cut | None = None) -> None:
    """Removes a limit of a project or lab at some times. `cut` says what happens to bookings above the usual
    limit, where that is lower.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    rows = QuotaWindow.objects.filter(tenant_id=actor.tenant_id, id=window_id)
    row = rows.select_related("project", "lab", "user").first()
    if row is None or row.is_of_tenant:
        raise missing("limit")
    if row.user is not None:
        person_scope(actor, row.project.slug if row.project else None)
    elif row.project is not None:
        require_admin_or_lab_lead(actor, row.project)
    else:
        require_tenant_admin(actor)
    source = row.id
    if rows.delete()[0]:
        row.id = source
        _record(row, "quota_window.removed", actor.user_id, now)
        _removed(row, actor.user_id, cut, now)


@transaction.atomic
def tenant_window_remove(*, operator: User, window_id: UUID, now: datetime, cut: Cut | None = None) -> None:
    """Removes a limit of a tenant at some times. In `operator_tx`. `cut` as in `window_remove`.

    Raises:
        Refused: `not_found`.
    """
    row = QuotaWindow.objects.filter(id=window_id, project=None, lab=None, user=None).first()
    if row is None:
        raise missing("limit")
    if QuotaWindow.objects.filter(id=row.id).delete()[0]:
        _record(row, "quota_window.removed", operator.id, now)
        _removed(row, operator.id, cut, now)


def _added(row: QuotaWindow, user_id: int, cut: Cut | None, now: datetime) -> None:
    change = LimitChange(_limit_of(row, row.id), Most(_usual(row)), Most(row.limit_units), user_id)
    limit_changed(change, cut, now)


def _removed(row: QuotaWindow, user_id: int, cut: Cut | None, now: datetime) -> None:
    """The cut of the removed limit is over; the usual limit may be lower."""
    usual, limit = Most(_usual(row)), Most(row.limit_units)
    limit_changed(LimitChange(_limit_of(row, row.id), limit, usual, user_id), None, now)
    if usual.is_below(limit):
        limit_changed(LimitChange(_limit_of(row, None), limit, usual, user_id), cut, now)


def _limit_of(row: QuotaWindow, source: UUID | None) -> LimitOf:
    return LimitOf(
        row.tenant_id,
        row.gpu_class_id,
        project_id=row.project_id,
        lab_id=row.lab_id,
        persons=row.user_id is not None,
        person_id=row.user_id,
        source=source,
    )


def _usual(row: QuotaWindow) -> int | None:
    """The limit at other times; None: there is none."""
    of_class = {"tenant_id": row.tenant_id, "gpu_class_id": row.gpu_class_id}
    if row.user_id is not None:
        persons = PersonQuota.objects.filter(**of_class, project=row.project)
        person = persons.filter(user_id=row.user_id).first() or persons.filter(user=None).first()
        return None if person is None else person.limit_units
    found: Quota | LabQuota | None
    if row.lab_id is not None:
        found = LabQuota.objects.filter(**of_class, lab_id=row.lab_id).first()
    else:
        found = Quota.objects.filter(**of_class, project=row.project).first()
    return None if found is None else found.limit_units


def terms_check(terms: WindowTerms) -> None:
    """Raises Refused: `bad_window` with the field."""
    if terms.limit_units < 0:
        raise invalid("bad_window", refusal_text("limit_negative"), "limit_units")
    if not set(terms.weekdays) <= set(range(7)):
        raise invalid("bad_window", refusal_text("window_weekday"), "weekdays")
    if not (0 <= terms.first_hour <= 23 and 1 <= terms.end_hour <= 24):
        raise invalid("bad_window", refusal_text("window_hours"), "first_hour")
    if terms.first_day and terms.last_day and terms.last_day < terms.first_day:
        raise invalid("bad_window", refusal_text("window_backward"), "last_day")
    try:
        ZoneInfo(terms.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise invalid("bad_window", refusal_text("unknown_zone"), "zone") from error


def _save(row: QuotaWindow, gpu_class: str, terms: WindowTerms, now: datetime) -> None:
    """Stores the limit of an owner at these times."""
    terms_check(terms)
    if terms.last_day is not None and terms.last_day < now.astimezone(ZoneInfo(terms.zone)).date():
        raise invalid("bad_window", refusal_text("window_over"), "last_day")
    row.gpu_class = class_read(gpu_class)
    known = QuotaWindow.objects.filter(
        tenant_id=row.tenant_id,
        project=row.project,
        lab=row.lab,
        user=row.user,
        gpu_class=row.gpu_class,
    )
    if known.count() >= MOST_WINDOWS:
        raise invalid(
            "too_many_windows",
            refusal_text("too_many_windows", most_windows=MOST_WINDOWS),
            "gpu_class",
        )
    values = {**asdict(terms), "weekdays": sorted(set(terms.weekdays))}
    for name, value in values.items():
        setattr(row, name, value)
    row.created = now
    row.save(force_insert=True)


def _record(row: QuotaWindow, action: str, user_id: int, now: datetime) -> None:
    values = {
        "gpu_class": row.gpu_class_id,
        "limit_units": row.limit_units,
        "first_day": str(row.first_day or ""),
        "last_day": str(row.last_day or ""),
        "weekdays": row.weekdays,
        "first_hour": row.first_hour,
        "end_hour": row.end_hour,
        "zone": row.zone,
    }
    owner = row.project or row.lab
    if row.is_of_tenant:
        is_added = action == "quota_window.added"
        said = {"tenant": row.tenant.slug, **values}
        platform_record(
            operator_id=user_id,
            action=action,
            target=("quota_window", row.id),
            now=now,
            before=None if is_added else said,
            after=said if is_added else None,
        )
    audit_record(
        tenant_id=row.tenant_id,
        actor_id=user_id,
        action=action,
        target=("quota_window", row.id),
        now=now,
        detail={
            "of": owner.slug if owner else row.tenant.slug,
            **({"person": row.user.username} if row.user else {}),
            **values,
        },
    )
