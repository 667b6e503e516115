"""Earlier options: alternatives that start before a waiting booking. A PATCH takes one."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.access import access_booking, access_booking_to_change
from allocation.api.bookings.bookings import booking_answer
from allocation.api.bookings.quotes import OptionOut
from allocation.api.bookings.shapes import BookingOut
from allocation.services.bookings.change.withdrawal import change_withdraw
from allocation.services.quotes.earlier import earlier_options
from tenants.api.base import ApiView
from tenants.platform.costly import costly
from tenants.platform.rest.schema import described


class EarlierOptionsOut(serializers.Serializer[Any]):
    """At most three options that start before `planned_start`."""

    planned_start = serializers.DateTimeField(
        allow_null=True, help_text="The planned start of the booking itself."
    )
    options = OptionOut(many=True)
    quote = serializers.CharField(
        help_text="Send it with the change, or a new booking, to lock these prices."
    )


@costly("quote")
class BookingEarlierOptions(ApiView):
    """Options that start earlier."""

    @described(
        "list_booking_earlier_options",
        "List earlier options of a booking",
        answer=EarlierOptionsOut,
    )
    def get(self, request: Request, reference: str) -> Response:
        """Returns at most three alternatives that start before the booking's planned start. To take
        one, send its `request` and `tier` with `PATCH /bookings/{reference}`, and its `starts` as
        `accept.start_by`."""
        with self.tx():
            booking = access_booking(self.actor, reference)
            options, lock = earlier_options(actor=self.actor, booking=booking, now=self.now)
            data = {"planned_start": booking.planned_starts, "options": options, "quote": lock}
            return Response(EarlierOptionsOut(data).data)


class BookingChange(ApiView):
    """The open change of a booking."""

    @described("withdraw_booking_change", "Withdraw a change", answer=BookingOut)
    def delete(self, request: Request, reference: str) -> HttpResponseBase:
        """Withdraws the open change and returns the booking, which keeps what it has. Without an
        open change nothing happens."""
        with self.tx():
            booking = access_booking_to_change(self.actor, reference)
            return booking_answer(
                change_withdraw(actor=self.actor, booking=booking, now=self.now), self.actor
            )
