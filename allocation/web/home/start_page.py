"""The start page of a tenant: bookings, budgets and the request field."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.points import home_parts
from allocation.queries.bookings.approvals import approvals_to_decide
from allocation.queries.bookings.bookings import (
    budgets_in_force,
    own_bookings_failed,
    own_bookings_next,
    own_bookings_waiting,
)
from allocation.queries.fleet.setup import TenantSetup, tenant_setup_of
from allocation.web.bookings.booking_pages import booking_row, booking_rows, page_context
from allocation.web.bookings.pausing.page import notices_context
from allocation.web.bookings.request_panel.panel import EXAMPLES
from allocation.web.bookings.waitlist import offer_cards
from allocation.web.home.own_week import own_week
from allocation.web.home.personal_steps import personal_steps
from allocation.web.home.steps import Step, with_next
from billing.queries import BudgetFigures
from billing.rules import money_text
from billing.web.budget_bar import Meter
from tenants.access import Actor
from tenants.models import Project
from tenants.queries import received_invitations
from tenants.web.frame import tenant_page
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
        "running": [booking_row(row, ctx) for row in own_bookings_next(actor, count=NEXT)],
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
        "offers": offer_cards(actor, ctx),
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
    whole = effect.amount or 1
    amount, spent, held = (
        money_text(each, effect.currency) for each in (effect.amount, effect.spent, effect.held)
    )
    return {
        "name": project.name,
        "slug": project.slug,
        "left": money_text(effect.left, effect.currency),
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
