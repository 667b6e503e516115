"""The REST representation of bookings, pauses and decisions."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import prefetch_related_objects
from rest_framework import serializers

from allocation.api.bookings.change.shapes import BookingChangeOut
from allocation.models import (
    Booking,
    BookingChange,
    Dependency,
    MovedStart,
    PlannedStrength,
)
from allocation.points import BOOKING_PARTS
from allocation.queries.bookings.after_parents import estimated_starts
from allocation.queries.bookings.decided import BookingParts, parts_of
from allocation.queries.decisions.seen import numbers_hidden
from allocation.rules.states import WAITING, State
from allocation.rules.workload_names import workload_of
from allocation.services.bookings.remedy_lines import as_requests
from allocation.services.record.costs import rate_of
from allocation.words.queue import mover_text
from allocation.words.reasons import reason_shown
from billing.peak_text import peak_words
from tenants.access import Actor
from tenants.models import Tier
from tenants.platform.labels import Labels
from tenants.platform.rest.body import Shape
from tenants.platform.rest.fields import Money, iso_duration

_FIELDS = (
    "name labels external_ref state outcome version revision submitted ask "
    "extension_until ready_at saved_at checked_in_at idle_veto_until awaits_check_in released_at "
    "ended_at decision_id array_index result"
)
ESTIMATED_START = (
    "Of a booking that waits for those in `depends_on`: it starts not before this time, the last "
    "of their planned ends. An estimate, nothing is reserved. Null if one of them has no planned "
    "end, and for any other booking."
)
_PLAIN = tuple(_FIELDS.split())
_BEFORE_RUN = (State.SCHEDULED, State.PAUSING, State.PAUSED)


class WindowOut(Shape):
    """The requested window and the planned times."""

    starts = serializers.DateTimeField(
        allow_null=True, help_text="Start of a fixed window. Null for a flexible window."
    )
    ends = serializers.DateTimeField(allow_null=True, help_text="End of a fixed window.")
    not_before = serializers.DateTimeField()
    deadline = serializers.DateTimeField(allow_null=True)
    duration = serializers.CharField(help_text="ISO 8601.")
    planned_starts = serializers.DateTimeField(
        allow_null=True, help_text="Planned start. Null if no start can be planned."
    )
    planned_ends = serializers.DateTimeField(allow_null=True)
    zone = serializers.CharField()


class PriceOfBooking(Shape):
    """The amounts held and charged for a booking."""

    currency = serializers.CharField()
    per_hour = Money(max_digits=20, help_text="Price of the whole booking for one hour.")
    peak_per_hour = Money(
        max_digits=20,
        allow_null=True,
        help_text="The same in peak hours. Null: the price is the same at all times.",
    )
    peak_hours = serializers.CharField(help_text="`Mon-Fri 8-20 Europe/Berlin`; empty without peak hours.")
    setup_fee = Money(max_digits=20, help_text="Charged once, at the first start; in `held`.")
    held = Money(max_digits=20, help_text="The highest possible cost, held in the budget.")
    settled = Money(max_digits=20, help_text="Charged for runs that ended with a pause.")
    charged = Money(max_digits=20, allow_null=True, help_text="Null until the booking ends.")
    corrected = Money(
        max_digits=20,
        help_text="Corrections by operators after the end, and late shares that an undo has given "
        "back. Negative for refunds.",
    )
    price_book = serializers.IntegerField()


class AllocationOut(serializers.Serializer[Any]):
    """Memory slots of one GPU during a period."""

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
        allow_null=True, help_text="Thousandths of the GPU. Shares are not isolated."
    )
    units = serializers.IntegerField()
    host_limits = serializers.CharField(
        source="gpu.node.host_limits",
        help_text="Whether the node enforces host cores and memory: `counted` or `enforced`.",
    )
    starts = serializers.DateTimeField(source="period.lower")
    ends = serializers.DateTimeField(source="period.upper")
    state = serializers.CharField()
    devices = serializers.ListField(child=serializers.CharField())
    job = serializers.IntegerField(
        allow_null=True, help_text="Number of the Slurm job that holds the device. Null elsewhere."
    )
    host = serializers.CharField(
        help_text="Where that job runs, if the node is a slot of a pool, whose engine chooses it; else empty."
    )
    error = serializers.CharField()


class WaitingOut(serializers.Serializer[Any]):
    """The planned start of a waiting booking, and why it is not earlier."""

    expected_start = serializers.DateTimeField(allow_null=True)
    expected_end = serializers.DateTimeField(allow_null=True)
    estimated_start = serializers.DateTimeField(allow_null=True, help_text=ESTIMATED_START)
    gpu_class = serializers.CharField()
    reasons = serializers.ListField(child=serializers.DictField())


class AnnouncedRangeOut(serializers.Serializer[Any]):
    """A range that was announced for a planned start."""

    earliest = serializers.DateTimeField()
    latest = serializers.DateTimeField()


class MovedStartOut(serializers.Serializer[Any]):
    """Why a planned start left the range that was announced for it."""

    at = serializers.DateTimeField()
    was = AnnouncedRangeOut(help_text="The range that was announced before.")
    rule = serializers.CharField()
    overtaken_by = serializers.CharField(
        help_text="Key of the order by which another booking goes first: `firm`, `guarantee`, "
        "`tier`, `part`, `share` or `age`. Empty if no booking was the cause."
    )
    own = serializers.BooleanField(source="is_own", help_text="Your organisation's work is first.")
    booking = serializers.CharField(
        source="claimant.label",
        default=None,
        allow_null=True,
        help_text="Number of the booking that goes first, if it is of a project that you see and known.",
    )
    sentence = serializers.CharField()
    decision_id = serializers.IntegerField()


class PlannedStartOut(serializers.Serializer[Any]):
    """The planned start of a booking that has not begun, or is to resume."""

    starts = serializers.DateTimeField()
    strength = serializers.ChoiceField(
        choices=PlannedStrength.values,
        help_text="`firm`: no other booking can make it later. `guaranteed`: only your "
        "organisation's bookings can. `expected`: any booking ahead in the queue can.",
    )
    earliest = serializers.DateTimeField()
    latest = serializers.DateTimeField(
        help_text="The latest start that was announced. You get a message if it gets later."
    )
    sentence = serializers.CharField(help_text="Whose bookings can make it later.")
    moved_by = MovedStartOut(
        allow_null=True, help_text="The last time that it left the announced range. Null if never."
    )


class PauseOut(serializers.Serializer[Any]):
    """A pause. It is a notice while `resumed_at` and `ended_at` are null, and then a receipt."""

    number = serializers.IntegerField()
    noticed_at = serializers.DateTimeField(
        source="notified_at",
        help_text="Time of the notice. Nothing is charged from here on, unless `own` is true.",
    )
    deadline = serializers.DateTimeField()
    pause_method = serializers.ChoiceField(choices=Tier.PauseMethod.values, source="method")
    rule = serializers.CharField()
    sentence = serializers.CharField()
    preemptor = serializers.CharField(
        source="beneficiary_label",
        help_text="Number of the booking that needs the GPUs. Empty if it is another tenant's, or of a "
        "project that you do not see.",
    )
    own = serializers.BooleanField(
        source="is_own",
        help_text="True if `preemptor` belongs to the same owner, project or organisation. The "
        "grace period is then charged and nothing is credited.",
    )
    more_asked_at = serializers.DateTimeField(allow_null=True)
    more_times_used = serializers.IntegerField()
    acknowledged_at = serializers.DateTimeField(allow_null=True)
    emptied_at = serializers.DateTimeField(allow_null=True)
    resumed_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    withdrawn = serializers.BooleanField(
        help_text="True if the notice was withdrawn at `ended_at`, because the GPUs are not needed."
    )
    ran_from = serializers.DateTimeField(source="ready_at")
    lost_seconds = serializers.IntegerField(help_text="Work since the last save, to be repeated.")
    credit_seconds = serializers.IntegerField(help_text="The part of it that is not charged.")
    credit = Money(max_digits=20)
    charged = Money(max_digits=20, help_text="Charge for the run that the pause ended.")
    remaining_seconds = serializers.IntegerField(allow_null=True)
    policy_version = serializers.IntegerField()
    decision_id = serializers.IntegerField(
        allow_null=True, help_text="Null for a pause by the ladder of a budget."
    )


class ParentOut(serializers.Serializer[Any]):
    """A booking that has to be over first."""

    booking = serializers.CharField(
        source="parent.label", help_text="Its number. Empty if it is of a project that you do not see."
    )
    needs = serializers.ChoiceField(
        choices=Dependency.Needs.values,
        help_text="`end`: any end of its own. `success`: its program reports a success, too.",
    )
    state = serializers.CharField(source="parent.state", help_text="The state that it is in.")
    result = serializers.CharField(
        source="parent.result", help_text="What its program has reported; else empty."
    )


class BookingOut(Shape):
    """A booking."""

    id = serializers.CharField(help_text="`bk_…`. Unique everywhere.")
    number = serializers.CharField(help_text="`BK-2041`, or `BK-2041[17]` in an array.")
    project = serializers.CharField()
    owner = serializers.CharField()
    name = serializers.CharField()
    labels = Labels()
    workload = serializers.CharField(
        help_text="The kind of its work: its label `workload`, its `kind:` or its name without numbers."
    )
    external_ref = serializers.CharField(help_text="A URL or a ticket's key. Empty without one.")
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
    planned_start = PlannedStartOut(
        allow_null=True, help_text="Null if no start is planned, or the booking has begun."
    )
    waiting = WaitingOut(allow_null=True)
    alternatives = serializers.ListField(
        child=serializers.DictField(),
        help_text="What its plan offers instead: each with the `request` and the `ask` that books it.",
    )
    campaign = serializers.CharField(
        allow_null=True, help_text="Slug of the campaign whose budget counts it, too."
    )
    series = serializers.CharField(allow_null=True, help_text="`sr_…` if the booking is a date of a series.")
    array = serializers.CharField(
        allow_null=True, help_text="`ar_…` if the booking is an element of an array."
    )
    array_index = serializers.IntegerField(allow_null=True, help_text="Its index, from 1.")
    depends_on = ParentOut(many=True, help_text="The bookings that it waits for, or waited for.")
    result = serializers.CharField(
        help_text="`success` or `failure`, as its program has reported; else empty."
    )
    extension_until = serializers.DateTimeField(allow_null=True)
    revision = serializers.IntegerField(
        help_text="Of the request. Send it as `If-Match` with a change: the ETag has it, too."
    )
    change = BookingChangeOut(
        allow_null=True, help_text="The latest change that needed a decision, open or decided."
    )
    ready_at = serializers.DateTimeField(allow_null=True)
    saved_at = serializers.DateTimeField(allow_null=True)
    checked_in_at = serializers.DateTimeField(allow_null=True)
    idle_veto_until = serializers.DateTimeField(
        allow_null=True, help_text="From then on others can get its idle GPUs."
    )
    awaits_check_in = serializers.BooleanField(
        help_text="Paused because its GPUs were idle: it resumes after a check-in."
    )
    released_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    decision_id = serializers.IntegerField(allow_null=True)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """The fields of the core, and those of features."""
        return super().get_fields() | {each.name: each.out(allow_null=True) for each in BOOKING_PARTS}


class EventOut(serializers.Serializer[Any]):
    """One event in the history of a booking."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    kind = serializers.CharField()
    state = serializers.CharField()
    sentence = serializers.CharField(source="text")
    actor = serializers.CharField(source="actor.username", default=None, allow_null=True)
    detail = serializers.DictField()


