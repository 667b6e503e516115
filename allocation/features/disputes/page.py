"""The pages of disputes: of a month's statement, and the operators' answers."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from allocation.features.disputes.models import StatementDispute
from allocation.features.disputes.services import (
    DisputeAnswerTerms,
    DisputeTerms,
    dispute_answer,
    dispute_raise,
    dispute_withdraw,
)
from allocation.points import STATEMENT_CARDS, BookingCard
from allocation.queries.bookings.money.statement_files import month_read, statement_read
from allocation.queries.bookings.money.statements import StatementOf
from tenants.access import Actor, PlatformActor, led_projects
from tenants.rules.operator_roles import Area
from tenants.web.form_page import Act, form_page, operator_form_page

MOST_SHOWN = 50


def dispute_card(actor: Actor, of: StatementOf, now: datetime) -> BookingCard | None:
    """Returns the disputes of a statement, and whether its reader can raise one."""
    rows = StatementDispute.objects.filter(tenant_id=actor.tenant_id, month=of.month.starts)
    if of.projects is not None:
        rows = rows.filter(project__in=of.projects)
    leads = actor.is_tenant_admin or (of.project is not None and actor.may_lead(of.project.id))
    may_raise = leads and of.month.starts <= now.astimezone(UTC).date() and of.lab is None
    found = rows.select_related("project", "booking", "raised_by", "answered_by")[:MOST_SHOWN]
    if not found and not may_raise:
        return None
    card = {
        "rows": [
            (row, row.state == row.State.OPEN and (leads or row.raised_by_id == actor.user_id))
            for row in found
        ],
        "may_raise": may_raise,
        "month": f"{of.month.starts:%Y-%m}",
        "project": of.project,
    }
    return BookingCard("disputes/card.html", card)


def _shown(actor: Actor, now: datetime, month: str, project: str) -> dict[str, Any]:
    of = statement_read(actor, month_read(month), project)
    card = dispute_card(actor, of, now)
    return {"of": of, "month": month, "card": card.card if card else {}}


def _statements_of(actor: Actor, **_: object) -> list[tuple[str, str]]:
    whole = [("", "The whole organisation")] if actor.is_tenant_admin else []
    return [*whole, *led_projects(actor)]


def _withdraw(*, month: str, **sent: Any) -> StatementDispute:  # noqa: ANN401 (of the command)
    return dispute_withdraw(**sent)


def _asked(actor: Actor, *, month: str, project: str = "") -> dict[str, Any]:
    return {"project": project}


def _statement(row: StatementDispute, tenant: str) -> str:
    query = {"month": f"{row.month:%Y-%m}"} | ({"project": row.project.slug} if row.project else {})
    return f"{reverse('statements', args=[tenant])}?{urlencode(query)}#disputes"


def _open_ones(actor: PlatformActor, now: datetime) -> dict[str, Any]:
    rows = StatementDispute.objects.filter(state=StatementDispute.State.OPEN).order_by("raised_at")
    return {"rows": rows.select_related("tenant", "project", "booking", "raised_by")[:MOST_SHOWN]}


def _answered(row: StatementDispute) -> str:
    if row.state == row.State.ACCEPTED and row.booking is not None:
        return f"Accepted. Correct the charge of {row.booking.label} next."
    return f"{row.get_state_display()}."


STATEMENT_CARDS.append(dispute_card)
urlpatterns = [
    form_page(
        "statements/<str:month>/disputes",
        "disputes",
        "disputes/page.html",
        _shown,
        Act(
            "raise",
            dispute_raise,
            "Raised the dispute. An operator answers it here.",
            terms=DisputeTerms,
            path_choices={"project": _statements_of},
            initial=_asked,
            leads=_statement,
        ),
        Act("withdraw", _withdraw, "Withdrew the dispute.", key="dispute", leads=_statement),
        queries=("project",),
    ),
    operator_form_page(
        "disputes",
        "ops-disputes",
        "disputes/ops.html",
        _open_ones,
        Act("answer", dispute_answer, _answered, key="dispute", terms=DisputeAnswerTerms),
        area=Area.DISPUTES,
    ),
]
