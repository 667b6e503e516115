"""The checklist of a member on the start page: computed from their data, and dismissible."""

from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import path
from django.views.decorators.http import require_POST

from allocation.models import Booking
from allocation.points.people import FIRST_STEPS, Step
from allocation.web.home.steps import with_next
from billing.models import Budget
from tenants.access import Actor
from tenants.models import ApiToken, Invitation, Membership, NotificationSettings, Role
from tenants.queries import people_in
from tenants.services.sign_in.second_factor import has_second_factor
from tenants.web.frame import tenant_page
from tenants.web.sessions import credential_of

COOKIE = "first-steps"
AGE_SECONDS = 400 * 24 * 60 * 60


def personal_steps(request: HttpRequest, actor: Actor, now: datetime) -> tuple[Step, ...]:
    """Returns the steps of a lead or researcher; none once dismissed or when all are done."""
    if request.COOKIES.get(COOKIE) == "hidden" or not actor.roles:
        return ()
    leads = [project for project, role in actor.roles.items() if role == Role.LEAD]
    steps = [
        *_protection(request, now),
        *(_lead(actor, leads) if leads else ()),
        *_own(actor, now),
    ]
    return () if all(each.is_done for each in steps) else with_next(steps)


def _protection(request: HttpRequest, now: datetime) -> Iterator[Step]:
    yield Step(
        "Protect your account",
        "A passkey or an authenticator app, so that a stolen password is not enough.",
        "/second-factor/setup",
        "Set up",
        is_done=has_second_factor(credential_of(request), now),
    )


def _lead(actor: Actor, leads: list[UUID]) -> Iterator[Step]:
    base = f"/t/{actor.tenant_slug}/"
    place = {"tenant_id": actor.tenant_id, "project__in": leads}
    others = people_in(Membership.objects.filter(**place)).exclude(user_id=actor.user_id)
    yield Step(
        "Invite your team",
        "By e-mail address or sign-in name. They join when they accept.",
        f"{base}people",
        "Invite people",
        is_done=others.exists() or Invitation.objects.filter(**place).exists(),
    )
    yield Step(
        "Set a budget",
        "A spending limit for your project, for a month or longer.",
        f"{base}budgets",
        "Set a budget",
        is_done=Budget.objects.filter(**place).exists(),
    )


def _own(actor: Actor, now: datetime) -> Iterator[Step]:
    base = f"/t/{actor.tenant_slug}/"
    place = {"tenant_id": actor.tenant_id, "user_id": actor.user_id}
    for steps in FIRST_STEPS:
        yield from steps(actor, now)
    if any(actor.may_book(project) for project in actor.roles):
        mine = Booking.objects.filter(tenant_id=actor.tenant_id, owner=actor.user_id)
        yield Step(
            "Book GPUs",
            "Type a request such as 2 h100 6h. You see start and price before you book.",
            f"{base}book",
            "Book GPUs",
            is_done=mine.exists(),
        )
    yield Step(
        "Work from your shell",
        "An API token for the command gpu and for programs.",
        f"{base}settings",
        "Create a token",
        is_done=ApiToken.objects.filter(**place).exists(),
    )
    yield Step(
        "Choose your notifications",
        "Which events reach you, by mail or here, and at which hours.",
        f"{base}notifications/settings",
        "Choose",
        is_done=NotificationSettings.objects.filter(**place).exists(),
    )


@require_POST
@tenant_page
def steps_dismiss(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Hides the checklist in this browser."""
    response = redirect("home", tenant=actor.tenant_slug)
    response.set_cookie(
        COOKIE,
        "hidden",
        max_age=AGE_SECONDS,
        secure=request.is_secure(),
        httponly=True,
        samesite="Lax",
    )
    return response


urlpatterns = [path("t/<slug:tenant>/first-steps", steps_dismiss, name="first-steps")]
