"""What pauses make room for: upper bounds on GPUs, and the quota once bookings have left.

Most claims find too little room, whichever bookings leave. One look at a class and a start
answers that for all of them, whatever their length, so victims are chosen only where some
choice may be enough.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Index
from solver.model.demand import Demand, Fit
from solver.preemption.leaving import Leaving
from solver.preemption.victim_rules import VictimRules
from solver.quota.use import Block
from solver.state.cycle_state import CycleState
from solver.state.running import RunningBooking

Window = tuple[int, int]
_Answers = dict[int, tuple[int, bool]]
"""By start the last end until which there may be room, and whether that is the claim's own bound or
its tenant's."""
_NEVER = np.iinfo(np.int64).max
_FEW = 8
"""From so many on, all are added to the quota at once."""
_OF_ALL = ("lent", "headroom")
"""Blocks against which work of all tenants counts."""


@dataclass(slots=True)
class _Known:
    """What is known of some claims and a start.

    Bookings in the columns `stays` do not leave. `until` is when each column is taken again; it was
    read at `frees`, `changes` and the `serial` of `Leaving`. `any_leaves`: some booking may leave.
    `last` is what follows for a count and a level.
    """

    frees: int
    changes: int
    serial: int
    any_leaves: bool
    stays: Index
    until: Ints
    last: dict[tuple[int, str], int] = field(default_factory=dict)


class RoomAfterPauses:
    """Until when whole GPUs can be free for a claim, if all leave that may leave for it.

    One bound is for all claims of a tenant. The other is for claims of the same owners, tier and
    units, of which fewer may leave for most. What is known stays true while room only gets less, so
    it is read anew only once something has been freed or somebody's standing has changed.
    """

    def __init__(self, state: CycleState, rules: VictimRules) -> None:
        self._state, self._rules = state, rules
        self._known: dict[tuple[object, int], _Known] = {}
        self._answers: dict[str, tuple[tuple[int, int], dict[object, _Answers]]] = {}

    def may_be_enough(self, demand: Demand, windows: Iterable[Window]) -> list[int]:
        """The starts of those windows [starts, ends) in which pauses may make enough room for the
        demand; in the others they certainly can't.

        Only whole GPUs are examined: hosts, modes, pins and quota can only forbid more.
        """
        if demand.shape is not None:
            return [starts for starts, _ in windows]
        known, found = self._answers_for(demand), []
        for starts, ends in windows:
            last, is_of_claim = known.get(starts) or (self._for_tenant(demand, starts), False)
            if ends <= last and not is_of_claim:
                last, is_of_claim = min(last, self._for_claim(demand, starts)), True
            known[starts] = (last, is_of_claim)
            if ends <= last:
                found.append(starts)
        return found

    def _answers_for(self, demand: Demand) -> "_Answers":
        """The answers so far for claims like this one; none once something has been freed, or
        somebody's standing has changed."""
        name, state = demand.gpu_class, self._state
        marks = (state.frees.get(name, 0), state.running.changes(name))
        before, answers = self._answers.get(name, (None, {}))
        if before != marks:
            self._answers[name] = (marks, answers := {})
        return answers.setdefault((state.use(demand), demand.level), {})

    def _for_tenant(self, demand: Demand, starts: int) -> int:
        """The last end until which some claim of the tenant may have room."""
        name, tenant = demand.gpu_class, demand.owners[0]
        leaving = self._rules.may_leave(name, tenant, starts)
        return self._last(demand, self._read((name, tenant), (name, starts), leaving, leaving.rows))

    def _for_claim(self, demand: Demand, starts: int) -> int:
        """The same for this claim."""
        known = self._of_claim(demand, starts)
        return 0 if known is None else self._last(demand, known)

    def without(self, demand: Demand, starts: Iterable[int], own: Fit) -> list[int]:
        """Those of the starts, which may be enough until the `own` reservation begins, that may be so for a
        whole window once it is freed."""
        if demand.shape is not None or demand.duration > own.demand.duration:
            return [*starts]
        return [at for at in starts if self._may_be_enough_without(demand, at, own)]

    def _may_be_enough_without(self, demand: Demand, starts: int, own: Fit) -> bool:
        known, pool = self._of_claim(demand, starts), self._state.pools[demand.gpu_class]
        if known is None or not known.any_leaves:
            return False
        columns = [pool.column[place.gpu] for place in own.places]
        until = known.until.copy()
        its = until[columns]
        until[columns] = np.where(its == own.starts, _NEVER, its)
        return pool.last_of(demand.level, until, demand.count) >= self._state.grid.end(
            starts + demand.duration
        )

    def _of_claim(self, demand: Demand, starts: int) -> _Known | None:
        """What is known of this claim; None: nobody is paused for it."""
        claim = self._rules.claim(demand, starts)
        if claim is None:
            return None
        leaving = self._rules.leaving(claim)
        return self._read(
            claim.block.use,
            (demand.gpu_class, starts),
            leaving,
            lambda: (each.runner for _, each in leaving.rows()),
        )

    def _last(self, demand: Demand, known: _Known) -> int:
        """The last end until which enough columns can be free, in one group of the level."""
        if not known.any_leaves:
            return 0
        key = (demand.count, demand.level)
        if key not in known.last:
            pool = self._state.pools[demand.gpu_class]
            known.last[key] = pool.last_of(demand.level, known.until, demand.count)
        return known.last[key]

    def _read(
        self,
        whose: object,
        at: tuple[str, int],
        leaving: Leaving[Any],
        runners: Callable[[], Iterable[RunningBooking]],
    ) -> _Known:
        gpu_class, starts = at
        running, serial = self._state.running, leaving.serial
        frees, changes = self._state.frees.get(gpu_class, 0), running.changes(gpu_class)
        known = self._known.get((whose, starts))
        if known is not None and known.frees == frees and known.serial == serial:
            known.changes = changes
            return known
        if known is None or known.changes != changes:
            # Only then may others leave, or somebody leave at another second.
            gone = list(runners())
            any_leaves = bool(gone)
            stays = running.staying(gpu_class, gone, starts).column
        else:
            any_leaves, stays = known.any_leaves, known.stays
        until = self._free_until(gpu_class, stays, starts)
        known = _Known(frees, changes, serial, any_leaves, stays, until)
        self._known[whose, starts] = known
        return known

    def _free_until(self, gpu_class: str, stays: Index, starts: int) -> Ints:
        """For each column the second until which it can be free from `starts` on; 0: it can't."""
        state = self._state
        eligible = state.pools[gpu_class].eligible(None)
        until = np.where(eligible, state.firm.gpus[gpu_class].following.after(starts), 0)
        until[until <= starts] = 0
        until[stays] = 0
        return until


