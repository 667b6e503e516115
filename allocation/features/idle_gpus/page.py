"""The card with the GPUs of a running gang on the page of a booking, and giving back single ones."""

from datetime import datetime

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_POST

from allocation.access import access_booking, access_booking_to_give_back, may_give_back
from allocation.features.idle_gpus.services import gpu_states
from allocation.models import Booking
from allocation.points import BOOKING_CARDS, BookingCard
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.web.bookings.booking_pages import booking_answer
from tenants.access import Actor
from tenants.platform.errors import Refused
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.web.frame import tenant_page
from tenants.web.parts import counted

MOST_NAMES = 512


def gpus_card(actor: Actor, booking: Booking, now: datetime) -> BookingCard | None:
    """Returns the card of a running booking with several whole GPUs."""
    states = gpu_states(booking, now)
    if len(states) < 2:
        return None
    idle = [each.name for each in states if each.is_idle]
    may = may_give_back(actor, booking)
    card = {
        "states": states,
        "idle": idle,
        "label": booking.label,
        "may": may,
        "may_all": may and 1 < len(idle) < len(states),
        "now": now,
    }
    return BookingCard("idle_gpus/card.html", card)


@require_POST
@tenant_page
def gpus_give_back_page(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
    """Gives back the GPUs that the form names, after a confirmation."""
    booking = access_booking_to_give_back(actor, label)
    names = tuple(dict.fromkeys(request.POST.getlist("gpu")))[:MOST_NAMES]
    back = f"/t/{actor.tenant_slug}/bookings/{booking.label}"
    if CONFIRMED_FIELD not in request.POST:
        return confirm_page(request, _question(booking, names, back))
    patch = Patch(give_back=names or ("",))
    try:
        booking_patch(actor=actor, booking=booking, patch=patch, revision=None, now=timezone.now())
    except Refused as refusal:
        return booking_answer(request, actor, access_booking(actor, label), refusal)
    messages.success(request, f"{booking.label} gave back {counted(len(names), 'GPU')}; the others run on.")
    return HttpResponseRedirect(back)


def _question(booking: Booking, names: tuple[str, ...], back: str) -> Confirmation:
    shown = ", ".join(name[:60] for name in names[:8])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return Confirmation(
        title=f"Give back {counted(len(names), 'GPU')} of {booking.label} now?",
        lost=(
            f"Programs on {shown}{more} are stopped, and the GPUs are cleared. The others run on.",
            "The price of the rest is lower from now on, and the money of what is given back is free again.",
            "This can't be undone: others can get the GPUs immediately.",
        ),
        button="Give back",
        back=back,
        keep="Keep them",
    )


BOOKING_CARDS.append(gpus_card)
urlpatterns = [
    path("t/<slug:tenant>/bookings/<str:label>/gpus", gpus_give_back_page, name="booking-gpus"),
]
