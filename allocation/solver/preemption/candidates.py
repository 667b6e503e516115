"""Who may be paused for whom, and in which order: the rules, without looking at any room.

Each rule goes down by something that a pause can't bring back up, so no chain of pauses ever
comes back to where it began: what is guaranteed takes back what is borrowed, a higher tier takes
from a lower one, and who borrows less takes from who borrows more.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from allocation.solver.model.inputs import Snapshot
from allocation.solver.placement.gang import Demand
from allocation.solver.preemption.borrowing import Row, guarantee_order, held_rows
from allocation.solver.quota.fair_share import MILLION
from allocation.solver.quota.quota import Use
from allocation.solver.quota.tree import adds_within_caps
from allocation.solver.state.running import RunningBooking
from allocation.solver.state.working import Working

Rule = Literal["taken_back", "higher_tier", "fairer_share"]
Group = tuple[bool, int, int]
"""Own tenant last, the most over its share first, the lower tier first."""
_BY_WEIGHT = 1_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """Somebody who may be paused, by which rule; lower `group`s are paused first."""

    runner: RunningBooking
    rule: Rule
    group: Group


Ranked = tuple[tuple[Group, int, int, str], Candidate]
"""With its place in the order: the group, what loses least, who began last, id."""


class VictimRules:
    """Answers for one cycle; what has been decided in it counts."""

    def __init__(self, working: Working, snapshot: Snapshot) -> None:
        """Remember whose is what."""
        self._working = working
        self._weights = {
            (row.owner, row.gpu_class): row.weight for row in snapshot.limits if row.parent is None
        }
        self._rows: dict[tuple[str, str], list[Row]] = {}
        if working.running.classes:
            for row in sorted(
                held_rows(working, snapshot), key=lambda each: guarantee_order(working.quota, each)
            ):
                self._rows.setdefault((row.use.owners[0], row.use.gpu_class), []).append(row)
        self._known: dict[tuple[str, str, int], tuple[int, list[Ranked]]] = {}

    def candidates(self, demand: Demand, starts: int) -> tuple[Candidate, ...]:
        """Everybody who may be paused so that the want starts then, first victims first.

        Nobody for a tier that does not count. Within guarantee: what others borrow of the class.
        Else, if it starts as soon as it can: what those who borrow more have. In any case: lower
        tiers of its own tenant.
        """
        quota, use = self._working.quota, self._working.use(demand)
        if not quota.tier(demand.tier).counts:
            return ()
        window = (starts, starts + demand.duration)
        is_within_guarantee = quota.has_limit(use) and quota.is_within_guarantee(use, window)
        if is_within_guarantee:
            rows = [*self._lower(demand, starts), *self._lent(demand, starts)]
        else:
            rows = [*self._lower(demand, starts), *self._fairer(demand, starts)]
        return tuple(each for _, each in sorted(rows))

    def all_above_guarantee(self, chosen: Sequence[Candidate], instant: int) -> bool:
        """False when one of another tenant would lie inside its guarantee once the rest have left.

        Guarantees go by rank: a large booking that is partly inside leaves all of it to the next.
        """
        gone = {each.runner.booking for each in chosen}
        borrowers = (each.runner for each in chosen if each.rule != "higher_tier")
        return all(
            one.booking in self._above(one.tenant, one.use.gpu_class, instant, gone - {one.booking})
            for one in borrowers
        )

    def _able(self, gpu_class: str, tenant: str, starts: int) -> Iterator[RunningBooking]:
        """Who of a tenant can be out by then and would otherwise be there."""
        for runner in self._working.running.of(gpu_class, tenant):
            if runner.out <= starts < runner.ends:
                yield runner

    def _lower(self, demand: Demand, starts: int) -> list[Ranked]:
        tenant, priority = demand.owners[0], self._working.quota.tier(demand.tier).priority
        return [
            _ranked(runner, "higher_tier", (True, 0, runner.tier.priority))
            for runner in self._able(demand.gpu_class, tenant, starts)
            if runner.tier.priority < priority
        ]

    def _lent(self, demand: Demand, starts: int) -> Iterator[Ranked]:
        for tenant in self._working.running.tenants(demand.gpu_class):
            if tenant != demand.owners[0]:
                yield from self._lent_by(tenant, demand.gpu_class, starts)

    def _lent_by(self, tenant: str, gpu_class: str, starts: int) -> list[Ranked]:
        """What one tenant borrows; many ask for the same instant, and seldom has it changed."""
        state = self._working.running.version(tenant)
        known, found = self._known.get((tenant, gpu_class, starts), (-1, []))
        if known != state:
            runners = self._borrowers(tenant, gpu_class, starts)
            over = self._share(tenant, starts) // self._working.policy.share_step
            found = [
                _ranked(runner, "taken_back", (False, -over, runner.tier.priority))
                for runner in runners
            ]
            self._known[tenant, gpu_class, starts] = (state, found)
        return found

    def _fairer(self, demand: Demand, starts: int) -> list[Ranked]:
        """Of each tenant, as long as it borrows more than the one that asks would then.

        Only for a start as soon as notices allow: what will be fair later is not known yet.
        """
        working, window = self._working, (starts, starts + 1)
        use = working.use(demand)
        soonest = working.now + max(working.running.graces(demand.gpu_class), default=0)
        if starts > soonest or not working.quota.has_limit(use):
            return []
        working.quota.add(use, window)
        most = self._share(demand.owners[0], starts)
        working.quota.add(use, window, -1)
        found: list[Ranked] = []
        for tenant in working.running.tenants(demand.gpu_class):
            before = self._share(tenant, starts)
            if tenant == demand.owners[0] or before <= most:
                continue
            over = before // working.policy.share_step
            lent = sorted(self._lent_by(tenant, demand.gpu_class, starts))
            small = [each.runner for _, each in lent if each.runner.use.units <= use.units]
            found += [
                _ranked(each, "fairer_share", (False, -over, each.tier.priority))
                for each in self._above_share(tenant, small, most, starts)
            ]
        return found

    def _above_share(
        self, tenant: str, runners: list[RunningBooking], most: int, instant: int
    ) -> list[RunningBooking]:
        """Those of the tenant, in order, without which the larger of both shares goes down."""
        quota, window = self._working.quota, (instant, instant + 1)
        gone: list[RunningBooking] = []
        before, is_fairer = self._share(tenant, instant), True
        for runner in runners:
            quota.add(runner.use, window, -1)
            gone.append(runner)
            after = self._share(tenant, instant)
            is_fairer = max(most, after) < before
            if not is_fairer:
                break
            before = after
        for runner in gone:
            quota.add(runner.use, window)
        return gone if is_fairer else gone[:-1]

    def _borrowers(self, tenant: str, gpu_class: str, starts: int) -> list[RunningBooking]:
        """Runners of the tenant that lie above its guarantee then."""
        able = list(self._able(gpu_class, tenant, starts))
        above = self._above(tenant, gpu_class, starts) if able else frozenset()
        return [runner for runner in able if runner.booking in above]

    def _above(
        self, tenant: str, gpu_class: str, instant: int, gone: Container[str] = ()
    ) -> frozenset[str]:
        """Bookings of the tenant that borrow then: the guarantee goes by rank, and to the first."""
        tree, tier_of = self._working.quota.guarantee(gpu_class), self._working.quota.tier
        usage: dict[str, int] = {}
        found = set()
        for row in self._there(tenant, gpu_class, instant):
            if row.booking in gone:
                continue
            path = tree.path_up(row.use.owners) if tree else ()
            counts = tier_of(row.use.tier).counts
            if not counts or not adds_within_caps(path, usage, row.use.units):
                found.add(row.booking)
        return frozenset(found)

    def _there(self, tenant: str, gpu_class: str, instant: int) -> Iterable[Row]:
        running = self._working.running
        for row in self._rows.get((tenant, gpu_class), ()):
            starts, ends = row.window
            if row.booking in running:
                ends = running.leaves(running[row.booking])
            if starts <= instant < ends:
                yield row

    def _share(self, tenant: str, instant: int) -> int:
        """What the tenant borrows then, of the class where that is most: the larger, the less
        weight it has; without weight it is the largest."""
        shares = [0]
        for name, capacity in self._working.capacity.items():
            above = self._working.quota.above(tenant, name, instant)
            weight = self._weights.get((tenant, name), 1)
            parts = MILLION * _BY_WEIGHT // (weight * _BY_WEIGHT or 1)
            shares.append(above * parts // max(1, capacity))
        return max(shares)


def is_even(chosen: Iterable[Candidate], use: Use) -> bool:
    """False when more is paused for a fairer share than the use takes.

    What is left over would go to anybody, and could bring back what the comparison ruled out.
    """
    fairer = (each.runner.use.units for each in chosen if each.rule == "fairer_share")
    return sum(fairer) <= use.units


def _ranked(runner: RunningBooking, rule: Rule, group: Group) -> Ranked:
    key = (group, runner.lost, -runner.since, runner.booking)
    return (key, Candidate(runner, rule, group))
