"""The model's snapshot and how a plan is written: see services/snapshot.py and plans.py."""

import dataclasses
import uuid
from collections.abc import Callable, Iterable

from allocation.solver import Assign, Gpu, Held, Move, Plan, Promise, Request, Snapshot
from allocation.solver import Extension as SolverExtension
from allocation.solver.types import Together
from tests.simulation import lifecycle
from tests.simulation.rows import LIVE, Booking, Row, Site, Tables

CLEARING_SECONDS = 5
EXTENDABLE = ("scheduled", "starting", "active")


class PlanStale(Exception):
    """The plan can't be written: drop it and look again."""


def is_anyone_waiting(tables: Tables) -> bool:
    """Whether there is a wish for the solver to answer."""
    return any(
        b.state in ("requested", "queued") or (b.extension is not None and b.state in EXTENDABLE)
        for b in tables.bookings.values()
    )


def snapshot_take(tables: Tables, site: Site, now: float) -> Snapshot:
    """One project, so nothing hangs on past use."""
    bookings = [tables.bookings[name] for name in sorted(tables.bookings)]
    rows = [tables.rows[name] for name in sorted(tables.rows)]
    return Snapshot(
        now=int(now),
        models=site.models,
        gpus=tuple(
            dataclasses.replace(gpu, usable=_is_usable(tables, site, gpu)) for gpu in site.gpus
        ),
        held=tuple(_held(tables, row, site, int(now)) for row in rows if row.state in LIVE),
        requests=tuple(_request(b, site) for b in bookings if b.state in ("requested", "queued")),
        extensions=tuple(
            SolverExtension(b.id, b.extension)
            for b in bookings
            if b.extension is not None and b.state in EXTENDABLE
        ),
        limits=site.limits,
        tiers=site.tiers,
        hosts=site.hosts,
    )


def _is_usable(tables: Tables, site: Site, gpu: Gpu) -> bool:
    return tables.gpus[site.uuids[gpu.id]].health == "ok" and tables.nodes[gpu.node].takes_work


def plan_apply(tables: Tables, plan: Plan, new_id: Callable[[], str]) -> None:
    """Raises PlanStale with half of it written; the caller keeps a copy."""
    _move_all(tables, plan.moves, new_id)
    for assign in plan.assigns:
        _assign(tables, assign, new_id)
    for wait in plan.waits:
        booking = _waiting(tables, wait.booking)
        booking.state = "queued"
        booking.starts, booking.ends, booking.places = wait.starts, wait.ends, wait.places
    for refuse in plan.refusals:
        booking = _waiting(tables, refuse.booking)
        booking.state = _refused_as(booking)
        booking.outcome, booking.places = booking.state, ()
    for extend in plan.extensions:
        booking = tables.bookings[extend.booking]
        if extend.granted:
            rows = [row for row in tables.of(booking, *LIVE) if not row.left]
            for row in rows:
                row.ends = extend.until
            lifecycle.bump(tables, rows)
            booking.ends = extend.until
        booking.extension = None


def _move_all(tables: Tables, moves: Iterable[Move], new_id: Callable[[], str]) -> None:
    for move in moves:
        lifecycle.supersede(tables, tables.bookings[move.booking])
    for move in moves:
        _rows_write(tables, tables.bookings[move.booking], move, new_id)


def _refused_as(booking: Booking) -> str:
    if booking.lost_its_hardware:
        return "failed"
    is_window = booking.state == "requested" or booking.wish.starts is not None
    return "refused" if is_window else "expired"


def _assign(tables: Tables, assign: Assign, new_id: Callable[[], str]) -> None:
    booking = _waiting(tables, assign.booking)
    _rows_write(tables, booking, assign, new_id)
    booking.state = "scheduled"
    booking.starts, booking.ends = assign.starts, assign.ends


def _rows_write(
    tables: Tables, booking: Booking, assign: Assign | Move, new_id: Callable[[], str]
) -> None:
    rows = [
        Row(id=new_id(), booking=booking.id, place=p, starts=assign.starts, ends=assign.ends)
        for p in sorted(assign.places, key=lambda place: (place.gpu, place.start))
    ]
    live = [row for row in tables.rows.values() if row.state in LIVE]
    for row in rows:
        if any(_excluded(row, other) for other in live):
            raise PlanStale(booking.id)
        tables.rows[row.id] = row


def _excluded(row: Row, other: Row) -> bool:
    """What the database's two exclusion constraints forbid."""
    same_time = row.starts < other.ends and other.starts < row.ends
    same_gpu = row.place.gpu == other.place.gpu
    mixed = (row.place.profile is None) != (other.place.profile is None)
    return same_time and same_gpu and (mixed or row.collides(other))


def _waiting(tables: Tables, name: str) -> Booking:
    booking = tables.bookings[name]
    if booking.state not in ("requested", "queued"):
        raise PlanStale(name)
    return booking


def _held(tables: Tables, row: Row, site: Site, now: int) -> Held:
    booking = tables.bookings[row.booking]
    ready_at = booking.ready_at
    started = row.state != "planned"
    clearing = max(row.ends, now + max(CLEARING_SECONDS, now - row.ends))
    name = str(uuid.UUID(row.id))
    return Held(
        id=name,
        booking=f"left {name}" if row.left else row.booking,
        tenant="" if row.left else site.tenant,
        project="" if row.left else site.project,
        place=row.place,
        starts=row.starts,
        ends=clearing if started else row.ends,
        started=started,
        tier=site.tier,
        since=None if ready_at is None else int(ready_at),
        owner=site.owner_id,
        level=_level(booking) if row.state == "planned" else None,
    )


def _level(booking: Booking) -> Together | None:
    """How near its gang must lie wherever it lies; None: it is not to be moved."""
    if booking.state != "scheduled" or booking.extension is not None:
        return None
    ask = booking.wish.ask()
    return ask.together if ask.required and ask.count > 1 else "any"


def _request(booking: Booking, site: Site) -> Request:
    promise = None
    is_one = bool(booking.places) or booking.wish.starts is None
    if is_one and booking.starts is not None and booking.ends is not None:
        promise = Promise(booking.starts, booking.ends, booking.places)
    return Request(
        booking=booking.id,
        tenant=site.tenant,
        project=site.project,
        tier=site.tier,
        priority=site.priority,
        submitted=booking.submitted,
        ask=booking.wish.ask(),
        duration=booking.duration,
        earliest=booking.not_before,
        latest=None,
        fixed=booking.wish.starts is not None,
        promise=promise,
        owner=site.owner_id,
    )
