"""Snapshots: the whole input of a cycle, read at one instant in a constant number of queries."""

from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from allocation.models import Allocation, Booking, BookingChange, Pause
from allocation.points.bookings import ENTRIES
from allocation.rules.ask import MIN_DURATION_SECONDS, AskDocument
from allocation.rules.pools import pooled
from allocation.rules.states import State
from allocation.services.record.open_pauses import pauses_unneeded, pauses_withdrawable
from allocation.services.record.places import place_of, place_of_row
from allocation.services.record.terms import Terms
from allocation.services.record.workloads import has_run
from allocation.services.runs.resume import has_earlier_run, time_remaining
from allocation.services.snapshot.cap_rows import caps_of
from allocation.services.snapshot.changes import INNER_LIMITS
from allocation.services.snapshot.compaction_orders import orders_read
from allocation.services.snapshot.demands import caches_read, host_resources, solver_ask, where_of
from allocation.services.snapshot.hardware import (
    energy_sections,
    gpus_read,
    hosts_read,
    maintenance_read,
    models_read,
)
from allocation.services.snapshot.inner_limit_rows import (
    InnerLimits,
    guarantees_read,
    inner_limits_read,
    window_steps_of,
)
from allocation.services.snapshot.intake import deferred_bookings
from allocation.services.snapshot.override_rows import cooling_read, has_exception, kept_read, overrides_read
from allocation.services.snapshot.peaks import peaks_read
from allocation.services.snapshot.quota_rows import (
    limits_of,
    quotas_read,
    tiers_read,
    used_read,
)
from allocation.services.snapshot.rows.of_bookings import (
    Bookings,
    change_rows,
    extension_rows,
    held_rows,
    paused_rows,
    running_rows,
    waiting_rows,
)
from allocation.services.snapshot.running import (
    idle_read,
    paused_on,
    running_on,
    with_original_gpus,
)
from solver import (
    Change,
    Extension,
    Held,
    Notice,
    PlannedStart,
    Request,
    Snapshot,
    Used,
)
from solver.model.inputs import AFTER_ALL, Entry, Strength, Together
from solver.reasons.catalogue import BY_CODE
from tenants.models import Tier

# A released device is cleared within seconds. One that takes longer is expected to need as long
# again as it has taken, so that no start is planned on a device that hangs.
CLEARING_SECONDS = 5
_STRENGTHS: dict[str, Strength] = {
    "firm": "firm",
    "guaranteed": "guaranteed",
    "expected": "expected",
}
# For this long after its end, a paused booking's place already belongs to its beneficiary.
HANDOVER = timedelta(minutes=1)
# The oldest requests for approval that can have a place; the time of a turn stays bounded.
MOST_PENDING = 500


def snapshot_take(now: datetime, most_new: int | None = None) -> Snapshot:
    """Reads a snapshot in its own REPEATABLE READ, READ ONLY transaction, with at most `most_new`
    new bookings.

    For the system's role, which sees every tenant. Must not run inside a transaction.
    """
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return snapshot_read(now, most_new)


def snapshot_read(now: datetime, most_new: int | None = None) -> Snapshot:
    """Reads a snapshot in the caller's transaction, for previews or while all bookings to decide
    are locked."""
    later = frozenset() if most_new is None else deferred_bookings(most_new)
    return replace(
        calendar_read(now, later),
        extensions=extensions_read(now),
        running=running_read(now),
        unneeded=unneeded_read(now),
        notices=notices_read(now),
        orders=orders_read(),
        changes=asked_changes_read(now),
        pending=pending_read(now),
        entries=entries_read(now),
        idle=idle_read(now),
    )


def calendar_read(
    now: datetime, without: frozenset[UUID] = frozenset(), rules: Mapping[str, Any] | None = None
) -> Snapshot:
    """Reads fleet, calendar, waiting requests and limits (or `rules`), except bookings `without` a
    decision now. Under row-level security, bookings, limits and use are those of one tenant."""
    return Snapshot(
        now=seconds(now),
        models=models_read(),
        gpus=gpus_read(),
        held=held_read(now),
        requests=requests_read(now, without),
        extensions=(),
        hosts=hosts_read(),
        **(rules_read(now) if rules is None else rules),
    )


