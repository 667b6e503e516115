"""Manage calendars: made and revoked on a page of the settings, read by their address."""

import hashlib
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.utils.cache import get_conditional_response
from django.views.decorators.http import require_http_methods, require_safe

from allocation.models import CalendarFeed
from allocation.queries.bookings.calendar import (
    bookings_in_calendar,
    by_start,
    maintenance_in_calendar,
)
from allocation.services.record.feeds import FeedFound, feed_find, feed_make, feed_revoke
from allocation.web.home.calendar_file import CONTENT_TYPE, calendar_file
from tenants.access import Actor
from tenants.models import GpuClass, Project
from tenants.platform.costly import costly
from tenants.platform.forms.actions import form_action_run, id_read
from tenants.platform.wall import tenant_tx
from tenants.web.frame import tenant_page

# Calendar apps poll every few minutes; shared caches must not store it.
_KEPT = "private, max-age=300"


@dataclass(frozen=True, slots=True)
class FeedRow:
    """A calendar on the page."""

    feed: CalendarFeed
    words: str


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def calendars(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the person's calendars. The address of a new one is shown only once."""
    made: list[str] = []
    refusal = None
    if request.method == "POST":
        refusal = form_action_run(
            request,
            {
                "make": lambda form: _make(actor, form, made),
                "revoke": lambda form: _revoke(actor, form),
            },
        )
        if refusal is None and not made:
            return redirect("calendars", tenant=actor.tenant_slug)
    mine = CalendarFeed.objects.filter(tenant_id=actor.tenant_id, owner_id=actor.user_id)
    context = {
        "rows": [
            FeedRow(feed, _name(feed.project, feed.gpu_class))
            for feed in mine.filter(revoked=None).select_related("project", "gpu_class")
        ],
        "choices": _choices(actor),
        "address": made[0] if made else "",
        "refusal": refusal,
    }
    return render(request, "allocation/calendars.html", context, status=422 if refusal else 200)


@costly("calendar")
@require_safe
def calendar(request: HttpRequest, token: str) -> HttpResponseBase:
    """Returns the calendar of an address, or a 404 without details."""
    found = feed_find(token)
    if found is None:
        return HttpResponse("No such calendar.\n", status=404, content_type="text/plain")
    with tenant_tx(found.actor.tenant_id):
        body = _file(found)
    etag = f'"{hashlib.sha256(body).hexdigest()}"'
    whole = HttpResponse(body, content_type=CONTENT_TYPE)
    whole["Content-Disposition"] = 'inline; filename="gpus.ics"'
    response = get_conditional_response(request, etag=etag, response=whole) or whole
    response["ETag"] = etag
    response["Cache-Control"] = _KEPT
    return response


def _file(found: FeedFound) -> bytes:
    now, actor = timezone.now(), found.actor
    events = bookings_in_calendar(actor, found.project_id, found.gpu_class, now)
    if found.gpu_class is not None:
        events += tuple(maintenance_in_calendar(found.gpu_class, now))
    project = Project.objects.get(id=found.project_id) if found.project_id else None
    pool = GpuClass.objects.get(slug=found.gpu_class) if found.gpu_class else None
    return calendar_file(_name(project, pool), by_start(events), actor.tenant_slug)


def _name(project: Project | None, gpu_class: GpuClass | None) -> str:
    if project is not None:
        return f"GPU bookings of {project.name}"
    return f"{gpu_class.label} bookings" if gpu_class is not None else "My GPU bookings"


def _choices(actor: Actor) -> list[tuple[str, str]]:
    projects = Project.objects.filter(tenant_id=actor.tenant_id).order_by("name", "id")
    if not actor.is_tenant_admin:
        projects = projects.filter(id__in=actor.roles)
    return [
        ("mine", "My bookings"),
        *((f"project:{each.slug}", f"All bookings in {each.name}") for each in projects),
        *(
            (f"pool:{each.slug}", f"{each.label} bookings in my projects, and maintenance")
            for each in GpuClass.objects.all()
        ),
    ]


def _make(actor: Actor, form: QueryDict, made: list[str]) -> str:
    _, token = feed_make(actor=actor, what=form.get("what", ""), now=timezone.now())
    made.append(f"{settings.PUBLIC_URL}/calendar/{token}.ics")
    return "Calendar created. Copy its address now; it is shown only once."


def _revoke(actor: Actor, form: QueryDict) -> str:
    feed_id = id_read(form, "calendar", "calendar")
    feed_revoke(actor=actor, feed_id=feed_id, now=timezone.now())
    return "Calendar revoked. Its address no longer works."


urlpatterns = [
    path("t/<slug:tenant>/settings/calendars", calendars, name="calendars"),
    path("calendar/<str:token>.ics", calendar, name="calendar"),
]
