"""Acts of operators on chosen bookings of any tenants."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.services.operate.bulk import (
    ACTS,
    LONGEST_TEXT,
    MOST_BOOKINGS,
    BulkAct,
    BulkLine,
    bulk_apply,
    bulk_preview,
)
from allocation.words.refusals import refusal_text
from tenants.platform.costly import costly
from tenants.platform.errors import invalid
from tenants.platform.rest.fields import Duration, Strict, Text
from tenants.platform.rest.schema import described
from tenants.rules.operator_roles import Area


class BulkActIn(Strict):
    """What to do with which bookings."""

    act = serializers.ChoiceField(
        choices=list(ACTS),
        help_text="`message` and `release` write to the owners; `pause` gives the tier's notice.",
    )
    bookings = serializers.ListField(
        child=Text(max_length=40), min_length=1, max_length=MOST_BOOKINGS, help_text="`bk_…`"
    )
    text = Text(max_length=LONGEST_TEXT, help_text="The message, or the reason. Owners read it.")
    length = Duration(required=False, help_text="Of a pause: 1 min to 7 days.")


class BulkLineOut(serializers.Serializer[Any]):
    """A booking and what happens to it."""

    id = serializers.CharField()
    number = serializers.CharField(source="booking.label")
    tenant = serializers.CharField(source="booking.tenant.slug")
    state = serializers.CharField(source="booking.state")
    effect = serializers.CharField(allow_blank=True, help_text="Empty if nothing happens.")
    code = serializers.CharField(source="refusal.code", default=None, allow_null=True)
    detail = serializers.CharField(
        source="refusal.sentence", default=None, allow_null=True, help_text="Why nothing happens."
    )


class BulkOut(serializers.Serializer[Any]):
    """The bookings for which it is possible, and the others."""

    done = BulkLineOut(many=True)
    refused = BulkLineOut(many=True)


@costly("preview", "GET", "HEAD", "POST")
class BulkPreview(OperatorView):
    """The effect of an act."""

    area = Area.BOOKINGS

    @described(
        "preview_bulk_act",
        "Say what an act would do to each booking (operators)",
        answer=BulkOut,
        request=BulkActIn,
    )
    def post(self, request: Request) -> Response:
        """Says for each booking what would happen, or why nothing would; changes nothing."""
        bookings, act = _read(self.sent(BulkActIn))
        with self.operator_tx():
            lines = bulk_preview(bookings=bookings, act=act, now=self.now)
            return Response(BulkOut(_result(lines)).data)


class BulkActs(OperatorView):
    """Acts on chosen bookings."""

    area = Area.BOOKINGS

    @described(
        "act_on_bookings",
        "Write to owners, ask for a release, or pause (operators)",
        answer=BulkOut,
        request=BulkActIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Does it for each booking for which it is possible, and names the others with the reason.
        An unknown booking among them refuses the whole request."""
        bookings, act = _read(self.sent(BulkActIn))

        def work() -> object:
            return _result(bulk_apply(operator=self.user, bookings=bookings, act=act, now=self.now))

        return self.operate(work, BulkOut)


def _read(sent: dict[str, Any]) -> tuple[list[UUID], BulkAct]:
    try:
        ids = [UUID(each.removeprefix("bk_")) for each in sent["bookings"]]
    except ValueError:
        raise invalid("bad_bookings", refusal_text("booking_ids"), "bookings") from None
    return ids, BulkAct(sent["act"], sent["text"], sent.get("length"))


def _result(lines: Sequence[BulkLine]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {"done": [], "refused": []}
    for line in lines:
        shown = {
            "id": f"bk_{line.booking.id.hex}",
            "booking": line.booking,
            "effect": line.effect,
            **({"refusal": line.refusal} if line.refusal else {}),
        }
        found["refused" if line.refusal else "done"].append(shown)
    return found
