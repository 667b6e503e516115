"""Starting earlier: what a waiting booking could be instead, and becoming it."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.access import access_booking, access_booking_to_change
from allocation.api.bookings.bookings import booking_answer
from allocation.api.bookings.quotes import OptionOut
from allocation.api.bookings.shapes import BookingOut
from allocation.rules.ask import MAX_TEXT_LENGTH
from allocation.services.bookings.price_lock import price_lock_read
from allocation.services.quotes.earlier import Change, booking_change, earlier_options
from tenants.api.base import ApiView
from tenants.platform.fields import Instant, Strict, Text
from tenants.platform.schema import described


class EarlierOptionsOut(serializers.Serializer[Any]):
    """At most three options that start before `promised`; empty when there are none."""

    promised = serializers.DateTimeField(allow_null=True)
    options = OptionOut(many=True)
    quote = serializers.CharField(help_text="Send it with the change to get these prices.")


class ChangeIn(Strict):
    """One of the options of `sooner`."""

    tier = Text(max_length=40)
    request = Text(max_length=MAX_TEXT_LENGTH, help_text="The option's `request`, as it was told.")
    starts = Instant(help_text="The option's `starts`: later than that it is not taken.")
    quote = Text(max_length=200, required=False)


class BookingEarlierOptions(ApiView):
    """What would start earlier."""

    @described(
        "get_booking_sooner", "What the booking could be to start earlier", answer=EarlierOptionsOut
    )
    def get(self, request: Request, reference: str) -> Response:
        """At most three options."""
        with self.tx():
            booking = access_booking(self.actor, reference)
            options, lock = earlier_options(actor=self.actor, booking=booking, now=self.now)
            told = {"promised": booking.planned_starts, "options": options, "quote": lock}
            return Response(EarlierOptionsOut(told).data)


class BookingChange(ApiView):
    """Becoming one of them."""

    @described(
        "act_change_booking",
        "Give the booking up and book an option of `sooner` instead, in one step; twice is once",
        answer=BookingOut,
        status=201,
        request=ChangeIn,
    )
    def post(self, request: Request, reference: str) -> HttpResponseBase:
        """The new booking, with a new place in line."""
        sent = self.sent(ChangeIn)

        def work() -> Response:
            booking = access_booking_to_change(self.actor, reference)
            shown = sent.get("quote")
            change = Change(
                sent["tier"],
                sent["request"],
                sent["starts"],
                price_lock_read(shown, self.now) if shown else None,
            )
            made = booking_change(actor=self.actor, booking=booking, change=change, now=self.now)
            return booking_answer(made, status=201)

        return self.once(work)
