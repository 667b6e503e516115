"""Room opens on the grid: few rows, the same charge, and no planned start is lost by it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import PlannedStart, solve
from solver.model.demand import demands_of
from solver.model.ordering import in_order
from solver.state.cycle_state import CycleState
from solver.timeline.grid import Grid
from tests.solver.builders import HOUR, NOON, POLICY, a_held, a_request, a_snapshot, an_ask, gpus

SECONDS = st.integers(0, 100 * HOUR)


@given(SECONDS, SECONDS, SECONDS)
def test_room_opens_at_most_a_step_late_and_never_later_than_it_was_said(
    now: int, later: int, ends: int
) -> None:
    early, late = Grid(now, 300), Grid(now + later, 300)
    assert ends <= late.end(ends) <= early.end(ends) < ends + 300
    assert early.end(early.end(ends)) == early.end(ends)
    assert early.end(ends) == ends or ends > now + HOUR


@pytest.mark.parametrize("far", [(), (400 * HOUR,), (10**12,)], ids=["none", "table", "search"])
@given(st.lists(SECONDS, max_size=8), st.lists(SECONDS, min_size=1, max_size=8))
def test_many_ends_open_room_as_each_by_itself(
    far: tuple[int, ...], starts: list[int], ends: list[int]
) -> None:
    """Also when exact cells are too far apart for a table."""
    grid = Grid.of(HOUR, 300, [*starts, *(each + 1 for each in far)])
    ends += [each + 7 for each in (*starts, *far)]
    assert grid.ends(np.array(ends)).tolist() == [grid.end(each) for each in ends]


def test_ends_at_any_second_make_no_more_rows_than_the_grid_has() -> None:
    asks = [replace(a_request(f"b{n:03}", an_ask(1 + n % 4)), duration=2 * HOUR + 37 * n) for n in range(80)]
    state = CycleState(in_order(a_snapshot(*asks, fleet=gpus(8))), POLICY)
    for each in asks:
        found = state.earliest(demands_of(each), state.now, state.now + POLICY.horizon)
        assert found is not None
        assert found.ends == found.starts + each.duration
        state.reserve(found)
    times = state.all.gpus["h100"].starts_between(NOON, NOON + POLICY.horizon)
    assert len(times) > 20
    assert not (times % 300).any()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(HOUR + 1, 9 * HOUR), min_size=2, max_size=6, unique=True))
def test_a_start_off_the_grid_that_is_planned_already_stays(ends: list[int]) -> None:
    fleet = gpus(len(ends))
    held = tuple(a_held(gpu.id, ends=end) for gpu, end in zip(fleet, ends, strict=True))
    # As planned before there was a grid: each begins with the end of what is in its way.
    places = [row.place for row in held]
    waiting = [
        replace(
            a_request(f"b{n}"),
            planned=PlannedStart(NOON + end, NOON + end + HOUR, (places[n],), strength="guaranteed"),
        )
        for n, end in enumerate(ends)
    ]
    plan = solve(a_snapshot(*waiting, fleet=fleet, held=held), POLICY)
    assert {wait.booking: wait.delayed_by for wait in plan.waits} == {each.booking: None for each in waiting}
    for wait, end in zip(plan.waits, ends, strict=True):
        assert wait.starts <= NOON + end
