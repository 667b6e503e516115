"""Running bookings that may be paused: their room, what a pause costs, and who was promised it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from allocation.solver.fleet.pool import Pool
from allocation.solver.model.inputs import UNITS_PER_GPU, Held, Place, Policy, Snapshot, Tier
from allocation.solver.quota.quota import Use


@dataclass(frozen=True, slots=True)
class RunningBooking:
    """A running booking, whole. `rows` are columns of its class and the bits it has of each.

    `out` is the first second at which its room can be free: told as soon as it may be, and its
    grace later. `lost` are GPU-seconds since its last save. Each of its places has `of_host` of its
    node: cores and memory.
    """

    booking: str
    tenant: str
    tier: Tier
    use: Use
    places: tuple[Place, ...]
    rows: tuple[tuple[int, int], ...]
    ends: int
    since: int
    out: int
    lost: int
    of_host: tuple[int, int] = (0, 0)


class RunningBookings:
    """Who may be paused at all, and from when on somebody else is to have the room.

    A booking stands on a runner's room when it is promised it but the runner is not told yet.
    """

    def __init__(self, runners: Iterable[RunningBooking]) -> None:
        """Nobody has been promised anything."""
        self.notified: dict[str, int] = {}
        self.kept: set[str] = set()
        self._versions: dict[str, int] = {}
        self._promised: dict[str, list[int]] = {}
        self._all: dict[str, RunningBooking] = {}
        self._of: dict[str, dict[str, list[RunningBooking]]] = {}
        self._on: dict[tuple[str, int], list[RunningBooking]] = {}
        for runner in sorted(runners, key=lambda each: each.booking):
            name = runner.use.gpu_class
            self._all[runner.booking] = runner
            self._of.setdefault(name, {}).setdefault(runner.tenant, []).append(runner)
            for column, _ in runner.rows:
                self._on.setdefault((name, column), []).append(runner)
        self._graces = {
            name: tuple(sorted({each.tier.grace for runners in of.values() for each in runners}))
            for name, of in self._of.items()
        }

    def __contains__(self, booking: str) -> bool:
        """True for a booking that may be paused."""
        return booking in self._all

    def __getitem__(self, booking: str) -> RunningBooking:
        """KeyError: not running, or never paused."""
        return self._all[booking]

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes on which somebody could be paused."""
        return tuple(self._of)

    def tenants(self, gpu_class: str) -> Iterable[str]:
        """Who has something on a class that may be paused."""
        return self._of.get(gpu_class, {})

    def of(self, gpu_class: str, tenant: str) -> Iterator[RunningBooking]:
        """Those of a tenant on a class that are neither told to leave nor kept."""
        for runner in self._of.get(gpu_class, {}).get(tenant, ()):
            if runner.booking not in self.notified and runner.booking not in self.kept:
                yield runner

    def there(self, gpu_class: str) -> Iterator[RunningBooking]:
        """All of a class, told or not."""
        return chain.from_iterable(self._of.get(gpu_class, {}).values())

    def version(self, tenant: str) -> int:
        """Another number whenever something about the tenant's bookings has changed."""
        return self._versions.get(tenant, 0)

    def graces(self, gpu_class: str) -> tuple[int, ...]:
        """The notices that runners of the class are owed, shortest first."""
        return self._graces.get(gpu_class, ())

    def on(self, gpu_class: str, columns: Iterable[int]) -> dict[str, RunningBooking]:
        """Those, told or not, that have something of these columns; by booking."""
        return {
            runner.booking: runner
            for column in columns
            for runner in self._on.get((gpu_class, column), ())
        }

    def ends(self, runner: RunningBooking) -> int:
        """When its room is free whatever becomes of those that only stand on it."""
        return self.notified.get(runner.booking, runner.ends)

    def leaves(self, runner: RunningBooking) -> int:
        """When somebody else is to have its room."""
        return min(self._promised.get(runner.booking, ()), default=runner.ends)

    def has_preemptor(self, booking: str) -> bool:
        """True when somebody stands on its room."""
        return bool(self._promised.get(booking))

    def promise(self, booking: str, instant: int) -> None:
        """Somebody is to have its room from then on."""
        self._touch(booking)
        self._promised.setdefault(booking, []).append(instant)

    def forget(self, booking: str, instant: int) -> None:
        """Undo of `promise`; who has been told leaves all the same."""
        self._touch(booking)
        self._promised[booking].remove(instant)

    def keep(self, bookings: Iterable[str]) -> None:
        """Nothing new may stand on their room in this cycle: they have just been given more."""
        for booking in bookings:
            if booking in self._all:
                self.kept.add(booking)
                self._touch(booking)

    def notify(self, booking: str, instant: int) -> None:
        """It is told to leave by then."""
        self.notified[booking] = instant
        self.promise(booking, instant)

    def _touch(self, booking: str) -> None:
        tenant = self._all[booking].tenant
        self._versions[tenant] = self.version(tenant) + 1


def running_bookings_of(
    snapshot: Snapshot, policy: Policy, pools: Mapping[str, Pool], tier_of: Callable[[str], Tier]
) -> list[RunningBooking]:
    """Bookings that run as a whole, on one class, in a tier that may be paused once more."""
    pool_of = {gpu.id: pools[gpu.gpu_class] for gpu in snapshot.gpus}
    gangs: dict[str, list[Held]] = {}
    for held in snapshot.held:
        if tier_of(held.tier).pausable:
            gangs.setdefault(held.booking, []).append(held)
    found = []
    for rows in gangs.values():
        known = {id(pool_of.get(row.place.gpu)) for row in rows}
        tier = tier_of(rows[0].tier)
        is_one = len(known) == 1 and len({row.ends for row in rows}) == 1
        if is_one and all(_may_leave(row, tier, snapshot.now) for row in rows):
            pool = pool_of.get(rows[0].place.gpu)
            found += [_runner(rows, tier, pool, snapshot.now, policy)] if pool else []
    return found


def _may_leave(row: Held, tier: Tier, now: int) -> bool:
    often = tier.pauses is not None and row.pauses >= tier.pauses
    # A share is beside others, who are not asked: nobody is paused for a part of their GPU.
    is_there = row.started and row.since is not None and row.place.share is None
    return is_there and not row.pausing and not often and row.ends > now


def _runner(rows: list[Held], tier: Tier, pool: Pool, now: int, policy: Policy) -> RunningBooking:
    first = rows[0]
    places = tuple(row.place for row in rows)
    bits: dict[int, int] = {}
    for place in places:
        column = pool.column[place.gpu]
        bits[column] = bits.get(column, 0) | pool.mask_of(place)
    units = sum(pool.geometry(place.gpu).units_taken(place) for place in places)
    since = max(row.since or 0 for row in rows)
    rest = max(tier.protected, policy.cool_down if first.pauses else 0)
    safe = max(since, *(row.saved or 0 for row in rows))
    return RunningBooking(
        booking=first.booking,
        tenant=first.tenant,
        tier=tier,
        use=Use((first.tenant, first.project), first.tier, pool.gpu_class, units),
        places=places,
        rows=tuple(bits.items()),
        ends=min(row.ends for row in rows),
        since=since,
        out=max(now, since + rest) + tier.grace,
        lost=units * max(0, now - safe) // UNITS_PER_GPU,
        of_host=(first.cores, first.memory),
    )
