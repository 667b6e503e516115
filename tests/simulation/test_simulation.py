"""Seeded schedules of faults, and that the simulator would see a broken promise."""

import json
import subprocess
import sys
from collections.abc import Callable
from unittest import mock

import pytest

from allocation.agent import nvml_gpu, reconcile
from allocation.agent.store import Store
from tests.servers.servers import ROOT
from tests.simulation.schedule import Schedule, schedule_run

MOST_SEEDS = 150


def is_found(*promises: str, prepare: Callable[[Schedule], None] = lambda _: None) -> bool:
    """Whether some seed sees one of the promises broken."""
    runs = (schedule_run(seed, prepare).world.violations for seed in range(MOST_SEEDS))
    return any(violation.startswith(promises) for found in runs for violation in found)


def without_proof(schedule: Schedule) -> None:
    """A portal that starts a booking wherever the calendar is free."""
    schedule.portal.tables.proof_needed = False


def test_schedules_break_no_promise() -> None:
    for seed in range(40):
        schedule = schedule_run(seed)
        assert schedule.world.violations == [], [f"seed {seed}", *schedule.story]


def test_a_seed_always_tells_the_same_story() -> None:
    one, other = schedule_run(7), schedule_run(7)
    assert one.story == other.story
    assert one.portal.tables == other.portal.tables
    assert [n.occupancy.closed for n in one.world.nodes] == [
        n.occupancy.closed for n in other.world.nodes
    ]


def test_a_portal_that_does_not_wait_for_proof_is_seen() -> None:
    assert is_found("P2", prepare=without_proof)


def test_an_agent_that_does_not_compare_generations_is_seen() -> None:
    with mock.patch.object(Store, "judge", return_value="new"):
        assert is_found("P2", "P3")


def test_an_agent_that_takes_a_device_for_empty_with_a_program_on_it_is_seen() -> None:
    with mock.patch.object(nvml_gpu, "_processes", return_value=0):
        assert is_found("P2")


def test_an_agent_that_follows_its_clock_back_in_time_is_seen() -> None:
    """What is empty begins again once the clock says that it is not over yet."""
    really = reconcile.wishes

    def forgetful(desired, held, now):  # type: ignore[no-untyped-def]  # as the real one
        again = {
            name: record
            if record.allocation.ends <= now or record.allocation.state == "release"
            else reconcile.Held(record.allocation, record.gpu, given=record.given)
            for name, record in held.items()
        }
        return really(desired, again, now)

    with mock.patch.object(reconcile, "wishes", forgetful):
        assert is_found("P2")


@pytest.mark.faults
def test_the_command_ends_with_one_line_of_json() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--schedules", "40", "--first-seed", "900"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["schedules"], last["violations"]) == (40, 0)
    assert last.keys() == {"schedules", "violations", "seconds"}
