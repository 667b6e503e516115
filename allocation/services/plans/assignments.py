"""Writes the assignments of a plan: calendar rows, holds and bookings.

Many bookings at a time take as few statements as one.
"""

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from allocation.models import Allocation, Booking, Decision, Gpu, MovedStart, PauseCause
from allocation.rules.states import State
from allocation.services.bookings.checks.offers import peak_facts, rate_of_class
from allocation.services.plans.announced_starts import Announcement, PlannedAnew, starts_announce
from allocation.services.record.costs import rate_of
from allocation.services.record.history import Event, events_add
from allocation.services.record.workloads import has_run
from allocation.services.runs.transition import Change, bookings_change
from allocation.services.snapshot.snapshot import instant
from allocation.words.events import event_text
from allocation.words.reasons import reason_data
from billing.rates import Rate
from billing.services import HoldRequest, holds_move
from solver import (
    Assign,
    Move,
    Part,
    Place,
    Plan,
    Reason,
    Shape,
    Snapshot,
    Waiting,
    units_of,
)
from solver.reasons.catalogue import BY_ID
from tenants.platform.database.compiled import Compiled
from tenants.platform.errors import Refused
from tenants.platform.rows import rows_insert_free

_SCHEDULED: Mapping[str, str] = {State.PAUSED: "resuming", State.WAITLISTED: "window_free"}
"""The texts of bookings that get GPUs, by the state that they leave."""
_DATA = "data_place"
"""The reason that explains what a place means for the data that is named."""


_gpus = Compiled(lambda _, keys: Gpu.objects.select_related("node").filter(id__in=keys))


class PlanStale(Exception):
    """The input of the plan has changed. `withheld`: why it can't be written, by part, if known."""

    def __init__(self, message: str, withheld: Mapping[Part, str] | None = None) -> None:
        """The message is for the log."""
        super().__init__(message)
        self.withheld = dict(withheld or {})


class PlanOvertaken(PlanStale):
    """Another cycle leads."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The GPUs of a plan, for the fields that allocation rows repeat, and their units."""

    gpus: dict[str, Gpu]
    snapshot: Snapshot

    @classmethod
    def read(cls, snapshot: Snapshot, plan: Plan, now: datetime) -> "Fleet":
        """Reads all GPUs of the plan."""
        ids = {place.gpu for assign in plan.assigns for place in assign.places}
        ids |= {place.gpu for move in plan.moves for place in (*move.source, *move.places)}
        rows = _gpus(now, ids) if ids else ()
        return cls({str(gpu.id): gpu for gpu in rows}, snapshot)

    def units(self, gpu: Gpu, shape: Shape) -> int:
        """Returns the quota units of a shape on the GPU."""
        model = next(model for model in self.snapshot.models if model.slug == gpu.model_id)
        return units_of(model, shape)

    def names(self, places: Sequence[Place]) -> str:
        """Returns the names of the places' nodes for a sentence."""
        return " and ".join(sorted({self.gpus[place.gpu].node.name for place in places}))


def assignments_write(
    bookings: Mapping[str, Booking],
    assigns: Sequence[Assign],
    fleet: Fleet,
    decision: Decision,
    now: datetime,
    preemptors: Container[str],
) -> None:
    """Gives the locked bookings their GPUs, in the caller's transaction.

    Others are, or were, paused for the `preemptors`.

    Raises:
        PlanStale: a place is taken, or a paused booking has GPUs to resume on already.
    """
    if not assigns:
        return
    _not_resumed_twice([bookings[each.booking] for each in assigns])
    allocations_write(bookings, assigns, fleet, decision, preemptors)
    planned = [(bookings[each.booking], _planned_anew(each, decision)) for each in assigns]
    announcements = starts_announce(planned, decision, now)
    changes = [
        _change_of(bookings[each.booking], each, fleet, decision, announcement.facts)
        for each, announcement in zip(assigns, announcements, strict=True)
    ]
    _holds_follow(bookings, assigns, now)
    bookings_change(changes, now=now)
    _late_starts_announce(bookings, assigns, announcements, now)


