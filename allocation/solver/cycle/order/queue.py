"""The queue: one total order over all who wait, whether they have a planned start or not.

It is computed once, before anything of it is placed. Each booking counts as use of its owners as
soon as it is passed, so that a flood of one owner does not stand in one block.
"""

import heapq
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from allocation.solver.cycle.order.strengths import GuaranteedUse, Unlent
from allocation.solver.model.demand import demand_on
from allocation.solver.model.inputs import Ask, Limit, Request, Shape, Snapshot
from allocation.solver.model.policy import Policy
from allocation.solver.quota.fair_share import DominantShares, Owner, owners_of, split_to_projects
from allocation.solver.state.cycle_state import CycleState
from allocation.solver.state.held_space import HeldUses

_MOST_REORDERED = 2_000
"""Longest queue that is ordered anew for one more request."""
_ALL = 2**62
INSIDE, AGED, BORROWED, SPOT = range(4)
"""Bands of the queue: inside the guarantee or never paused, waiting too long, borrowed, spot."""

Key = tuple[int, int, int, int, int, int, int, int, str]
"""Order of the queue: the band, the keys of the policy's `order`, submitted earlier, id.

The keys are: higher priority of the tier; of borrowers, under the weighted share (`part`) before
over it; lower recent dominant share of the `tenant`, the `project` and the `person`; more whole
steps of waiting (`age`). Of the aged only time of submission and id count.
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """A request with its place in the queue. `inside`: it is inside its tenant's guarantee if it
    starts as requested."""

    request: Request
    key: Key
    inside: bool = False

    @property
    def numbers(self) -> tuple[int, ...]:
        """The key without the id."""
        return self.key[:-1]


@dataclass(slots=True)
class _Waiting:
    """A request and what the order needs of it. `gpu_class` is the first that can serve it; None:
    no class can. With `counted` its use counts already. A mixed one has `more` classes, with the
    units of each."""

    request: Request
    gpu_class: str | None
    units: int
    seconds: int
    owners: tuple[Owner, ...]
    age: tuple[int, int, str]
    counted: bool
    more: tuple[tuple[str, int], ...] = ()

    @property
    def uses(self) -> tuple[tuple[str, int], ...]:
        """Units of each class that it needs."""
        return () if self.gpu_class is None else ((self.gpu_class, self.units), *self.more)


Queue = deque[_Waiting]
Queues = dict[tuple[int, str, str, str], Queue]


class BookingQueue:
    """The order of all who wait. Held work and firm starts count as use from the beginning."""

    def __init__(self, state: CycleState, snapshot: Snapshot, guarantees: GuaranteedUse) -> None:
        """`guarantees` have held work alone."""
        self._state, self._policy, self._guarantees = state, state.policy, guarantees
        self._shares = DominantShares(snapshot, state.capacity, state.policy)
        self._in_use: dict[tuple[str, str], int] = {}
        self._uses: dict[str, int] = {}
        self._limits: dict[str, list[Limit]] = {}
        for row in snapshot.limits:
            self._limits.setdefault(row.gpu_class, []).append(row)
        self._count_held(state.held_uses)
        self._served: dict[tuple[tuple[str, ...], Shape, int], tuple[str | None, int]] = {}
        # Parts by class and owner, of borrowed work without what is asked for as spot.
        self._fair: dict[int, dict[str, dict[str, int]]] = {BORROWED: {}, SPOT: {}}
        self._first_shares, self._first_in_use = self._shares, self._in_use
        self._first_uses, self._rows = self._uses, list[_Waiting]()
        # By band, class and owner: the most use under its part, and the least over it.
        self._edges: dict[tuple[int, str, str], tuple[int, int]] = {}
        self._left: dict[tuple[str, str, str, int], int] = {}
        self._passed: dict[tuple[str, str], list[tuple[int, int, int, str]]] = {}
        self._unlent = Unlent(state, snapshot, guarantees)
        self._wanted: dict[int, dict[str, dict[str, int]]] = {BORROWED: {}, SPOT: {}}
        self._taken_now: dict[tuple[str, str], int] = {}

    def turns(self, requests: Iterable[Request], granted: Container[str] = ()) -> list[Turn]:
        """All requests in order. Bookings in `granted` have their use already."""
        rows = [self._waiting(each, counted=each.booking in granted) for each in requests]
        for row in rows:
            for name, units in row.uses if row.counted else ():
                self._count(row.owners, name, units, row.seconds)
        self._rows = rows
        return self._ordered(rows)

    def _ordered(self, rows: list[_Waiting]) -> list[Turn]:
        self._wanted = dict.fromkeys((BORROWED, SPOT), self._demanded(rows))
        self._fair = dict.fromkeys((BORROWED, SPOT), self._fair_shares(self._wanted[SPOT]))
        self._first_shares, self._first_in_use = self._shares.copy(), dict(self._in_use)
        self._first_uses = dict(self._uses)
        tiers = {row.request.quota_tier for row in rows}
        counts = {tier for tier in tiers if self._guarantees.counts(tier)}
        never_paused = {tier for tier in tiers if not self._state.quota.tier(tier).pausable}
        lasting = [row for row in rows if row.request.quota_tier in counts]
        if len(lasting) < len(rows):
            self._wanted[BORROWED] = self._demanded(lasting)
            self._fair[BORROWED] = self._fair_shares(self._wanted[BORROWED])
        inside, others = list[Turn](), list[_Waiting]()
        for row, key in self._merged(lasting, INSIDE):
            fits = self._is_inside(row)
            if fits or row.request.quota_tier in never_paused:
                self._pass(row, inside=fits)
                inside.append(Turn(row.request, key, fits))
            else:
                others.append(row)
        return [*inside, *self._outside(rows, others)]

    def turn(self, request: Request) -> Turn:
        """The place of one more request, computed after `turns`. Only what its owners hold counts
        as their use, not what they wait for."""
        later = self._shares, self._in_use
        self._shares, self._in_use = self._first_shares, self._first_in_use
        row, counts = self._waiting(request), self._guarantees.counts(request.quota_tier)
        fits = counts and self._is_inside(row)
        if fits or (counts and not self._state.quota.tier(request.quota_tier).pausable):
            key = self._key(row, INSIDE)
        elif counts and self._is_aged(row):
            key = _aged(row)
        else:
            key = self._key(row, BORROWED if counts else SPOT)
        self._shares, self._in_use = later
        return Turn(request, key, fits)

    def turns_with(self, request: Request) -> list[Turn] | None:
        """The turns with one more request where it changes the order of the others, computed after
        them; None: where it does not. A request lowers the parts of other owners."""
        if len(self._rows) > _MOST_REORDERED:
            return None
        row = self._waiting(request)
        fair = self._fair_shares_with(row)
        is_same = all(
            under <= fair[band][name][owner] < over
            for (band, name, owner), (under, over) in self._edges.items()
        )
        if is_same:
            return None
        twin = copy(self)
        twin._shares, twin._in_use = self._first_shares.copy(), dict(self._first_in_use)
        twin._uses, twin._passed, twin._taken_now, twin._edges = dict(self._first_uses), {}, {}, {}
        return twin._ordered([*self._rows, row])

    def place_of(self, request: Request, turns: Sequence[Turn]) -> int:
        """The index at which one more request stands among the turns, computed after them."""
        later = self._shares, self._in_use
        self._shares, self._in_use = self._first_shares.copy(), dict(self._first_in_use)
        row, fair = self._waiting(request), self._fair
        self._fair = self._fair_shares_with(row)
        counts = self._guarantees.counts(request.quota_tier)
        left = self._left_ahead(row) if counts else {}
        is_never_paused = not self._state.quota.tier(request.quota_tier).pausable
        band = INSIDE if counts else SPOT
        found, key = len(turns), self._key(row, band)
        for at, turn in enumerate(turns):
            if band == INSIDE and (turn.key[0] > band or key < turn.key):
                if is_never_paused or (left and all(u <= left[name] for name, u in row.uses)):
                    found = at
                    break
                band, key = BORROWED, self._key(row, BORROWED)
            if key < turn.key:
                found = at
                break
            other = turn.request
            if other.tenant == request.tenant:
                passed = self._waiting(other)
                for name, units in passed.uses:
                    self._count(passed.owners, name, units, passed.seconds)
                    if turn.inside and name in left and self._covers(passed, request):
                        left[name] -= units
                key = self._key(row, band)
        self._shares, self._in_use, self._fair = *later, fair
        return found

    def _covers(self, passed: _Waiting, request: Request) -> bool:
        """True when, each at its requested start, the first is still there as the other starts."""
        now = self._state.now
        since = max(passed.request.earliest, now)
        return since <= max(request.earliest, now) < since + max(1, passed.seconds)

    def _left_ahead(self, row: _Waiting) -> dict[str, int]:
        """Units of the guarantee that are left at its requested start next to what is held, by
        class."""
        request = row.request
        starts = max(request.earliest, self._state.now)
        window = (starts, starts + 1)
        return {
            name: self._guarantees.left(request.tenant, name, request.quota_tier, window)
            - self._kept_from(request, name, starts)
            for name, _ in row.uses
        }

    def _outside(self, rows: Iterable[_Waiting], others: Iterable[_Waiting]) -> Iterator[Turn]:
        """All who are not in the first band."""
        borrowers = list[_Waiting]()
        aged = list[_Waiting]()
        for row in others:
            (aged if self._is_aged(row) else borrowers).append(row)
        for row in sorted(aged, key=lambda each: each.age[1:]):
            self._pass(row)
            yield Turn(row.request, _aged(row))
        spot = [row for row in rows if not self._guarantees.counts(row.request.quota_tier)]
        for band, waiting in ((BORROWED, borrowers), (SPOT, spot)):
            for row, key in self._merged(waiting, band):
                self._pass(row)
                yield Turn(row.request, key)

    def _merged(self, rows: Iterable[_Waiting], band: int) -> Iterator[tuple[_Waiting, Key]]:
        """Merge the queues by the keys of their heads. Keys only get worse, so a head whose key has
        changed goes back into the heap. The caller passes each row, or not, before the next."""
        queues: Queues = {}
        for row in sorted(rows, key=lambda each: each.age):
            request = row.request
            whose = (-request.priority, request.tenant, request.project, request.owner)
            queues.setdefault(whose, deque()).append(row)
        uses = self._uses
        heads = [
            (self._key(queue[0], band), whose, uses.get(whose[1], 0))
            for whose, queue in queues.items()
        ]
        heapq.heapify(heads)
        while heads:
            key, whose, known = heapq.heappop(heads)
            queue = queues[whose]
            if known != uses.get(whose[1], 0):
                now = self._key(queue[0], band)
                if now > key and heads and now > heads[0][0]:
                    heapq.heappush(heads, (now, whose, uses.get(whose[1], 0)))
                    continue
                key = now
            if band >= BORROWED:
                self._note_edges(queue[0], band)
            yield queue.popleft(), key
            if queue:
                head = (self._key(queue[0], band), whose, uses.get(whose[1], 0))
                heapq.heappush(heads, head)

    def _key(self, row: _Waiting, band: int) -> Key:
        step, dominant, owners = self._policy.share_step, self._shares.dominant, row.owners
        waited, submitted, booking = row.age
        keys = {
            "tier": -row.request.priority,
            "part": int(band >= BORROWED and self._is_over_share(row, band)),
            "tenant": dominant(owners[0]) // step,
            "project": dominant(owners[1]) // step,
            "person": dominant(owners[2]) // step if len(owners) > 2 else 0,
            "age": waited,
        }
        first, second, third, fourth, fifth, sixth = (keys[name] for name in self._policy.order)
        return (band, first, second, third, fourth, fifth, sixth, submitted, booking)

    def _waiting(self, request: Request, *, counted: bool = False) -> _Waiting:
        name, units = self._served_by(request.ask)
        more = [self._served_by(each) for each in request.ask.groups]
        others = tuple((other, needed) for other, needed in more if other is not None)
        name = None if len(others) < len(more) else name
        age = age_order(request, self._policy)
        owners = owners_of(request.tenant, request.project, request.owner)
        seconds = request.duration if name is None else request.length_on(name)
        return _Waiting(request, name, units, seconds, owners, age, counted, others)

    def _served_by(self, ask: Ask) -> tuple[str | None, int]:
        what = (ask.classes, ask.shape, ask.count)
        if what not in self._served:
            self._served[what] = self._serving(*what)
        return self._served[what]

    def _serving(
        self, classes: tuple[str, ...], shape: Shape, count: int
    ) -> tuple[str | None, int]:
        """The first class that can ever serve a demand, and its units."""
        for name in classes:
            pool = self._state.pools.get(name)
            if pool is not None and pool.serves(shape) and pool.most(shape, "any") >= count:
                return name, pool.units(shape) * count
        return None, 0

    def _is_inside(self, row: _Waiting) -> bool:
        """True when it fits its tenant's guarantee at its requested start, next to what is held and
        what the tenant has ahead of it inside."""
        return bool(row.uses) and all(self._is_inside_of(row, *each) for each in row.uses)

    def _is_inside_of(self, row: _Waiting, name: str, units: int) -> bool:
        """The same for one of its classes."""
        request = row.request
        if not self._guarantees.guaranteed(request.tenant, name):
            return False
        now = self._state.now
        starts = max(request.earliest, now)
        key = (request.tenant, name, request.quota_tier, starts)
        if key not in self._left:
            window = (starts, starts + 1)
            self._left[key] = self._guarantees.left(
                request.tenant, name, request.quota_tier, window
            )
        if units > self._left[key]:
            return False
        whose = (request.tenant, name)
        taken = self._taken_now.get(whose, 0)
        if starts > now:
            ahead = self._passed.get(whose, ())
            taken = sum(needed for since, until, needed, _ in ahead if since <= starts < until)
        return units <= self._left[key] - taken - self._kept_from(request, name, starts)

    def _kept_from(self, request: Request, name: str, starts: int) -> int:
        """What other projects of its tenant do not lend it, next to what these have ahead."""
        whose, passed = (request.tenant, name), dict[str, int]()
        if not self._unlent.is_kept(*whose):
            return 0
        for since, until, needed, project in self._passed.get(whose, ()):
            if since <= starts < until:
                passed[project] = passed.get(project, 0) + needed
        level = self._guarantees.level(request.quota_tier)
        return self._unlent.kept_from(whose, request.project, level, starts, passed)

    def _is_aged(self, row: _Waiting) -> bool:
        """True when it has waited too long, and not for a limit of its own."""
        request, now = row.request, self._state.now
        since = max(request.submitted, request.earliest)
        if row.gpu_class is None or now - since < self._policy.patience:
            return False
        block = self._state.over(demand_on(request, row.gpu_class), now)
        return block is None or block.kind == "lent"

    def _is_over_share(self, row: _Waiting, band: int) -> bool:
        request, fair = row.request, self._fair[band]
        return any(
            owner in fair.get(name, {})
            and self._in_use.get((owner, name), 0) + units > fair[name][owner]
            for name, units in row.uses
            for owner in (request.tenant, request.project)
        )

    def _note_edges(self, row: _Waiting, band: int) -> None:
        """Note how far the parts of its owners can move before it is on the other side."""
        request, fair = row.request, self._fair[band]
        for name, units in row.uses:
            for owner in (request.tenant, request.project):
                if owner in fair.get(name, {}):
                    use = self._in_use.get((owner, name), 0) + units
                    under, over = self._edges.get((band, name, owner), (0, _ALL))
                    if use > fair[name][owner]:
                        over = min(over, use)
                    else:
                        under = max(under, use)
                    self._edges[band, name, owner] = (under, over)

    def _demanded(self, rows: Iterable[_Waiting]) -> dict[str, dict[str, int]]:
        """Units in use and asked for, by class and owner."""
        found: dict[str, dict[str, int]] = {name: {} for name in self._limits}
        for (owner, gpu_class), units in self._in_use.items():
            if gpu_class in found:
                found[gpu_class][owner] = units
        for row in rows:
            _add_demand(found, row)
        return found

    def _fair_shares(self, demanded: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        return {
            name: split_to_projects(self._limits[name], each, self._state.capacity.get(name, 0))
            for name, each in demanded.items()
        }

    def _fair_shares_with(self, row: _Waiting) -> dict[int, dict[str, dict[str, int]]]:
        """Parts of owners with one more request, by band. Spot lowers only parts of spot."""
        names = [name for name, _ in row.uses if name in self._limits]
        fair = dict(self._fair)
        counts = self._guarantees.counts(row.request.quota_tier)
        for band in (BORROWED, SPOT) if counts else (SPOT,):
            demanded = {name: dict(self._wanted[band].get(name, {})) for name in names}
            _add_demand(demanded, row)
            fair[band] = self._fair[band] | self._fair_shares(demanded)
        return fair

    def _pass(self, row: _Waiting, *, inside: bool = False) -> None:
        """Count a request that the order has passed as use."""
        request = row.request
        starts = max(request.earliest, self._state.now)
        for name, units in row.uses:
            if not row.counted:
                self._count(row.owners, name, units, row.seconds)
            if inside:
                whose = (request.tenant, name)
                ahead = self._passed.setdefault(whose, [])
                ahead.append((starts, starts + max(1, row.seconds), units, request.project))
                if starts == self._state.now:
                    self._taken_now[whose] = self._taken_now.get(whose, 0) + units

    def _count_held(self, held: HeldUses) -> None:
        """Count what is held, kind by kind."""
        seconds = held.ends - np.maximum(held.starts, self._state.now)
        for kind, rows in held.by_kind:
            tenant, project = kind.quota_owners[:2]
            units, name = held.units[rows], kind.gpu_class
            self._shares.add_all(owners_of(tenant, project, kind.owner), name, units, seconds[rows])
            self._uses[tenant] = self._uses.get(tenant, 0) + len(units)
            for owner in (tenant, project):
                self._in_use[owner, name] = self._in_use.get((owner, name), 0) + int(units.sum())

    def _count(self, owners: tuple[Owner, ...], gpu_class: str, units: int, seconds: int) -> None:
        self._shares.add(owners, gpu_class, units, seconds)
        self._uses[str(owners[0])] = self._uses.get(str(owners[0]), 0) + 1
        for owner in owners[:2]:
            key = (str(owner), gpu_class)
            self._in_use[key] = self._in_use.get(key, 0) + units


def _add_demand(found: dict[str, dict[str, int]], row: _Waiting) -> None:
    for name, units in row.uses if not row.counted else ():
        wanted = found.get(name, {})
        for owner in (row.request.tenant, row.request.project):
            wanted[owner] = wanted.get(owner, 0) + units


def age_order(request: Request, policy: Policy) -> tuple[int, int, str]:
    """Order within one project, person and priority: the last three criteria of `Key`.

    Waiting counts from submission or from the requested start, whichever is later. All have the
    same present, so the earlier step is the older.
    """
    since = max(request.submitted, request.earliest)
    return (since // policy.age_step, request.submitted, request.booking)


def _aged(row: _Waiting) -> Key:
    _, submitted, booking = row.age
    return (AGED, 0, 0, 0, 0, 0, 0, submitted, booking)
