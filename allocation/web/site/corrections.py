"""The operator's page to correct a booking's charge."""

from decimal import Decimal

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.services.operate.corrections import (
    Correction,
    CorrectionRoom,
    booking_correct,
    booking_named,
    correction_room,
    corrections_latest,
)
from allocation.services.record.costs import paid_for
from billing.price_books import currency_latest
from billing.rules import amount_parse, money_text
from billing.web.budget_bar import Meter
from tenants.models import User
from tenants.platform.errors import Refused
from tenants.platform.forms.actions import form_action_run
from tenants.queries import tenants_all
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.MONEY)
def ops_corrections(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows a booking with its payments, and the latest corrections; POST corrects one."""
    refusal, room = None, None
    if request.method == "POST":
        acts = {
            "refund": lambda form: _correct(operator, form, more=False),
            "charge": lambda form: _correct(operator, form, more=True),
        }
        refusal = form_action_run(request, acts)
        if refusal is None:
            return redirect("ops-corrections")
    typed = request.POST if refusal else request.GET
    if typed.get("booking"):
        try:
            room = correction_room(booking_named(typed.get("tenant", ""), typed["booking"]))
        except Refused as refused:
            refusal = refusal or refused
    context = {
        "shown": room and _shown(room),
        "latest": [
            (each, each.booking, *_texts(each.booking.currency, each.amount, each.paid))
            for each in corrections_latest()
        ],
        "tenants": [(each.slug, each.name) for each in tenants_all()],
        "refusal": refusal,
        "typed": typed,
    }
    status = 422 if refusal else 200
    return render(request, "allocation/ops_corrections.html", context, status=status)


def _shown(room: CorrectionRoom) -> dict[str, object]:
    """A booking that is over: its amounts as texts, and the paid part of the held amount."""
    booking, held = room.booking, room.paid + room.more
    charged, corrected, paid, more, most = _texts(
        booking.currency,
        booking.charged or Decimal(0),
        booking.corrected - booking.late_refunded,
        room.paid,
        room.more,
        held,
    )
    share = room.paid / held * 100 if held else Decimal(0)
    return {
        "booking": booking,
        "charged": charged,
        "corrected": corrected,
        "paid": paid,
        "more": more,
        "held": most,
        "meter": Meter(share, Decimal(0), f"{paid} of {most} paid"),
    }


def _texts(currency: str, *amounts: Decimal) -> tuple[str, ...]:
    return tuple(money_text(amount, currency) for amount in amounts)


def _correct(operator: User, form: QueryDict, *, more: bool) -> str:
    amount = amount_parse(form.get("amount", ""), param="amount", currency=currency_latest(), places=6)
    booking = booking_correct(
        operator=operator,
        booking=booking_named(form.get("tenant", ""), form.get("booking", "")),
        correction=Correction(amount, form.get("reason", ""), more=more),
        now=timezone.now(),
    )
    paid = paid_for(booking)
    done = "Charged" if more else "Refunded"
    said = f"{done}: {money_text(amount, booking.currency)}."
    return f"{said} Total paid for {booking.label}: {money_text(paid, booking.currency)}."


urlpatterns = [path("ops/corrections", ops_corrections, name="ops-corrections")]