def places_read(now: datetime) -> Snapshot:
    """Reads what says which places are free: the calendar without limits and use."""
    rules = {"limits": (), "tiers": tiers_read(), "blackouts": maintenance_read(now)}
    return calendar_read(now, rules=rules)


def rules_read(now: datetime) -> dict[str, Any]:
    """Reads the sections that are no bookings and no hardware: quota, tiers, use, maintenance."""
    return {**limits_read(now), **energy_sections(tiers_read())}


def limits_read(
    now: datetime, present: Collection[str] | None = None, known: Collection[Used] | None = None
) -> dict[str, Any]:
    """Reads quota, use and maintenance. `present`: the sections that may have rows; any, if it
    is not known. `known`: the use, if it is known."""
    used, quotas = used_read(now) if known is None else known, quotas_read()
    if present is None:
        present = {*INNER_LIMITS, "blackouts", "caches", "cooling", "kept", "overrides", "peaks"}
        present.add("guarantees")
    inner = InnerLimits() if INNER_LIMITS.isdisjoint(present) else inner_limits_read(quotas)
    guarantees = guarantees_read(now) if "guarantees" in present else ()
    return {
        "labs": inner.labs,
        "persons": inner.persons,
        "limits": (*limits_of(quotas), *inner.projects),
        "guarantees": guarantees,
        "tier_parts": inner.tier_parts,
        "caps": caps_of((*quotas, *inner.lab_caps), used, now, inner.labs),
        "used": used,
        "blackouts": maintenance_read(now) if "blackouts" in present else (),
        "cooling": cooling_read(now) if "cooling" in present else (),
        "peaks": peaks_read(now) if "peaks" in present else (),
        "caches": () if {"caches", "caches_asked"}.isdisjoint(present) else caches_read(),
        "overrides": (
            *(overrides_read(now) if "overrides" in present else ()),
            *(kept_read() if "kept" in present else ()),
            *window_steps_of(inner, quotas, now, guarantees=guarantees),
        ),
    }


def seconds(instant: datetime) -> int:
    """Whole Unix seconds, rounded down."""
    return int(instant.timestamp())


def instant(moment: int) -> datetime:
    """The UTC time of Unix seconds."""
    return datetime.fromtimestamp(moment, UTC)


def held_read(now: datetime, only: Bookings = None) -> tuple[Held, ...]:
    """Every live allocation, or those of some bookings; under row-level security, of one tenant."""
    return tuple(
        _held_of(row, now)
        for row in held_rows(now, only)
        if not is_handover(row.period.upper, now, is_pausing=row.booking__state == State.PAUSING)
    )


def is_handover(ends: datetime, now: datetime, *, is_pausing: bool) -> bool:
    """Whether a paused booking has just ended: in the calendar its place belongs to the beneficiary
    at once, so that no start moves for the seconds of clearing. On the hardware the beneficiary
    starts only when the device is proven empty."""
    return is_pausing and timedelta(0) <= now - ends < HANDOVER


