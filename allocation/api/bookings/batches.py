"""Batches of bookings: up to 1,000 requests with one idempotency key."""

import functools
from collections.abc import Callable
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db.models import prefetch_related_objects
from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.bookings.decisions import Preferences, preference_applied, preferences_of
from allocation.api.bookings.requests import BookingIn, ParentIn, booking_request_of
from allocation.api.bookings.shapes import BookingOut, bookings_data, new_booking_data
from allocation.models import Booking
from allocation.points.bookings import only_one
from allocation.queries.bookings.after_parents import estimated_starts
from allocation.rules.ask import AskDocument
from allocation.services.bookings.batches import MOST_ITEMS, Answer, Item, items_request
from allocation.services.bookings.remedy_lines import with_lines
from allocation.services.bookings.request_text import request_read
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.api.base import ApiView
from tenants.platform.deferred import Wait
from tenants.platform.errors import Refused
from tenants.platform.rest.fields import Strict, validated
from tenants.platform.rest.schema import described

_SHOWN = 20
"""Refused items that a refused batch lists."""


class BatchIn(Strict):
    """Bookings to create together."""

    items = serializers.ListField(
        child=serializers.DictField(),
        min_length=1,
        max_length=MOST_ITEMS,
        help_text="1 to 1,000 bookings, each as in *Create a booking*.",
    )
    mode = serializers.ChoiceField(
        choices=["all", "some"],
        required=False,
        default="all",
        help_text="`all`: all are accepted or none. `some`: each is accepted or refused. To accept a "
        "request is not to grant a start: the next cycle decides each of them by itself, and refuses "
        "a fixed window without room.",
    )
    any_of = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Only one of the items is wanted: the first that gets a place cancels the others "
        "at no cost. Each item needs `if_full` `wait`; at most 5.",
    )


class BatchItemIn(BookingIn):
    """One booking of a batch."""

    key = serializers.RegexField(
        r"^[A-Za-z0-9_.-]{1,40}$",
        required=False,
        help_text="A name by which other items call this one: `train`.",
    )
    depends_on = ParentIn(
        many=True,
        required=False,
        help_text="At most 20 bookings, or items of this batch: `#train`.",
    )


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
        "create_booking_batch",
        "Create many bookings",
        answer=BatchOut,
        status=201,
        request=BatchIn,
        headers=Preferences.WAIT_PARAMETERS,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Returns an answer for each item, in order. With `mode` `all` one refused item refuses the
        batch: 409, and `numbers.items` lists the refused ones. The place in the queue of bookings
        that are equal otherwise follows the order of the items. Items with a `key` can be named in
        `depends_on` of others: `#train`. With `Prefer: wait=5` the answer waits until the last item
        is decided, and has all of them as they are then."""
        sent, seconds = self.sent(BatchIn), preferences_of(request).wait

        def work() -> Response:
            # Equal texts are read once.
            read = functools.cache(request_read)
            items = [self._item(each, read) for each in sent["items"]]
            answers = [
                _with_lines(answer, given, item)
                for answer, given, item in zip(
                    items_request(actor=self.actor, items=items, now=self.now),
                    sent["items"],
                    items,
                    strict=True,
                )
            ]
            refused = {n: each for n, each in enumerate(answers) if isinstance(each, Refused)}
            if refused and sent["mode"] == "all":
                raise _batch_refused(refused, len(answers))
            made = [each for each in answers if isinstance(each, Booking)]
            if sent["any_of"]:
                only_one(self.actor, made, self.now)
            waits = [each for each in made if each.awaits_parents]
            prefetch_related_objects(waits, "dependencies__parent")
            estimates = estimated_starts(waits)
            rows: list[dict[str, Any]] = []
            for each in answers:
                if isinstance(each, Refused):
                    rows.append({"booking": None, "error": _error(each)})
                    continue
                each.owner = self.user
                rows.append({"booking": new_booking_data(each, estimates), "error": None})
            counts = {"accepted": len(answers) - len(refused), "refused": len(refused)}
            return Response({"items": rows, **counts}, status=201)

        def wait(response: Response) -> Wait | None:
            made = _made(response.data)
            if not made:
                return None
            subject = UUID(max(made, key=_number)["id"].removeprefix("bk_"))
            render = functools.partial(_decided, self.actor, response.data, seconds)
            return Wait(self.actor.tenant_id, subject, seconds, render)

        return self.once(work, wait=wait if seconds else None)

    def _item(
        self, given: dict[str, Any], read: Callable[..., tuple[AskDocument, str | None]]
    ) -> Item | Refused:
        try:
            item = validated(BatchItemIn, given)
            wanted = booking_request_of(self.actor, item, self.now, read=read)
        except Refused as refusal:
            return refusal
        parents = tuple((each["booking"], each["needs"]) for each in item.get("depends_on", ()))
        return Item(wanted, item.get("key", ""), parents)


def _with_lines(answer: Answer, given: dict[str, Any], item: Item | Refused) -> Answer:
    """The answer; a refusal of a line says what would work as lines."""
    if not isinstance(answer, Refused) or not isinstance(item, Item) or "request" not in given:
        return answer
    wanted = item.request
    return with_lines(answer, wanted.ask, ZoneInfo(wanted.zone), tier="" if "tier" in given else wanted.tier)


def _made(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The accepted bookings of an answer."""
    return [each["booking"] for each in data["items"] if each["booking"] is not None]


def _number(booking: dict[str, Any]) -> int:
    return int(booking["number"].removeprefix("BK-"))


def _decided(
    actor: Actor,
    data: dict[str, Any],
    seconds: int,
    last: object,
    applied: bool,  # noqa: FBT001 (as Wait says)
) -> Response:
    """The answer with all bookings as they are now."""
    ids = [UUID(each["id"].removeprefix("bk_")) for each in _made(data)]
    rows = Booking.objects.filter(id__in=ids).select_related("project", "owner", "campaign")
    found = list(rows)
    now = {each["id"]: each for each in bookings_data(found, actor)}
    items = [
        {**each, "booking": now[each["booking"]["id"]]} if each["booking"] is not None else each
        for each in data["items"]
    ]
    answer = Response({**data, "items": items}, status=201)
    return preference_applied(answer, seconds, applied=applied)


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
        refusal_text(
            "batch_refused",
            refused=len(refused),
            of=of,
            first=first,
            sentence=refused[first].sentence,
        ),
        param=f"items.{first}",
        numbers={
            "refused": len(refused),
            "items": [{"index": n, **_error(refused[n])} for n in sorted(refused)[:_SHOWN]],
        },
    )
