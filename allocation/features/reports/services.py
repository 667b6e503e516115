"""Reports by mail: adding, ending and sending them."""

from datetime import datetime
from functools import partial
from typing import ClassVar
from uuid import UUID
from zoneinfo import ZoneInfo

from django.core import signing
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from rest_framework import serializers

from allocation.features.reports.days import Cadence, report_after, report_latest
from allocation.features.reports.models import ReportSubscription
from allocation.models import FileFormat
from allocation.queries.bookings.money.statement_files import lab_read, project_read
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
from tenants.platform.terms import term, terms
from tenants.platform.wall import tenant_tx
from tenants.services.notifications import clock_read

DUE = "report.due"
QUEUE = "reports"
MOST = 20
_SALT = "report.unsubscribe"


@terms
class ReportTerms:
    """Which statement, how often and as which file."""

    body_name: ClassVar[str] = "ReportNew"

    project: str = term("Statement of", says="Left out: all projects.", default="", max_length=40)
    lab: str = term(says="By its leads and tenant admins.", default="", max_length=40)
    cadence: str = term("How often", body=serializers.ChoiceField(ReportSubscription.Cadence.values))
    format: str = term(
        "File",
        default="pdf",
        body=serializers.ChoiceField(FileFormat.values, required=False, default="pdf"),
    )
    at: str = term(
        "At",
        "By the clock of who gets it.",
        says="In the person's time zone.",
        default="08:00",
        max_length=5,
    )
    person: str = term(
        "For",
        says="Sign-in name, by leads and tenant admins. Left out: you.",
        default="",
        max_length=150,
    )


def reports_managed(actor: Actor, now: datetime) -> QuerySet[ReportSubscription]:
    """The subscriptions of the actor, and those that it may end for others, as long as the tokens that
    made them are valid."""
    rows = ReportSubscription.objects.filter(set_by_valid_token(now), tenant_id=actor.tenant_id)
    rows = rows.select_related("project", "lab", "user")
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
        Refused: `bad_clock`, `bad_value`, `not_allowed`, `not_found`, `unknown_choice`,
            `too_many_reports` or `report_exists`.
    """
    at = clock_read(terms.at, "at")
    if at is None:
        raise invalid("bad_clock", refusal_text("bad_clock"), "at")
    if terms.project and terms.lab:
        raise invalid("bad_value", refusal_text("project_or_lab"), "lab")
    project = project_read(actor, terms.project) if terms.project else None
    lab = lab_read(actor, terms.lab) if terms.lab else None
    if project is None and (lab is None or lab.id not in labs_led(actor)):
        require_tenant_admin(actor)
    person = _recipient(actor, project, lab, terms.person)
    cadence = _cadence(terms.cadence)
    if terms.format not in FileFormat.values:
        raise invalid("unknown_choice", refusal_text("choice_unknown"), "format")
    own = ReportSubscription.objects.filter(tenant_id=actor.tenant_id, user=person)
    own.exclude(set_by_valid_token(now)).delete()
    if own.count() >= MOST:
        raise invalid("too_many_reports", refusal_text("too_many_reports", most=MOST), "project")
    row = ReportSubscription(
        tenant_id=actor.tenant_id,
        user=person,
        project=project,
        lab=lab,
        cadence=cadence,
        format=terms.format,
        at=at,
        zone=person.time_zone,
        due=report_after(cadence, now, ZoneInfo(person.time_zone), at).due,
        made_with_id=actor.token_id,
        created=now,
    )
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError as error:
        if "report_once" not in str(error):
            raise
        raise Refused("report_exists", refusal_text("report_exists"), "conflict") from error
    _audit(row, actor.user_id, "report.subscribe", now)
    return row


def _recipient(actor: Actor, project: Project | None, lab: Lab | None, username: str) -> User:
    """Who gets the report: a person who may read the statement."""
    if not username:
        return User.objects.get(id=actor.user_id)
    if project is not None and not actor.may_lead(project.id):
        raise denied(refusal_text("report_recipients"))
    readers = Q(role=Role.TENANT_ADMIN)
    if project is not None:
        readers |= Q(project=project)
    lab_id = project.lab_id if project else lab.id if lab else None
    if lab_id is not None:
        readers |= Q(user__in=LabLead.objects.filter(lab=lab_id).values("user"))
    found = acting_members(actor.tenant_id).filter(readers, user__username=username)
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
