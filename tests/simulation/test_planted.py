"""Faults planted in the product, one at a time: schedules find each.

All are found within seeds 1 to 2,000 (`python -m tests.simulation --planted NAME`); here the search
begins at the first of the seeds that find it, so that it takes no time.
"""

import pytest

from tests.simulation.schedules.planted import FAULTS, planted
from tests.simulation.schedules.schedule import schedule_run

# By fault: the first seed that finds it, and what it says.
FOUND: dict[str, tuple[int, str]] = {
    "a move begins without its notice": (105, "P12"),
    "the agent does not sync what it must not forget": (53, "P2"),
    "a word that was overtaken is proof": (185, "P2"),
    "what died while it was suspended resumes": (261, "P12"),
    "a class has the GPUs of every class": (11, "P14"),
    "a gang of one node is spread": (52, "R4"),
    "an agent that was stopped keeps its lease": (454, "P12"),
    "a long lease is over with the portal's outage": (574, "P12"),
    "work begins while decisions are frozen": (5, "R120"),
}
MORE_SEEDS = 300


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    first, invariant = FOUND[name]
    with planted(name):
        runs = (schedule_run(seed).world.violations for seed in range(first, first + MORE_SEEDS))
        found = next((texts for texts in runs if texts), [])
    assert any(text.startswith(invariant) for text in found), found


@pytest.mark.parametrize("name", FAULTS)
def test_without_the_fault_its_seed_violates_no_invariant(name: str) -> None:
    assert schedule_run(FOUND[name][0]).world.violations == []
