"""How a booking is told: the shapes of all answers about one."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from rest_framework import serializers

from allocation.models import Allocation, Booking, Pause
from allocation.queries.bookings.outcomes import booking_start_range
from allocation.queries.fleet.portal_modes import freeze_reason
from allocation.reasons.catalogue import BY_ID
from allocation.rules.states import WAITING, State
from allocation.words.reasons import reason_shown
from tenants.models import Tier
from tenants.platform.fields import Money, iso_duration

_PLAIN = (
    "name",
    "state",
    "outcome",
    "version",
    "submitted",
    "ask",
    "alternatives",
    "extension_until",
    "ready_at",
    "saved_at",
    "checked_in_at",
    "released_at",
    "ended_at",
    "decision_id",
)
CHECKS = ("together", "line", "quota", "budget", "policy", "hardware")


class WindowOut(serializers.Serializer[Any]):
    """When. A fixed window has `starts` and `ends`; the planned ones are the portal's promise."""

    starts = serializers.DateTimeField(allow_null=True)
    ends = serializers.DateTimeField(allow_null=True)
    not_before = serializers.DateTimeField()
    deadline = serializers.DateTimeField(allow_null=True)
    duration = serializers.CharField(help_text="ISO 8601.")
    planned_starts = serializers.DateTimeField(allow_null=True)
    planned_ends = serializers.DateTimeField(allow_null=True)
    zone = serializers.CharField()


class PriceOfBooking(serializers.Serializer[Any]):
    """What is held for the booking, and what was charged."""

    currency = serializers.CharField()
    per_hour = Money(max_digits=20, help_text="The whole booking for an hour.")
    held = Money(max_digits=20, help_text="The most that it can cost.")
    settled = Money(max_digits=20, help_text="Charged already, for runs that pauses ended.")
    charged = Money(max_digits=20, allow_null=True)
    corrected = Money(
        max_digits=20,
        help_text="What operators charged after its end; below zero for what they gave back.",
    )
    price_book = serializers.IntegerField()


class AllocationOut(serializers.Serializer[Any]):
    """Slots of one GPU for a period."""

    id = serializers.UUIDField()
    node = serializers.CharField(source="gpu.node.name")
    gpu_index = serializers.IntegerField(source="gpu.index")
    gpu_uuid = serializers.CharField(source="gpu.uuid")
    gpu_class = serializers.CharField(source="gpu.gpu_class_id")
    model = serializers.CharField(source="model_id")
    profile = serializers.CharField(allow_null=True, help_text="Null for a whole GPU.")
    start = serializers.IntegerField(help_text="First memory slot.")
    size = serializers.IntegerField(help_text="Memory slots, of eight.")
    share = serializers.IntegerField(
        allow_null=True, help_text="Thousandths of the GPU, shared with others and not isolated."
    )
    units = serializers.IntegerField()
    host_limits = serializers.CharField(
        source="gpu.node.host_limits",
        help_text="Its host cores and memory are `counted` there only, or `enforced`.",
    )
    starts = serializers.DateTimeField(source="period.lower")
    ends = serializers.DateTimeField(source="period.upper")
    state = serializers.CharField()
    devices = serializers.ListField(child=serializers.CharField())
    error = serializers.CharField()


class WaitingOut(serializers.Serializer[Any]):
    """A waiting booking's planned start, which is a promise, and why it is not earlier."""

    expected_start = serializers.DateTimeField(allow_null=True)
    expected_end = serializers.DateTimeField(allow_null=True)
    gpu_class = serializers.CharField()
    reasons = serializers.ListField(child=serializers.DictField())


class PauseOut(serializers.Serializer[Any]):
    """A pause: while `resumed_at` and `ended_at` are null the notice, afterwards the receipt."""

    number = serializers.IntegerField()
    noticed_at = serializers.DateTimeField(
        help_text="Nothing is charged from here on, unless `own`."
    )
    deadline = serializers.DateTimeField()
    pause_method = serializers.ChoiceField(choices=Tier.PauseMethod.values, source="method")
    rule = serializers.CharField()
    sentence = serializers.CharField()
    stronger_claim = serializers.CharField(
        source="beneficiary_label", help_text="Its number; empty when it is another tenant's."
    )
    own = serializers.BooleanField(
        source="is_own",
        help_text="The claim is of the booking's own owner, project or organisation: the grace is "
        "charged and nothing is credited.",
    )
    more_asked_at = serializers.DateTimeField(allow_null=True)
    more_times_used = serializers.IntegerField()
    acknowledged_at = serializers.DateTimeField(allow_null=True)
    emptied_at = serializers.DateTimeField(allow_null=True)
    resumed_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    withdrawn = serializers.BooleanField(
        help_text="The notice was taken back at `ended_at`: the stronger claim had gone away."
    )
    ran_from = serializers.DateTimeField(source="ready_at")
    lost_seconds = serializers.IntegerField(help_text="Work since the last save, done again.")
    credit_seconds = serializers.IntegerField(help_text="Of it not charged.")
    credit = Money(max_digits=20)
    charged = Money(max_digits=20, help_text="For the run that it ended.")
    remaining_seconds = serializers.IntegerField(allow_null=True)
    policy_version = serializers.IntegerField()
    decision_id = serializers.IntegerField()


