"""The order of all requests without a planned start, recomputed after each placement."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from allocation.solver.model.demand import Demand, Fit, demands_of
from allocation.solver.model.inputs import Limit, Policy, Request, Snapshot
from allocation.solver.quota.fair_share import DominantShares, split_to_projects
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


def has_planned_start(request: Request) -> bool:
    """True for a request with a planned start; a fixed window has one while its victims have
    notice."""
    return request.promise is not None


def planned_start_order(request: Request) -> tuple[int, int, int, str]:
    """Order of planned starts: start, higher priority, submitted earlier, id."""
    starts = request.promise.starts if request.promise else 0
    return (starts, -request.priority, request.submitted, request.booking)


def queue_order(position: QueuePosition) -> Key:
    """Order of requests without a planned start:

    1. higher priority of the tier; 2. within guarantee before borrowing; 3. of borrowers, under the
    weighted share before over it; 4. the tenant's recent dominant share, then the project's, lower
    first; 5. more whole steps of waiting; 6. submitted earlier; 7. id.
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