def _held_of(row: Any, now: datetime) -> Held:  # noqa: ANN401 (a row of values)
    """An allocation as held by its booking; leftovers of a broken run belong to nobody."""
    started = row.state != Allocation.State.PLANNED
    is_running = row.booking__state in (State.ACTIVE, State.PAUSING) and not row.abandoned
    ask = row.booking__ask
    gpu_class = row.model__gpu_class_id if ask.get("groups") else ""
    cores, memory = host_resources(ask, gpu_class)
    return Held(
        id=str(row.id),
        booking=f"left {row.id}" if row.abandoned else str(row.booking_id),
        tenant="" if row.abandoned else str(row.tenant_id),
        project="" if row.abandoned else str(row.project_id),
        place=place_of_row(row),
        starts=seconds(row.period.lower),
        ends=held_until(row.period.upper, now, started=started),
        started=started,
        tier=row.booking__tier_id,
        since=seconds(row.booking__ready_at) if row.booking__ready_at and is_running else None,
        saved=seconds(row.booking__saved_at) if row.booking__saved_at else None,
        pauses=row.booking__pause_count,
        pausing=row.booking__state == State.PAUSING and not row.abandoned,
        cores=cores,
        memory=memory,
        owner=str(row.booking__owner_id),
        pinned=bool(ask.get("pin")),
        level=_level(row),
        granted=_grant_of(row, now),
        preemptor=row.preemptor and not row.abandoned,
        offered=row.booking__state == State.OFFERED,
        override=str(row.booking_id) if row.booking__has_override and not row.abandoned else "",
        mixed=bool(gpu_class),
        where=where_of(ask),
    )


def _grant_of(row: Any, now: datetime) -> tuple[int, int] | None:  # noqa: ANN401
    """The grant number that a row has now: its extension's after the end that it had before."""
    if row.abandoned or row.granted_cycle is None or row.granted_position is None:
        return None
    since, cycle = row.extended_from, row.extended_cycle
    if since is not None and cycle is not None and since <= now:
        return (cycle, AFTER_ALL)
    return (row.granted_cycle, row.granted_position)


def _level(row: Any) -> Together | None:  # noqa: ANN401
    """How close the GPUs of a movable booking must be. None if it can't move: it has started, may
    be suspended on its node, or is about to be extended."""
    ask = row.booking__ask
    is_settled = row.state == Allocation.State.PLANNED and row.booking__extension_until is None
    if not is_settled or row.booking__state != State.SCHEDULED or ask.get("groups"):
        return None
    together: Together = ask["together"]
    return together if ask["required"] and ask["count"] > 1 else "any"


def held_until(ends: datetime, now: datetime, *, started: bool) -> int:
    """When a row is expected to free its place; devices that have started need time to clear."""
    return expected_clear(seconds(ends), seconds(now)) if started else seconds(ends)


def expected_clear(ends: int, now: int) -> int:
    """When a device that should be empty at `ends` is expected to be."""
    return max(ends, now + max(CLEARING_SECONDS, now - ends))


def requests_read(
    now: datetime, without: frozenset[UUID] = frozenset(), only: Bookings = None
) -> tuple[Request, ...]:
    """Every waiting booking, or some of them; under row-level security, of one tenant. Those on the
    waiting list that want their window booked ask for it in each turn."""
    rows = waiting_rows(now, only)
    found = [_request_of(row, now) for row in rows if row.id not in without]
    found += pauses_requested(now, only)
    return tuple(sorted(found, key=lambda request: request.booking))


def pending_read(now: datetime) -> tuple[Request, ...]:
    """Requests that wait for an approval and may have a place meanwhile."""
    rows = Booking.objects.filter(state=State.AWAITING_APPROVAL, place_until__gt=now)
    rows = rows.filter(awaits_parents=False)
    found = []
    first = rows.select_related("tier", "series").order_by("submitted", "id")[:MOST_PENDING]
    for row in sorted(first, key=lambda each: each.id):
        request = _request_of(row, now)
        until = seconds(row.place_until) if row.place_until else None
        if row.place_from is not None and row.starts is None:
            request = replace(request, earliest=max(request.earliest, seconds(row.place_from)))
        found.append(replace(request, until=until))
    return tuple(found)


def entries_read(now: datetime) -> tuple[Entry, ...]:
    """Every entry of the waiting list that may get an offer."""
    return tuple(entry for each in ENTRIES.values() for entry in each.read(now))


def requests_of(rows: Iterable[Booking], now: datetime) -> tuple[Request, ...]:
    """Requests that would place these bookings anew; their tiers must be loaded."""
    return tuple(_request_of(row, now) for row in rows)