def is_allowed_without(
    state: CycleState, demand: Demand, starts: int, gone: Sequence[RunningBooking]
) -> bool:
    """True when nothing forbids the demand from `starts` on once these have left."""
    with _without(state, gone, starts):
        return state.over(demand, starts) is None


def may_lift(
    state: CycleState,
    block: Block,
    demand: Demand,
    starts: int,
    runners: Iterable[RunningBooking],
) -> bool:
    """False when a pause of these certainly leaves the block: only work of the own tenant counts
    against its guarantee, and against limits of it and of those inside it."""
    if block.kind in _OF_ALL:
        return True
    own = [each for each in runners if each.tenant == demand.owners[0]]
    if not own:
        return False
    with _without(state, own, starts):
        after = state.over(demand, starts)
    return after is None or after.kind in _OF_ALL


@contextmanager
def _without(state: CycleState, gone: Sequence[RunningBooking], starts: int) -> Iterator[None]:
    """Quota without these bookings from `starts` on."""
    running, quota = state.running, state.quota
    gone = [each for each in gone if starts < running.leaves(each)]
    windows = [(each.use, (starts, running.leaves(each))) for each in gone]
    is_one_by_one = len(windows) < _FEW or quota.has_hours
    if is_one_by_one:
        for each, (use, window) in zip(gone, windows, strict=True):
            quota.add(use, window, -1, each.until)
    else:
        quota.add_all((use._replace(units=-use.units), window) for use, window in windows)
    yield
    if is_one_by_one:
        for each, (use, window) in zip(gone, windows, strict=True):
            quota.add(use, window, 1, each.until)
    else:
        quota.add_all(windows)
