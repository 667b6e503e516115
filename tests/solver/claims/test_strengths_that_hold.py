"""A start that was announced as guaranteed is moved by its own organisation alone."""

import pytest

from solver import Plan, Policy, Snapshot, solve
from tests.bench.solver.crowded import site_of, the_next

CYCLES = 4


def moved_by_others(site: Snapshot, plan: Plan) -> list[tuple[str, int]]:
    """Guaranteed starts that are later because of another organisation, by so many seconds."""
    planned = {each.booking: each.planned for each in site.requests}
    found = []
    for wait in plan.waits:
        before = planned[wait.booking]
        if before is None or before.strength != "guaranteed" or wait.delayed_by is None:
            continue
        late = wait.starts - max(before.starts, site.now)
        if late > 0 and wait.delayed_by.facts.get("own_tenant") == 0:
            found.append((wait.booking, late))
    return found


@pytest.mark.parametrize(("gpus", "classes", "pausable"), [(256, 1, 0.7), (320, 2, 0.4), (192, 1, 1.0)])
def test_no_guaranteed_start_of_a_crowded_site_is_moved_by_others(
    gpus: int, classes: int, pausable: float
) -> None:
    site = site_of(gpus, gpus, classes, pausable)
    guaranteed = 0
    for _ in range(CYCLES):
        plan = solve(site, Policy(1))
        assert moved_by_others(site, plan) == []
        guaranteed += sum(wait.strength == "guaranteed" for wait in plan.waits)
        site = the_next(site, plan)
    assert guaranteed > CYCLES * gpus // 8
