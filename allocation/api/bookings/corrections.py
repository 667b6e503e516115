"""Corrections: operators refund or charge a booking after it has ended."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.services.operate.corrections import (
    Correction,
    booking_correct,
    booking_named,
    corrections_latest,
)
from allocation.services.record.costs import paid_for
from tenants.api.base import list_response
from tenants.platform.rest.fields import Money, Strict, Text
from tenants.platform.rest.schema import described, page
from tenants.rules.operator_roles import Area


class CorrectionIn(Strict):
    """The amount to refund or to charge, and the reason."""

    tenant = Text(max_length=40)
    booking = Text(max_length=24, help_text="The booking's number in that tenant: `BK-2041`.")
    kind = serializers.ChoiceField(choices=["refund", "charge"])
    amount = serializers.DecimalField(max_digits=20, decimal_places=6)
    reason = Text(max_length=200, help_text="Shown to the project.")


class CorrectionOut(serializers.Serializer[Any]):
    """What the booking has paid after the correction."""

    tenant = serializers.CharField()
    booking = serializers.CharField()
    currency = serializers.CharField()
    charged = Money(max_digits=20)
    corrected = Money(max_digits=20)
    paid = Money(max_digits=20)


class CorrectionMadeOut(serializers.Serializer[Any]):
    """A correction that was made: above zero for a charge, below for a refund."""

    at = serializers.DateTimeField()
    operator = serializers.CharField()
    tenant = serializers.CharField(source="booking.tenant.slug")
    project = serializers.CharField(source="booking.project.slug")
    booking = serializers.CharField(source="booking.label")
    currency = serializers.CharField(source="booking.currency")
    amount = Money(max_digits=20)
    paid = Money(max_digits=20, help_text="What the booking had paid after it.")
    reason = serializers.CharField()


class Corrections(OperatorView):
    """Corrections of charges."""

    area = Area.MONEY

    @described("list_corrections", "Latest corrections (operators)", answer=page(CorrectionMadeOut))
    def get(self, request: Request) -> Response:
        """Lists the latest 50 corrections of all tenants, the newest first."""
        with self.operator_tx():
            return list_response(dict(CorrectionMadeOut(row).data) for row in corrections_latest())

    @described(
        "create_correction",
        "Refund or charge a booking (operators)",
        answer=CorrectionOut,
        status=201,
        request=CorrectionIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Returns what the booking has paid. The total stays between zero and the amount that was
        held for the booking."""
        sent = self.sent(CorrectionIn)

        def work() -> dict[str, Any]:
            booking = booking_correct(
                operator=self.user,
                booking=booking_named(sent["tenant"], sent["booking"]),
                correction=Correction(sent["amount"], sent["reason"], more=sent["kind"] == "charge"),
                now=self.now,
            )
            return {
                "tenant": sent["tenant"],
                "booking": booking.label,
                "currency": booking.currency,
                "charged": booking.charged,
                "corrected": booking.corrected - booking.late_refunded,
                "paid": paid_for(booking),
            }

        return self.operate(work, CorrectionOut, status=201)
