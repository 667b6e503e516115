"""The order of all requests without a planned start, recomputed after each placement."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from allocation.solver.model.demand import Demand, Fit, demands_of
from allocation.solver.model.inputs import MILLION, Limit, Policy, Request, Snapshot
from allocation.solver.state.cycle_state import CycleState

Queue = deque[Request]
Owners = tuple[str, str]


Key = tuple[int, bool, bool, int, int, int, int, str]


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """The sort key's facts for one request. Shares are in steps of the policy's `share_step`.

    `borrowing`: it would exceed its guarantee. `over_share`: its tenant or project would exceed its
    weighted part of the idle capacity.
    """

    request: Request
    borrowing: bool
    over_share: bool
    tenant_share: int
    project_share: int
    policy: Policy


class BookingQueue:
    """All waiting requests, one queue for each priority, tenant and project."""

    def __init__(self, state: CycleState, snapshot: Snapshot, kept: Iterable[Fit]) -> None:
        """Count held and planned work as use."""
        self._state = state
        self._policy = state.policy
        self._shares = DominantShares(snapshot, state.capacity, state.policy.half_life)
        self._in_use: dict[tuple[str, str], int] = {}
        self._limits: dict[str, list[Limit]] = {}
        for row in snapshot.limits:
            self._limits.setdefault(row.gpu_class, []).append(row)
        for use, (starts, ends) in state.held_uses:
            seconds = ends - max(starts, state.now)
            self._shares.add(use.owners, use.gpu_class, use.units, seconds)
            self._use_more(use.owners, use.gpu_class, use.units)
        for found in kept:
            self._count(found.demand, self._state.use(found.demand).units)
        self._fair: dict[str, dict[str, int]] = {}

    def order(self, requests: Iterable[Request]) -> Iterator[Request]:
        """Yield each request once, in order; the caller places or refuses it before taking the
        next."""
        waiting = list(requests)
        self._fair = self._fair_shares(waiting)
        for priority in sorted({request.priority for request in waiting}, reverse=True):
            queues: dict[Owners, Queue] = {}
            same = (request for request in waiting if request.priority == priority)
            for request in sorted(same, key=lambda each: age_order(each, self._policy)):
                queues.setdefault((request.tenant, request.project), deque()).append(request)
            borrowing: dict[Owners, Queue] = {}
            yield from self._within_guarantee(queues, borrowing)
            yield from self._merged(borrowing, is_borrowing=True)

    def placed(self, found: Fit) -> None:
        """Count a placed fit as use."""
        self._count(found.demand, self._state.use(found.demand).units)

    def _within_guarantee(
        self, queues: dict[Owners, Queue], borrowing: dict[Owners, Queue]
    ) -> Iterator[Request]:
        for request in self._merged(queues, is_borrowing=False):
            if self._is_within_guarantee(request):
                yield request
            else:
                whose = (request.tenant, request.project)
                borrowing.setdefault(whose, deque()).append(request)

    def _merged(self, queues: dict[Owners, Queue], *, is_borrowing: bool) -> Iterator[Request]:
        """Merge the queues by the position of their heads. Positions only get worse, so a head
        whose position has changed goes back into the heap."""
        heads = [
            (queue_order(self._position(queue[0], is_borrowing=is_borrowing)), whose)
            for whose, queue in queues.items()
        ]
        heapq.heapify(heads)
        while heads:
            key, whose = heapq.heappop(heads)
            queue = queues[whose]
            now = queue_order(self._position(queue[0], is_borrowing=is_borrowing))
            if now > key and heads and now > heads[0][0]:
                heapq.heappush(heads, (now, whose))
                continue
            yield queue.popleft()
            if queue:
                position = self._position(queue[0], is_borrowing=is_borrowing)
                heapq.heappush(heads, (queue_order(position), whose))

    def _position(self, request: Request, *, is_borrowing: bool) -> QueuePosition:
        step = self._policy.share_step
        return QueuePosition(
            request,
            borrowing=is_borrowing,
            over_share=is_borrowing and self._is_over_share(request),
            tenant_share=self._shares.dominant(request.tenant) // step,
            project_share=self._shares.dominant(request.project) // step,
            policy=self._policy,
        )

    def _is_within_guarantee(self, request: Request) -> bool:
        """True when the request fits its guarantee at its requested start, on its first class."""
        demand = self._first(request)
        if demand is None:
            return True
        starts = max(request.earliest, self._state.now)
        window = (starts, starts + max(1, demand.duration))
        return self._state.quota.is_within_guarantee(self._state.use(demand), window)

    def _is_over_share(self, request: Request) -> bool:
        demand = self._first(request)
        if demand is None:
            return False
        units = self._state.use(demand).units
        shares = self._fair.get(demand.gpu_class, {})
        return any(
            owner in shares
            and self._in_use.get((owner, demand.gpu_class), 0) + units > shares[owner]
            for owner in demand.owners
        )

    def _first(self, request: Request) -> Demand | None:
        """The demand on the first of its classes that can serve it."""
        pools = self._state.pools
        return next(
            (
                demand
                for demand in demands_of(request)
                if demand.gpu_class in pools and pools[demand.gpu_class].serves(demand.shape)
            ),
            None,
        )

    def _fair_shares(self, waiting: Iterable[Request]) -> dict[str, dict[str, int]]:
        demanded_units: dict[str, dict[str, int]] = {name: {} for name in self._limits}
        for (owner, gpu_class), units in self._in_use.items():
            if gpu_class in demanded_units:
                demanded_units[gpu_class][owner] = units
        for request in waiting:
            demand = self._first(request)
            if demand is not None and demand.gpu_class in demanded_units:
                for owner in demand.owners:
                    wanted = demanded_units[demand.gpu_class]
                    wanted[owner] = wanted.get(owner, 0) + self._state.use(demand).units
        return {
            name: split_to_projects(rows, demanded_units[name], self._state.capacity.get(name, 0))
            for name, rows in self._limits.items()
        }

    def _count(self, demand: Demand, units: int) -> None:
        self._shares.add(demand.owners, demand.gpu_class, units, demand.duration)
        self._use_more(demand.owners, demand.gpu_class, units)

    def _use_more(self, owners: tuple[str, ...], gpu_class: str, units: int) -> None:
        for owner in owners:
            key = (owner, gpu_class)
            self._in_use[key] = self._in_use.get(key, 0) + units


def queue_order(position: QueuePosition) -> Key:
    """Order of requests without a planned start:

    1. higher priority of the tier;
    2. within guarantee before borrowing;
    3. of borrowers, under the weighted share before over it;
    4. lower recent dominant share of the tenant, then of the project;
    5. more whole steps of waiting;
    6. submitted earlier;
    7. id.
    """
    request = position.request
    shares = (position.tenant_share, position.project_share)
    rest = age_order(request, position.policy)
    return (-request.priority, position.borrowing, position.over_share, *shares, *rest)


def age_order(request: Request, policy: Policy) -> tuple[int, int, str]:
    """Order within one project and priority: the last three criteria of `queue_order`.

    Waiting counts from submission or from the requested start, whichever is later. All have the
    same present, so the earlier step is the older.
    """
    since = max(request.submitted, request.earliest)
    return (since // policy.age_step, request.submitted, request.booking)


# round(2**16 * 2**(-i / 32)): the rest of 65,536 after i thirty-seconds of a half-life.
_LEFT = (
    65536, 64132, 62757, 61413, 60097, 58809, 57549, 56316,
    55109, 53928, 52773, 51642, 50535, 49452, 48393, 47356,
    46341, 45348, 44376, 43425, 42495, 41584, 40693, 39821,
    38968, 38133, 37316, 36516, 35734, 34968, 34219, 33486,
)  # fmt: skip


def decayed(amount: int, age: int, half_life: int) -> int:
    """The rest of an amount after `age` seconds, rounded down."""
    halves, rest = divmod(max(0, age) * len(_LEFT) // half_life, len(_LEFT))
    return (amount * _LEFT[rest]) >> (16 + halves)


@dataclass(frozen=True, slots=True)
class Claimant:
    """An owner who requests units of a total, with a guarantee and a weight."""

    owner: str
    guaranteed: int
    requested: int
    weight: int = 1


def split(total: int, claimants: Iterable[Claimant]) -> dict[str, int]:
    """Each owner's share: first min(guaranteed, requested), then the rest by weight, repeated until
    no owner with weight wants more or nothing is left. Weight 0 gets no rest.

    An indivisible rest goes unit by unit to the largest remainder, then by weight and owner.
    """
    order = sorted(claimants, key=lambda each: (-each.weight, each.owner))
    shares = {each.owner: min(each.guaranteed, each.requested) for each in order}
    rest = total - sum(shares.values())
    while rest > 0:
        open_ones = [each for each in order if each.weight and shares[each.owner] < each.requested]
        if not open_ones:
            break
        weights = sum(each.weight for each in open_ones)
        parts = {each.owner: rest * each.weight // weights for each in open_ones}
        nearest = sorted(open_ones, key=lambda each: -(rest * each.weight % weights))
        for each in nearest[: rest - sum(parts.values())]:
            parts[each.owner] += 1
        for each in open_ones:
            part = min(parts[each.owner], each.requested - shares[each.owner])
            shares[each.owner] += part
            rest -= part
    return shares


def split_to_projects(
    limits: Iterable[Limit], demand: Mapping[str, int], capacity: int
) -> dict[str, int]:
    """Shares of one class for tenants, and of each tenant's share for its projects.

    `demand` is units by owner, a tenant's including its projects'.
    """
    rows = list(limits)
    shares = split(capacity, [_claimant(row, demand) for row in rows if row.parent is None])
    for tenant in sorted(shares):
        inner = [_claimant(row, demand) for row in rows if row.parent == tenant]
        shares |= split(shares[tenant], inner)
    return shares


class DominantShares:
    """Each owner's dominant share: its largest share of any class, recent and booked.

    Booked use counts at once, at most one half-life of it, so that a burst of bookings does not
    pass for little use.
    """

    def __init__(self, snapshot: Snapshot, capacity: Mapping[str, int], half_life: int) -> None:
        self._capacity = capacity
        self._half_life = half_life
        self._weights = {(row.owner, row.gpu_class): row.weight for row in snapshot.limits}
        self._amounts: dict[str, dict[str, int]] = {}
        self._dominant: dict[str, int] = {}
        for row in snapshot.used:
            amount = decayed(row.unit_seconds, snapshot.now - row.day, half_life)
            self._more((row.tenant, row.project), row.gpu_class, amount)

    def add(self, owners: tuple[str, ...], gpu_class: str, units: int, seconds: int) -> None:
        """Count units that are in use or booked for `seconds` more."""
        self._more(owners, gpu_class, units * max(0, min(seconds, self._half_life)))

    def dominant(self, owner: str) -> int:
        """Millionths of a class over a half-life, divided by weight."""
        if owner not in self._dominant:
            amounts = self._amounts.get(owner, {}).items()
            parts = (amount * MILLION // self._whole(owner, name) for name, amount in amounts)
            self._dominant[owner] = max(parts, default=0)
        return self._dominant[owner]

    def _whole(self, owner: str, gpu_class: str) -> int:
        """The divisor of an amount; larger for more weight."""
        weight = max(1, self._weights.get((owner, gpu_class), 1))
        return max(1, self._capacity.get(gpu_class, 0)) * self._half_life * weight

    def _more(self, owners: Iterable[str], gpu_class: str, amount: int) -> None:
        for owner in owners:
            self._dominant.pop(owner, None)
            amounts = self._amounts.setdefault(owner, {})
            amounts[gpu_class] = amounts.get(gpu_class, 0) + amount


def _claimant(row: Limit, demand: Mapping[str, int]) -> Claimant:
    most = demand.get(row.owner, 0)
    if row.borrow is not None:
        most = min(most, row.guaranteed + row.borrow)
    return Claimant(row.owner, row.guaranteed, most, row.weight)
