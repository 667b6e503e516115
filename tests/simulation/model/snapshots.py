"""The model's snapshot for the solver: see services/snapshot.py."""

import dataclasses
import uuid
from typing import cast

from solver import (
    Change,
    Cooling,
    Extension,
    Gpu,
    Held,
    Notice,
    PlannedStart,
    Request,
    Snapshot,
)
from solver.model.inputs import AFTER_ALL, Entry, Strength, Together
from tests.simulation.model import maintenance
from tests.simulation.model.pausing import is_unneeded, is_withdrawable
from tests.simulation.model.planning import EXTENDABLE
from tests.simulation.requests.tables import ChangeRow
from tests.simulation.requests.waitlist import is_asking
from tests.simulation.tables.accounts import SHORTEST, has_earlier_run, time_remaining
from tests.simulation.tables.rows import LIVE, Booking, Pause, Row, Site, Tables
from tests.simulation.tables.suspended_homes import home_paused, home_running, with_original_gpus

CLEARING = 5
HANDOVER = 60


def snapshot_take(tables: Tables, site: Site, now: float) -> Snapshot:
    """Without past use: it is no subject of a schedule."""
    bookings = [tables.bookings[name] for name in sorted(tables.bookings)]
    rows = [tables.rows[name] for name in sorted(tables.rows)]
    live = [r for r in rows if r.state in LIVE and not _is_handing_over(tables, r, now)]
    requests = [_request(b, site, now) for b in bookings if _is_waiting(tables, b)]
    requests += _pauses_requested(tables, site, now)
    return Snapshot(
        now=int(now),
        models=site.models,
        gpus=tuple(
            dataclasses.replace(
                gpu,
                usable=_is_usable(tables, site, gpu),
                silent=tables.nodes[gpu.node].unreachable_since is not None,
            )
            for gpu in site.gpus
        ),
        held=tuple(_held(tables, row, site, int(now)) for row in live),
        requests=tuple(sorted(requests, key=lambda request: request.booking)),
        extensions=tuple(
            _extension(tables, b, b.extension, site, now)
            for b in bookings
            if b.extension is not None and b.state in EXTENDABLE
        ),
        limits=site.limits,
        tiers=site.tiers,
        hosts=site.hosts,
        blackouts=maintenance.closures(tables, site, now),
        running=tuple(_running(tables, b, site, now) for b in bookings if _is_running(b, now)),
        unneeded=_unneeded(tables, now),
        notices=_notices(tables, now),
        changes=tuple(
            _change(tables.bookings[name], tables.changes[name], site, now)
            for name in sorted(tables.changes)
            if tables.bookings[name].state in ("queued", "scheduled")
        ),
        entries=tuple(_entry(tables, b, site, now) for b in bookings if is_asking(tables, b)),
        orders=tuple(tables.orders[name] for name in sorted(tables.orders)),
        cooling=tuple(
            Cooling(tenant, int(until), owner, name)
            for (tenant, owner, name), until in sorted(tables.cooling.items())
            if until > now
        ),
    )


def _is_waiting(tables: Tables, booking: Booking) -> bool:
    """See requests_read."""
    entry = tables.entries.get(booking.id)
    asks_again = booking.state == "waitlisted" and entry is not None and entry.mode == "auto"
    return booking.state in ("requested", "queued") or asks_again


def _change(booking: Booking, row: ChangeRow, site: Site, now: float) -> Change:
    """See _change_of."""
    after = dataclasses.replace(
        booking, requested=row.requested, duration=row.requested.duration, not_before=row.not_before
    )
    target = _request(after, site, now)
    latest = target.latest
    if row.start_by is not None:
        last = row.start_by + target.duration
        latest = last if latest is None else min(latest, last)
    target = dataclasses.replace(
        target,
        booking=row.id,
        submitted=row.asked_at,
        latest=None if target.fixed else latest,
        planned=None,
        revision=row.base - 1,
    )
    strength = cast("Strength | None", row.strength)
    return Change(booking.id, target, strength, waiting=row.is_waiting)


def _entry(tables: Tables, booking: Booking, site: Site, now: float) -> Entry:
    """See entries_of."""
    row, party = tables.entries[booking.id], site.parties[booking.requested.who]
    barred = {
        offer.gpu_class
        for offer in tables.offers.values()
        if site.parties[tables.bookings[offer.booking].requested.who] == party
    }
    request = _request(booking, site, now)
    return Entry(booking.id, request, row.windows, row.expired, tuple(sorted(barred)))


def _is_usable(tables: Tables, site: Site, gpu: Gpu) -> bool:
    return tables.gpus[site.uuids[gpu.id]].health == "ok" and tables.nodes[gpu.node].keeps_planned_work


def _is_handing_over(tables: Tables, row: Row, now: float) -> bool:
    pausing = tables.bookings[row.booking].state == "pausing"
    return pausing and 0 <= now - row.ends < HANDOVER


def _held(tables: Tables, row: Row, site: Site, now: int) -> Held:
    booking = tables.bookings[row.booking]
    party = site.parties[booking.requested.who]
    name = str(uuid.UUID(row.id))
    is_had = booking.state in ("active", "pausing") and not row.left
    return Held(
        id=name,
        booking=f"left {name}" if row.left else row.booking,
        tenant="" if row.left else party.tenant,
        project="" if row.left else party.project,
        place=row.place,
        starts=row.starts,
        ends=_out(row.ends, now) if row.state != "planned" else row.ends,
        started=row.state != "planned",
        tier=booking.tier.slug,
        since=_whole(booking.ready_at) if is_had else None,
        saved=_whole(booking.saved_at),
        pauses=booking.pause_count,
        pausing=booking.state == "pausing" and not row.left,
        owner=party.owner_id,
        level=_level(booking) if row.state == "planned" else None,
        pinned=bool(booking.requested.pin),
        granted=_grant(row, now),
        preemptor=row.preemptor and not row.left,
        offered=booking.state == "offered",
    )


