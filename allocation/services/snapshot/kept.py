"""The snapshot that a leading process keeps from turn to turn: it reads what has changed since.

A kept snapshot is thrown away whenever it could be wrong, and never repaired: when another process
has led, after a crash or a stale plan. Once a minute, or less often for a large one, a fresh one is
read in the same transaction and compared.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q

from allocation.models import Allocation, Booking
from allocation.points.bookings import ENTRIES
from allocation.rules.states import WAITING
from allocation.services.record.counters import counter_add
from allocation.services.record.open_pauses import open_pauses
from allocation.services.snapshot.changes import (
    Changed,
    changes_drop,
    changes_read,
    horizon_read,
    sections_present,
)
from allocation.services.snapshot.compaction_orders import orders_read
from allocation.services.snapshot.hardware import gpus_read, hosts_read
from allocation.services.snapshot.intake import deferred_bookings
from allocation.services.snapshot.quota_rows import KeptUse
from allocation.services.snapshot.rows.of_bookings import place_rows
from allocation.services.snapshot.running import idle_read
from allocation.services.snapshot.snapshot import (
    CLEARING_SECONDS,
    asked_changes_read,
    entries_read,
    extensions_read,
    held_read,
    limits_read,
    notices_read,
    pending_read,
    requests_read,
    running_read,
    seconds,
    snapshot_read,
    unneeded_read,
)
from solver import Snapshot
from solver.model.rows import Delta, Key, Rows, advance, document_of, rows_of, table_of

logger = logging.getLogger(__name__)

COMPARE_EVERY = timedelta(minutes=1)
# A large snapshot is compared less often, so that this takes the same part of the time.
COMPARED_A_MINUTE = 2_500
DRIFT = "state_drift:"
# Sections whose rows are named by a booking.
_OF_BOOKINGS = ("requests", "running", "extensions", "changes")
_WITH_ANSWERS = ("requests", "extensions", "changes", "pending", "entries")


@dataclass(slots=True)
class _Places:
    """The live allocations of a booking, and when time alone will change them.

    `over`: the first end of one that has started. `regrant`: the old end of an extended one, from
    which its grant is another.
    """

    ids: list[str] = field(default_factory=list)
    over: datetime | None = None
    regrant: datetime | None = None

    def add(self, row: UUID, ends: datetime, regrant: datetime | None, *, started: bool) -> None:
        self.ids.append(str(row))
        if started:
            self.over = min(self.over or ends, ends)
        if regrant is not None:
            self.regrant = min(self.regrant or regrant, regrant)


@dataclass(frozen=True, slots=True)
class _State:
    """The rows of a snapshot, with what is needed to bring them up to date.

    `horizon`: transactions from here on may not have been read. `timed`: the bookings whose places
    change with time alone. `is_changed`: as in `Taken`.
    """

    rows: Rows
    places: Mapping[UUID, _Places]
    horizon: int
    compared: datetime
    use: KeptUse
    timed: frozenset[UUID]
    is_changed: bool = True


@dataclass(frozen=True, slots=True)
class Taken:
    """A snapshot and its rows.

    `has_drifted`: the kept one was wrong, and this one is fresh. `is_changed`: since the last one
    more may have changed than the time, and the use that grows with it.
    """

    snapshot: Snapshot
    rows: Rows
    has_drifted: bool
    is_changed: bool


class SnapshotKeeper:
    """Takes the snapshots of one process that leads."""

    def __init__(self) -> None:
        """Begins without a snapshot."""
        self._state: _State | None = None
        self._term = 0

    def forget(self) -> None:
        """Makes the next snapshot a fresh one."""
        self._state = None

    def lead(self, term: int) -> None:
        """Begins a turn. Forgets the snapshot if another process has led since the last one."""
        if term != self._term + 1:
            self._state = None
        self._term = term

    def take(self, now: datetime, most_new: int) -> Taken:
        """Returns the snapshot of this instant, with at most `most_new` new bookings.

        For the system's role. Must not run inside a transaction.
        """
        # An error on the way leaves no snapshot behind.
        state, self._state = self._state, None
        drifted: list[str] = []
        with transaction.atomic(durable=True):
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            later = deferred_bookings(most_new)
            found = None if state is None else _advanced(state, now)
            if found is not None and now - found.compared >= _compare_after(found):
                drifted = _drifted(found, now)
                found = None if drifted else replace(found, compared=now)
            if found is None:
                found = _fresh(now)
        if drifted:
            drift_note(drifted)
        if state is None or found.compared != state.compared:
            changes_drop(found.horizon)
        self._state = found
        rows = _without(found.rows, later)
        return Taken(
            document_of(Snapshot, rows),
            rows,
            has_drifted=bool(drifted),
            is_changed=found.is_changed or bool(later),
        )


snapshot_keeper = SnapshotKeeper()


def drift_note(sections: Collection[str]) -> None:
    """Records that a kept snapshot was not what a fresh one is."""
    logger.error("The kept snapshot differed from a fresh one in %s.", ", ".join(sections))
    for section in sections:
        counter_add(DRIFT + section)


def _fresh(now: datetime) -> _State:
    rows = rows_of(snapshot_read(now))
    places = _places(None, now)
    return _State(rows, places, horizon_read(), now, KeptUse(now), _timed(places))


def _timed(places: Mapping[UUID, _Places]) -> frozenset[UUID]:
    return frozenset(key for key, each in places.items() if each.over or each.regrant)


def _compare_after(state: _State) -> timedelta:
    return COMPARE_EVERY * max(1, len(state.rows.tables["held"]) // COMPARED_A_MINUTE)


def _drifted(state: _State, now: datetime) -> list[str]:
    """The sections in which the state differs from a fresh snapshot."""
    fresh = rows_of(snapshot_read(now))
    return [name for name, table in fresh.tables.items() if dict(state.rows.tables[name]) != table]


def _advanced(state: _State, now: datetime) -> _State | None:
    """The state of this instant; None if too much has changed."""
    horizon, changed = changes_read(state.horizon)
    if changed.is_unknown or horizon < state.horizon or seconds(now) < state.rows.head:
        return None
    present = sections_present(now)
    bookings = changed.bookings | _clocked(state, now, present)
    new = _of_bookings(bookings, now, present)
    use = state.use
    # The class of a GPU is part of its use.
    if use.is_of(now) and not changed.gpus:
        used, unused = use.advance(bookings, now)
    else:
        use = KeptUse(now)
        used, unused = use.rows, _left(state.rows, "used", use.rows)
    rules = _of_rules(now, present, use)
    put: dict[str, Mapping[Key, Any]] = {**new, **rules, "used": used}
    drop = {
        **_gone(state, bookings, new),
        **{name: _left(state.rows, name, table) for name, table in rules.items()},
        "used": unused,
    }
    if changed.gpus or changed.nodes:
        put |= _of_hardware(changed, now)
        drop["hosts"] = _left(state.rows, "hosts", put["hosts"])
    rows = advance(state.rows, Delta(seconds(now), put, drop))
    places = dict(state.places)
    for booking in bookings:
        places.pop(booking, None)
    read = _places(bookings, now)
    places.update(read)
    timed = (state.timed - bookings) | _timed(read)
    is_changed = _is_other(state.rows, put, drop) or _any_waits(rows, changed.bookings)
    return _State(rows, places, horizon, state.compared, use, timed, is_changed)


def _is_other(rows: Rows, put: Mapping[str, Mapping[Key, Any]], drop: Mapping[str, tuple[Key, ...]]) -> bool:
    """Whether these changes make any section but the use another one."""
    return any(
        drop.get(name) or any(rows.tables[name].get(key) != row for key, row in table.items())
        for name, table in put.items()
        if name != "used"
    )


def _any_waits(rows: Rows, bookings: Collection[UUID]) -> bool:
    """Whether the answer to one of these bookings is stored with it, and may have been changed.

    What else a booking stores and no row has, such as its idle time, is nothing to the solver.
    """
    return any(str(booking) in rows.tables[name] for booking in bookings for name in _WITH_ANSWERS)


def _of_bookings(
    bookings: Collection[UUID], now: datetime, present: Collection[str]
) -> dict[str, dict[Key, Any]]:
    """The rows of these bookings, by section."""
    if not bookings:
        return {name: {} for name in ("held", *_OF_BOOKINGS)}
    is_asked = "asked" in present
    found = {
        "held": held_read(now, bookings),
        "requests": requests_read(now, only=bookings),
        "running": running_read(now, bookings),
        "extensions": extensions_read(now, bookings) if is_asked else (),
        "changes": asked_changes_read(now, bookings) if is_asked else (),
    }
    return {name: _table(name, rows, now) for name, rows in found.items()}


def _of_rules(now: datetime, present: Collection[str], use: KeptUse) -> dict[str, dict[Key, Any]]:
    """The sections that are small, or change with time: read in each turn if they have rows.

    After a change of a tier the snapshot is a fresh one.
    """
    found = {
        **limits_read(now, present, use.rows.values()),
        "unneeded": unneeded_read(now) if "pauses" in present else (),
        "notices": notices_read(now) if "pauses" in present else (),
        "orders": orders_read() if "orders" in present else (),
        "pending": pending_read(now) if "pending" in present else (),
        "entries": entries_read(now) if any(each in present for each in ENTRIES) else (),
        "idle": idle_read(now) if "idle" in present else (),
    }
    return {name: _table(name, rows, now) for name, rows in found.items() if name != "used"}


def _of_hardware(changed: Changed, now: datetime) -> dict[str, dict[Key, Any]]:
    some = Q(id__in=changed.gpus) | Q(node__in=changed.nodes)
    return {
        "gpus": _table("gpus", gpus_read(some), now),
        "hosts": _table("hosts", hosts_read(), now),
    }


def _table(section: str, rows: Iterable[Any], now: datetime) -> dict[Key, Any]:
    return table_of(Snapshot, section, rows, seconds(now))


def _gone(
    state: _State, bookings: Collection[UUID], new: Mapping[str, Mapping[Key, Any]]
) -> dict[str, tuple[Key, ...]]:
    """The rows that these bookings had and have no more."""
    tables = state.rows.tables
    known = (state.places[booking] for booking in bookings if booking in state.places)
    held = (row for each in known for row in each.ids)
    found: dict[str, tuple[Key, ...]] = {
        # A paused booking's place is left out in its last minute.
        "held": tuple(row for row in held if row in tables["held"] and row not in new["held"])
    }
    names = [str(booking) for booking in bookings]
    for section in _OF_BOOKINGS:
        found[section] = tuple(name for name in names if name in tables[section] and name not in new[section])
    return found


def _left(rows: Rows, section: str, table: Mapping[Key, Any]) -> tuple[Key, ...]:
    return tuple(key for key in rows.tables[section] if key not in table)


def _clocked(state: _State, now: datetime, present: Collection[str]) -> set[UUID]:
    """Bookings whose rows change with time alone.

    Those that are over, or soon; with an open pause; or waiting for the rest of their time.
    """
    soon = now + timedelta(seconds=CLEARING_SECONDS + 1)
    found = {
        booking
        for booking in state.timed
        for each in (state.places[booking],)
        if (each.over is not None and each.over <= soon) or (each.regrant is not None and each.regrant <= now)
    }
    # The duration is kept as the end.
    running = state.rows.tables["running"].values()
    found |= {UUID(row.booking) for row in running if row.duration <= seconds(soon)}
    if "pauses" in present:
        found |= set(open_pauses().values_list("booking_id", flat=True))
    if "replaced" in present or "used" in present:
        again = Booking.objects.filter(state__in=WAITING).filter(
            Q(replacement_count__gt=0) | Q(used_seconds__gt=0)
        )
        found |= set(again.values_list("id", flat=True))
    return found


def _places(bookings: Collection[UUID] | None, now: datetime) -> dict[UUID, _Places]:
    """The live allocations of these bookings, or of all."""
    if bookings is not None and not bookings:
        return {}
    found: dict[UUID, _Places] = defaultdict(_Places)
    for booking, row, state, ends, extended in place_rows(now, bookings):
        regrant = extended if extended is not None and extended > now else None
        found[booking].add(row, ends, regrant, started=state != Allocation.State.PLANNED)
    return dict(found)


def _without(rows: Rows, later: Collection[UUID]) -> Rows:
    if not later:
        return rows
    names = set(map(str, later))
    requests = {key: row for key, row in rows.tables["requests"].items() if key not in names}
    return Rows(rows.head, {**rows.tables, "requests": requests})