# Created once: a new serializer copies all its fields, which takes longer than the rendering.
_BOOKING = BookingOut()


def booking_id_text(booking: Booking) -> str:
    """The booking's `bk_…` id."""
    return f"bk_{booking.id.hex}"


def new_booking_data(booking: Booking, estimates: Mapping[UUID, datetime] | None = None) -> dict[str, Any]:
    """`booking_data` of a booking that its reader created just now: no allocations, no pauses, no plan."""
    if estimates is None:
        estimates = estimated_starts([booking])
    parents: Sequence[Dependency] = ()
    if booking.awaits_parents:
        prefetch_related_objects([booking], "dependencies__parent")
        parents = list(booking.dependencies.all())
    return _data(booking, BookingParts(parents=parents, estimate=estimates.get(booking.id)))


def booking_data(booking: Booking, actor: Actor | None, parts: BookingParts | None = None) -> dict[str, Any]:
    """The booking as JSON values, as the actor may read it; None: an operator reads it. Runs inside a
    transaction of its tenant. `parts`: those of `parts_of`, read here without them."""
    if parts is None:
        parts = parts_of([booking])[booking.id]
    hidden = frozenset() if actor is None else numbers_hidden(actor, [parts])
    return _without(hidden, _data(booking, parts))


def bookings_data(bookings: Sequence[Booking], actor: Actor | None) -> list[dict[str, Any]]:
    """Returns the representation of each booking, with as many statements as for one."""
    parts = parts_of(bookings)
    hidden = frozenset() if actor is None else numbers_hidden(actor, parts.values())
    return [_without(hidden, _data(each, parts[each.id])) for each in bookings]


