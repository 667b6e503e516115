"""Seeded schedules of faults, and that the simulator would see a violated invariant."""

import dataclasses
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from unittest import mock

import pynvml
import pytest

from agent.act.leases import Leases
from agent.host.open_files import Openers
from agent.nvml import processes
from agent.nvml.processes import DevicePrograms, Processes
from agent.plan import reconcile, targets
from agent.state.store import Store
from allocation.rules.nodes import leases
from devtools.simulated.programs import SimulatedOpenFiles
from solver import Snapshot
from tests.servers.servers import ROOT
from tests.simulation.model import (
    healing,
    lifecycle,
    maintenance,
    pausing,
    planning,
    portal,
    snapshots,
)
from tests.simulation.nodes.machine import SlowWorkerThreads
from tests.simulation.requests import changes, waitlist
from tests.simulation.requests.tables import ChangeRow
from tests.simulation.schedules.coverage import KINDS, happened
from tests.simulation.schedules.scenes import (
    clock_set_back,
    cut_off_on_lease,
    driver_that_hangs,
    node_unreachable,
    old_reports_repeated,
    shares_side_by_side,
    under_maintenance,
)
from tests.simulation.schedules.schedule import Schedule, schedule_run
from tests.simulation.tables import accounts
from tests.simulation.tables.rows import Booking, Site, Tables

pytestmark = pytest.mark.turn

MOST_SEEDS = 300


def is_found(
    *invariants: str,
    says: str = "",
    prepare: Callable[[Schedule], None] = lambda _: None,
    first: int = 0,
    has_requests: bool = False,
) -> bool:
    """Returns whether some seed violates one of the invariants, in such words. `first` is near
    one that does, as long as nothing else is drawn. `has_requests`: people change and wait, too."""

    def prepared(schedule: Schedule) -> None:
        schedule.has_requests = has_requests
        prepare(schedule)

    seeds = range(first, first + MOST_SEEDS)
    runs = (schedule_run(seed, prepared).world.violations for seed in seeds)
    return any(text.startswith(invariants) and says in text for found in runs for text in found)


def without_proof(schedule: Schedule) -> None:
    """A portal that starts a booking wherever the calendar is free."""
    schedule.portal.tables.proof_needed = False


def without_shares(tables: Tables, site: Site, now: float) -> Snapshot:
    """What is shared is nobody's, for the solver."""
    seen = snapshots.snapshot_take(tables, site, now)
    held = tuple(each for each in seen.held if each.place.share is None)
    return dataclasses.replace(seen, held=held)


def without_pins(tables: Tables, site: Site, now: float) -> Snapshot:
    """No request is pinned, for the solver."""
    seen = snapshots.snapshot_take(tables, site, now)
    requests = tuple(
        dataclasses.replace(each, ask=dataclasses.replace(each.ask, pin=())) for each in seen.requests
    )
    return dataclasses.replace(seen, requests=requests)


def test_schedules_violate_no_invariant() -> None:
    for seed in range(40):
        schedule = schedule_run(seed)
        assert schedule.world.violations == [], [f"seed {seed}", *schedule.story]


def test_a_seed_always_tells_the_same_story() -> None:
    one, other = schedule_run(7), schedule_run(7)
    assert one.story == other.story
    assert one.portal.tables == other.portal.tables
    assert [n.occupancy.closed for n in one.world.nodes] == [n.occupancy.closed for n in other.world.nodes]


def test_a_portal_that_does_not_wait_for_proof_is_seen() -> None:
    assert is_found("P2", prepare=without_proof)


def test_an_agent_that_does_not_compare_generations_is_seen() -> None:
    with mock.patch.object(Store, "judge", return_value="new"):
        assert is_found("P2", "P3", prepare=old_reports_repeated)


def test_an_agent_that_takes_a_device_for_empty_with_a_program_on_it_is_seen() -> None:
    with mock.patch.object(Processes, "on", return_value=DevicePrograms((), 0)):
        assert is_found("P2", first=4)


