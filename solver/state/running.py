"""Running bookings that may be paused: their room, the cost of a pause, and their preemptors."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.mig_geometry import Masks
from solver.fleet.pool import Bools, Index, Pool
from solver.model.demand import Fit
from solver.model.inputs import UNITS_PER_GPU, Held, Place, Snapshot, Tier
from solver.model.policy import Policy
from solver.quota.quota import Quota
from solver.quota.use import Use
from solver.state.held_work import HeldWork
from solver.timeline.grid import Grid


@dataclass(frozen=True, slots=True)
class RunningBooking:
    """A running booking on a class. `rows` are its columns and the bits that it has of each.

    A mixed booking has one of these on each of its classes, all `is_mixed`, and leaves all of them
    at one second. `ends` is when its room opens, `until` its own end. It is `protected` until that
    second and gets no notice before. `lost` is the GPU-seconds since its last save, on all classes.
    `granted` orders equals, the latest last. Each of its places has `host_resources` of its node:
    cores and memory.
    """

    booking: str
    tenant: str
    tier: Tier
    use: Use
    places: tuple[Place, ...]
    rows: tuple[tuple[int, int], ...]
    ends: int
    until: int
    since: int
    protected: int
    lost: int
    granted: tuple[int, int]
    host_resources: tuple[int, int] = (0, 0)
    is_mixed: bool = False


class Rows(NamedTuple):
    """The places of some bookings as arrays: their number, column and bits."""

    who: Index
    column: Index
    bits: Masks


class RunningBookings:
    """All bookings that may be paused, and when their room goes to a preemptor.

    A preemptor is a booking planned on the room of a running one. Notice may come later.
    """

    def __init__(self, runners: Iterable[RunningBooking]) -> None:
        self.notified: dict[str, int] = {}
        self.kept: set[str] = set()
        self._changes: dict[str, int] = {}
        self._preemptors: dict[tuple[str, str], list[tuple[int, Fit]]] = {}
        self._numbers = 0
        self._versions: dict[tuple[str, str], int] = {}
        self._claimed: dict[str, Counter[tuple[str, str]]] = {}
        self._leaving_at: dict[str, list[int]] = {}
        self._parts: dict[str, list[RunningBooking]] = {}
        self._of: dict[str, dict[str, list[RunningBooking]]] = {}
        self._on: dict[tuple[str, int], list[RunningBooking]] = {}
        for runner in sorted(runners, key=lambda each: (each.booking, each.use.gpu_class)):
            name = runner.use.gpu_class
            self._parts.setdefault(runner.booking, []).append(runner)
            self._of.setdefault(name, {}).setdefault(runner.tenant, []).append(runner)
            for column, _ in runner.rows:
                self._on.setdefault((name, column), []).append(runner)
        self._arrays = {
            name: _ClassArrays([each for runners in of.values() for each in runners])
            for name, of in self._of.items()
        }
        self._graces = {
            name: tuple(sorted({each.tier.grace for runners in of.values() for each in runners}))
            for name, of in self._of.items()
        }

    def __contains__(self, booking: str) -> bool:
        """True for a booking that may be paused."""
        return booking in self._parts

    def __getitem__(self, booking: str) -> RunningBooking:
        """The booking, on the first class of a mixed one. KeyError: it does not run or can't be
        paused."""
        return self._parts[booking][0]

    def parts(self, booking: str) -> Sequence[RunningBooking]:
        """The booking on each of its classes."""
        return self._parts[booking]

    def on_class(self, booking: str, gpu_class: str) -> RunningBooking:
        """The booking on one of its classes. StopIteration: it has nothing there."""
        return next(each for each in self._parts[booking] if each.use.gpu_class == gpu_class)

    def every(self) -> Iterable[RunningBooking]:
        """All of them, by id and class."""
        return chain.from_iterable(self._parts.values())

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes with a pausable booking."""
        return tuple(self._of)

    def tenants(self, gpu_class: str) -> Iterable[str]:
        """Tenants with a pausable booking on a class."""
        return self._of.get(gpu_class, {})

    def of(self, gpu_class: str, tenant: str) -> Iterator[RunningBooking]:
        """Pausable bookings of a tenant on a class, without those with notice and the protected
        ones."""
        for runner in self._of.get(gpu_class, {}).get(tenant, ()):
            if runner.booking not in self.notified and runner.booking not in self.kept:
                yield runner

    def of_class(self, gpu_class: str) -> Iterator[RunningBooking]:
        """All of a class, with or without notice."""
        return chain.from_iterable(self._of.get(gpu_class, {}).values())

    def changes(self, gpu_class: str) -> int:
        """A number that changes with every change of what somebody has in place on a class."""
        return self._changes.get(gpu_class, 0)

    def version(self, tenant: str, gpu_class: str) -> int:
        """A number that changes with every change of what a tenant has in place on a class."""
        return self._versions.get((tenant, gpu_class), 0)

    def graces(self, gpu_class: str) -> tuple[int, ...]:
        """The grace periods of the class's bookings, shortest first."""
        return self._graces.get(gpu_class, ())

    def on(self, gpu_class: str, columns: Iterable[int]) -> dict[str, RunningBooking]:
        """Bookings that use some of these columns, with or without notice, by id."""
        return {
            runner.booking: runner for column in columns for runner in self._on.get((gpu_class, column), ())
        }

    def staying(self, gpu_class: str, leaving: Iterable[RunningBooking], instant: int) -> Rows:
        """Places of the class that are still in use then, once some have left."""
        return self._arrays[gpu_class].staying(leaving, instant)

    def rows(self, gpu_class: str, bookings: Iterable[RunningBooking]) -> Rows:
        """Places of these bookings of one class, numbered in their order."""
        return self._arrays[gpu_class].rows_of(bookings)

    def ends(self, runner: RunningBooking) -> int:
        """When its room is free for certain: at its notice's end, else at its own."""
        return self.notified.get(runner.booking, runner.ends)

    def leaves(self, runner: RunningBooking) -> int:
        """When its room goes to the first preemptor, else its end."""
        return min(self._leaving_at.get(runner.booking, ()), default=runner.ends)

    def has_preemptor(self, booking: str) -> bool:
        """True when a preemptor is planned on its room."""
        return bool(self._leaving_at.get(booking))

    def add_preemptor(self, booking: str, instant: int) -> None:
        """A preemptor is to have its room from then on."""
        self._touch(booking)
        self._leaving_at.setdefault(booking, []).append(instant)

    def remove_preemptor(self, booking: str, instant: int) -> None:
        """Undo `add_preemptor`; a booking with notice leaves all the same."""
        self._touch(booking)
        self._leaving_at[booking].remove(instant)

    def preemptors(self, tenant: str, gpu_class: str) -> list[tuple[int, Fit]]:
        """A tenant's reserved starts with victims, in the order in which they were reserved."""
        return self._preemptors.get((tenant, gpu_class), [])

    def add_start(self, found: Fit) -> None:
        """Note a reserved start with victims."""
        key = (found.demand.owners[0], found.demand.gpu_class)
        self._preemptors.setdefault(key, []).append((self.number(), found))
        for booking in found.victims:
            self._claimed.setdefault(booking, Counter())[key] += 1
        self.touch(*key)

    def remove_start(self, found: Fit) -> None:
        """Undo `add_start`."""
        key = (found.demand.owners[0], found.demand.gpu_class)
        rows = self._preemptors[key]
        del rows[next(at for at, (_, each) in enumerate(rows) if each == found)]
        for booking in found.victims:
            self._claimed[booking][key] -= 1
        self.touch(*key)

    def number(self) -> int:
        """The next number in the order of this cycle's decisions."""
        self._numbers += 1
        return self._numbers

    def keep(self, bookings: Iterable[str]) -> None:
        """Protect bookings that were just extended: they get no preemptor in this cycle."""
        for booking in bookings:
            if booking in self._parts:
                self.kept.add(booking)
                self._touch(booking)

    def notify(self, booking: str, instant: int) -> None:
        """Give notice to leave by then."""
        self.notified[booking] = instant
        for part in self._parts[booking]:
            self._arrays[part.use.gpu_class].end(booking, instant)
        self.add_preemptor(booking, instant)
        for key, count in self._claimed.get(booking, {}).items():
            if count:
                # Its claims are in place once all of their victims have notice.
                self.touch(*key)

    def touch(self, tenant: str, gpu_class: str) -> None:
        """Change the tenant's version on a class."""
        self._changes[gpu_class] = self.changes(gpu_class) + 1
        self._versions[tenant, gpu_class] = self.version(tenant, gpu_class) + 1

    def _touch(self, booking: str) -> None:
        for part in self._parts[booking]:
            self.touch(part.tenant, part.use.gpu_class)


