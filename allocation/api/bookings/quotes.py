"""Quotes: the options, start times and prices of a request, before anything is booked."""

from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.bookings.requests import (
    BookingIn,
    ParentIn,
    booking_request_of,
    request_lines,
    with_array,
)
from allocation.models import PlannedStrength
from allocation.points import Advice
from allocation.queries.bookings.after_parents import estimated_end
from allocation.rules.arrays import parallel_usual
from allocation.rules.ask.line.text import document_text
from allocation.rules.workload_names import LABEL
from allocation.services.bookings.dependencies import parents_read
from allocation.services.bookings.request_text import QuoteReader
from allocation.services.bookings.requests import BookingRequest, array_bounds_check
from allocation.services.quotes.quotes import Quote, cheapest_class, cheapest_first, quote_make
from allocation.words.refusals import refusal_text
from solver import Runs
from tenants.access import Actor
from tenants.api.base import ApiView
from tenants.platform.costly import costly
from tenants.platform.errors import invalid
from tenants.platform.rest.fields import Money, Whole
from tenants.platform.rest.schema import described
from tenants.services.sign_in.rate_limits import call_limit_check


class GroupOut(serializers.Serializer[Any]):
    """One group of an option with several, and its part of the plain price."""

    gpu_class = serializers.CharField()
    profile = serializers.CharField(allow_null=True)
    count = serializers.IntegerField()
    price_per_hour = Money(max_digits=20)
    price = Money(max_digits=20, help_text="Without the surcharge of peak hours.")


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
    groups = GroupOut(
        many=True,
        source="lines",
        help_text="All groups of a request with several; `gpu_class`, `profile` and `count` are of"
        " the first. Empty for any other.",
    )
    starts = serializers.DateTimeField()
    ends = serializers.DateTimeField()
    nodes = serializers.ListField(child=serializers.CharField())
    price = Money(max_digits=20, help_text="At this start.")
    most = Money(
        max_digits=20,
        help_text="The highest price, held by a booking: it may start at a time with more peak hours.",
    )
    setup_fee = Money(max_digits=20, source="setup", help_text="The part of both that the first start costs.")
    currency = serializers.CharField()
    request = serializers.CharField()
    pause_risk = serializers.IntegerField(
        allow_null=True,
        help_text="Probability of a pause, in thousandths. Null with too few past bookings.",
    )
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


class QuoteIn(BookingIn):
    """A booking to quote, or an array."""

    array = Whole(required=False, help_text="Runs of an array. A `request` may say it, too.")
    parallel = Whole(required=False, help_text="Runs that are open at a time.")
    depends_on = ParentIn(
        many=True,
        required=False,
        help_text="Bookings that have to be over first: the options start after their planned ends,"
        " as an estimate.",
    )


class ArrayQuoteOut(serializers.Serializer[Any]):
    """What all runs of an array would cost, by the first option."""

    count = serializers.IntegerField()
    parallel = serializers.IntegerField()
    first_start = serializers.DateTimeField(help_text="Of the first run.")
    last_end = serializers.DateTimeField(
        allow_null=True,
        help_text="An estimate of the end of the last run: runs start as soon as `parallel`, the "
        "present quota and free GPUs allow, what runs or is planned keeps its times, and nobody "
        "else books.",
    )
    runs_at_once = serializers.IntegerField(
        allow_null=True, help_text="The most runs that the estimate has at a time."
    )
    price = Money(max_digits=20, help_text="Of all runs, each at the first start.")
    most = Money(max_digits=20, help_text="Of all runs: so much is held for them.")
    currency = serializers.CharField()


class WorkRateOut(serializers.Serializer[Any]):
    """Steps that a GPU did in an hour, in the finished runs of a project that said how far they were."""

    unit = serializers.CharField()
    per_gpu_hour = serializers.FloatField(help_text="The median of the runs.")
    low = serializers.FloatField(help_text="A quarter of the runs did less.")
    high = serializers.FloatField(help_text="A quarter of the runs did more.")
    runs = serializers.IntegerField()
    last = serializers.DateTimeField(help_text="The last report of the last of them.")
    since = serializers.DateTimeField(help_text="That of the first of them: older runs do not count.")
    began = serializers.CharField(
        help_text="Why older runs do not count: `driver` (another one) or `jump` (another speed). Else empty."
    )
    driver = serializers.CharField(help_text="The driver of their nodes. Empty: not known.")


class WorkLengthOut(serializers.Serializer[Any]):
    """How long a kind of work takes on a class, and from what that follows."""

    gpu_class = serializers.CharField()
    seconds = serializers.IntegerField()
    learnt = WorkRateOut(
        source="rate",
        allow_null=True,
        help_text="What finished runs of the project have shown. Null: by the operator's table.",
    )


class AdviceOut(serializers.Serializer[Any]):
    """What would be better, by finished runs of the workload or by forecasts of demand."""

    code = serializers.CharField(help_text="`slice`, `cores`, `class`, `later` and others.")
    sentence = serializers.CharField(help_text="With the numbers behind it.")
    request = serializers.SerializerMethodField(
        help_text="The changed request. Null: a program has to change, and no request."
    )
    labels = serializers.SerializerMethodField(
        help_text="Send them with the booking, so that what came of the advice can be measured."
    )
    link = serializers.CharField(help_text="What to do. Empty: nothing but the request.")

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_request(self, advice: Advice) -> str | None:
        """The line of the changed request, in the time zone of the context."""
        return None if advice.ask is None else document_text(advice.ask, self.context["zone"])

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_labels(self, advice: Advice) -> dict[str, str]:
        """The labels of a booking that takes it."""
        workload = self.context["workload"]
        return ({LABEL: workload} if workload else {}) | {"advice": advice.code}


