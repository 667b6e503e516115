"""The page of an array: counts of its elements, the elements, and their cancellation."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from allocation.access import access_array, access_array_to_change, may_change_array
from allocation.features.arrays.queries import ArrayCounts, array_elements, array_shown
from allocation.features.arrays.services import array_cancel, ranges_of, ranges_read
from allocation.models import BookingArray
from allocation.rules.ask import AskDocument
from allocation.web.bookings.booking_pages import booking_rows, page_context
from allocation.web.bookings.summary import what_words
from allocation.web.parts.labels import labels_context
from billing.rules import money_text
from tenants.access import Actor
from tenants.platform.errors import Refused
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.web.frame import refused_page, tenant_page

PAGE = 50
# In the order of an element's life; with the colour of each part of the bar.
_PARTS = (
    ("ended", "ended"),
    ("failed", "failed"),
    ("cancelled", "cancelled"),
    ("running", "running"),
    ("paused", "paused"),
    ("scheduled", "scheduled"),
    ("waiting", "waiting"),
    ("later", "not booked yet"),
)


@require_safe
@tenant_page
def array_page(request: HttpRequest, actor: Actor, reference: str) -> HttpResponse:
    """Shows an array; `page=` selects a page of its elements."""
    array = access_array(actor, reference)
    shown = array_shown(array)
    ctx = page_context(actor, timezone.now())
    page = Paginator(array_elements(array), PAGE).get_page(request.GET.get("page"))
    currency = array.terms["currency"]
    context = {
        "array": array,
        "title": array.name or array.label,
        "what": what_words(AskDocument.from_json(array.terms["ask"]), ctx.labels),
        "parts": parts_of(shown.counts, array.count),
        "reason": array.reasons[0]["sentence"] if array.reasons else "",
        "lines": booking_rows(page, ctx),
        "page": page,
        "held": money_text(shown.held, currency),
        "charged": money_text(shown.charged, currency),
        "may_cancel": shown.is_open and may_change_array(actor, array),
        **labels_context(array.labels, array.external_ref),
    }
    return render(request, "arrays/page.html", context)


def parts_of(counts: ArrayCounts, count: int) -> list[dict[str, Any]]:
    """Returns the parts of the bar: a word, how many elements, and their share in per cent."""
    numbers = [(name, words, getattr(counts, name)) for name, words in _PARTS]
    return [
        {"name": name, "words": words, "count": many, "share": f"{100 * many / count:.2f}"}
        for name, words, many in numbers
        if many
    ]


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def array_cancel_page(request: HttpRequest, actor: Actor, reference: str) -> HttpResponse:
    """Cancels all elements, or those in `elements` (`3-20,40`).

    A GET shows the confirmation of all; a POST of elements that of these, until it has `sure`.
    """
    chosen = request.POST.get("elements", "").strip()
    try:
        array = access_array_to_change(actor, reference)
        if request.method != "POST":
            return confirm_page(request, _question(actor, array))
        ranges = ranges_of(array, chosen) if "elements" in request.POST else None
        if ranges is not None and CONFIRMED_FIELD not in request.POST:
            ranges_read(array, ranges)
            return confirm_page(request, _part_question(actor, array, chosen))
        count = array_cancel(actor=actor, array=array, ranges=ranges, now=timezone.now())
    except Refused as refusal:
        return refused_page(request, refusal)
    messages.success(request, f"{count} element{'s' * (count != 1)} of {array.label} cancelled.")
    return HttpResponseRedirect(f"/t/{actor.tenant_slug}/arrays/{array.label}")


def _question(actor: Actor, array: BookingArray) -> Confirmation:
    counts = array_shown(array).counts
    many = counts.open + counts.later
    owner = array.owner.display_name
    return Confirmation(
        title=f"Cancel {many} element{'s' * (many != 1)} of {array.label}?",
        lost=(
            f"This array belongs to {owner} in {array.project.name}.",
            f"{counts.running} of them run and end now; their use is charged. The others cost nothing.",
            "This can't be undone.",
        ),
        button=f"Cancel {many} element{'s' * (many != 1)}",
        back=f"/t/{actor.tenant_slug}/arrays/{array.label}",
        keep="Keep the array",
    )


def _part_question(actor: Actor, array: BookingArray, chosen: str) -> Confirmation:
    owner = array.owner.display_name
    return Confirmation(
        title=f"Cancel elements {chosen} of {array.label}?",
        lost=(
            f"This array belongs to {owner} in {array.project.name}.",
            "Those that run end now; their use is charged. The others cost nothing.",
            "This can't be undone.",
        ),
        button=f"Cancel elements {chosen}",
        back=f"/t/{actor.tenant_slug}/arrays/{array.label}",
        keep="Keep them",
    )


ARRAY = "t/<slug:tenant>/arrays/<str:reference>"
urlpatterns = [
    path(ARRAY, array_page, name="array"),
    path(f"{ARRAY}/cancel", array_cancel_page, name="array-cancel"),
]
