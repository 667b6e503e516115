"""Operators correct what a booking was charged."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.services.operate.corrections import Correction, booking_correct, booking_named
from tenants.api.base import ApiView
from tenants.models import User
from tenants.platform.fields import Money, Strict, Text
from tenants.platform.schema import described
from tenants.platform.wall import operator_tx


class CorrectionIn(Strict):
    """How much is given back or charged, and why."""

    tenant = Text(max_length=40)
    booking = Text(max_length=24, help_text="Its number in that tenant, as in `BK-2041`.")
    kind = serializers.ChoiceField(choices=["refund", "charge"])
    amount = serializers.DecimalField(max_digits=20, decimal_places=6)
    reason = Text(max_length=200, help_text="The project reads it.")


class CorrectionOut(serializers.Serializer[Any]):
    """What the booking has paid now."""

    tenant = serializers.CharField()
    booking = serializers.CharField()
    currency = serializers.CharField()
    charged = Money(max_digits=20)
    corrected = Money(max_digits=20)
    paid = Money(max_digits=20)


class Corrections(ApiView):
    """Corrections of charges."""

    @described(
        "create_correction",
        "Give back what a booking was charged, or charge more (operators)",
        answer=CorrectionOut,
        status=201,
        request=CorrectionIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """What the booking has paid now; never below zero, nor more than was held for it."""
        sent = self.sent(CorrectionIn)

        def work() -> Response:
            self.require_operator()
            correction = Correction(sent["amount"], sent["reason"], more=sent["kind"] == "charge")
            with operator_tx():
                booking = booking_correct(
                    operator=User.objects.get(id=self.actor.user_id),
                    booking=booking_named(sent["tenant"], sent["booking"]),
                    correction=correction,
                    now=self.now,
                )
            shown = CorrectionOut(
                {
                    "tenant": sent["tenant"],
                    "booking": booking.label,
                    "currency": booking.currency,
                    "charged": booking.charged,
                    "corrected": booking.corrected,
                    "paid": (booking.charged or 0) + booking.corrected,
                }
            )
            return Response(shown.data, status=201)

        return self.once(work)