def test_an_agent_that_asks_only_for_programs_that_compute_is_seen() -> None:
    with (
        mock.patch.object(processes, "_listed", _computing),
        mock.patch.object(SimulatedOpenFiles, "openers", return_value=Openers()),
    ):
        assert is_found("P2")


def _computing(device):  # type: ignore[no-untyped-def]  # as the real one
    return [each.pid for each in pynvml.nvmlDeviceGetComputeRunningProcesses(device)]


def test_an_agent_that_follows_its_clock_back_in_time_is_seen() -> None:
    """What is empty begins again once the clock says that it is not over yet."""
    really = targets.gpu_targets

    def forgetful(desired, held, now):  # type: ignore[no-untyped-def]  # as the real one
        again = {
            name: record
            if record.allocation.ends <= now or record.allocation.state == "release"
            else targets.Record(record.allocation, record.gpu, given=record.given)
            for name, record in held.items()
        }
        return really(desired, again, now)

    with mock.patch("agent.process.gpu_targets", forgetful):
        assert is_found("P2", prepare=clock_set_back)


def test_an_agent_that_does_not_fence_itself_is_seen() -> None:
    with mock.patch.object(Leases, "fence", lambda _, held, __: dict(held)):
        assert is_found("P12", says="runs twice", prepare=cut_off_on_lease, first=36)


def test_a_portal_that_begins_work_anew_too_early_is_seen() -> None:
    with mock.patch.object(leases, "LEASE_EXPIRY_SECONDS", 4):
        assert is_found("P12", says="runs twice", prepare=cut_off_on_lease, first=7)


def test_an_agent_that_pauses_at_the_notice_is_seen() -> None:
    really = targets.gpu_targets

    def hasty(desired, held, now):  # type: ignore[no-untyped-def]  # as the real one
        return [
            dataclasses.replace(
                target,
                tasks=tuple(
                    dataclasses.replace(task, ending=task.ending or bool(task.allocation.notice))
                    for task in target.tasks
                ),
            )
            for target in really(desired, held, now)
        ]

    with mock.patch("agent.process.gpu_targets", hasty):
        assert is_found("P12", says="before the end of its grace")


def test_a_portal_that_tells_too_late_is_seen() -> None:
    really = pausing.pause_begin

    def late(tables, solver_pause, *rest):  # type: ignore[no-untyped-def]  # as the real one
        really(tables, dataclasses.replace(solver_pause, at=solver_pause.at - 9), *rest)

    with mock.patch.object(planning, "pause_begin", late):
        assert is_found("P12", says="was not notified in time")


def test_a_beneficiary_that_starts_at_the_word_and_not_at_the_proof_is_seen() -> None:
    really = lifecycle.starts_due

    def trusting(tables, now):  # type: ignore[no-untyped-def]  # as the real one
        saved = {p.booking for p in tables.pauses.values() if p.acknowledged_at is not None}
        rows = [r for r in tables.rows.values() if r.occupied and r.booking in saved]
        for row in rows:
            row.occupied = False
        really(tables, now)

    with mock.patch.object(lifecycle, "starts_due", trusting):
        assert is_found("P2")


def test_a_credit_that_is_given_twice_is_seen() -> None:
    really = accounts._bill

    def generous(tables, booking, pause):  # type: ignore[no-untyped-def]  # as the real one
        really(tables, booking, pause)
        pause.remaining_seconds += pause.credit_seconds

    with mock.patch.object(accounts, "_bill", generous):
        assert is_found("P12", says="seconds")


def test_shares_without_a_guard_are_seen() -> None:
    """Neither the solver nor the portal nor the agent counts what is shared already."""
    with (
        mock.patch.object(portal, "snapshot_take", without_shares),
        mock.patch.object(planning, "is_excluded", return_value=False),
    ):
        assert is_found("P1", says="shared beyond the whole", prepare=shares_side_by_side)