def _request_of(row: Booking, now: datetime) -> Request:
    ask = AskDocument.from_json(row.ask)
    duration, latest = row.duration_seconds, row.deadline
    order = tuple((name, length) for name, length in row.class_durations)
    if ask.workload is not None and has_run(row):
        # Work that has started continues on its class.
        order = ((row.planned_class, duration),) if row.planned_class else ()
    elif ask.workload is not None:
        duration = min((length for _, length in order), default=duration)
    order = tuple((pooled(name, row.pool), length) for name, length in order)
    if order:
        ask = replace(ask, classes=tuple(name for name, _ in order))
    elif row.pool:
        ask = replace(ask, classes=tuple(pooled(name, row.pool) for name in ask.classes))
    if has_earlier_run(row):
        # The rest of a fixed window, at least the shortest booking.
        duration, latest = time_remaining(row, now)
        duration = max(MIN_DURATION_SECONDS, duration)
    return Request(
        booking=str(row.id),
        tenant=str(row.tenant_id),
        project=str(row.project_id),
        tier=row.tier_id,
        priority=row.tier.priority,
        submitted=seconds(row.ranked_at or row.submitted),
        ask=solver_ask(ask),
        duration=duration,
        earliest=seconds(row.not_before),
        latest=seconds(latest) if latest else None,
        fixed=row.starts is not None and not has_earlier_run(row),
        planned=_planned_start_of(row),
        owner=str(row.owner_id),
        durations=order if ask.workload is not None and len(order) > 1 else (),
        cheapest=bool(order) and (row.deadline is not None or row.on_cheapest or row.by_cost),
        series=_series_of(row),
        revision=row.revision - 1,
        override=str(row.id) if row.has_override else "",
        within=not row.may_borrow,
    )


def asked_changes_read(now: datetime, only: Bookings = None) -> tuple[Change, ...]:
    """Every change that waits for a decision, or those of some bookings. Extensions of what runs
    are read by `extensions_read`."""
    rows = list(change_rows(now, only))
    tiers = {tier.slug: tier for tier in Tier.objects.all()} if rows else {}
    return tuple(_change_of(row, tiers, now) for row in rows)


def _change_of(change: BookingChange, tiers: Mapping[str, Tier], now: datetime) -> Change:
    """A change, with the request that the booking would have after it."""
    booking = change.booking
    terms, changed = Terms.from_json(change.target), copy(booking)
    for name, value in {**terms.facts(), "tier": tiers[terms.tier]}.items():
        setattr(changed, name, value)
    target = _request_of(changed, now)
    latest = target.latest
    if change.start_by is not None:
        last = seconds(change.start_by) + target.duration
        latest = last if latest is None else min(latest, last)
    target = replace(
        target,
        booking=str(change.id),
        submitted=seconds(change.asked_at),
        latest=None if target.fixed else latest,
        planned=None,
        series=None,
        revision=change.base_revision - 1,
    )
    group = "" if change.group is None or change.is_partial else str(change.group)
    strength, waits = _STRENGTHS.get(change.least_strength), change.is_waiting
    return Change(str(booking.id), target, strength, group, waits, sooner=change.is_sooner)


def _series_of(row: Booking) -> str | None:
    """The series whose dates are decided together, until they are decided."""
    is_bound = row.state == State.REQUESTED and row.starts is not None and not row.replacement_count
    if not is_bound or row.series is None or row.series.is_partial:
        return None
    return str(row.series_id)


def running_read(now: datetime, only: Bookings = None) -> tuple[Request, ...]:
    """For each running booking that may be paused, the request it would have if paused now."""
    rows = list(running_rows(now, only))
    found = []
    original_gpus = running_on(now, only) if rows else {}
    for row in rows:
        left = seconds(row.planned_ends) - seconds(now) if row.planned_ends else 0
        if left > 0:
            request = _resume_request(row, now, left, seconds(now) + left)
            found.append(with_original_gpus(request, original_gpus.get(row.id), now))
    return tuple(found)


