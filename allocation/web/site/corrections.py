"""The operator's page to correct a booking's charge."""

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.services.operate.corrections import Correction, booking_correct, booking_named
from allocation.services.record.costs import paid_for
from billing.rules import amount_parse, money_text
from tenants.models import User
from tenants.platform.forms.actions import form_action_run
from tenants.queries import tenants_all
from tenants.web.frame import operator_page


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def ops_corrections(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the form with booking, amount and reason; POST refunds or charges."""
    refusal = None
    if request.method == "POST":
        acts = {
            "refund": lambda form: _correct(operator, form, more=False),
            "charge": lambda form: _correct(operator, form, more=True),
        }
        refusal = form_action_run(request, acts)
        if refusal is None:
            return redirect("ops-corrections")
    context = {
        "tenants": [(each.slug, each.name) for each in tenants_all()],
        "refusal": refusal,
        "typed": request.POST if refusal else request.GET,
    }
    status = 422 if refusal else 200
    return render(request, "allocation/ops_corrections.html", context, status=status)


def _correct(operator: User, form: QueryDict, *, more: bool) -> str:
    amount = amount_parse(form.get("amount", ""), param="amount", places=6)
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
