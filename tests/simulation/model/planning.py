"""How the model writes a plan: see services/plans."""

import dataclasses
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from solver import (
    CONFLICT,
    Assign,
    Extend,
    Group,
    Move,
    OrderAnswer,
    Part,
    Parts,
    Pause,
    Plan,
    Refuse,
    Snapshot,
    Waiting,
    in_halves,
    narrowed,
)
from solver.reasons.catalogue import BY_ID, UNPROVEN
from tests.simulation.model import stale
from tests.simulation.model.pausing import pause_begin, pause_withdraw
from tests.simulation.requests.changes import changes_write, extension_drop
from tests.simulation.requests.waitlist import leave, offers_write
from tests.simulation.tables.accounts import (
    granted_seconds,
    has_earlier_run,
    none_left,
    pause_end,
    time_remaining,
)
from tests.simulation.tables.calendar import is_excluded
from tests.simulation.tables.rows import LIVE, Booking, Row, Tables

EXTENDABLE = ("scheduled", "starting", "active")
WORTH = 60
MAX_ATTEMPTS = 64
NewId = Callable[[], str]


class PlanStale(Exception):
    """The plan can't be written: look again."""

    def __init__(self, message: str, withheld: dict[Part, str] | None = None) -> None:
        super().__init__(message)
        self.withheld = withheld or {}


def is_anything_undecided(tables: Tables) -> bool:
    """Whether the solver has a request to answer."""
    waits = ("requested", "waitlisted", "queued", "pausing", "paused")
    return bool(tables.changes) or any(
        b.state in waits or (b.extension is not None and b.state in EXTENDABLE)
        for b in tables.bookings.values()
    )


def news_of(tables: Tables, plan: Plan, now: float) -> Plan:
    """What of it is news."""
    return _changes_of(tables, plan, now)


def plan_apply(
    tables: Tables, news: Plan, snapshot: Snapshot, now: float, writer: "Writer", *, is_last: bool
) -> tuple[Tables, dict[Part, str]]:
    """The tables with all that still holds of it, and what was withheld; see services/plans.

    Raises PlanStale with the tables as they were.
    """
    parts = Parts(news, snapshot)
    gone = stale.parts_stale(tables, news, snapshot, now)
    if not is_last:
        gone |= stale.too_early(tables, news, snapshot)
    withheld = parts.withheld(gone)
    if parts.all and len(withheld) == len(parts.all):
        raise PlanStale("nothing of it can be written", withheld)
    kept = [tables.copy()]
    kept[0].decisions += 1

    def attempt(some: Sequence[Group]) -> PlanStale | None:
        trial = kept[-1].copy()
        narrow = narrowed(news, {part for group in some for part in group})
        try:
            writer.write(trial, narrow, now)
        except PlanStale as failed:
            return failed
        kept.append(trial)
        return None

    groups = [tuple(p for p in group if p not in withheld) for group in parts.groups()]
    failed, error = in_halves([group for group in groups if group], attempt, MAX_ATTEMPTS)
    if error is not None:
        raise error
    refused = dict.fromkeys((part for group in failed for part in group), CONFLICT)
    return kept[-1], withheld | refused


@dataclass(frozen=True)
class Writer:
    """Writes plans with new ids."""

    row_id: NewId
    pause_id: NewId

    def write(self, tables: Tables, news: Plan, now: float) -> None:
        """Raises PlanStale with half of it written."""
        _pauses_begin(tables, news.pauses, self.pause_id, now)
        for name in news.withdrawn:
            if not pause_withdraw(tables, tables.bookings[name], now):
                raise PlanStale(f"the pause of {name} is out, or all was saved")
        if not changes_write(tables, news, now):
            raise PlanStale("a change was withdrawn or replaced")
        _move_all(tables, news.moves, self.row_id)
        preemptors = _preemptors(tables, news)
        for assign in news.assigns:
            _assign(tables, assign, self.row_id, preemptors)
        for wait in news.waits:
            _wait(tables, wait)
        for refuse in news.refusals:
            _refuse(tables, refuse, now)
        for extend in news.extensions:
            _extend(tables, extend, now)
        _orders_answer(tables, news.orders)

    def offers(self, tables: Tables, news: Plan) -> None:
        """Writes what is offered, each on its own."""

        def write(trial: Tables, booking: Booking, assign: Assign) -> bool:
            try:
                _rows_write(trial, booking, assign, self.row_id)
            except PlanStale:
                return False
            return True

        offers_write(tables, news, write)


def _pauses_begin(tables: Tables, pauses: Iterable[Pause], new_id: NewId, now: float) -> None:
    for pause in pauses:
        if getattr(tables.bookings.get(pause.booking), "state", None) != "active":
            raise PlanStale(f"{pause.booking} is to be paused and does not run")
        pause_begin(tables, pause, new_id, now)


def _changes_of(tables: Tables, plan: Plan, now: float) -> Plan:
    """See changes_of."""
    pauses = {pause.booking for pause in plan.pauses}
    leaving = pauses | {b.id for b in tables.bookings.values() if b.state == "pausing"}
    stays = (a for a in plan.assigns if a.booking in leaving)
    waits = (*plan.waits, *(_kept_start(assign) for assign in stays))
    changed = {each.booking for each in plan.changes if each.granted}
    return dataclasses.replace(
        plan,
        assigns=tuple(a for a in plan.assigns if a.booking not in leaving),
        waits=tuple(w for w in waits if w.booking in changed or not _is_known(tables, w)),
        refusals=tuple(
            r
            for r in plan.refusals
            if r.booking not in leaving and not _waits_on(tables.bookings[r.booking], now)
        ),
        extensions=tuple(e for e in plan.extensions if e.booking not in leaving),
    )


