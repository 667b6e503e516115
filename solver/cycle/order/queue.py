"""The queue: one total order over all who wait, whether they have a planned start or not.

It is computed once, before anything of it is placed. Each booking counts as use of its owners as
soon as it is passed, so that a flood of one owner does not stand in one block.
"""

import heapq
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from solver.cycle.order.guaranteed_use import GuaranteedUse
from solver.cycle.order.guarantees_left import GuaranteesLeft
from solver.fleet.fragmentation import Ints
from solver.model.demand import demand_on
from solver.model.inputs import MILLION, Ask, Request, Shape, Snapshot
from solver.model.limits import Limit, Used
from solver.model.policy import Policy
from solver.quota.headroom import may_wait
from solver.quota.limits import guarantees_at, split_to_projects
from solver.state.cycle_state import CycleState, as_begun
from solver.state.held_space import HeldUses

_ALL = 2**62
INSIDE, AGED, BORROWED, SPOT = range(4)
"""Bands of the queue: inside the guarantee or never borrowing, waiting too long, borrowed, spot."""

Key = tuple[int, int, int, int, int, int, int, int, str]
"""Order of the queue: the band, the keys of the policy's `order`, submitted earlier, id.

The keys are: higher priority of the tier; of borrowers, under the weighted share (`part`) before
over it; lower recent dominant share of the `tenant`, the `project` and the `person`; more whole
steps of waiting (`age`). Of the aged only time of submission and id count.
"""

Owner = str | tuple[str, str]
"""A tenant or a project by id, a person as (tenant, account)."""

_LEFT = tuple(round(65_536 * 2 ** (-i / 32)) for i in range(32))
"""The rest of 65,536 after i thirty-seconds of a half-life."""


def decayed(amount: int, age: int, half_life: int) -> int:
    """The rest of an amount after `age` seconds, rounded down."""
    left, shift = _rest_of(age, half_life)
    return (amount * left) >> shift


