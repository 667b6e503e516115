"""The REST representation of why a booking waits."""

from datetime import datetime
from typing import Any

from rest_framework import serializers

from allocation.api.bookings.shapes import ESTIMATED_START
from allocation.models import Booking
from allocation.queries.bookings.after_parents import estimated_starts
from allocation.queries.bookings.outcomes import booking_start_range
from allocation.queries.fleet.portal_modes import freeze_reason
from allocation.queries.fleet.stops import stop_reason
from allocation.rules.states import TERMINAL
from allocation.services.bookings.remedy_lines import as_requests
from allocation.services.overrides.waiting import more_for
from allocation.services.quotes.start_checks import CHECKS, StartCheck, start_checks
from allocation.services.quotes.why_waiting import waits_seen, why_waiting
from allocation.words.reasons import reason_shown
from tenants.access import Actor


class CheckOut(serializers.Serializer[Any]):
    """One of the six conditions for a start, and what the latest decision found there."""

    check = serializers.ChoiceField(choices=list(CHECKS))
    name = serializers.CharField(help_text="For people: `GPUs free together`.")
    passed = serializers.BooleanField(
        allow_null=True,
        help_text="Null where the decision did not look, because no start could be planned.",
    )
    reasons = serializers.ListField(child=serializers.DictField())


class RangeOut(serializers.Serializer[Any]):
    """The range of the planned start. It takes the last `of` starts in the tier into account; with
    0 too few bookings have started, and the range is an assumption."""

    earliest = serializers.DateTimeField()
    latest = serializers.DateTimeField()
    of = serializers.IntegerField()


class AheadOut(serializers.Serializer[Any]):
    """Bookings that go first by one key of the queue's order."""

    rule = serializers.CharField(
        help_text="Key of the order: `firm`, `guarantee`, `tier`, `part`, `share` or `age`."
    )
    own = serializers.BooleanField(source="is_own", help_text="They are of your organisation.")
    count = serializers.IntegerField()
    bookings = serializers.ListField(
        source="labels",
        child=serializers.CharField(),
        help_text="Their numbers, of those that you may see.",
    )
    sentence = serializers.CharField()


class HolderOut(serializers.Serializer[Any]):
    """A booking that has GPUs of the planned start until then."""

    booking = serializers.CharField(source="label", help_text="Its number. Empty if you may not see it.")
    own = serializers.BooleanField(source="is_own")
    gpus = serializers.IntegerField()
    until = serializers.DateTimeField()


class ChangeOut(serializers.Serializer[Any]):
    """Something that would let the booking start earlier."""

    code = serializers.CharField(
        help_text="`own`, `higher_tier`, `guarantee`, `no_guarantee`, `share`, `aged` or `early_end`."
    )
    sentence = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True, help_text="When, if time alone does it.")


class WhyOut(serializers.Serializer[Any]):
    """The explanation of a booking's state, from its latest decision."""

    number = serializers.CharField()
    state = serializers.CharField()
    expected_start = serializers.DateTimeField(
        allow_null=True, help_text="Null without a planned start, and if it never starts."
    )
    estimated_start = serializers.DateTimeField(allow_null=True, help_text=ESTIMATED_START)
    expected_range = RangeOut(
        allow_null=True,
        help_text="Null if the booking does not wait. Firm and guaranteed starts have no range.",
    )
    checks = CheckOut(many=True)
    ahead = AheadOut(
        many=True,
        help_text="Bookings ahead in the queue that are planned to start before this one's end, on "
        "a class that it requests. Empty if it does not wait.",
    )
    holders = HolderOut(many=True, help_text="The last to have each of the planned GPUs, at most five.")
    changes = ChangeOut(many=True)
    alternatives = serializers.ListField(child=serializers.DictField())
    ask_for_more = serializers.DictField(
        allow_null=True, help_text="What to send to /overrides to ask for the quota it waits for."
    )
    decision_id = serializers.IntegerField(allow_null=True)


def why(booking: Booking, now: datetime, actor: Actor | None = None) -> dict[str, Any]:
    """The six checks with the evidence of the latest decision, a freeze that blocks it, and the
    bookings ahead. Runs inside a transaction of its tenant. Numbers are those that the actor may
    see; None: a reader of the whole organisation."""
    waits = why_waiting(booking, now)
    if actor is not None:
        waits = waits_seen(actor, waits)
    frozen = [reason for find in (freeze_reason, stop_reason) if (reason := find(booking, now))]
    is_over = booking.state in TERMINAL and booking.ready_at is None
    data = WhyOut(
        {
            "number": booking.label,
            "state": booking.state,
            "expected_start": None if is_over else booking.expected_start,
            "estimated_start": estimated_starts([booking]).get(booking.id),
            "expected_range": booking_start_range(booking, now),
            "checks": [_check_data(each, booking) for each in start_checks(booking, frozen)],
            "ahead": waits.ahead,
            "holders": waits.holders,
            "changes": waits.changes,
            "alternatives": as_requests(booking, booking.alternatives),
            "ask_for_more": more_for(booking) or None,
            "decision_id": booking.decision_id,
        }
    )
    return dict(data.data)


def _check_data(found: StartCheck, booking: Booking) -> dict[str, Any]:
    reasons = [reason_shown(each, booking.ask) for each in found.reasons]
    return {"check": found.check, "name": CHECKS[found.check], "passed": found.passed, "reasons": reasons}