class _ClassArrays:
    """The places of a class's bookings, and when each is free for certain."""

    def __init__(self, runners: Sequence[RunningBooking]) -> None:
        self._number = {runner.booking: number for number, runner in enumerate(runners)}
        self._ends: Ints = np.array([runner.ends for runner in runners], dtype=np.int64)
        self._rows = rows_of(runners)

    def end(self, booking: str, instant: int) -> None:
        """The booking ends then."""
        self._ends[self._number[booking]] = instant

    def staying(self, leaving: Iterable[RunningBooking], instant: int) -> Rows:
        stays = self._ends > instant
        stays[[self._number[each.booking] for each in leaving]] = False
        return self._picked(stays[self._rows.who], self._rows.who)

    def rows_of(self, bookings: Iterable[RunningBooking]) -> Rows:
        numbers = [self._number[each.booking] for each in bookings]
        place: Index = np.full(len(self._ends), -1, dtype=np.intp)
        place[numbers] = np.arange(len(numbers))
        who = place[self._rows.who]
        return self._picked(who >= 0, who)

    def _picked(self, flags: Bools, who: Index) -> Rows:
        return Rows(who[flags], self._rows.column[flags], self._rows.bits[flags])


def rows_of(runners: Sequence[RunningBooking]) -> Rows:
    """The places of bookings, numbered in their order."""
    rows = [row for runner in runners for row in runner.rows]
    spread = np.array([len(runner.rows) for runner in runners], dtype=np.intp)
    return Rows(
        np.repeat(np.arange(len(runners)), spread),
        np.array([column for column, _ in rows], dtype=np.intp),
        np.array([bits for _, bits in rows], dtype=np.uint16),
    )