def _without(hidden: frozenset[str], data: dict[str, Any]) -> dict[str, Any]:
    """The representation without numbers of bookings that its reader may not see."""
    if not hidden:
        return data
    for pause in data["pauses"]:
        pause["preemptor"] = "" if pause["preemptor"] in hidden else pause["preemptor"]
    for parent in data["depends_on"]:
        parent["booking"] = "" if parent["booking"] in hidden else parent["booking"]
    moved = (data["planned_start"] or {}).get("moved_by")
    if moved is not None and moved["booking"] in hidden:
        moved["booking"] = None
    return data


def _data(booking: Booking, parts: BookingParts) -> dict[str, Any]:
    return _BOOKING.to_representation(
        {
            "id": booking_id_text(booking),
            "number": booking.label,
            "project": booking.project.slug,
            "owner": booking.owner.username,
            "tier": booking.tier_id,
            "workload": workload_of(booking),
            "request": booking.request_text,
            "window": _window(booking),
            "price": {
                "currency": booking.currency,
                "per_hour": booking.price_per_hour,
                "peak_per_hour": rate_of(booking).peak if booking.peak_weekly else None,
                "peak_hours": peak_words(rate_of(booking).hours),
                "setup_fee": booking.setup_fee,
                "held": booking.hold_amount,
                "settled": booking.settled,
                "charged": booking.charged,
                "corrected": booking.corrected - booking.late_refunded,
                "price_book": booking.price_version,
            },
            "allocations": parts.allocations,
            "pauses": parts.pauses,
            "planned_start": _planned_start(booking, parts.moved_starts),
            "waiting": _waiting(booking, parts.estimate),
            "change": _latest(parts.changes),
            "campaign": booking.campaign.slug if booking.campaign else None,
            "series": f"sr_{booking.series_id.hex}" if booking.series_id else None,
            "depends_on": parts.parents,
            "array": f"ar_{booking.array_id.hex}" if booking.array_id else None,
            **{name: getattr(booking, name) for name in _PLAIN},
            "alternatives": as_requests(booking, booking.alternatives),
            **{
                each.name: each.shown(booking, row) if (row := parts.features.get(each.name)) else None
                for each in BOOKING_PARTS
            },
        }
    )


