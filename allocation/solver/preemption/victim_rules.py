"""Which bookings may be victims of a start, and in which order: rules only, no look at room.

Each rule lowers a quantity that no pause can raise again, so no chain of pauses returns to where it
began: a guarantee takes back what is borrowed, a higher tier takes from a lower one, and the
smaller borrower takes from the larger.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from allocation.solver.model.demand import Demand
from allocation.solver.model.inputs import MILLION, Snapshot
from allocation.solver.preemption.borrowing import Row, guarantee_order, held_rows
from allocation.solver.quota.quota import Use
from allocation.solver.quota.tree import adds_within_caps
from allocation.solver.state.cycle_state import CycleState
from allocation.solver.state.running import RunningBooking

Rule = Literal["taken_back", "higher_tier", "fairer_share"]
Group = tuple[bool, int, int]
"""Own tenant last, then the tenant most above its share, then the lower tier."""
_BY_WEIGHT = 1_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible victim and the rule that allows it; lower `group`s are paused first."""

    runner: RunningBooking
    rule: Rule
    group: Group


Ranked = tuple[tuple[Group, int, int, str], Candidate]
"""With its place in the order: group, least lost work, latest start, id."""


class VictimRules:
    """The rules of one cycle; decisions of the cycle count."""

    def __init__(self, state: CycleState, snapshot: Snapshot) -> None:
        self._state = state
        self._weights = {
            (row.owner, row.gpu_class): row.weight for row in snapshot.limits if row.parent is None
        }
        self._rows: dict[tuple[str, str], list[Row]] = {}
        if state.running.classes:
            for row in sorted(
                held_rows(state, snapshot), key=lambda each: guarantee_order(state.quota, each)
            ):
                self._rows.setdefault((row.use.owners[0], row.use.gpu_class), []).append(row)
        self._known: dict[tuple[str, str, int], tuple[int, list[Ranked]]] = {}

    def candidates(self, demand: Demand, starts: int) -> tuple[Candidate, ...]:
        """All possible victims for a start at that second, the first to be paused first.

        A tier that does not count has none. Within guarantee: what others borrow of the class.
        Else, for the soonest start: bookings of larger borrowers. Always: lower tiers of its own
        tenant.
        """
        quota, use = self._state.quota, self._state.use(demand)
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
        """False when a victim of another tenant would be within its guarantee once the rest have
        left.

        Guarantees are used up in order: a large booking that is partly inside leaves all of it to
        the next.
        """
        gone = {each.runner.booking for each in chosen}
        borrowers = (each.runner for each in chosen if each.rule != "higher_tier")
        return all(
            one.booking in self._above(one.tenant, one.use.gpu_class, instant, gone - {one.booking})
            for one in borrowers
        )

    def _able(self, gpu_class: str, tenant: str, starts: int) -> Iterator[RunningBooking]:
        """Bookings of a tenant that can be out by then and would otherwise still run."""
        for runner in self._state.running.of(gpu_class, tenant):
            if runner.out <= starts < runner.ends:
                yield runner

    def _lower(self, demand: Demand, starts: int) -> list[Ranked]:
        tenant, priority = demand.owners[0], self._state.quota.tier(demand.tier).priority
        return [
            _ranked(runner, "higher_tier", (True, 0, runner.tier.priority))
            for runner in self._able(demand.gpu_class, tenant, starts)
            if runner.tier.priority < priority
        ]

    def _lent(self, demand: Demand, starts: int) -> Iterator[Ranked]:
        for tenant in self._state.running.tenants(demand.gpu_class):
            if tenant != demand.owners[0]:
                yield from self._lent_by(tenant, demand.gpu_class, starts)

    def _lent_by(self, tenant: str, gpu_class: str, starts: int) -> list[Ranked]:
        """What one tenant borrows; cached, because many ask for the same instant."""
        version = self._state.running.version(tenant)
        known, found = self._known.get((tenant, gpu_class, starts), (-1, []))
        if known != version:
            runners = self._borrowers(tenant, gpu_class, starts)
            over = self._share(tenant, starts) // self._state.policy.share_step
            found = [
                _ranked(runner, "taken_back", (False, -over, runner.tier.priority))
                for runner in runners
            ]
            self._known[tenant, gpu_class, starts] = (version, found)
        return found

    def _fairer(self, demand: Demand, starts: int) -> list[Ranked]:
        """Bookings of each tenant that borrows more than the demand's tenant would then.

        Only for the soonest start: what is fair later is not known yet.
        """
        state, window = self._state, (starts, starts + 1)
        use = state.use(demand)
        soonest = state.now + max(state.running.graces(demand.gpu_class), default=0)
        if starts > soonest or not state.quota.has_limit(use):
            return []
        state.quota.add(use, window)
        most = self._share(demand.owners[0], starts)
        state.quota.add(use, window, -1)
        found: list[Ranked] = []
        for tenant in state.running.tenants(demand.gpu_class):
            before = self._share(tenant, starts)
            if tenant == demand.owners[0] or before <= most:
                continue
            over = before // state.policy.share_step
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
        """The tenant's bookings, in order, whose pause lowers the larger of both shares."""
        quota, window = self._state.quota, (instant, instant + 1)
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
        """The tenant's bookings that exceed its guarantee then."""
        able = list(self._able(gpu_class, tenant, starts))
        above = self._above(tenant, gpu_class, starts) if able else frozenset()
        return [runner for runner in able if runner.booking in above]

    def _above(
        self, tenant: str, gpu_class: str, instant: int, gone: Container[str] = ()
    ) -> frozenset[str]:
        """Ids of the tenant's bookings that borrow then; the guarantee is used up in order."""
        tree, tier_of = self._state.quota.guarantee(gpu_class), self._state.quota.tier
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
        running = self._state.running
        for row in self._rows.get((tenant, gpu_class), ()):
            starts, ends = row.window
            if row.booking in running:
                ends = running.leaves(running[row.booking])
            if starts <= instant < ends:
                yield row

    def _share(self, tenant: str, instant: int) -> int:
        """The tenant's largest borrowed share of any class, divided by its weight; weight 0 counts
        most."""
        shares = [0]
        for name, capacity in self._state.capacity.items():
            above = self._state.quota.above(tenant, name, instant)
            weight = self._weights.get((tenant, name), 1)
            parts = MILLION * _BY_WEIGHT // (weight * _BY_WEIGHT or 1)
            shares.append(above * parts // max(1, capacity))
        return max(shares)


def is_even(chosen: Iterable[Candidate], use: Use) -> bool:
    """False when more is paused for a fairer share than the demand uses.

    The surplus would be free for anybody and could undo what the comparison decided.
    """
    fairer = (each.runner.use.units for each in chosen if each.rule == "fairer_share")
    return sum(fairer) <= use.units


def _ranked(runner: RunningBooking, rule: Rule, group: Group) -> Ranked:
    key = (group, runner.lost, -runner.since, runner.booking)
    return (key, Candidate(runner, rule, group))