def test_shares_that_no_agent_keeps_apart_are_seen() -> None:
    with (
        mock.patch.object(lifecycle, "_is_free", return_value=True),
        mock.patch.object(reconcile, "_blocked_by", return_value=None),
    ):
        assert is_found("P2", says="shared", prepare=shares_side_by_side)


def test_an_agent_that_takes_what_strangers_made_for_its_own_is_seen() -> None:
    really = targets.gpu_targets

    def grasping(desired, held, now):  # type: ignore[no-untyped-def]  # as the real one
        return [
            dataclasses.replace(
                target, tasks=tuple(dataclasses.replace(task, given=True) for task in target.tasks)
            )
            for target in really(desired, held, now)
        ]

    with mock.patch("agent.process.gpu_targets", grasping):
        assert is_found("P2", says="foreign", first=37)


def test_a_portal_that_tells_nodes_which_do_not_answer_is_seen() -> None:
    with mock.patch.object(Tables, "is_silent", return_value=False):
        assert is_found("R85", prepare=node_unreachable)


def test_a_portal_that_forgets_what_was_asked_for_by_name_is_seen() -> None:
    with mock.patch.object(portal, "snapshot_take", without_pins):
        assert is_found("R78")


def test_a_portal_that_begins_work_under_maintenance_is_seen() -> None:
    with (
        mock.patch.object(maintenance, "closures", return_value=()),
        mock.patch.object(healing, "is_away", return_value=False),
    ):
        assert is_found("R33", prepare=under_maintenance)


def test_a_portal_that_begins_work_on_broken_hardware_is_seen() -> None:
    with (
        mock.patch.object(snapshots, "_is_usable", return_value=True),
        mock.patch.object(healing, "_blocked", return_value=False),
    ):
        assert is_found("R62", prepare=driver_that_hangs)


def test_a_call_that_comes_back_late_does_what_it_was_to_do() -> None:
    late: list[str] = []
    really = SlowWorkerThreads.come_back

    def watched(lanes: SlowWorkerThreads) -> None:
        late.extend(lanes._out)
        really(lanes)

    with mock.patch.object(SlowWorkerThreads, "come_back", watched):
        assert all(not schedule_run(seed, driver_that_hangs).world.violations for seed in range(8))
    assert late


def test_an_offer_that_is_accepted_too_late_is_seen() -> None:
    def whenever(tables: Tables, booking: Booking, now: float) -> None:
        really(tables, booking, tables.offers[booking.id].until - 1)

    really = waitlist.accept
    with mock.patch.object(waitlist, "accept", whenever):
        assert is_found("C9", has_requests=True)


def test_a_calendar_that_keeps_what_a_change_gave_up_is_seen() -> None:
    def forgetful(tables: Tables, _: Site) -> None:
        tables.cuts.clear()

    with mock.patch.object(changes, "calendar_cut", forgetful):
        assert is_found("C11", has_requests=True)


def test_a_change_that_is_refused_and_made_is_seen() -> None:
    def half_made(tables: Tables, booking: Booking, row: ChangeRow, *_: object) -> None:
        del tables.changes[booking.id]
        booking.requested = row.requested

    with mock.patch.object(changes, "_keep_or_wait", half_made):
        assert is_found("C1", has_requests=True)


def without_interludes(schedule: Schedule) -> None:
    schedule.has_interludes = schedule.has_requests = False


@pytest.mark.long
def test_everything_that_may_happen_does() -> None:
    """In seeds among which are those of what is rare."""
    seeds = (160, 556, 563, *range(269, 440))
    counts = sum((happened(schedule_run(seed, without_interludes)) for seed in seeds), Counter())
    counts += sum((happened(schedule_run(seed)) for seed in range(200, 400)), Counter())
    assert [kind for kind in KINDS if not counts[kind]] == []


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
