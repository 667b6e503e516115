"""The REST representation of a change."""

from decimal import Decimal
from typing import Any
from uuid import UUID

from rest_framework import serializers

from allocation.api.bookings.quotes import OptionOut
from allocation.models import Booking, BookingChange
from allocation.rules.ask.words.document import time_text
from allocation.rules.changes import Strength
from allocation.services.quotes.changes import ChangeQuote
from tenants.platform.rest.fields import Money


class BookingChangeOut(serializers.Serializer[Any]):
    """The latest change of a booking that needed a decision."""

    id = serializers.SerializerMethodField()
    state = serializers.ChoiceField(choices=BookingChange.State.choices)
    asked_at = serializers.DateTimeField()
    decided_at = serializers.DateTimeField(allow_null=True)
    differences = serializers.DictField(help_text="Before and after, by field.")
    start_by = serializers.DateTimeField(allow_null=True)
    sooner = serializers.BooleanField(
        source="is_sooner", help_text="It takes any earlier start as its fixed window."
    )
    keep_trying_until = serializers.DateTimeField(allow_null=True, help_text="It waits for room until then.")
    approval = serializers.SerializerMethodField(
        help_text="The open request for its approval, as in `/approvals`."
    )
    held = Money(max_digits=20, source="delta_held", help_text="Held for the added cost.")
    reasons = serializers.ListField(child=serializers.DictField())
    alternatives = serializers.ListField(child=serializers.DictField())

    def get_id(self, change: BookingChange) -> str:
        """The change's `ch_…` id."""
        return f"ch_{UUID(str(change.id)).hex}"

    def get_approval(self, change: BookingChange) -> UUID | None:
        """The id of the open request for its approval."""
        if change.state != BookingChange.State.AWAITING_APPROVAL:
            return None
        return change.approvals.filter(state="open").values_list("id", flat=True).first()


class ChangePriceOut(serializers.Serializer[Any]):
    """What a change adds to the price, or takes from it."""

    currency = serializers.CharField()
    held_before = Money(max_digits=20)
    held_after = Money(max_digits=20)
    difference = Money(max_digits=20)
    late_fee = Money(max_digits=20, help_text="For giving up GPUs later than the tier's notice.")


class ChangeDelayOut(serializers.Serializer[Any]):
    """A booking of the own organisation that starts later. `after` is null without a start."""

    booking = serializers.CharField(help_text="Empty: of a project that you do not see.")
    before = serializers.DateTimeField()
    after = serializers.DateTimeField(allow_null=True)


class ChangeQuoteOut(serializers.Serializer[Any]):
    """What a change would do. Nothing is written."""

    strength = serializers.CharField(help_text="Whether it is granted at once or decided.")
    place_in_line = serializers.ChoiceField(choices=["now", "kept"])
    price = ChangePriceOut()
    ends = serializers.DateTimeField(allow_null=True)
    start = OptionOut(allow_null=True)
    blocking = serializers.CharField(allow_null=True, help_text="Why it is not possible.")
    approval_rules = serializers.ListField(child=serializers.CharField())
    asks_hook = serializers.BooleanField(help_text="The policy hook of the organisation decides.")
    quote = serializers.CharField(allow_null=True, help_text="Keeps the price, sent with the PATCH.")
    delays = ChangeDelayOut(many=True, allow_null=True, help_text="Null: they are not known.")


class EndingOut(serializers.Serializer[Any]):
    """What ending a booking would cost. Nothing is written."""

    currency = serializers.CharField()
    charged = Money(max_digits=20)
    late_fee = Money(max_digits=20)
    returned = Money(max_digits=20)


def change_quote_data(quote: ChangeQuote) -> dict[str, Any]:
    """What a change would do, as JSON values."""
    option = quote.option
    return {
        "strength": quote.strength.value,
        "place_in_line": "now" if quote.strength is Strength.STRONGER else "kept",
        "price": {
            "currency": quote.after.currency,
            "held_before": str(quote.before.hold_amount),
            "held_after": str(quote.after.hold_amount),
            "difference": str(quote.difference),
            "late_fee": str(quote.late_fee),
        },
        "ends": time_text(quote.until) if quote.until else None,
        "start": None if option is None else dict(OptionOut(option).data),
        "blocking": quote.blocking or None,
        "approval_rules": list(quote.rules),
        "asks_hook": quote.asks_hook,
        "quote": quote.lock or None,
        "delays": None
        if quote.delays is None
        else [
            {
                "booking": each.label,
                "before": time_text(each.before),
                "after": time_text(each.after) if each.after else None,
            }
            for each in quote.delays
        ],
    }


def ending_data(booking: Booking, charged: Decimal, fee: Decimal) -> dict[str, str]:
    """What ending a booking would cost, as JSON values."""
    return {
        "currency": booking.currency,
        "charged": str(charged),
        "late_fee": str(fee),
        "returned": str(max(Decimal(0), booking.hold_amount - charged)),
    }
