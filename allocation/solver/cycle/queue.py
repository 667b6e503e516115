"""The line of those without a promise: who is placed next, seen anew after each placement."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator

from allocation.solver.model.inputs import Limit, Request, Snapshot
from allocation.solver.model.ordering import QueuePosition, age_order, queue_order
from allocation.solver.placement.gang import Demand, demands_of
from allocation.solver.quota.fair_share import DominantShares, split_to_projects
from allocation.solver.state.working import Fit, Working

Queue = deque[Request]
Owners = tuple[str, str]


class BookingQueue:
    """Everybody in line, by priority; within one, each project's own queue."""

    def __init__(self, working: Working, snapshot: Snapshot, kept: Iterable[Fit]) -> None:
        """What is held and promised counts as had already."""
        self._working = working
        self._policy = working.policy
        self._shares = DominantShares(snapshot, working.capacity, working.policy.half_life)
        self._in_use: dict[tuple[str, str], int] = {}
        self._limits: dict[str, list[Limit]] = {}
        for row in snapshot.limits:
            self._limits.setdefault(row.gpu_class, []).append(row)
        for use, (starts, ends) in working.held_uses:
            seconds = ends - max(starts, working.now)
            self._shares.add(use.owners, use.gpu_class, use.units, seconds)
            self._use_more(use.owners, use.gpu_class, use.units)
        for found in kept:
            self._count(found.demand, self._working.use(found.demand).units)
        self._fair: dict[str, dict[str, int]] = {}

    def order(self, requests: Iterable[Request]) -> Iterator[Request]:
        """Yields each request once; the caller places it, or not, before it takes the next."""
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
        """Somebody has got this: it counts from now on."""
        self._count(found.demand, self._working.use(found.demand).units)

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
        """Heads of all queues, the first by standing. Standings only ever get worse, so a head
        whose standing has changed goes back into the heap."""
        heads = [
            (queue_order(self._standing(queue[0], is_borrowing=is_borrowing)), whose)
            for whose, queue in queues.items()
        ]
        heapq.heapify(heads)
        while heads:
            key, whose = heapq.heappop(heads)
            queue = queues[whose]
            now = queue_order(self._standing(queue[0], is_borrowing=is_borrowing))
            if now > key and heads and now > heads[0][0]:
                heapq.heappush(heads, (now, whose))
                continue
            yield queue.popleft()
            if queue:
                standing = self._standing(queue[0], is_borrowing=is_borrowing)
                heapq.heappush(heads, (queue_order(standing), whose))

    def _standing(self, request: Request, *, is_borrowing: bool) -> QueuePosition:
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
        """Within guarantee if it got its wish, on the first of its classes."""
        demand = self._first(request)
        if demand is None:
            return True
        starts = max(request.earliest, self._working.now)
        window = (starts, starts + max(1, demand.duration))
        return self._working.quota.is_within_guarantee(self._working.use(demand), window)

    def _is_over_share(self, request: Request) -> bool:
        demand = self._first(request)
        if demand is None:
            return False
        units = self._working.use(demand).units
        shares = self._fair.get(demand.gpu_class, {})
        return any(
            owner in shares
            and self._in_use.get((owner, demand.gpu_class), 0) + units > shares[owner]
            for owner in demand.owners
        )

    def _first(self, request: Request) -> Demand | None:
        """What it wants of the first of its classes that can serve it."""
        pools = self._working.pools
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
                    wanted[owner] = wanted.get(owner, 0) + self._working.use(demand).units
        return {
            name: split_to_projects(rows, demanded_units[name], self._working.capacity.get(name, 0))
            for name, rows in self._limits.items()
        }

    def _count(self, demand: Demand, units: int) -> None:
        self._shares.add(demand.owners, demand.gpu_class, units, demand.duration)
        self._use_more(demand.owners, demand.gpu_class, units)

    def _use_more(self, owners: tuple[str, ...], gpu_class: str, units: int) -> None:
        for owner in owners:
            key = (owner, gpu_class)
            self._in_use[key] = self._in_use.get(key, 0) + units