class BookingOut(serializers.Serializer[Any]):
    """A booking."""

    id = serializers.CharField(help_text="`bk_…`, for programs.")
    number = serializers.CharField(help_text="`BK-2041`, for people; unique in the tenant.")
    project = serializers.CharField()
    owner = serializers.CharField()
    name = serializers.CharField()
    tier = serializers.CharField()
    state = serializers.ChoiceField(choices=[state.value for state in State])
    outcome = serializers.CharField()
    version = serializers.IntegerField()
    submitted = serializers.DateTimeField()
    ask = serializers.DictField()
    request = serializers.CharField()
    window = WindowOut()
    price = PriceOfBooking()
    allocations = AllocationOut(many=True)
    pauses = PauseOut(many=True)
    waiting = WaitingOut(allow_null=True)
    alternatives = serializers.ListField(child=serializers.DictField())
    series = serializers.CharField(allow_null=True, help_text="`sr_…`, if it is one date of it.")
    extension_until = serializers.DateTimeField(allow_null=True)
    ready_at = serializers.DateTimeField(allow_null=True)
    saved_at = serializers.DateTimeField(allow_null=True)
    checked_in_at = serializers.DateTimeField(allow_null=True)
    released_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    decision_id = serializers.IntegerField(allow_null=True)


class EventOut(serializers.Serializer[Any]):
    """One line of a booking's history."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    kind = serializers.CharField()
    state = serializers.CharField()
    sentence = serializers.CharField()
    actor = serializers.CharField(source="actor.username", default=None, allow_null=True)
    detail = serializers.DictField()


class CheckOut(serializers.Serializer[Any]):
    """One of the six things that must hold, and what is in its way."""

    check = serializers.ChoiceField(choices=list(CHECKS))
    passed = serializers.BooleanField()
    reasons = serializers.ListField(child=serializers.DictField())


class RangeOut(serializers.Serializer[Any]):
    """From when to when 8 of 10 bookings like it started, learnt from the last `of` in its tier;
    with `of` 0 too few have started, and the range is an assumption."""

    earliest = serializers.DateTimeField()
    latest = serializers.DateTimeField()
    of = serializers.IntegerField()


class WhyOut(serializers.Serializer[Any]):
    """Why a booking is where it is, from the decision that put it there."""

    number = serializers.CharField()
    state = serializers.CharField()
    expected_start = serializers.DateTimeField(allow_null=True)
    expected_range = RangeOut(
        allow_null=True,
        help_text="Null when it does not wait, or is scheduled and too few have "
        "started to learn from.",
    )
    checks = CheckOut(many=True)
    alternatives = serializers.ListField(child=serializers.DictField())
    decision_id = serializers.IntegerField(allow_null=True)


# Made once: its fields are copied for each new one, which takes longer than what they do.
_BOOKING = BookingOut()


def booking_id_text(booking: Booking) -> str:
    """`bk_…`, the id for programs."""
    return f"bk_{booking.id.hex}"


def new_booking_data(booking: Booking) -> dict[str, Any]:
    """As `booking_data`, a booking of this moment: nothing has become of it yet."""
    return _said(booking, (), ())


def booking_data(booking: Booking, allocations: Sequence[Allocation]) -> dict[str, Any]:
    """The booking as it is told; inside a transaction of its tenant."""
    return _said(booking, allocations, booking.pauses.all())


def _said(
    booking: Booking, allocations: Sequence[Allocation], pauses: Iterable[Pause]
) -> dict[str, Any]:
    said = _BOOKING.to_representation(
        {
            "id": booking_id_text(booking),
            "number": booking.label,
            "project": booking.project.slug,
            "owner": booking.owner.username,
            "tier": booking.tier_id,
            "request": booking.request_text,
            "window": _window(booking),
            "price": {
                "currency": booking.currency,
                "per_hour": booking.price_per_hour,
                "held": booking.held,
                "settled": booking.settled,
                "charged": booking.charged,
                "corrected": booking.corrected,
                "price_book": booking.price_version,
            },
            "allocations": allocations,
            "pauses": pauses,
            "waiting": _waiting(booking),
            "series": f"sr_{booking.series_id.hex}" if booking.series_id else None,
            **{name: getattr(booking, name) for name in _PLAIN},
        }
    )
    return dict(said)


def why(booking: Booking, now: datetime) -> dict[str, Any]:
    """The six checks with the last decision's evidence, and a freeze that is in its way."""
    frozen = [reason] if (reason := freeze_reason(booking, now)) else []
    said = WhyOut(
        {
            "number": booking.label,
            "state": booking.state,
            "expected_start": booking.expected_start,
            "expected_range": booking_start_range(booking, now),
            "checks": [_check([*frozen, *booking.reasons], check) for check in CHECKS],
            "alternatives": booking.alternatives,
            "decision_id": booking.decision_id,
        }
    )
    return dict(said.data)


def _check(said: Iterable[dict[str, Any]], check: str) -> dict[str, Any]:
    reasons = [reason_shown(reason) for reason in said if reason.get("check") == check]
    # What only explains, e.g. why it lies elsewhere, is in nobody's way.
    rules = [BY_ID.get(reason.get("rule", "")) for reason in reasons]
    passed = all(rule is not None and rule.effect == "explains" for rule in rules)
    return {"check": check, "passed": passed, "reasons": reasons}


def _window(booking: Booking) -> dict[str, Any]:
    length = timedelta(seconds=booking.duration_seconds)
    planned_ends = None if booking.is_unplanned else booking.planned_ends
    return {
        "starts": booking.starts,
        "ends": booking.starts + length if booking.starts else None,
        "not_before": booking.not_before,
        "deadline": booking.deadline,
        "duration": iso_duration(booking.duration_seconds),
        "planned_starts": booking.expected_start,
        "planned_ends": planned_ends,
        "zone": booking.zone,
    }


def _waiting(booking: Booking) -> dict[str, Any] | None:
    if booking.state not in (*WAITING, State.PAUSING, State.PAUSED):
        return None
    return {
        "expected_start": booking.expected_start,
        "expected_end": None if booking.is_unplanned else booking.planned_ends,
        "gpu_class": booking.planned_class,
        "reasons": [reason_shown(reason) for reason in booking.reasons],
    }
