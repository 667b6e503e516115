"""The line of those without a promise: who is placed next, seen anew after each placement."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator

from allocation.solver.model.inputs import Limit, Request, Snapshot
from allocation.solver.model.ordering import Standing, line_order, queue_order
from allocation.solver.placement.gang import Want, wants_of
from allocation.solver.quota.fair_share import Shares, split_down
from allocation.solver.state.working import Found, Working

Queue = deque[Request]
Whose = tuple[str, str]


class Queues:
    """Everybody in line, by priority; within one, each project's own queue."""

    def __init__(self, working: Working, snapshot: Snapshot, kept: Iterable[Found]) -> None:
        """What is held and promised counts as had already."""
        self._working = working
        self._policy = working.policy
        self._shares = Shares(snapshot, working.capacity, working.policy.half_life)
        self._in_use: dict[tuple[str, str], int] = {}
        self._limits: dict[str, list[Limit]] = {}
        for row in snapshot.limits:
            self._limits.setdefault(row.gpu_class, []).append(row)
        for use, (starts, ends) in working.held_uses:
            seconds = ends - max(starts, working.now)
            self._shares.add(use.owners, use.gpu_class, use.units, seconds)
            self._use_more(use.owners, use.gpu_class, use.units)
        for found in kept:
            self._count(found.want, self._working.use(found.want).units)
        self._fair: dict[str, dict[str, int]] = {}

    def order(self, requests: Iterable[Request]) -> Iterator[Request]:
        """Yields each request once; the caller places it, or not, before it takes the next."""
        waiting = list(requests)
        self._fair = self._fair_shares(waiting)
        for priority in sorted({request.priority for request in waiting}, reverse=True):
            queues: dict[Whose, Queue] = {}
            same = (request for request in waiting if request.priority == priority)
            for request in sorted(same, key=lambda each: queue_order(each, self._policy)):
                queues.setdefault((request.tenant, request.project), deque()).append(request)
            borrowing: dict[Whose, Queue] = {}
            yield from self._sure(queues, borrowing)
            yield from self._merged(borrowing, is_borrowing=True)

    def placed(self, found: Found) -> None:
        """Somebody has got this: it counts from now on."""
        self._count(found.want, self._working.use(found.want).units)

    def _sure(self, queues: dict[Whose, Queue], borrowing: dict[Whose, Queue]) -> Iterator[Request]:
        for request in self._merged(queues, is_borrowing=False):
            if self._is_sure(request):
                yield request
            else:
                whose = (request.tenant, request.project)
                borrowing.setdefault(whose, deque()).append(request)

    def _merged(self, queues: dict[Whose, Queue], *, is_borrowing: bool) -> Iterator[Request]:
        """Heads of all queues, the first by standing. Standings only ever get worse, so a head
        whose standing has changed goes back into the heap."""
        heads = [
            (line_order(self._standing(queue[0], is_borrowing=is_borrowing)), whose)
            for whose, queue in queues.items()
        ]
        heapq.heapify(heads)
        while heads:
            key, whose = heapq.heappop(heads)
            queue = queues[whose]
            now = line_order(self._standing(queue[0], is_borrowing=is_borrowing))
            if now > key and heads and now > heads[0][0]:
                heapq.heappush(heads, (now, whose))
                continue
            yield queue.popleft()
            if queue:
                standing = self._standing(queue[0], is_borrowing=is_borrowing)
                heapq.heappush(heads, (line_order(standing), whose))

    def _standing(self, request: Request, *, is_borrowing: bool) -> Standing:
        step = self._policy.share_step
        return Standing(
            request,
            borrowing=is_borrowing,
            over_share=is_borrowing and self._is_over_share(request),
            tenant_share=self._shares.dominant(request.tenant) // step,
            project_share=self._shares.dominant(request.project) // step,
            policy=self._policy,
        )

    def _is_sure(self, request: Request) -> bool:
        """Within guarantee if it got its wish, on the first of its classes."""
        want = self._first(request)
        if want is None:
            return True
        starts = max(request.earliest, self._working.now)
        window = (starts, starts + max(1, want.duration))
        return self._working.quota.is_sure(self._working.use(want), window)

    def _is_over_share(self, request: Request) -> bool:
        want = self._first(request)
        if want is None:
            return False
        units = self._working.use(want).units
        shares = self._fair.get(want.gpu_class, {})
        return any(
            owner in shares and self._in_use.get((owner, want.gpu_class), 0) + units > shares[owner]
            for owner in want.owners
        )

    def _first(self, request: Request) -> Want | None:
        """What it wants of the first of its classes that can serve it."""
        pools = self._working.pools
        return next(
            (
                want
                for want in wants_of(request)
                if want.gpu_class in pools and pools[want.gpu_class].serves(want.shape)
            ),
            None,
        )

    def _fair_shares(self, waiting: Iterable[Request]) -> dict[str, dict[str, int]]:
        demand: dict[str, dict[str, int]] = {name: {} for name in self._limits}
        for (owner, gpu_class), units in self._in_use.items():
            if gpu_class in demand:
                demand[gpu_class][owner] = units
        for request in waiting:
            want = self._first(request)
            if want is not None and want.gpu_class in demand:
                for owner in want.owners:
                    wanted = demand[want.gpu_class]
                    wanted[owner] = wanted.get(owner, 0) + self._working.use(want).units
        return {
            name: split_down(rows, demand[name], self._working.capacity.get(name, 0))
            for name, rows in self._limits.items()
        }

    def _count(self, want: Want, units: int) -> None:
        self._shares.add(want.owners, want.gpu_class, units, want.duration)
        self._use_more(want.owners, want.gpu_class, units)

    def _use_more(self, owners: tuple[str, ...], gpu_class: str, units: int) -> None:
        for owner in owners:
            key = (owner, gpu_class)
            self._in_use[key] = self._in_use.get(key, 0) + units
