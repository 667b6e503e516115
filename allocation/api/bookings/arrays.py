"""Arrays: many runs of one request; and the results that programs report."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.access import access_array, access_array_to_change, access_booking_to_change
from allocation.api.bookings.requests import BookingIn, ParentIn
from allocation.api.bookings.shapes import BookingOut, booking_data
from allocation.models import Booking, BookingArray
from allocation.queries.bookings.arrays import ArrayShown, array_shown
from allocation.services.arrays.arrays import ArrayRequest, array_cancel, array_request, ranges_of
from allocation.services.bookings.requests import BookingRequest
from allocation.services.bookings.results import booking_result
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.api.base import ApiView
from tenants.platform.labels import Labels
from tenants.platform.rest.fields import Money, Strict, Text, Whole
from tenants.platform.rest.schema import described

MAX_RANGES_TEXT = 500


class NewBookingIn(BookingIn):
    """A booking to create, or an array of many."""

    array = Whole(required=False, help_text="1 to 10,000 runs, each a booking of its own.")
    parallel = Whole(
        required=False,
        help_text="Elements of the array that are open at a time, at most. Defaults to 100.",
    )
    hold = serializers.ChoiceField(
        choices=["all", "rolling"],
        required=False,
        help_text="Money that is held: for all elements (the default), or for the open ones.",
    )
    stop_after_failures = Whole(
        required=False, min_value=1, help_text="Failed elements after which no more are run."
    )

    depends_on = ParentIn(
        many=True,
        required=False,
        help_text="At most 20 bookings: objects, or references for their ends. It is planned when "
        "all are over.",
    )

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Refuses fields of an array without one. Raises ValidationError."""
        alone = {"parallel", "hold", "stop_after_failures"} & given.keys()
        if alone and "array" not in given:
            raise serializers.ValidationError({min(alone): [refusal_text("only_arrays")]}, code="no_array")
        return super().validate(given)


class ArrayCountsOut(serializers.Serializer[Any]):
    """Elements by what happens to them."""

    later = serializers.IntegerField(help_text="Not booked yet.")
    waiting = serializers.IntegerField(help_text="For a decision or for a place.")
    scheduled = serializers.IntegerField(help_text="With a place, not started.")
    running = serializers.IntegerField()
    paused = serializers.IntegerField()
    ended = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField(help_text="Cancelled, refused or expired.")


class ArrayOut(serializers.Serializer[Any]):
    """An array. `GET /bookings?array=` has its elements."""

    id = serializers.CharField(help_text="`ar_…`. Unique everywhere.")
    number = serializers.CharField(help_text="`BK-2041`; its elements are `BK-2041[1]` and so on.")
    project = serializers.CharField()
    owner = serializers.CharField()
    name = serializers.CharField()
    labels = Labels()
    external_ref = serializers.CharField()
    tier = serializers.CharField()
    request = serializers.CharField()
    submitted = serializers.DateTimeField()
    count = serializers.IntegerField()
    parallel = serializers.IntegerField()
    hold = serializers.ChoiceField(choices=["all", "rolling"])
    stop_after_failures = serializers.IntegerField(allow_null=True)
    state = serializers.ChoiceField(choices=BookingArray.State.values)
    outcome = serializers.CharField(
        help_text="Why no further element is booked: `completed`, `cancelled`, `failures`, "
        "`refused`, `rejected`, `deadline` or `owner_left`. Empty: more follow."
    )
    counts = ArrayCountsOut()
    waiting = serializers.ListField(
        child=serializers.DictField(), help_text="Why the next element is not booked yet."
    )
    currency = serializers.CharField()
    held = Money(max_digits=20)
    charged = Money(max_digits=20, help_text="With corrections and refunds.")
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)


class ArrayCancelIn(Strict):
    """Elements to cancel."""

    elements = Text(
        required=False,
        max_length=MAX_RANGES_TEXT,
        help_text="Such as `17` or `3-20,40`. Without it, all.",
    )


class ResultIn(Strict):
    """What a program reports of its booking."""

    result = serializers.ChoiceField(choices=["success", "failure"])


class ArrayOne(ApiView):
    """One array."""

    @described("get_array", "Retrieve an array", answer=ArrayOut)
    def get(self, request: Request, array: str) -> Response:
        """Returns an array by its id (`ar_…`) or its number, with counts of its elements."""
        with self.tx():
            return Response(array_data(array_shown(access_array(self.actor, array))))


class ArrayCancel(ApiView):
    """Cancels elements of an array."""

    @described("act_cancel_array", "Cancel an array", answer=ArrayOut, request=ArrayCancelIn)
    def post(self, request: Request, array: str) -> HttpResponseBase:
        """Cancels all elements, or those of `elements`, and returns the array. Elements that run
        end; those that have not begun cost nothing."""
        sent = self.sent(ArrayCancelIn)

        def work() -> Response:
            found = access_array_to_change(self.actor, array)
            ranges = ranges_of(found, sent["elements"]) if "elements" in sent else None
            array_cancel(actor=self.actor, array=found, ranges=ranges, now=self.now)
            return Response(array_data(array_shown(access_array(self.actor, array))))

        return self.once(work)


class BookingResult(ApiView):
    """Reports the result of a booking's program."""

    @described("act_report_booking_result", "Report a result", answer=BookingOut, request=ResultIn)
    def post(self, request: Request, reference: str) -> HttpResponseBase:
        """Records whether the program of a booking succeeded, and returns the booking. Bookings
        that depend on its success start only then. Possible until 10 minutes after its end; the
        last report counts."""
        sent = self.sent(ResultIn)

        def work() -> Response:
            booking = access_booking_to_change(self.actor, reference)
            done = booking_result(actor=self.actor, booking=booking, result=sent["result"], now=self.now)
            return Response(booking_data(done, self.actor))

        return self.once(work)


def array_create(
    actor: Actor,
    wanted: BookingRequest,
    sent: dict[str, Any],
    key: UUID,
    now: datetime,
) -> Booking:
    """Creates the array that a body asks for; returns its first element. Raises Refused."""
    array = ArrayRequest(
        count=sent["array"],
        parallel=sent.get("parallel"),
        holds_all=sent.get("hold", "all") == "all",
        stop_after_failures=sent.get("stop_after_failures"),
        awaits_parents=bool(sent.get("depends_on")),
    )
    return array_request(actor=actor, request=wanted, array=array, now=now, key=key)


def array_data(shown: ArrayShown) -> dict[str, Any]:
    """The array as JSON values. Runs inside a transaction of its tenant."""
    array, terms = shown.array, shown.array.terms
    plain = (
        "name labels external_ref submitted count parallel stop_after_failures state outcome"
        " started_at ended_at"
    )
    data = ArrayOut(
        {
            "id": f"ar_{array.id.hex}",
            "number": array.label,
            "project": array.project.slug,
            "owner": array.owner.username,
            "tier": terms["tier"],
            "request": terms["request_text"],
            "hold": "all" if array.holds_all else "rolling",
            "counts": shown.counts,
            "waiting": array.reasons,
            "currency": terms["currency"],
            "held": shown.held,
            "charged": shown.charged,
            **{name: getattr(array, name) for name in plain.split()},
        }
    )
    return dict(data.data)