def _grant(row: Row, now: int) -> tuple[int, int] | None:
    if row.left:
        return None
    if row.extended is not None and row.extended[0] <= now:
        return (row.extended[1], AFTER_ALL)
    return row.granted


def _level(booking: Booking) -> Together | None:
    if booking.state != "scheduled" or booking.extension is not None:
        return None
    ask = booking.requested.ask()
    return ask.together if ask.required and ask.count > 1 else "any"


def _unneeded(tables: Tables, now: float) -> tuple[Extension, ...]:
    found = (p for p in tables.pauses.values() if is_unneeded(tables, p, now))
    ordered = sorted(found, key=lambda each: each.booking)
    return tuple(Extension(each.booking, each.ends_before) for each in ordered)


def _notices(tables: Tables, now: float) -> tuple[Notice, ...]:
    """See notices_read."""
    found = (
        p
        for p in tables.pauses.values()
        if is_withdrawable(tables, p, now) and not is_unneeded(tables, p, now)
    )
    ordered = sorted(found, key=lambda each: each.booking)
    return tuple(Notice(each.booking, each.beneficiary, each.ends_before, each.rule) for each in ordered)


def _out(ends: int, now: int) -> int:
    return max(ends, now + max(CLEARING, now - ends))


def _request(booking: Booking, site: Site, now: float) -> Request:
    party, fixed = site.parties[booking.requested.who], booking.requested.starts is not None
    duration, latest = booking.duration, None
    if has_earlier_run(booking):
        duration, latest = time_remaining(booking, now)
        duration, fixed = max(SHORTEST, duration), False
    return Request(
        booking=booking.id,
        tenant=party.tenant,
        project=party.project,
        tier=booking.tier.slug,
        priority=booking.tier.priority,
        submitted=booking.submitted if booking.ranked_at is None else booking.ranked_at,
        ask=booking.requested.ask(),
        duration=duration,
        earliest=booking.not_before,
        latest=latest,
        fixed=fixed,
        planned=_planned_start(booking),
        owner=party.owner_id,
        revision=booking.revision - 1,
    )


def _extension(tables: Tables, booking: Booking, until: int, site: Site, now: float) -> Extension:
    """A later end, with the place in the queue of what it adds."""
    ends, rows = booking.ends, tables.here(booking)
    if ends is None or not rows or until <= ends:
        return Extension(booking.id, until)
    request = _request(booking, site, now)
    request = dataclasses.replace(
        request,
        booking=f"longer {booking.id}",
        ask=dataclasses.replace(request.ask, classes=(site.class_of[rows[0].place.gpu],)),
        submitted=booking.extension_requested,
        duration=until - ends,
        earliest=ends,
        latest=None,
        fixed=True,
        planned=None,
    )
    return Extension(booking.id, until, request, booking.extension_is_waiting)


def _is_running(booking: Booking, now: float) -> bool:
    runs = booking.state == "active" and booking.tier.pausable
    return runs and (booking.ends or 0) > int(now)


def _running(tables: Tables, booking: Booking, site: Site, now: float) -> Request:
    ends = booking.ends or 0
    request = _going_on(booking, site, now, (ends - int(now), ends))
    return with_original_gpus(request, home_running(tables, booking), now)


def _going_on(booking: Booking, site: Site, now: float, rest: tuple[int, int]) -> Request:
    left, ends = rest
    return dataclasses.replace(
        _request(booking, site, now),
        duration=left,
        earliest=int(now),
        latest=ends if booking.requested.starts is not None else None,
        fixed=False,
        pauses=booking.pause_count,
        planned=None,
    )


def _pauses_requested(tables: Tables, site: Site, now: float) -> list[Request]:
    found = []
    for pause in tables.pauses.values():
        booking = tables.bookings[pause.booking]
        waits = pause.is_open and booking.state in ("pausing", "paused")
        if waits and not tables.of(booking, "planned"):
            request = _paused(pause, booking, site, now)
            found.append(with_original_gpus(request, home_paused(tables, booking, pause), now))
    return [request for request in found if request.duration > 0]


def _paused(pause: Pause, booking: Booking, site: Site, now: float) -> Request:
    out = int(now)
    left = pause.ends_before - pause.deadline
    if pause.remaining_seconds is not None:
        left = pause.remaining_seconds
    else:
        out = _out(int(pause.acknowledged_at or pause.deadline), out)
    if booking.requested.starts is not None:
        left = min(left, pause.ends_before - out)
    request = _going_on(booking, site, now, (left, pause.ends_before))
    return dataclasses.replace(request, earliest=out, paused=True, planned=_planned_start(booking))


def _planned_start(booking: Booking) -> PlannedStart | None:
    is_one = bool(booking.places) or booking.requested.starts is None
    if not is_one or booking.starts is None or booking.ends is None:
        return None
    strength = cast("Strength | None", booking.strength)
    return PlannedStart(booking.starts, booking.ends, booking.places, strength)


def _whole(at: float | None) -> int | None:
    return None if at is None else int(at)