def running_bookings_of(
    snapshot: Snapshot,
    policy: Policy,
    pools: Mapping[str, Pool],
    quota: Quota,
    grid: Grid,
    work: HeldWork,
) -> list[RunningBooking]:
    """Bookings that run whole, in a tier that may be paused once more: on one of the `pools`, or on
    each class of a mixed one."""
    pool_of = {gpu.id: pools[gpu.gpu_class] for gpu in snapshot.gpus if gpu.gpu_class in pools}
    found = []
    for every in work.started:
        rows = [row for row in every if quota.tier(row.quota_tier).pausable]
        if not rows:
            continue
        tier = quota.tier(rows[0].quota_tier)
        by_pool: dict[str, list[Held]] = {}
        for row in rows:
            pool = pool_of.get(row.place.gpu)
            by_pool.setdefault(pool.gpu_class if pool else "", []).append(row)
        is_one = len(by_pool) == 1 or all(row.mixed for row in rows)
        is_whole = "" not in by_pool and len({row.ends for row in rows}) == 1
        if is_one and is_whole and all(_may_leave(row, tier, snapshot.now) for row in rows):
            owners = quota.owners(rows[0].quota_owners, rows[0].owner)
            parts = [_runner(mine, tier, pools[name], policy, grid) for name, mine in by_pool.items()]
            lost = sum(part.lost for part in parts)
            found += [replace(part, use=part.use._replace(owners=owners), lost=lost) for part in parts]
    return found


def _may_leave(row: Held, tier: Tier, now: int) -> bool:
    often = tier.pauses is not None and row.pauses >= tier.pauses
    # Shares are next to others' shares: nobody is paused for a part of a GPU.
    is_there = row.started and row.since is not None and row.place.share is None
    return is_there and not row.pausing and not often and row.ends > now


def _runner(rows: list[Held], tier: Tier, pool: Pool, policy: Policy, grid: Grid) -> RunningBooking:
    first, now = rows[0], grid.origin
    places = tuple(row.place for row in rows)
    bits: dict[int, int] = {}
    for place in places:
        column = pool.column[place.gpu]
        bits[column] = bits.get(column, 0) | pool.mask_of(place)
    units = sum(pool.geometry(place.gpu).units_taken(place) for place in places)
    since = max(row.since or 0 for row in rows)
    is_result = first.pauses or any(row.preemptor for row in rows)
    cool_down = policy.of(pool.gpu_class, first.tenant).cool_down
    rest = max(tier.protected, cool_down if is_result else 0)
    safe = max(since, *(row.saved or 0 for row in rows))
    return RunningBooking(
        booking=first.booking,
        tenant=first.tenant,
        tier=tier,
        use=Use(first.quota_owners, first.quota_tier, pool.gpu_class, units),
        places=places,
        rows=tuple(bits.items()),
        ends=grid.end(min(row.ends for row in rows)),
        until=min(row.ends for row in rows),
        since=since,
        protected=since + rest,
        lost=units * max(0, now - safe) // UNITS_PER_GPU,
        granted=max(row.granted or (-1, row.starts) for row in rows),
        host_resources=(first.cores, first.memory),
        is_mixed=first.mixed,
    )