def _kept_start(assign: Assign) -> Waiting:
    return Waiting(
        assign.booking, assign.gpu_class, assign.places, assign.starts, assign.ends, assign.reasons
    )


def _is_known(tables: Tables, wait: Waiting) -> bool:
    booking = tables.bookings[wait.booking]
    known = (booking.starts, booking.strength, booking.places, booking.reasons)
    waits = booking.state in ("queued", "pausing", "paused")
    return waits and known == (wait.starts, _strength_kept(wait), wait.places, wait.reasons)


def _strength_kept(wait: Waiting) -> str | None:
    """See plan_diff."""
    is_proven = all(reason.code not in UNPROVEN for reason in wait.reasons[:1])
    return wait.strength if wait.places and is_proven else None


def _preemptors(tables: Tables, news: Plan) -> set[str]:
    """See preemptors_of."""
    assigned = {assign.booking for assign in news.assigns}
    found = {pause.beneficiary for pause in news.pauses} & assigned
    for pause in tables.pauses.values():
        if pause.beneficiary in assigned and not pause.withdrawn:
            own = [p for p in tables.pauses.values() if p.booking == pause.beneficiary]
            last = max(own, key=lambda each: each.number, default=None)
            if last is None or last.notified_at < pause.notified_at:
                found.add(pause.beneficiary)
    return found


def _waits_on(booking: Booking, now: float) -> bool:
    if booking.state == "waitlisted":
        return True
    if booking.state == "paused":
        return booking.requested.starts is not None
    return has_earlier_run(booking) and time_remaining(booking, now)[0] >= WORTH


def _assign(tables: Tables, assign: Assign, new_id: NewId, preemptors: Container[str]) -> None:
    booking = tables.bookings[assign.booking]
    if booking.state == "paused" and tables.here(booking):
        raise PlanStale(f"{booking.id} has a place to resume")
    _rows_write(tables, booking, assign, new_id, is_preemptor=booking.id in preemptors)
    if booking.state != "paused":
        tables.outcomes["windows waited for and had"] += booking.state == "waitlisted"
        booking.state = "scheduled"
        leave(tables, booking)
    booking.starts, booking.ends, booking.strength = assign.starts, assign.ends, "firm"
    late = (each for each in assign.reasons if BY_ID[each.rule].effect in ("delays", "both"))
    booking.places, booking.reasons = (), tuple(late)


def _move_all(tables: Tables, moves: Iterable[Move], new_id: NewId) -> None:
    for move in moves:
        booking = tables.bookings[move.booking]
        rows = tables.here(booking)
        is_same = {row.place for row in rows if row.state == "planned"} == set(move.source)
        if booking.state != "scheduled" or not is_same or len(rows) != len(move.source):
            raise PlanStale(f"{move.booking} has other places by now")
        tables.supersede(booking)
    for move in moves:
        _rows_write(tables, tables.bookings[move.booking], move, new_id)
        tables.bookings[move.booking].reasons = move.reasons


def _rows_write(
    tables: Tables,
    booking: Booking,
    assign: Assign | Move,
    new_id: NewId,
    *,
    is_preemptor: bool = False,
) -> None:
    position = assign.position if isinstance(assign, Assign) else 0
    rows = [
        Row(
            id=new_id(),
            booking=booking.id,
            place=p,
            starts=assign.starts,
            ends=assign.ends,
            granted=(tables.decisions, position),
            preemptor=is_preemptor,
        )
        for p in sorted(assign.places, key=lambda place: (place.gpu, place.start))
    ]
    live = [row for row in tables.rows.values() if row.state in LIVE]
    if any(is_excluded(row, live) for row in rows):
        raise PlanStale(f"a place of {booking.id} is taken")
    tables.rows.update({row.id: row for row in rows})


def _wait(tables: Tables, wait: Waiting) -> None:
    booking = tables.bookings[wait.booking]
    if booking.state == "requested":
        booking.state = "queued"
    booking.starts, booking.ends = wait.starts, wait.ends
    booking.strength = _strength_kept(wait)
    booking.places, booking.reasons = wait.places, wait.reasons


def _refuse(tables: Tables, refuse: Refuse, now: float) -> None:
    booking = tables.bookings[refuse.booking]
    booking.reasons = refuse.reasons
    if booking.state == "requested" and booking.id in tables.entries:
        booking.state = "waitlisted"
        return
    if booking.state == "paused":
        none_left(tables, booking, "not_resumed", now)
        return
    pause_end(tables, booking, now)
    booking.state = booking.outcome = _refused_as(booking)
    booking.places, booking.extension = (), None


def _orders_answer(tables: Tables, orders: Iterable[OrderAnswer]) -> None:
    for carried in orders:
        if tables.orders.pop(carried.order, None) is None:
            raise PlanStale("an order has its answer already")
        tables.moved += not carried.reasons


def _extend(tables: Tables, extend: Extend, now: float) -> None:
    booking = tables.bookings[extend.booking]
    if extend.granted:
        rows = tables.here(booking)
        for row in rows:
            row.extended = (row.ends, tables.decisions)
            row.ends = extend.until
        tables.bump(rows)
        booking.bought += extend.until - (booking.ends or extend.until)
        booking.ends = extend.until
        booking.revision += 1
        booking.duration = granted_seconds(booking)
    last = booking.extension_waits_until
    can_wait = not extend.granted and extend.reasons[0].code != "not_live"
    if can_wait and last is not None and now < last:
        booking.extension_is_waiting = True
        return
    extension_drop(booking)


def _refused_as(booking: Booking) -> str:
    if booking.lost_at is not None:
        return "failed"
    if booking.replaced:
        return "expired"
    is_window = booking.state == "requested" or booking.requested.starts is not None
    return "refused" if is_window else "expired"
