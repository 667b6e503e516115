"""Announcements: the operators' page, and the button that closes a banner."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods, require_POST

from tenants.access import Actor
from tenants.models import Announcement, Tenant, User
from tenants.platform.errors import invalid
from tenants.platform.forms.actions import form_action_run, id_read
from tenants.platform.forms.local_times import local_time_read
from tenants.rules.operator_roles import Area
from tenants.services.announcements import (
    AnnouncementTerms,
    announcement_dismiss,
    announcement_publish,
    announcement_withdraw,
)
from tenants.web.frame import operator_page, person_page, tenant_page
from tenants.words import refusal_text

PAST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class AnnouncementRow:
    """An announcement, its state, and who sees it."""

    of: Announcement
    state: str
    audience: str


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.PEOPLE)
def ops_announcements(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows announcements, and publishes or withdraws one."""
    now = timezone.now()
    refusal = None
    if request.method == "POST":
        refusal = form_action_run(
            request,
            {
                "publish": lambda form: _publish(operator, form, now),
                "withdraw": lambda form: _withdraw(operator, form, now),
            },
        )
        if refusal is None:
            return redirect("ops-announcements")
    names = {each.id: each.name for each in Tenant.objects.all()}
    rows = [_row(each, names, now) for each in Announcement.objects.all()[: PAST_SHOWN * 2]]
    context = {
        "open": [row for row in rows if row.state in ("shown", "planned")],
        "past": [row for row in rows if row.state in ("over", "withdrawn")][:PAST_SHOWN],
        "levels": Announcement.Level.choices,
        "tenants": Tenant.objects.order_by("name"),
        "typed": request.POST if refusal else {},
        "chosen": request.POST.getlist("tenants"),
        "refusal": refusal,
    }
    status = 422 if refusal else 200
    return render(request, "tenants/ops_announcements.html", context, status=status)


@require_POST
@tenant_page
def tenant_dismiss(request: HttpRequest, actor: Actor, announcement_id: UUID) -> HttpResponse:
    """Closes a banner for the reader."""
    return _dismissed(request, actor.user_id, announcement_id)


@require_POST
@person_page
def dismiss(request: HttpRequest, user: User, announcement_id: UUID) -> HttpResponse:
    """Closes a banner that everybody sees, on pages outside tenants."""
    return _dismissed(request, user.pk, announcement_id)


def _dismissed(request: HttpRequest, user_id: int, announcement_id: UUID) -> HttpResponse:
    announcement_dismiss(user_id=user_id, announcement_id=announcement_id, now=timezone.now())
    back = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(back, {request.get_host()}) or "\\" in back:
        back = "/"
    return redirect(back)


def _row(row: Announcement, names: dict[UUID, str], now: datetime) -> AnnouncementRow:
    if row.withdrawn_at is not None:
        state = "withdrawn"
    elif row.until <= now:
        state = "over"
    else:
        state = "shown" if row.starts <= now else "planned"
    audience = ", ".join(sorted(names.get(each, "?") for each in row.tenants)) or "Everybody"
    return AnnouncementRow(row, state, audience)


def _publish(operator: User, form: QueryDict, now: datetime) -> str:
    terms = AnnouncementTerms(
        text=form.get("text", ""),
        level=form.get("level", ""),
        starts=_moment(form, "starts") or now,
        until=_moment(form, "until") or now,
        tenants=form.getlist("tenants"),
    )
    made = announcement_publish(operator=operator, terms=terms, now=now)
    return "Announced." if made.starts <= now else "Planned. The inbox has it already."


def _withdraw(operator: User, form: QueryDict, now: datetime) -> str:
    found = id_read(form, "announcement", "announcement")
    announcement_withdraw(operator=operator, announcement_id=found, now=now)
    return "Withdrawn from all pages."


def _moment(form: QueryDict, name: str) -> datetime | None:
    """The time in the reader's zone; None for an empty field."""
    text = form.get(name, "").strip()
    if not text:
        return None
    return local_time_read(text, invalid("bad_time", refusal_text("bad_time"), name))


urlpatterns = [
    path("ops/announcements", ops_announcements, name="ops-announcements"),
    path(
        "t/<slug:tenant>/announcements/<uuid:announcement_id>/dismiss",
        tenant_dismiss,
        name="announcement-tenant-dismiss",
    ),
    path("announcements/<uuid:announcement_id>/dismiss", dismiss, name="announcement-dismiss"),
]
