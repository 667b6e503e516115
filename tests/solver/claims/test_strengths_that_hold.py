"""A start that was announced as guaranteed is moved by its own organisation alone."""

from dataclasses import replace

import pytest

from solver import Extension, Plan, Policy, Request, Snapshot, solve
from solver.model.inputs import Strength
from tests.bench.solver.crowded import site_of, the_next
from tests.solver.builders import HOUR, NOON, POLICY, a_limit, a_planned_start, gpus, whole
from tests.solver.pausing import a_claim, a_site, given, running

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


def test_a_later_end_of_another_organisation_moves_no_guaranteed_start() -> None:
    """It takes the expected start of the booking ahead, which does not take that of its own
    organisation behind it."""

    def planned(booking: str, starts: int, hours: int, gpu: str, strength: Strength) -> Request:
        claim = a_claim(booking, hours=hours, submitted=-60 if booking == "ahead" else 0)
        return replace(claim, planned=a_planned_start(starts, hours, whole(gpu), strength=strength))

    ahead = planned("ahead", HOUR, 3, "n1-0", "expected")
    behind = planned("behind", 3 * HOUR, 1, "n1-1", "guaranteed")
    held = [
        *running("other", whole("n1-0"), tenant="firm", tier="standard", ends=HOUR),
        *running("last", whole("n1-1"), tenant="firm", tier="standard", ends=3 * HOUR),
    ]
    limits = (a_limit("lab", 2), a_limit("firm", 2))
    site = a_site(ahead, behind, held=tuple(held), fleet=gpus(2), limits=limits)
    assert given(solve(site, POLICY)) == {"ahead": ("wait", HOUR), "behind": ("wait", 3 * HOUR)}
    site = replace(site, extensions=(Extension("other", NOON + 6 * HOUR),))
    plan = solve(site, POLICY)
    assert [each.granted for each in plan.extensions] == [True]
    assert given(plan) == {"ahead": ("wait", 4 * HOUR), "behind": ("wait", 3 * HOUR)}
