"""Earlier options: alternatives that start before a waiting booking, and the change to one."""

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
from allocation.services.bookings.changes import change_withdraw
from allocation.services.bookings.price_lock import price_lock_read
from allocation.services.quotes.earlier import Change, booking_exchange, earlier_options
from tenants.api.base import ApiView
from tenants.platform.fields import Instant, Strict, Text
from tenants.platform.schema import described


class EarlierOptionsOut(serializers.Serializer[Any]):
    """At most three options that start before `planned_start`."""

    planned_start = serializers.DateTimeField(
        allow_null=True, help_text="The planned start of the booking itself."
    )
    options = OptionOut(many=True)
    quote = serializers.CharField(help_text="Send it with the change to lock these prices.")


class ChangeIn(Strict):
    """One of the earlier options."""

    tier = Text(max_length=40)
    request = Text(max_length=MAX_TEXT_LENGTH, help_text="The option's `request`, unchanged.")
    starts = Instant(help_text="The option's `starts`. The change is refused if it is later now.")
    quote = Text(max_length=200, required=False, help_text="The `quote` of the listed options.")


class BookingEarlierOptions(ApiView):
    """Options that start earlier."""

    @described(
        "list_booking_earlier_options",
        "List earlier options of a booking",
        answer=EarlierOptionsOut,
    )
    def get(self, request: Request, reference: str) -> Response:
        """Returns at most three alternatives that start before the booking's planned start."""
        with self.tx():
            booking = access_booking(self.actor, reference)
            options, lock = earlier_options(actor=self.actor, booking=booking, now=self.now)
            data = {"planned_start": booking.planned_starts, "options": options, "quote": lock}
            return Response(EarlierOptionsOut(data).data)


class BookingChange(ApiView):
    """Replaces a booking by an earlier option, and withdraws an open change."""

    @described(
        "act_change_booking",
        "Replace a booking by an earlier option",
        answer=BookingOut,
        status=201,
        request=ChangeIn,
    )
    def post(self, request: Request, reference: str) -> HttpResponseBase:
        """Cancels the booking and creates the option as a new booking, in one transaction. The new
        booking has a new position in the queue. Repeating the change returns the same booking."""
        sent = self.sent(ChangeIn)

        def work() -> Response:
            booking = access_booking_to_change(self.actor, reference)
            lock = sent.get("quote")
            change = Change(
                sent["tier"],
                sent["request"],
                sent["starts"],
                price_lock_read(lock, self.now) if lock else None,
            )
            made = booking_exchange(actor=self.actor, booking=booking, change=change, now=self.now)
            return booking_answer(made, status=201)

        return self.once(work)

    @described("withdraw_booking_change", "Withdraw a change", answer=BookingOut)
    def delete(self, request: Request, reference: str) -> HttpResponseBase:
        """Withdraws the open change and returns the booking, which keeps what it has. Without an
        open change nothing happens."""
        with self.tx():
            booking = access_booking_to_change(self.actor, reference)
            return booking_answer(change_withdraw(actor=self.actor, booking=booking, now=self.now))
