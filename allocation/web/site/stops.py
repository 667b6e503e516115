"""Stops of new work, for operators: the list, the form, and the question with its numbers."""

from uuid import UUID

from django.contrib import messages
from django.db.models import prefetch_related_objects
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from allocation.models import Stop
from allocation.queries.fleet.stops import stops_in_force
from allocation.services.operate.portal_modes import length_read
from allocation.services.operate.stops import (
    StopEffect,
    StopTerms,
    stop_begin,
    stop_effect,
    stop_end,
)
from tenants.models import GpuClass, Tenant, Tier, User
from tenants.platform.errors import Refused
from tenants.platform.forms.actions import SHOWN_ON_PAGE
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page

SHOWN = 10


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.RULES)
def ops_stops(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the stops and the form. A POST asks first, with the numbers of bookings."""
    now = timezone.now()
    refusal = None
    if request.method == "POST":
        try:
            terms = _terms(request)
            effect = stop_effect(terms=terms)
            if not terms.reason:
                # The form says so before the question.
                stop_begin(operator=operator, terms=terms, now=now)
            if CONFIRMED_FIELD not in request.POST:
                return confirm_page(request, _question(terms, effect))
            stop = stop_begin(operator=operator, terms=terms, now=now)
            messages.success(request, f"New work of {stop.of} is stopped.")
            return redirect("ops-stops")
        except Refused as refused:
            if refused.kind not in (*SHOWN_ON_PAGE, "missing"):
                raise
            refusal = refused
    stops = stops_in_force(now)
    prefetch_related_objects(stops, "tenant", "booking")
    context = {
        "stops": stops,
        "past": [row for row in _past() if not row.is_in_force(now)][:SHOWN],
        "groups": _groups(),
        "refusal": refusal,
        "sent": request.POST,
    }
    return render(request, "allocation/ops_stops.html", context, status=422 if refusal else 200)


@require_POST
@operator_page(Area.RULES)
def ops_stop_end(request: HttpRequest, operator: User, stop_id: UUID) -> HttpResponse:
    """Ends a stop."""
    stop = stop_end(operator=operator, stop_id=stop_id, now=timezone.now())
    messages.success(request, f"The stop of {stop.of} is over.")
    return redirect("ops-stops")


def _groups() -> list[tuple[str, list[tuple[str, str]]]]:
    """What can be stopped besides the site, as values and names of the form."""
    tenants = Tenant.objects.order_by("name").values_list("slug", "name")
    tiers = Tier.objects.values_list("slug", "name")
    classes = GpuClass.objects.values_list("slug", "label")
    return [
        ("Organisation", [(f"tenant:{slug}", name) for slug, name in tenants]),
        ("Tier", [(f"tier:{slug}", name) for slug, name in tiers]),
        ("GPU class", [(f"class:{slug}", name) for slug, name in classes]),
    ]


def _past() -> list[Stop]:
    return list(Stop.objects.select_related("tenant", "booking", "begun_by")[: SHOWN * 2])


def _terms(request: HttpRequest) -> StopTerms:
    """The form's terms; `what` is `site` or a scope and a name: `tier:spot`."""
    scope, _, name = request.POST.get("what", "").partition(":")
    reason = request.POST.get("reason", "").strip()
    return StopTerms(scope, name, reason, length_read(request.POST.get("for", "")))


def _question(terms: StopTerms, effect: StopEffect) -> Confirmation:
    of = f"the {terms.scope} {terms.name}" if terms.name else "the whole site"
    return Confirmation(
        title=f"Stop new work of {of}?",
        lost=(
            "New requests are refused, with your reason.",
            f"{effect.waiting} waiting bookings keep their place in the queue and wait.",
            f"{effect.planned} planned bookings do not start; fixed windows can pass meanwhile.",
            f"{effect.running} running bookings continue.",
            *([f"{effect.paused} paused bookings do not resume."] if effect.paused else []),
        ),
        button="Stop new work",
        back="/ops/stops",
        keep="Back",
    )


urlpatterns = [
    path("ops/stops", ops_stops, name="ops-stops"),
    path("ops/stops/<uuid:stop_id>/end", ops_stop_end, name="ops-stop-end"),
]