def _resume_request(row: Booking, now: datetime, left: int, ends: int) -> Request:
    """The request for the remaining time of a booking; a fixed window ends by `ends`."""
    latest = seconds(row.deadline) if row.deadline else None
    return replace(
        _request_of(row, now),
        duration=left,
        earliest=seconds(now),
        latest=ends if row.starts is not None else latest,
        fixed=False,
        pauses=row.pause_count,
        planned=None,
    )


def pauses_requested(now: datetime, only: Bookings) -> list[Request]:
    """Requests of pausing or paused bookings that have no place to resume yet.

    They ask for their remaining time as soon as their devices are empty; a fixed window by its end.
    """
    pauses = list(paused_rows(now, only))
    original_gpus = paused_on(pauses)
    found = (with_original_gpus(_paused(row, now), original_gpus.get(row.booking_id), now) for row in pauses)
    return [request for request in found if request.duration > 0]


def _paused(pause: Pause, now: datetime) -> Request:
    booking = pause.booking
    is_out, ends = pause.remaining_seconds is not None, seconds(pause.ends_before)
    out = seconds(now)
    if not is_out:
        out = expected_clear(seconds(pause.acknowledged_at or pause.deadline), out)
    left = ends - seconds(pause.deadline)
    if pause.remaining_seconds is not None:
        left = pause.remaining_seconds
    if booking.starts is not None:
        left = min(left, ends - out)
    request = _resume_request(booking, now, left, ends)
    return replace(request, earliest=out, paused=True, planned=_planned_start_of(booking))


def _planned_start_of(row: Booking) -> PlannedStart | None:
    """The planned start of a booking; one without places only for flexible bookings."""
    is_one = bool(row.planned_places) or row.starts is None
    if not is_one or row.planned_starts is None or row.planned_ends is None:
        return None
    return PlannedStart(
        starts=seconds(row.planned_starts),
        ends=seconds(row.planned_ends),
        places=tuple(place_of(place) for place in row.planned_places),
        strength=_STRENGTHS.get(row.planned_strength or ""),
    )


def unneeded_read(now: datetime) -> tuple[Extension, ...]:
    """Bookings with notice for a preemptor that no longer needs their room."""
    rows = pauses_unneeded(now).order_by("booking_id").values_list("booking_id", "ends_before")
    return tuple(Extension(str(booking), seconds(ends)) for booking, ends in rows)


def notices_read(now: datetime) -> tuple[Notice, ...]:
    """All others with notice for a preemptor that can still be withdrawn. A booking that is paused
    because it was idle leaves whatever its beneficiary does."""
    rows = pauses_withdrawable(now).exclude(id__in=pauses_unneeded(now).values("id"))
    rows = rows.exclude(rule=BY_CODE["idle"].id)
    rows = rows.filter(cause__beneficiary__isnull=False).order_by("booking_id")
    found = rows.values_list("booking_id", "cause__beneficiary_id", "ends_before", "rule")
    return tuple(Notice(str(who), str(claim), seconds(ends), why) for who, claim, ends, why in found)


def extensions_read(now: datetime, only: Bookings = None) -> tuple[Extension, ...]:
    """Every undecided extension, or those of some bookings."""
    return tuple(_extension_of(row, now) for row in extension_rows(now, only))


def _extension_of(change: BookingChange, now: datetime) -> Extension:
    """A later end, with the place in the queue of what it adds."""
    booking, until, ends = change.booking, change.until, change.booking.planned_ends
    if until is None or ends is None or not booking.planned_class or until <= ends:
        return Extension(str(booking.id), seconds(until or now))
    request = _request_of(booking, now)
    request = replace(
        request,
        booking=f"longer {booking.id}",
        submitted=seconds(change.asked_at),
        # What stays above a limit that was cut does not get longer.
        override=request.override if has_exception(booking) else "",
        ask=replace(request.ask, classes=(pooled(booking.planned_class, booking.pool),)),
        duration=seconds(until) - seconds(ends),
        earliest=seconds(ends),
        latest=None,
        fixed=True,
        planned=None,
        durations=(),
        cheapest=False,
        series=None,
    )
    return Extension(str(booking.id), seconds(until), request, change.is_waiting)