def preemptors_of(plan: Plan, bookings: Mapping[str, Booking]) -> frozenset[str]:
    """Returns the assigned bookings for whose run, which begins now, others are paused.

    A pause of an earlier plan counts if the booking itself was not paused since.
    """
    assigned = {each.booking for each in plan.assigns}
    found = {pause.beneficiary for pause in plan.pauses} & assigned
    causes = PauseCause.objects.filter(
        beneficiary__in=[bookings[name] for name in assigned - found], pause__withdrawn=False
    ).values_list("beneficiary_id", "pause__notified_at")
    for beneficiary, noticed in causes:
        own = bookings[str(beneficiary)].pauses.order_by("-number").first()
        if own is None or own.notified_at < noticed:
            found.add(str(beneficiary))
    return frozenset(found)


def _planned_anew(assign: Assign, decision: Decision) -> PlannedAnew:
    """Returns what is announced: no booking delays a start whose GPUs are reserved."""
    late = next((each for each in assign.reasons if _delays(each)), None)
    detail = {"decision": decision.id}
    return PlannedAnew(instant(assign.starts), "firm", late, assign.places, detail)


def _late_starts_announce(
    bookings: Mapping[str, Booking],
    assigns: Sequence[Assign],
    announcements: Sequence[Announcement],
    now: datetime,
) -> None:
    """Writes messages and receipts of starts that are later than was announced.

    The event of the assignment says an earlier start.
    """
    late = [
        (bookings[assign.booking], announcement.event)
        for assign, announcement in zip(assigns, announcements, strict=True)
        if announcement.event is not None and announcement.event.kind == "delayed"
    ]
    if late:
        events_add([event.row(booking, now) for booking, event in late])
        receipts = [each.receipt for each in announcements if each.receipt is not None]
        MovedStart.objects.bulk_create(receipts)


def allocations_write(
    bookings: Mapping[str, Booking],
    given: Sequence[Assign | Move],
    fleet: Fleet,
    decision: Decision,
    preemptors: Container[str] = (),
) -> None:
    """Writes the places to the calendar.

    Raises:
        PlanStale: one of them is taken.
    """
    rows = [
        row
        for each in given
        for row in _rows(
            bookings[each.booking], each, fleet, decision, is_preemptor=each.booking in preemptors
        )
    ]
    # Without ON CONFLICT DO NOTHING, inserts into an exclusion constraint deadlock under load.
    written = rows_insert_free(rows)
    for row in rows:
        if row.id not in written:
            raise PlanStale(f"a place of {row.booking.label} is taken")


def plan_facts(booking: Booking, given: Assign | Waiting, decision: Decision) -> dict[str, object]:
    """Returns the planned start, end and class, and the first planned start, as fields."""
    facts: dict[str, object] = {
        "decision": decision,
        "planned_starts": instant(given.starts),
        "planned_ends": instant(given.ends),
        "planned_class": given.gpu_class,
    }
    if booking.first_planned_start is None:
        facts |= {"first_planned_start": instant(given.starts), "first_planned_at": decision.at}
    return facts


def _not_resumed_twice(bookings: Sequence[Booking]) -> None:
    paused = [booking for booking in bookings if booking.state == State.PAUSED]
    live = Allocation.objects.filter(booking__in=paused, state__in=Allocation.LIVE, abandoned=False)
    if paused and live.exists():
        raise PlanStale("a paused booking has GPUs to resume on already")


