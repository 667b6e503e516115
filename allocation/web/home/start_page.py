"""The start page of a tenant: bookings, budgets and the request field."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.models import Booking
from allocation.points import home_parts
from allocation.points.bookings import home_cards
from allocation.points.people import Step
from allocation.queries.bookings.approvals import approvals_to_decide
from allocation.queries.bookings.bookings import (
    budgets_in_force,
    own_bookings_between,
    own_bookings_failed,
    own_bookings_next,
    own_bookings_waiting,
)
from allocation.queries.fleet.setup import TenantSetup, tenant_setup_of
from allocation.rules.states import RUNNING
from allocation.web.bookings.booking_pages import booking_row, booking_rows, page_context
from allocation.web.bookings.pausing.page import notices_context
from allocation.web.bookings.request_panel.panel import EXAMPLES
from allocation.web.home.personal_steps import personal_steps
from allocation.web.home.steps import with_next
from allocation.web.parts.times import clock
from billing.queries import BudgetFigures
from billing.rules import money_text
from billing.web.budget_bar import Meter
from tenants.access import Actor
from tenants.models import Project
from tenants.queries import received_invitations
from tenants.web.frame import tenant_page, zone_of
from tenants.web.sessions import credential_of

NEXT = 5
MOST_PROJECTS = 6
RECENT = timedelta(days=2)


@require_safe
@tenant_page
def home_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the reader's next and waiting bookings and the budgets of their projects."""
    now = timezone.now()
    ctx = page_context(actor, now)
    projects = list(_projects(actor))
    effects = budgets_in_force(actor, projects, now)
    names: dict[UUID | None, Project] = {project.id: project for project in projects}
    context = {
        "running": booking_rows(own_bookings_next(actor, count=NEXT), ctx),
        "waiting": booking_rows(own_bookings_waiting(actor, count=NEXT), ctx),
        "stopped": [booking_row(row, ctx) for row in own_bookings_failed(actor, since=now - RECENT)],
        "money": [_money(effect, names[effect.project_id]) for effect in effects],
        "without": [p.name for p in projects if p.id not in {e.project_id for e in effects}],
        "examples": EXAMPLES,
        "steps": (steps := first_steps(actor, now) if actor.is_tenant_admin else ()),
        "own_steps": () if steps else personal_steps(request, actor, now),
        "invitations": received_invitations(credential_of(request), now),
        "to_decide": approvals_to_decide(actor, now).count(),
        "notices": notices_context(actor, ctx),
        "cards": home_cards(actor, now),
        "week": own_week(actor, now),
        "parts": home_parts(actor),
    }
    return render(request, "allocation/home.html", context)


def _projects(actor: Actor) -> list[Project]:
    projects = Project.objects.filter(tenant_id=actor.tenant_id, is_open=True)
    if not actor.is_tenant_admin:
        projects = projects.filter(id__in=list(actor.roles))
    return list(projects.order_by("name", "id")[:MOST_PROJECTS])


def _money(effect: BudgetFigures, project: Project) -> dict[str, Any]:
    whole, shown = effect.amount or 1, effect.in_cents
    amount, spent, held = (
        money_text(each, effect.currency) for each in (shown.amount, shown.spent, shown.held)
    )
    return {
        "name": project.name,
        "slug": project.slug,
        "left": money_text(shown.left, effect.currency),
        "amount": amount,
        "spent_text": spent,
        "held_text": held,
        "meter": Meter(
            effect.spent * 100 / whole,
            effect.held * 100 / whole,
            f"{project.name} budget: spent {spent}, held {held}, of {amount}",
        ),
        "is_warning": effect.is_warning,
        "until": effect.ends - timedelta(days=1),
    }


def first_steps(actor: Actor, now: datetime) -> tuple[Step, ...]:
    """Returns the steps with the next one marked; none after the tenant's first booking."""
    setup = tenant_setup_of(actor.tenant_id, actor.user_id, now)
    if setup is None:
        return ()
    return with_next(_steps(setup, f"/t/{actor.tenant_slug}/"))


