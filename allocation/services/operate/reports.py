"""Reports by mail: when one is due, for which days, and what it says."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import partial
from typing import Literal
from uuid import UUID
from zoneinfo import ZoneInfo

from django.core import signing
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from allocation.models import ReportSubscription
from allocation.queries.bookings.money.statements import StatementOf
from allocation.words.refusals import refusal_text
from billing.rules import Period, period_text
from tenants.access import Actor, acting_members, require_tenant_admin
from tenants.audit import audit_record
from tenants.failures import FailureLog
from tenants.lab_queries import labs_led
from tenants.models import Lab, LabLead, Project, Role, User, set_by_valid_token
from tenants.outbox import outbox_add
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.wall import tenant_tx

Cadence = Literal["weekly", "monthly"]
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ReportTime:
    """UTC days [starts, ends), and the moment from which on their report is sent."""

    starts: date
    ends: date
    due: datetime


def report_after(cadence: Cadence, now: datetime, zone: tzinfo, at: time) -> ReportTime:
    """The next report that is due after `now`.

    Weeks are from Monday to Sunday. Days are of UTC, as those of statements, so a report is due
    when a clock in the zone first shows `at` after the end of its days, east and west of UTC.
    """
    today = now.astimezone(UTC).date()
    found = _period_of(cadence, today - timedelta(days=40))
    while (due := _due(found[1], zone, at)) <= now:
        found = _period_of(cadence, found[1])
    return ReportTime(*found, due)


def report_latest(cadence: Cadence, now: datetime, zone: tzinfo, at: time) -> ReportTime | None:
    """The latest report that is due at `now`, so that an outage sends one and not many."""
    following = report_after(cadence, now, zone, at)
    starts, ends = _period_of(cadence, following.starts - DAY)
    due = _due(ends, zone, at)
    return ReportTime(starts, ends, due) if due <= now else None


def _period_of(cadence: Cadence, day: date) -> tuple[date, date]:
    if cadence == "weekly":
        monday = day - timedelta(days=day.weekday())
        return monday, monday + timedelta(days=7)
    first = day.replace(day=1)
    return first, (first + timedelta(days=32)).replace(day=1)


def _due(ends: date, zone: tzinfo, at: time) -> datetime:
    """The first moment from midnight UTC on at which a clock in the zone shows `at`."""
    over = datetime.combine(ends, time(), UTC)
    day = over.astimezone(zone).date()
    for each in (day, day + DAY):
        # The instant of an hour that does not exist is that of the clock before the change.
        due = datetime.combine(each, at, zone).astimezone(UTC)
        if due >= over:
            return due
    return datetime.combine(day + 2 * DAY, at, zone).astimezone(UTC)


DUE = "report.due"
QUEUE = "reports"
MOST = 20
_SALT = "report.unsubscribe"


@dataclass(frozen=True, slots=True)
class ReportTerms:
    """Which statement, how often, at which time of the person's day, as which file, and who gets
    it: the sign-in name of a member; empty: the actor."""

    project: Project | None
    cadence: str
    format: str
    at: time
    person: str = ""
    lab: Lab | None = None


def reports_managed(actor: Actor, now: datetime) -> QuerySet[ReportSubscription]:
    """The subscriptions of the actor, and those that it may end for others, as long as the tokens that
    made them are valid."""
    rows = ReportSubscription.objects.filter(set_by_valid_token(now), tenant_id=actor.tenant_id)
    if actor.is_tenant_admin:
        return rows
    led = [project for project in actor.roles if actor.may_lead(project)]
    own = Q(user_id=actor.user_id)
    if actor.only_project is not None:
        own &= Q(project=actor.only_project)
    return rows.filter(own | Q(project__in=led))


def report_subscribe(*, actor: Actor, terms: ReportTerms, now: datetime) -> ReportSubscription:
    """Makes a subscription of the actor, or of a member: leads for their projects, admins for all.
    Only admins get the statement of the organisation, and only they and its leads that of a lab.

    Raises:
        Refused: `not_allowed`, `not_found`, `unknown_choice`, `too_many_reports` or
            `report_exists`.
    """
    if terms.project is None and (terms.lab is None or terms.lab.id not in labs_led(actor)):
        require_tenant_admin(actor)
    person = _recipient(actor, terms)
    cadence = _cadence(terms.cadence)
    if terms.format not in ReportSubscription.Format.values:
        raise invalid("unknown_choice", refusal_text("choice_unknown"), "format")
    own = ReportSubscription.objects.filter(tenant_id=actor.tenant_id, user=person)
    own.exclude(set_by_valid_token(now)).delete()
    if own.count() >= MOST:
        raise invalid("too_many_reports", refusal_text("too_many_reports", most=MOST), "project")
    row = ReportSubscription(
        tenant_id=actor.tenant_id,
        user=person,
        project=terms.project,
        lab=terms.lab,
        cadence=cadence,
        format=terms.format,
        at=terms.at,
        zone=person.time_zone,
        due=report_after(cadence, now, ZoneInfo(person.time_zone), terms.at).due,
        made_with_id=actor.token_id,
        created=now,
    )
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError as error:
        if "report_once" not in str(error):
            raise
        raise Refused(
            "report_exists",
            refusal_text("report_exists"),
            "conflict",
        ) from error
    _audit(row, actor.user_id, "report.subscribe", now)
    return row


def _recipient(actor: Actor, terms: ReportTerms) -> User:
    """Who gets the report: a person who may read the statement."""
    if not terms.person:
        return User.objects.get(id=actor.user_id)
    if terms.project is not None and not actor.may_lead(terms.project.id):
        raise denied(refusal_text("report_recipients"))
    readers = Q(role=Role.TENANT_ADMIN)
    if terms.project is not None:
        readers |= Q(project=terms.project)
    lab_id = terms.project.lab_id if terms.project else terms.lab.id if terms.lab else None
    if lab_id is not None:
        readers |= Q(user__in=LabLead.objects.filter(lab=lab_id).values("user"))
    found = acting_members(actor.tenant_id).filter(readers, user__username=terms.person)
    member = found.select_related("user").first()
    if member is None:
        raise missing("member who may read this statement", "person")
    return member.user


def report_unsubscribe(*, actor: Actor, report_id: UUID, now: datetime) -> None:
    """Ends a subscription of the actor, or one that it may manage. Raises Refused `not_found`."""
    row = reports_managed(actor, now).filter(id=report_id).first()
    if row is None:
        raise missing("report")
    _end(row, actor.user_id, now)


def unsubscribe_token(row: ReportSubscription) -> str:
    """The secret of the address in each mail that ends the subscription."""
    return signing.dumps([row.tenant_id.hex, row.id.hex], salt=_SALT)


def report_unsubscribe_by_token(token: str, now: datetime) -> bool:
    """Ends the subscription of a mailed address; returns whether the address is genuine.

    A subscription that has ended already is no error: mail programs ask more than once.
    """
    found = _token_read(token)
    if found is None:
        return False
    tenant_id, report_id = found
    with tenant_tx(tenant_id):
        row = ReportSubscription.objects.filter(id=report_id).first()
        if row is not None:
            _end(row, row.user_id, now)
    return True


def is_unsubscribe_token(token: str) -> bool:
    """Whether the address is one that the portal has mailed."""
    return _token_read(token) is not None


def reports_send(now: datetime) -> int:
    """Requests the mails of all reports that are due; returns how many.

    The mail is requested in the transaction that sets the next time, so each report is requested
    once, also by several tasks at once. After an outage only the latest one is sent. A report that
    fails is set apart.
    """
    failures = FailureLog(QUEUE, now)
    sent: list[bool] = []
    due = ReportSubscription.objects.filter(set_by_valid_token(now), due__lte=now).order_by("due")
    for report_id, tenant_id in list(due.values_list("id", "tenant_id")):
        failures.handle(report_id, partial(_send, report_id, sent, now), tenant_id=tenant_id)
    return sum(sent)


@transaction.atomic
def _send(report_id: UUID, sent: list[bool], now: datetime) -> None:
    """Requests the mails of a report unless another worker does, and adds whether it did."""
    due = ReportSubscription.objects.filter(due__lte=now, id=report_id)
    row = due.select_for_update(skip_locked=True).first()
    if row is not None:
        sent.append(_request(row, now))


def _request(row: ReportSubscription, now: datetime) -> bool:
    zone, cadence = ZoneInfo(row.zone), _cadence(row.cadence)
    latest = report_latest(cadence, now, zone, row.at)
    row.due = report_after(cadence, now, zone, row.at).due
    row.save(update_fields=["due"])
    if latest is None:
        return False
    days = Period(latest.starts, latest.ends)
    payload = {
        "report": str(row.id),
        "starts": days.starts.isoformat(),
        "ends": days.ends.isoformat(),
        "days": period_text(days),
        "name": (row.project or row.lab or row.tenant).name,
        "project_slug": StatementOf(row.tenant_id, days, row.project, row.lab).owner,
        "only": row.user_id,
    }
    outbox_add(tenant_id=row.tenant_id, kind=DUE, payload=payload, now=now)
    return True


def _cadence(text: str) -> Cadence:
    if text == "weekly":
        return "weekly"
    if text == "monthly":
        return "monthly"
    raise invalid("unknown_choice", refusal_text("choice_unknown"), "cadence")


def _token_read(token: str) -> tuple[UUID, UUID] | None:
    try:
        tenant, report = signing.loads(token, salt=_SALT)
    except signing.BadSignature:
        return None
    return UUID(hex=tenant), UUID(hex=report)


def _end(row: ReportSubscription, actor_id: int, now: datetime) -> None:
    _audit(row, actor_id, "report.unsubscribe", now)
    row.delete()


def _audit(row: ReportSubscription, actor_id: int, action: str, now: datetime) -> None:
    audit_record(
        tenant_id=row.tenant_id,
        actor_id=actor_id,
        action=action,
        target=("report", row.id),
        now=now,
        detail={
            "project": row.project.slug if row.project else None,
            "lab": row.lab.slug if row.lab else None,
            "person": row.user.username,
            "cadence": row.cadence,
            "format": row.format,
        },
    )