class QuoteOut(serializers.Serializer[Any]):
    """The options for a request, best first. Prices are valid until `expires`."""

    ask = serializers.SerializerMethodField(help_text="The request in its structured form.")
    options = OptionOut(many=True)
    blocking = serializers.CharField(
        allow_null=True,
        help_text="Why the request is not possible as asked; options, if there are any, differ from it.",
    )
    waits = serializers.BooleanField(
        help_text="True if a booking would wait in the queue without a planned start."
    )
    asks_hook = serializers.BooleanField(
        help_text="True if the organisation's policy hook decides when this is booked."
    )
    array = serializers.SerializerMethodField(
        help_text="Of an array without a start: the price of all runs. The options show one run."
    )
    after = serializers.SerializerMethodField(
        help_text="The last planned end of the bookings in `depends_on`: no option starts before."
        " Null if one of them has no planned end; the options then start without regard to them."
    )
    lengths = WorkLengthOut(many=True, help_text="Of a kind of work on each class; empty for a fixed length.")
    workload = serializers.CharField(help_text="By the label, the kind of work or the name. Empty: none.")
    advice = serializers.SerializerMethodField(
        help_text="What would be better, by finished runs of the workload or by forecasts of demand."
    )
    diverted = serializers.CharField(
        help_text="Why the project's choice puts the cheapest class first. Empty: it does not."
    )
    budget = EffectOut(source="effect", allow_null=True)
    expires = serializers.DateTimeField()
    quote = serializers.CharField(
        source="lock", help_text="Send it with a booking to lock these prices until `expires`."
    )

    def get_ask(self, _: object) -> dict[str, Any]:
        """The structured form, from the serializer's context."""
        return dict(self.context["ask"])

    @extend_schema_field(AdviceOut(many=True))
    def get_advice(self, quote: Quote) -> list[dict[str, Any]]:
        """The advice, with the time zone from the serializer's context."""
        context = {"zone": self.context["zone"], "workload": quote.workload}
        return list(AdviceOut(quote.advice, many=True, context=context).data)

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_after(self, _: object) -> str | None:
        """The planned end, from the serializer's context."""
        after = self.context["after"]
        return None if after is None else serializers.DateTimeField().to_representation(after)

    @extend_schema_field(ArrayQuoteOut(allow_null=True))
    def get_array(self, quote: Quote) -> dict[str, Any] | None:
        """The price of all runs, and the first start."""
        given = self.context["given"]
        runs, best = _runs(given), next(iter(quote.options), None)
        if runs is None or best is None:
            return None
        count = runs.count
        found = {
            "count": count,
            "parallel": runs.parallel,
            "first_start": best.starts,
            "last_end": best.last_end,
            "runs_at_once": best.runs_at_once,
            "price": best.price * count,
            "most": best.most * count,
            "currency": best.currency,
        }
        return dict(ArrayQuoteOut(found).data)


@costly("quote", "POST")
class Quotes(ApiView):
    """Quotes for requests."""

    has_reference = True

    @described("create_quote", "Create a quote", answer=QuoteOut, request=QuoteIn)
    def post(self, request: Request) -> HttpResponseBase:
        """Returns the options for a request, with their prices and the budget that would pay. A
        quote reserves nothing."""
        call_limit_check("quotes", str(self.actor.user_id), self.now)
        sent = self.sent(QuoteIn)
        return self.once(lambda: Response(quote_data(self.actor, sent, self.now)))


def quote_data(actor: Actor, given: dict[str, Any], now: datetime) -> dict[str, Any]:
    """A quote for a validated `QuoteIn`, as JSON values. Runs inside a tenant's transaction.
    Raises Refused."""
    given = with_array(actor, given, now)
    array_bounds_check(given.get("array"), given.get("parallel"))
    read = QuoteReader()
    wanted = booking_request_of(actor, given, now, read=read)
    asked, tier = wanted.ask, wanted.tier if "tier" in given or read.names_tier else None
    if read.is_cheapest:
        wanted = replace(wanted, ask=cheapest_class(asked, tier, now))
    if "array" in given and wanted.ask.starts is not None:
        raise invalid("array_fixed", refusal_text("array_fixed"), "request")
    after = _after(actor, given, wanted, now)
    with request_lines(given, wanted):
        quote = quote_make(actor=actor, request=wanted, now=now, after=after, runs=_runs(given))
    if read.is_cheapest:
        quote = cheapest_first(quote, asked, tier)
    context = {"ask": wanted.ask.to_json(), "given": given, "after": after, "zone": ZoneInfo(wanted.zone)}
    return dict(QuoteOut(quote, context=context).data)


def _runs(given: dict[str, Any]) -> Runs | None:
    """The runs of an array; None for one booking."""
    count = given.get("array")
    if count is None:
        return None
    return Runs(count, min(given.get("parallel") or parallel_usual(count), count))


def _after(actor: Actor, given: dict[str, Any], wanted: BookingRequest, now: datetime) -> datetime | None:
    """When the bookings that it depends on are planned to be over. Raises Refused."""
    asked = [(each["booking"], each["needs"]) for each in given.get("depends_on", ())]
    parents = parents_read(actor, asked, wanted.ask.starts if asked else None, now)
    return estimated_end([parent for parent, _ in parents])
