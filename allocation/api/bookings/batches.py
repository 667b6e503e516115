"""Batches of bookings: up to 1,000 requests with one idempotency key."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.bookings.requests import BookingIn, booking_request_of
from allocation.api.bookings.shapes import BookingOut, new_booking_data
from allocation.services.bookings.batches import MOST_ITEMS, batch_request
from allocation.services.bookings.bookings import BookingRequest
from tenants.api.base import ApiView
from tenants.platform.errors import Refused
from tenants.platform.fields import Strict, validated
from tenants.platform.schema import described

_SHOWN = 20
"""Refused items that a refused batch lists."""


class BatchIn(Strict):
    """Bookings to create together."""

    items = serializers.ListField(
        child=serializers.DictField(), min_length=1, max_length=MOST_ITEMS,
        help_text="1 to 1,000 bookings, each as in *Create a booking*.",
    )  # fmt: skip
    mode = serializers.ChoiceField(
        choices=["all", "some"], required=False, default="all",
        help_text="`all`: all are accepted or none. `some`: each is accepted or refused.",
    )  # fmt: skip


class BatchItemOut(serializers.Serializer[Any]):
    """The answer to one item: the booking, or why it was refused."""

    booking = BookingOut(allow_null=True)
    error = serializers.DictField(
        allow_null=True, help_text="`code`, `detail`, `param`, `rule` and `alternatives`."
    )


class BatchOut(serializers.Serializer[Any]):
    """The answers in the order of the items."""

    items = BatchItemOut(many=True)
    accepted = serializers.IntegerField()
    refused = serializers.IntegerField()


class BookingBatch(ApiView):
    """Many bookings in one request."""

    has_reference = True

    @described(
        "create_booking_batch", "Create many bookings", answer=BatchOut, status=201, request=BatchIn
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Returns an answer for each item, in order. With `mode` `all` one refused item refuses the
        batch: 409, and `numbers.items` lists the refused ones. The place in the queue of bookings
        that are equal otherwise follows the order of the items."""
        sent = self.sent(BatchIn)

        def work() -> Response:
            items = [self._item(each) for each in sent["items"]]
            answers = batch_request(actor=self.actor, items=items, now=self.now)
            refused = {n: each for n, each in enumerate(answers) if isinstance(each, Refused)}
            if refused and sent["mode"] == "all":
                raise _batch_refused(refused, len(answers))
            rows = []
            for each in answers:
                if isinstance(each, Refused):
                    rows.append({"booking": None, "error": _error(each)})
                    continue
                each.owner = self.user
                rows.append({"booking": new_booking_data(each), "error": None})
            counts = {"accepted": len(answers) - len(refused), "refused": len(refused)}
            return Response({"items": rows, **counts}, status=201)

        return self.once(work)

    def _item(self, given: dict[str, Any]) -> BookingRequest | Refused:
        try:
            return booking_request_of(self.actor, validated(BookingIn, given), self.now)
        except Refused as refusal:
            return refusal


def _error(refusal: Refused) -> dict[str, Any]:
    return {
        "code": refusal.code,
        "detail": refusal.sentence,
        "param": refusal.param,
        "rule": refusal.rule,
        "alternatives": list(refusal.alternatives),
    }


def _batch_refused(refused: dict[int, Refused], of: int) -> Refused:
    first = min(refused)
    return Refused(
        "batch_refused",
        f"{len(refused)} of {of} items were refused, so none was booked. Item {first}: "
        f"{refused[first].sentence}",
        param=f"items.{first}",
        numbers={
            "refused": len(refused),
            "items": [{"index": n, **_error(refused[n])} for n in sorted(refused)[:_SHOWN]],
        },
    )
