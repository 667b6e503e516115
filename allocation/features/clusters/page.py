"""Operators' pages of observed clusters, and their card on the pages of figures."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from allocation.features.clusters.figures import differences_of, use_of
from allocation.features.clusters.models import ObservedAccount, ObservedType
from allocation.features.clusters.rest import period_read
from allocation.features.clusters.services import (
    AccountTerms,
    TypeTerms,
    account_assign,
    cluster_one,
    clusters_read,
    type_assign,
)
from allocation.points import FIGURE_CARDS, STATEMENT_CARDS, BookingCard
from allocation.queries.bookings.money.statements import StatementOf
from billing.rules import Period
from tenants.access import Actor, PlatformActor
from tenants.models import GpuClass, Project
from tenants.rules.operator_roles import Area
from tenants.web.form_page import Act, operator_form_page

TEMPLATE = "clusters/card.html"
DIFFERENCES_SHOWN = 50
# As the page of figures.
WEEKS, USUAL_WEEKS = ("1", "4", "12"), 4


def _all(actor: PlatformActor, now: datetime) -> dict[str, Any]:
    return {"clusters": clusters_read()}


def _one(actor: PlatformActor, now: datetime, slug: str) -> dict[str, Any]:
    days = period_read(None, now.astimezone(UTC).date() + timedelta(days=1), now)
    cluster = cluster_one(slug)
    found = differences_of(cluster, days.first_second, days.last_second)
    return {
        "cluster": cluster,
        "use": use_of(days.first_second, days.last_second, slug),
        "accounts": ObservedAccount.objects.filter(cluster=slug).select_related("project__tenant"),
        "types": ObservedType.objects.filter(cluster=slug).select_related("gpu_class"),
        "differences": found[:DIFFERENCES_SHOWN],
        "more_differences": max(0, len(found) - DIFFERENCES_SHOWN),
    }


def _projects(actor: PlatformActor) -> list[tuple[str, str]]:
    rows = Project.objects.select_related("tenant").order_by("tenant__name", "name", "id")
    named = [
        (f"{row.tenant.slug}/{row.slug}", f"{row.tenant.name}: {row.name}") for row in rows if row.is_open
    ]
    return [("", "Nobody's"), *named]


def _classes(actor: PlatformActor) -> list[tuple[str, str]]:
    return [("", "No class"), *((row.slug, row.label) for row in GpuClass.objects.order_by("slug"))]


def cluster_card(actor: Actor | None, query: Mapping[str, str], now: datetime) -> BookingCard | None:
    """What ran outside of bookings in the days of the page, of projects that the reader may see."""
    ends = now.astimezone(UTC).date() + timedelta(days=1)
    weeks = query.get("weeks", "")
    days = Period(ends - timedelta(weeks=int(weeks) if weeks in WEEKS else USUAL_WEEKS), ends)
    projects = None if actor is None or actor.is_tenant_admin else list(actor.roles)
    rows = use_of(days.first_second, days.last_second, projects=projects)
    last = days.ends - timedelta(days=1)
    return BookingCard(TEMPLATE, {"rows": rows, "days": days, "last": last}) if rows else None


def statement_card(actor: Actor, of: StatementOf, now: datetime) -> BookingCard | None:
    """What ran outside of bookings in the month of a statement, of its projects; it is not charged."""
    rows = use_of(of.month.first_second, of.month.last_second, projects=of.projects)
    last = of.month.ends - timedelta(days=1)
    return BookingCard(TEMPLATE, {"rows": rows, "days": of.month, "last": last}) if rows else None


FIGURE_CARDS.append(cluster_card)
STATEMENT_CARDS.append(statement_card)
urlpatterns = [
    operator_form_page("clusters", "ops-clusters", "clusters/page.html", _all, area=Area.FLEET),
    operator_form_page(
        "clusters/<slug:slug>",
        "ops-cluster",
        "clusters/cluster.html",
        _one,
        Act(
            "account",
            account_assign,
            "Account {row.name} assigned.",
            terms=AccountTerms,
            choices={"project": _projects},
        ),
        Act(
            "type", type_assign, "Type {row.name} assigned.", terms=TypeTerms, choices={"gpu_class": _classes}
        ),
        area=Area.FLEET,
    ),
]
