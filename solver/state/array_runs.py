"""When the last of many equal runs ends, if nobody else books meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace

from solver.model.demand import Demand, Fit
from solver.state.cycle_state import CycleState

MOST_PLACED = 200
"""Runs that get places. The others follow at the rate of these."""


@dataclass(frozen=True, slots=True)
class Runs:
    """How many equal runs there are, and how many of them may be open at a time."""

    count: int
    parallel: int


@dataclass(frozen=True, slots=True)
class LastRun:
    """The end of the last run, and the most runs that are placed at a time before."""

    ends: int
    at_once: int


def last_run(state: CycleState, demands: Sequence[Demand], starts: int, length: int, runs: Runs) -> LastRun:
    """Returns the end of the last run if one after another gets its earliest start from `starts` on
    by free room and quota. What has no place within the horizon follows at the same rate; without
    any place one run of `length` follows the other. Nothing stays reserved."""
    placed = _placed(state, demands, starts, runs)
    windows = [fit.window for fit in placed]
    at_once = _most_at_once(windows)
    open_ends = sorted(ends for _, ends in windows)[-at_once:] if windows else [starts]
    last = max(open_ends)
    heapify(open_ends)
    for _ in range(runs.count - len(placed)):
        ends = open_ends[0] + length
        heapreplace(open_ends, ends)
        last = max(last, ends)
    return LastRun(last, max(1, at_once))


def _placed(state: CycleState, demands: Sequence[Demand], starts: int, runs: Runs) -> Sequence[Fit]:
    """Returns the fits of the first runs."""
    horizon, placed, open_ends = state.now + state.policy.horizon, list[Fit](), list[int]()
    while len(placed) < min(runs.count, MOST_PLACED):
        if len(open_ends) >= runs.parallel:
            starts = max(starts, heappop(open_ends))
        found = state.earliest(demands, starts, horizon)
        if found is None:
            break
        state.reserve(found)
        placed.append(found)
        heappush(open_ends, found.ends)
    for fit in reversed(placed):
        state.free(fit)
    return placed


def _most_at_once(windows: Sequence[tuple[int, int]]) -> int:
    """Returns how many of the windows overlap at most."""
    begun, ended = ([(window[at], step) for window in windows] for at, step in ((0, 1), (1, -1)))
    edges = sorted(begun + ended)
    most = now = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most