def _rows(
    booking: Booking,
    given: Assign | Move,
    fleet: Fleet,
    decision: Decision,
    *,
    is_preemptor: bool,
) -> list[Allocation]:
    period = DateTimeTZRange(instant(given.starts), instant(given.ends))
    # A move is a grant of its own. It has no place in the queue: it is decided before the queue.
    position = given.position if isinstance(given, Assign) else 0
    return [
        Allocation(
            id=uuid4(),
            tenant_id=booking.tenant_id,
            project_id=booking.project_id,
            booking=booking,
            gpu_id=place.gpu,
            gpu_number=fleet.gpus[place.gpu].number,
            model_id=fleet.gpus[place.gpu].model_id,
            mode=_mode_of(place),
            profile=place.profile,
            start=place.start,
            size=place.size,
            share=place.share,
            units=fleet.units(fleet.gpus[place.gpu], place.shape),
            period=period,
            decision=decision,
            granted_cycle=decision.id,
            granted_position=position,
            preemptor=is_preemptor,
        )
        for place in sorted(given.places, key=lambda place: (place.gpu, place.start))
    ]


def _mode_of(place: Place) -> Gpu.Mode:
    if place.share is not None:
        return Gpu.Mode.SHARED
    return Gpu.Mode.SLICED if place.profile else Gpu.Mode.WHOLE


def _change_of(
    booking: Booking,
    assign: Assign,
    fleet: Fleet,
    decision: Decision,
    announced: Mapping[str, object],
) -> Change:
    """Returns the change of a booking that gets GPUs, with its event."""
    resumes = booking.state == State.PAUSED
    facts = {**plan_facts(booking, assign, decision), **announced}
    facts |= class_price_facts(booking, assign.gpu_class)
    if not has_run(booking):
        # From now on a workload is as long as it takes on this class.
        lengths = dict(booking.class_durations)
        facts["duration_seconds"] = lengths.get(assign.gpu_class, booking.duration_seconds)
    facts |= {
        "reasons": [reason_data(each) for each in assign.reasons if _delays(each) or each.code == _DATA],
        "alternatives": [],
        "planned_places": [],
    }
    near = next((reason_data(each) for each in assign.reasons if each.code == _DATA), None)
    usual, more = ("scheduled_data", {"because": near}) if near else ("scheduled", {})
    event = Event(
        "scheduled",
        event_text(_SCHEDULED.get(booking.state, usual), nodes=fleet.names(assign.places), **more),
        detail={"decision": decision.id, "starts": instant(assign.starts).isoformat()},
    )
    return Change(booking, event, None if resumes else State.SCHEDULED, facts)


def class_price_facts(booking: Booking, gpu_class: str) -> dict[str, object]:
    """Returns the price fields of a booking that may be on several classes, on this one."""
    if len(booking.ask["classes"]) > 1:
        # The hold covers the most expensive class. A class without a price costs what was quoted.
        with suppress(Refused):
            return _cheaper(rate_of(booking), rate_of_class(booking, gpu_class))
    return {}


def _cheaper(booked: Rate, placed: Rate) -> dict[str, object]:
    """Returns the price fields of a booking on the class that it was placed on."""
    rate = Rate(min(booked.plain, placed.plain), min(booked.peak, placed.peak), placed.hours)
    return {"price_per_hour": rate.plain, **peak_facts(rate)}


def _delays(why: Reason) -> bool:
    return BY_ID[why.rule].effect in ("delays", "both")


def _holds_follow(bookings: Mapping[str, Booking], assigns: Sequence[Assign], now: datetime) -> None:
    requests: dict[tuple[UUID, UUID], list[HoldRequest]] = defaultdict(list)
    for assign in assigns:
        booking = bookings[assign.booking]
        if booking.starts is not None:
            # The hold of a fixed window has the right time already.
            continue
        request = HoldRequest(
            booking.id,
            booking.hold_amount - booking.settled,
            instant(assign.starts),
            instant(assign.ends),
            booking.owner_id,
            booking.campaign_id,
        )
        requests[booking.tenant_id, booking.project_id].append(request)
    for (tenant_id, project_id), mine in requests.items():
        holds_move(tenant_id=tenant_id, project_id=project_id, requests=mine, now=now)