def _steps(setup: TenantSetup, base: str) -> list[Step]:
    return [
        Step(
            "Create a project",
            "A team with its own bookings and budget.",
            f"{base}people#new-project",
            "Create a project",
            setup.has_project,
        ),
        _quota(base, is_given=setup.is_given_quota),
        Step(
            "Set a budget",
            "A spending limit for a project, for a month or longer.",
            f"{base}budgets",
            "Set a budget",
            setup.has_budget,
        ),
        Step(
            "Invite people",
            "By e-mail address or sign-in name. They join when they accept.",
            f"{base}people",
            "Invite people",
            setup.has_people,
        ),
        Step(
            "Book GPUs",
            "Type a request such as 2 h100 6h. You see start and price before you book.",
            f"{base}book",
            "Book GPUs",
            is_done=False,
        ),
    ]


def _quota(base: str, *, is_given: bool) -> Step:
    if is_given:
        text = "You have GPUs. All projects share them until you split the quota."
        return Step("Set quotas", text, f"{base}quotas", "Split the quota", is_done=True)
    text = "Your organisation has no GPU quota yet. Ask the platform operator for one."
    return Step("Set quotas", text, "", "", is_done=False)


urlpatterns = [path("t/<slug:tenant>/", home_page, name="home")]


DAYS = 7
MOST_OF_A_DAY = 3
MOST_READ = 60


@dataclass(frozen=True, slots=True)
class WeekBooking:
    """A booking on a day: from when on that day, and whether the start is only planned."""

    label: str
    title: str
    words: str
    is_running: bool
    is_planned: bool


@dataclass(frozen=True, slots=True)
class WeekDay:
    """A day of the strip; `more` bookings are not shown."""

    day: date
    name: str
    bookings: tuple[WeekBooking, ...]
    more: int


def own_week(actor: Actor, now: datetime) -> tuple[WeekDay, ...]:
    """Returns the seven days from today in the reader's zone; none without a booking in them."""
    zone = zone_of(actor.time_zone)
    first = now.astimezone(zone).date()
    starts, ends = _midnight(first, zone), _midnight(first + timedelta(days=DAYS), zone)
    found = own_bookings_between(actor, max(starts, now), ends, count=MOST_READ)
    if not found:
        return ()
    days = [first + timedelta(days=each) for each in range(DAYS)]
    return tuple(_day(each, days[0], found, zone) for each in days)


def _day(day: date, today: date, bookings: Sequence[Booking], zone: tzinfo) -> WeekDay:
    begins, ends = _midnight(day, zone), _midnight(day + timedelta(days=1), zone)
    here = [each for each in bookings if _starts(each) < ends and _ends(each) > begins]
    shown = tuple(_booking(each, begins, ends, zone) for each in here[:MOST_OF_A_DAY])
    name = "Today" if day == today else f"{day:%a} {day.day} {day:%b}"
    return WeekDay(day, name, shown, len(here) - len(shown))


def _booking(booking: Booking, begins: datetime, ends: datetime, zone: tzinfo) -> WeekBooking:
    """The booking with its hours on the day: `14:00 – 18:00`, `until 09:00`, `all day`."""
    is_from, is_to = _starts(booking) >= begins, _ends(booking) <= ends
    first, last = clock(_starts(booking), zone), clock(_ends(booking), zone)
    if is_from and is_to:
        words = f"{first} – {last}"
    elif is_from:
        words = f"from {first}"
    else:
        words = f"until {last}" if is_to else "all day"
    return WeekBooking(
        booking.label,
        booking.name or booking.label,
        words,
        booking.state in RUNNING,
        booking.is_unplanned or booking.planned_strength == "expected",
    )


def _starts(booking: Booking) -> datetime:
    if booking.planned_starts is None:
        raise ValueError("a booking without a planned start has no place in a week")
    return booking.planned_starts


def _ends(booking: Booking) -> datetime:
    if booking.planned_ends is None:
        raise ValueError("a booking without a planned end has no place in a week")
    return booking.planned_ends


def _midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(), zone)