def _latest(changes: Iterable[BookingChange]) -> BookingChange | None:
    """The last change that was asked for. Of two in one second, the open one is the latest."""
    return max(changes, key=lambda each: (each.asked_at, each.decided_at is None), default=None)


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


def _planned_start(booking: Booking, moved: Iterable[MovedStart]) -> dict[str, Any] | None:
    starts = booking.expected_start
    if starts is None or booking.state not in (*WAITING, *_BEFORE_RUN):
        return None
    latest = booking.announced_until
    last = max(moved, key=lambda row: row.id, default=None)
    return {
        "starts": starts,
        "strength": booking.planned_strength or PlannedStrength.EXPECTED,
        "earliest": starts,
        "latest": starts if latest is None else max(starts, latest),
        "sentence": mover_text(booking.planned_strength, booking.planned_class),
        "moved_by": last,
    }


def _waiting(booking: Booking, estimate: datetime | None) -> dict[str, Any] | None:
    if booking.state not in (*WAITING, State.WAITLISTED, State.PAUSING, State.PAUSED):
        return None
    return {
        "expected_start": booking.expected_start,
        "expected_end": None if booking.is_unplanned else booking.planned_ends,
        "estimated_start": estimate,
        "gpu_class": booking.planned_class,
        "reasons": [reason_shown(reason, booking.ask) for reason in booking.reasons],
    }
