"""The page of calendars, and the calendars themselves at their addresses."""

import hashlib
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import path
from django.utils import timezone
from django.utils.cache import get_conditional_response
from django.views.decorators.http import require_safe

from allocation.features.calendars.models import CalendarFeed
from allocation.features.calendars.services import (
    CalendarTerms,
    FeedFound,
    feed_find,
    feed_make,
    feed_revoke,
    feeds_of,
)
from allocation.queries.bookings.calendar import (
    bookings_in_calendar,
    by_start,
    maintenance_in_calendar,
)
from allocation.web.home.calendar_file import CONTENT_TYPE, calendar_file
from tenants.access import Actor
from tenants.models import GpuClass, Project
from tenants.platform.costly import costly
from tenants.platform.wall import tenant_tx
from tenants.web.form_page import Act, form_page

# Calendar apps poll every few minutes; shared caches must not store it.
_KEPT = "private, max-age=300"


def _shown(actor: Actor, now: datetime) -> dict[str, Any]:
    """The person's calendars; the address of a new one is shown once."""
    return {"rows": feeds_of(actor, now)}


@costly("calendar")
@require_safe
def calendar(request: HttpRequest, token: str) -> HttpResponseBase:
    """Returns the calendar of an address, or a 404 without details."""
    now = timezone.now()
    found = feed_find(token, now)
    if found is None:
        return HttpResponse("No such calendar.\n", status=404, content_type="text/plain")
    with tenant_tx(found.actor.tenant_id):
        body = _file(found, now)
    etag = f'"{hashlib.sha256(body).hexdigest()}"'
    whole = HttpResponse(body, content_type=CONTENT_TYPE)
    whole["Content-Disposition"] = 'inline; filename="gpus.ics"'
    response = get_conditional_response(request, etag=etag, response=whole) or whole
    response["ETag"] = etag
    response["Cache-Control"] = _KEPT
    return response


def _file(found: FeedFound, now: datetime) -> bytes:
    actor = found.actor
    events = bookings_in_calendar(actor, found.project_id, found.gpu_class, now)
    if found.gpu_class is not None:
        events += tuple(maintenance_in_calendar(found.gpu_class, now))
    feed = CalendarFeed(project_id=found.project_id, gpu_class_id=found.gpu_class)
    return calendar_file(feed.name, by_start(events), actor.tenant_slug)


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


urlpatterns = [
    form_page(
        "settings/calendars",
        "calendars",
        "calendars/page.html",
        _shown,
        Act(
            "make",
            feed_make,
            "Calendar created. Copy its address now; it is shown only once.",
            terms=CalendarTerms,
            choices={"what": _choices},
            is_shown_once=True,
        ),
        Act("revoke", feed_revoke, "Calendar revoked. Its address no longer works.", key="calendar"),
    ),
    path("calendar/<str:token>.ics", calendar, name="calendar"),
]
