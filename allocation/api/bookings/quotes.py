"""Quotes: what an ask could get, when, and for how much, before anything is booked."""

from datetime import datetime
from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.bookings.requests import BookingIn, booking_request_of
from allocation.services.bookings.bookings import BookingRequest
from allocation.services.quotes.quotes import quote_make
from tenants.access import Actor
from tenants.api.base import ApiView
from tenants.platform.fields import Money
from tenants.platform.schema import described
from tenants.services.rate_limits import call_limit_check


class OptionOut(serializers.Serializer[Any]):
    """One way to get it. `request` is the line that books exactly this."""

    kind = serializers.CharField()
    tier = serializers.CharField()
    gpu_class = serializers.CharField()
    profile = serializers.CharField(allow_null=True)
    count = serializers.IntegerField()
    share = serializers.IntegerField(
        allow_null=True, help_text="Thousandths of one GPU, not isolated from its other shares."
    )
    starts = serializers.DateTimeField()
    ends = serializers.DateTimeField()
    nodes = serializers.ListField(child=serializers.CharField())
    price = Money(max_digits=20)
    currency = serializers.CharField()
    request = serializers.CharField()
    pause_risk = serializers.IntegerField(help_text="Chance of a pause, in thousandths.")
    pause_basis = serializers.CharField(
        help_text="What the chance was counted from; empty for what is never paused."
    )
    speed = serializers.IntegerField(
        allow_null=True, help_text="Beside the ask, in thousandths; null where nobody has compared."
    )
    pauses = serializers.IntegerField(
        help_text="How many running bookings of your organisation would be asked to leave."
    )
    notes = serializers.ListField(child=serializers.CharField())


class EffectOut(serializers.Serializer[Any]):
    """The budget that would pay, as it is now."""

    budget_id = serializers.UUIDField()
    amount = Money(max_digits=20)
    spent = Money(max_digits=20)
    held = Money(max_digits=20)
    left = Money(max_digits=20, min_value=None)
    currency = serializers.CharField()
    starts = serializers.DateField()
    ends = serializers.DateField()


class QuoteOut(serializers.Serializer[Any]):
    """Options, the best first; without any, what blocks. Prices hold until `expires`."""

    ask = serializers.DictField(source="wish_ask")
    options = OptionOut(many=True)
    blocking = serializers.CharField(allow_null=True)
    waits = serializers.BooleanField(
        help_text="Booked all the same it waits in line, with no start that can be planned."
    )
    budget = EffectOut(source="effect", allow_null=True)
    expires = serializers.DateTimeField()
    quote = serializers.CharField(
        source="lock", help_text="Send it with a booking to get these prices until `expires`."
    )


class Quotes(ApiView):
    """Asking without booking."""

    @described(
        "create_quote", "Options, prices and budget effect of an ask; writes nothing",
        answer=QuoteOut, request=BookingIn,
    )  # fmt: skip
    def post(self, request: Request) -> HttpResponseBase:
        """The options."""
        call_limit_check("quotes", str(self.actor.user_id), self.now)
        sent = self.sent(BookingIn)

        def work() -> Response:
            wish = booking_request_of(self.actor, sent, self.now)
            return Response(quote_data(self.actor, wish, self.now))

        return self.once(work)


def quote_data(actor: Actor, wish: BookingRequest, now: datetime) -> dict[str, Any]:
    """The quote as JSON values; inside a transaction of the tenant. Raises Refused."""
    quote = quote_make(actor=actor, wish=wish, now=now)
    said = QuoteOut(
        {
            "wish_ask": wish.ask.to_json(),
            "options": quote.options,
            "blocking": quote.blocking,
            "waits": quote.waits,
            "effect": quote.effect,
            "expires": quote.expires,
            "lock": quote.lock,
        }
    )
    return dict(said.data)
