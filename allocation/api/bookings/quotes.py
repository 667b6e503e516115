"""Quotes: the options, start times and prices of a request, before anything is booked."""

from datetime import datetime
from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.bookings.requests import BookingIn, booking_request_of
from allocation.models import PlannedStrength
from allocation.services.quotes.quotes import quote_make
from tenants.access import Actor
from tenants.api.base import ApiView
from tenants.platform.fields import Money
from tenants.platform.schema import described
from tenants.services.rate_limits import call_limit_check


class OptionOut(serializers.Serializer[Any]):
    """One way to meet the request. `request` is the text that books exactly this option."""

    kind = serializers.CharField()
    tier = serializers.CharField()
    gpu_class = serializers.CharField()
    profile = serializers.CharField(allow_null=True)
    count = serializers.IntegerField()
    share = serializers.IntegerField(
        allow_null=True,
        help_text="Thousandths of one GPU. Shares of a GPU are not isolated from each other.",
    )
    starts = serializers.DateTimeField()
    ends = serializers.DateTimeField()
    nodes = serializers.ListField(child=serializers.CharField())
    price = Money(max_digits=20, help_text="At this start.")
    most = Money(
        max_digits=20,
        help_text="The highest price, held by a booking: it may start at a time with more peak"
        " hours.",
    )
    currency = serializers.CharField()
    request = serializers.CharField()
    pause_risk = serializers.IntegerField(help_text="Probability of a pause, in thousandths.")
    pause_basis = serializers.CharField(
        help_text="The past bookings behind `pause_risk`. Empty if the option can't be paused."
    )
    speed = serializers.IntegerField(
        allow_null=True,
        help_text="Speed relative to the request as written, in thousandths. Null if unknown.",
    )
    pauses = serializers.IntegerField(
        help_text="Number of running bookings of your organisation that would be paused."
    )
    strength = serializers.ChoiceField(
        choices=PlannedStrength.values,
        help_text="What the start would be worth: `firm`, `guaranteed` or `expected`.",
    )
    latest = serializers.DateTimeField(
        help_text="The latest start that is to be expected; `starts` unless it is `expected`."
    )
    sentence = serializers.CharField(help_text="Whose bookings could make the start later.")
    notes = serializers.ListField(child=serializers.CharField())


class EffectOut(serializers.Serializer[Any]):
    """The current state of the budget that would pay."""

    budget_id = serializers.UUIDField()
    amount = Money(max_digits=20)
    spent = Money(max_digits=20)
    held = Money(max_digits=20)
    left = Money(max_digits=20, min_value=None)
    currency = serializers.CharField()
    starts = serializers.DateField()
    ends = serializers.DateField()


class QuoteOut(serializers.Serializer[Any]):
    """The options for a request, best first. Prices are valid until `expires`."""

    ask = serializers.SerializerMethodField(help_text="The request in its structured form.")
    options = OptionOut(many=True)
    blocking = serializers.CharField(
        allow_null=True, help_text="Why there is no option. Null if there are options."
    )
    waits = serializers.BooleanField(
        help_text="True if a booking would wait in the queue without a planned start."
    )
    budget = EffectOut(source="effect", allow_null=True)
    expires = serializers.DateTimeField()
    quote = serializers.CharField(
        source="lock", help_text="Send it with a booking to lock these prices until `expires`."
    )

    def get_ask(self, _: object) -> dict[str, Any]:
        """The structured form, from the serializer's context."""
        return dict(self.context["ask"])


class Quotes(ApiView):
    """Quotes for requests."""

    has_reference = True

    @described("create_quote", "Create a quote", answer=QuoteOut, request=BookingIn)
    def post(self, request: Request) -> HttpResponseBase:
        """Returns the options for a request, with their prices and the budget that would pay. A
        quote reserves nothing."""
        call_limit_check("quotes", str(self.actor.user_id), self.now)
        sent = self.sent(BookingIn)
        return self.once(lambda: Response(quote_data(self.actor, sent, self.now)))


def quote_data(actor: Actor, given: dict[str, Any], now: datetime) -> dict[str, Any]:
    """A quote for a validated `BookingIn`, as JSON values. Runs inside a tenant's transaction.
    Raises Refused."""
    wanted = booking_request_of(actor, given, now)
    quote = quote_make(actor=actor, request=wanted, now=now)
    return dict(QuoteOut(quote, context={"ask": wanted.ask.to_json()}).data)