def _rest_of(age: int, half_life: int) -> tuple[int, int]:
    """What is left of any amount of that age: a factor, and the bits to shift by."""
    halves, rest = divmod(max(0, age) * len(_LEFT) // half_life, len(_LEFT))
    return _LEFT[rest], 16 + halves


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
class Waiter:
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


Queue = deque[Waiter]
Queues = dict[tuple[int, str, str, str], Queue]


class BookingQueue:
    """The order of all who wait. Held work and firm starts count as use from the beginning."""

    def __init__(self, state: CycleState, snapshot: Snapshot, guarantees: GuaranteedUse) -> None:
        """`guarantees` have held work alone."""
        self._state, self._policy = state, state.policy
        self._keeps = bool(snapshot.peaks and state.policy.headroom)
        self._shares = DominantShares(snapshot, state.capacity, state.policy)
        self._in_use: dict[tuple[str, str], int] = {}
        self._uses: dict[str, int] = {}
        self._limits: dict[str, list[Limit]] = {}
        now = guarantees_at(snapshot, state.now) if snapshot.guarantees else snapshot
        for row in now.limits:
            self._limits.setdefault(row.gpu_class, []).append(row)
        self._count_held(state.held_uses)
        self._served: dict[tuple[tuple[str, ...], Shape, int], tuple[str | None, int]] = {}
        # Parts by class and owner, of borrowed work without what is asked for as spot.
        self._fair: dict[int, dict[str, dict[str, int]]] = {BORROWED: {}, SPOT: {}}
        self._first_shares, self._first_in_use = self._shares, self._in_use
        self._first_uses, self._rows = self._uses, list[Waiter]()
        # By band, class and owner: the most use under its part, and the least over it.
        self._edges: dict[tuple[int, str, str], tuple[int, int]] = {}
        self._guarantees = GuaranteesLeft(state, snapshot, guarantees)
        self._wanted: dict[int, dict[str, dict[str, int]]] = {BORROWED: {}, SPOT: {}}

    def turns(self, requests: Iterable[Request], granted: Container[str] = ()) -> list[Turn]:
        """All requests in order. Bookings in `granted` have their use already."""
        each_begun = (as_begun(self._state, each) if each.paused else each for each in requests)
        rows = [self._waiting(each, counted=each.booking in granted) for each in each_begun]
        for row in rows:
            for name, units in row.uses if row.counted else ():
                self._count(row.owners, name, units, row.seconds)
        self._rows = rows
        return self._ordered(rows)

    def _ordered(self, rows: list[Waiter]) -> list[Turn]:
        self._first_shares, self._first_in_use = self._shares.copy(), dict(self._in_use)
        self._first_uses = dict(self._uses)
        self._wanted = dict.fromkeys((BORROWED, SPOT), self._demanded(rows))
        self._fair = dict.fromkeys((BORROWED, SPOT), self._fair_shares(self._wanted[SPOT]))
        tiers = {row.request.quota_tier for row in rows}
        counts = {tier for tier in tiers if self._state.quota.tier(tier).counts}
        lasting = [row for row in rows if row.request.quota_tier in counts]
        if len(lasting) < len(rows):
            self._wanted[BORROWED] = self._demanded(lasting)
            self._fair[BORROWED] = self._fair_shares(self._wanted[BORROWED])
        inside, others = list[Turn](), list[Waiter]()
        for row, key in self._merged(lasting, INSIDE):
            fits = self._guarantees.covers(row.request, row.uses)
            if fits or self._stays_inside(row):
                self._pass(row, inside=fits)
                inside.append(Turn(row.request, key, fits))
            else:
                others.append(row)
        return [*inside, *self._outside(rows, others)]

    def turn(self, request: Request) -> Turn:
        """The place of one more request, computed after `turns`. Only what its owners hold counts
        as their use, not what they wait for."""
        later = (self._shares, self._in_use)
        request = as_begun(self._state, request) if request.paused else request
        self._shares, self._in_use = self._first_shares, self._first_in_use
        row, counts = self._waiting(request), self._state.quota.tier(request.quota_tier).counts
        fits = counts and self._guarantees.covers(row.request, row.uses)
        if fits or self._stays_inside(row):
            key = self._key(row, INSIDE)
        elif counts and self._is_aged(row):
            key = _aged(row)
        else:
            key, request = self._key(row, BORROWED if counts else SPOT), self._behind(request)
        self._shares, self._in_use = later
        return Turn(request, key, fits)

    def _stays_inside(self, row: Waiter) -> bool:
        """True when it never borrows, so it waits for its own guarantee alone."""
        return self._state.quota.stays_inside(row.request.quota_tier, row.seconds)

    def _outside(self, rows: Iterable[Waiter], others: Iterable[Waiter]) -> Iterator[Turn]:
        """All who are not in the first band."""
        borrowers = list[Waiter]()
        aged = list[Waiter]()
        for row in others:
            (aged if self._is_aged(row) else borrowers).append(row)
        for row in sorted(aged, key=lambda each: each.age[1:]):
            self._pass(row)
            yield Turn(row.request, _aged(row))
        spot = [row for row in rows if not self._state.quota.tier(row.request.quota_tier).counts]
        for band, waiting in ((BORROWED, borrowers), (SPOT, spot)):
            for row, key in self._merged(waiting, band):
                self._pass(row)
                yield Turn(row.request if row.counted else self._behind(row.request), key)

    def _behind(self, request: Request) -> Request:
        """A request that borrows, and leaves the headroom of its classes free if it can wait."""
        return replace(request, behind=True) if self._keeps and may_wait(request, self._policy) else request

    def _merged(self, rows: Iterable[Waiter], band: int) -> Iterator[tuple[Waiter, Key]]:
        """Merge the queues by the keys of their heads. Keys only get worse, so a head whose key has
        changed goes back into the heap. The caller passes each row, or not, before the next."""
        queues: Queues = {}
        for row in sorted(rows, key=lambda each: each.age):
            request = row.request
            whose = (-request.priority, request.tenant, request.project, request.owner)
            queues.setdefault(whose, deque()).append(row)
        uses = self._uses
        heads = [(self._key(queue[0], band), whose, uses.get(whose[1], 0)) for whose, queue in queues.items()]
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

    def _key(self, row: Waiter, band: int) -> Key:
        dominant, owners = self._shares.dominant, row.owners
        step = self._policy.of(row.gpu_class, row.request.tenant).share_step
        # Numbers of steps of different lengths are compared as what they amount to.
        scale = step if self._policy.parts else 1
        waited, submitted, booking = row.age
        keys = {
            "tier": -row.request.priority,
            "part": int(band >= BORROWED and self._is_over_share(row, band)),
            "tenant": dominant(owners[0]) // step * scale,
            "project": dominant(owners[1]) // step * scale,
            "person": dominant(owners[2]) // step * scale if len(owners) > 2 else 0,
            "age": waited,
        }
        first, second, third, fourth, fifth, sixth = (keys[name] for name in self._policy.order)
        return (band, first, second, third, fourth, fifth, sixth, submitted, booking)

    def _waiting(self, request: Request, *, counted: bool = False) -> Waiter:
        name, units = self._served_by(request.ask)
        more = [self._served_by(each) for each in request.ask.groups]
        others = tuple((other, needed) for other, needed in more if other is not None)
        name = None if len(others) < len(more) else name
        age = age_order(request, self._policy, name)
        owners = owners_of(request.tenant, request.project, request.owner)
        seconds = request.duration if name is None else request.length_on(name)
        return Waiter(request, name, units, seconds, owners, age, counted, others)

    def _served_by(self, ask: Ask) -> tuple[str | None, int]:
        what = (ask.classes, ask.shape, ask.count)
        if what not in self._served:
            self._served[what] = self._serving(*what)
        return self._served[what]

    def _serving(self, classes: tuple[str, ...], shape: Shape, count: int) -> tuple[str | None, int]:
        """The first class that can ever serve a demand, and its units."""
        for name in classes:
            pool = self._state.pools.get(name)
            if pool is not None and pool.serves(shape) and pool.most(shape, "any") >= count:
                return name, pool.units(shape) * count
        return None, 0

    def _is_aged(self, row: Waiter) -> bool:
        """True when it has waited too long, and not for a limit of its own."""
        request, now = row.request, self._state.now
        since = max(request.submitted, request.earliest)
        patience = self._policy.of(row.gpu_class, request.tenant).patience
        if row.gpu_class is None or now - since < patience:
            return False
        block = self._state.over(demand_on(request, row.gpu_class), now)
        return block is None or block.kind == "lent"

    def _is_over_share(self, row: Waiter, band: int) -> bool:
        request, fair = row.request, self._fair[band]
        return any(
            owner in fair.get(name, {}) and self._in_use.get((owner, name), 0) + units > fair[name][owner]
            for name, units in row.uses
            for owner in (request.tenant, request.project)
        )

    def _note_edges(self, row: Waiter, band: int) -> None:
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

    def _demanded(self, rows: Iterable[Waiter]) -> dict[str, dict[str, int]]:
        """Units in use and asked for, by class and owner."""
        found: dict[str, dict[str, int]] = {name: {} for name in self._limits}
        for (owner, gpu_class), units in self._in_use.items():
            if gpu_class in found:
                found[gpu_class][owner] = units
        for row in rows:
            add_demand(found, row)
        return found

    def _fair_shares(self, demanded: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        return {
            name: split_to_projects(self._limits[name], each, self._state.capacity.get(name, 0))
            for name, each in demanded.items()
        }

    def _pass(self, row: Waiter, *, inside: bool = False) -> None:
        """Count a request that the order has passed as use."""
        for name, units in row.uses if not row.counted else ():
            self._count(row.owners, name, units, row.seconds)
        if inside:
            self._guarantees.take(row.request, row.uses, row.seconds)

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


def add_demand(found: dict[str, dict[str, int]], row: Waiter) -> None:
    for name, units in row.uses if not row.counted else ():
        wanted = found.get(name, {})
        for owner in (row.request.tenant, row.request.project):
            wanted[owner] = wanted.get(owner, 0) + units


def age_order(request: Request, policy: Policy, gpu_class: str | None) -> tuple[int, int, str]:
    """Order within one project, person and priority: the last three criteria of `Key`.

    Waiting counts from submission or from the requested start, whichever is later. All have the
    same present, so the earlier step is the older.
    """
    since = max(request.submitted, request.earliest)
    step = policy.of(gpu_class, request.tenant).age_step
    return (since // step * (step if policy.parts else 1), request.submitted, request.booking)


def _aged(row: Waiter) -> Key:
    _, submitted, booking = row.age
    return (AGED, 0, 0, 0, 0, 0, 0, submitted, booking)


class DominantShares:
    """Each owner's dominant share: its largest share of any class, recent and booked. A class counts by
    its weight in the policy, so that a share of a cheap one does not weigh as much as one of a dear one.

    Recent use is read at the last full `epoch`, so that it changes no order in between. Booked use
    counts at once, at most one half-life of it, so that a burst of bookings does not pass for
    little use.
    """

    def __init__(self, snapshot: Snapshot, capacity: Mapping[str, int], policy: Policy) -> None:
        self._capacity = capacity
        self._half_life = policy.half_life
        # Whole numbers, because a weight is a percentage.
        self._millions = {name: MILLION * percent // 100 for name, percent in policy.class_weights}
        self._weights: dict[tuple[Owner, str], int] = {
            (row.owner, row.gpu_class): row.weight for row in snapshot.limits
        }
        self._amounts: dict[tuple[Owner, str], int] = {}
        self._wholes: dict[tuple[Owner, str], int] = {}
        self._dominant: dict[Owner, int] = {}
        epoch = snapshot.now // policy.epoch * policy.epoch
        amounts: dict[tuple[Owner, str], int] = {}
        for (tenant, project, person, gpu_class), amount in _left_of(snapshot.used, epoch, policy).items():
            for owner in owners_of(tenant, project, person):
                key = (owner, gpu_class)
                amounts[key] = amounts.get(key, 0) + amount
        for (owner, gpu_class), amount in amounts.items():
            self._more((owner,), gpu_class, amount)

    def copy(self) -> "DominantShares":
        """The same shares, which change on their own from now on."""
        twin = copy(self)
        twin._amounts = dict(self._amounts)
        twin._dominant = dict(self._dominant)
        return twin

    def add(self, owners: Iterable[Owner], gpu_class: str, units: int, seconds: int) -> None:
        """Count units that are in use or booked for `seconds` more."""
        self._more(owners, gpu_class, units * max(0, min(seconds, self._half_life)))

    def add_all(self, owners: Iterable[Owner], gpu_class: str, units: Ints, seconds: Ints) -> None:
        """`add` for many of one kind."""
        amounts = units * np.clip(seconds, 0, self._half_life)
        self._more(owners, gpu_class, int(amounts.sum()))

    def dominant(self, owner: Owner) -> int:
        """Millionths of a class over a half-life, divided by weight."""
        return self._dominant.get(owner, 0)

    def _whole(self, owner: Owner, gpu_class: str) -> int:
        """The divisor of an amount; larger for more weight."""
        weight = max(1, self._weights.get((owner, gpu_class), 1))
        return max(1, self._capacity.get(gpu_class, 0)) * self._half_life * weight

    def _more(self, owners: Iterable[Owner], gpu_class: str, amount: int) -> None:
        for owner in owners:
            key = (owner, gpu_class)
            whole = self._wholes.get(key)
            if whole is None:
                whole = self._wholes[key] = self._whole(owner, gpu_class)
            amounts = self._amounts[key] = self._amounts.get(key, 0) + amount
            # Amounts only grow, so the largest share does, too.
            share = amounts * self._millions.get(gpu_class, MILLION) // whole
            if share > self._dominant.get(owner, -1):
                self._dominant[owner] = share


def _left_of(rows: Iterable[Used], epoch: int, policy: Policy) -> dict[tuple[str, str, str, str], int]:
    """What is left of past use, by tenant, project, person and class. Rows of a day have one age."""
    rests: dict[int, tuple[int, int]] = {}
    found: dict[tuple[str, str, str, str], int] = {}
    for row in rows:
        rest = rests.get(row.day)
        if rest is None:
            rest = rests[row.day] = _rest_of(epoch - row.day, policy.half_life)
        key = (row.tenant, row.project, row.owner, row.gpu_class)
        found[key] = found.get(key, 0) + ((row.unit_seconds * rest[0]) >> rest[1])
    return found


def owners_of(tenant: str, project: str, account: str) -> tuple[Owner, ...]:
    """Tenant, project and, if the account is known, person."""
    return (tenant, project, (tenant, account)) if account else (tenant, project)
