"""The figures of a month, mailed to leads and admins when it is over."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db import transaction

from allocation.features.insights.figures import Whose, figures_of, sum_of
from allocation.features.insights.models import MailedMonth
from allocation.features.insights.summary import summary_sentences
from allocation.queries.bookings.money.statements import StatementOf
from billing.price_books import currency_latest
from billing.rules import Period, money_text
from tenants.failures import FailureLog
from tenants.models import LabLead, Membership, Role, Tenant
from tenants.outbox import outbox_add

TASK = "insights.months"
QUEUE = "monthly figures"
KIND = "figures.month"
# Nodes send the readings of a month's last minutes after it.
_READINGS = timedelta(hours=1)
# After a longer outage the figures are no news.
_LATEST = timedelta(days=7)


def months_mail(now: datetime) -> int:
    """Requests the mails of the month before for all organisations that have none; returns for how many.

    The messages and the row that says so are written in one transaction, so each organisation gets
    them once, also by several tasks at once. One that fails is set apart.
    """
    first = now.astimezone(UTC).date().replace(day=1)
    over = now - datetime.combine(first, time(), UTC)
    if not _READINGS <= over < _LATEST:
        return 0
    month = Period((first - timedelta(days=1)).replace(day=1), first)
    failures = FailureLog(QUEUE, now)
    mailed = MailedMonth.objects.filter(month=month.starts).values("tenant")
    found: list[bool] = []
    for tenant in Tenant.objects.exclude(id__in=mailed).order_by("slug"):
        act = partial(_mail, tenant, month, found, now)
        failures.handle(f"{tenant.slug} {month.starts:%Y-%m}", act, tenant_id=tenant.id)
    return sum(found)


@transaction.atomic
def _mail(tenant: Tenant, month: Period, found: list[bool], now: datetime) -> None:
    _, is_new = MailedMonth.objects.get_or_create(tenant=tenant, month=month.starts, defaults={"at": now})
    if not is_new:
        return
    for of, people in _readers(tenant.id, month):
        if payload := _payload(tenant, of, people, now):
            outbox_add(tenant_id=tenant.id, kind=KIND, payload=payload, now=now)
    found.append(True)


def _payload(tenant: Tenant, of: StatementOf, people: list[int], now: datetime) -> dict[str, Any]:
    """The message to people about the month of a statement; empty when nothing was booked or charged."""
    whose, month = Whose(tenant.id, of), of.month
    total = sum_of(figures_of(whose, month, "class", "all", now).values())
    if not total.gpu_hours and not total.spend:
        return {}
    spend = money_text(total.spend or Decimal(0), currency_latest())
    days = {
        "project": of.owner,
        "from": month.starts,
        "to": month.ends,
        "against_from": (month.starts - timedelta(days=1)).replace(day=1),
        "against_to": month.starts,
    }
    return {
        "audience": "people",
        "people": people,
        "title": f"{of.name or tenant.name} in {month.starts:%B %Y}",
        "text": " ".join([*summary_sentences(whose, month), f"Charged for runs that ended: {spend}."]),
        "path": f"insights/compare?{urlencode(days)}",
        "until": None,
    }


def _readers(tenant_id: UUID, month: Period) -> Iterator[tuple[StatementOf, list[int]]]:
    """Yields whose figures are for which people: the organisation's for its admins, a lab's and a
    project's for those of its leads who get no wider ones."""
    roles = Membership.objects.filter(tenant=tenant_id).select_related("project")
    admins = set(roles.filter(role=Role.TENANT_ADMIN).values_list("user_id", flat=True))
    yield StatementOf(tenant_id, month), sorted(admins)
    labs: dict[UUID, set[int]] = defaultdict(set)
    led = LabLead.objects.filter(tenant=tenant_id).exclude(user__in=admins).select_related("lab")
    for each in led.order_by("lab__slug", "id"):
        if each.lab_id not in labs:
            labs[each.lab_id] = {row.user_id for row in led if row.lab_id == each.lab_id}
            yield StatementOf(tenant_id, month, lab=each.lab), sorted(labs[each.lab_id])
    leads = roles.filter(role=Role.LEAD, project__isnull=False).exclude(user__in=admins)
    projects = {row.project for row in leads if row.project is not None}
    for project in sorted(projects, key=lambda each: each.slug):
        people = {row.user_id for row in leads if row.project_id == project.id}
        if people := people - labs.get(project.lab_id, set()) if project.lab_id else people:
            yield StatementOf(tenant_id, month, project=project), sorted(people)
