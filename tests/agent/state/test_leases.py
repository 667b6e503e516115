"""What an agent may run without the portal, and for how long."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

import wire
from agent.act.endings import KILL_AFTER_S
from agent.act.leases import MARGIN_S
from agent.plan.targets import Record, gpu_targets
from agent.ports.link import LeaseRead
from allocation.rules.nodes import leases as portal
from devtools.simulated.programs import SimulatedUsers
from tests.agent.builders import HOUR, KEY, NODE, NOW, Rig, a_document, a_rig, a_slice, cases

TTL = portal.TTL_SECONDS


def leased(
    *more: wire.DesiredAllocation, ends: int = NOW + HOUR, state: str = "run"
) -> list[wire.DesiredAllocation]:
    return [dataclasses.replace(a_slice("a1", ends=ends, state=state), lease=True), *more]


def heartbeat(rig: Rig) -> int:
    last = rig.sent.messages("heartbeat")[-1]
    assert isinstance(last, wire.Heartbeat)
    return last.seq


def a_lease(rig: Rig) -> wire.Lease:
    return wire.Lease(node=NODE, epoch=1, seq=heartbeat(rig), ttl=TTL)


def granted(rig: Rig, lease: wire.Lease | None = None, *, key: bytes = KEY) -> None:
    """The portal's answer arrives, to the last heartbeat unless said otherwise."""
    envelope = wire.seal(lease or a_lease(rig), key=key, key_version=1)
    rig.agent.handle(LeaseRead(envelope.to_json()), rig.sent)
    rig.agent.turn(rig.sent)


def begun(rig: Rig, *more: wire.DesiredAllocation) -> None:
    """Leased work that runs, by a lease that was asked for just now."""
    rig.desire(a_document({rig.gpu: leased(*more)}))
    granted(rig)
    assert rig.sent.states()["a1"] == "ready"


def test_what_needs_a_lease_begins_when_there_is_one(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: leased(a_slice("a2", slot=2))}))
    assert rig.sent.states() == {"a2": "ready"}
    granted(rig)
    assert rig.sent.states() == {"a1": "ready", "a2": "ready"}


def test_it_is_ended_a_margin_before_its_lease_and_the_rest_goes_on(rig: Rig) -> None:
    begun(rig, a_slice("a2", slot=2))
    rig.later(TTL - MARGIN_S - 0.5)
    assert rig.sent.states() == {"a1": "ready", "a2": "ready"}
    assert rig.agent.wait_s() <= 0.5
    rig.later(0.5)
    assert rig.instances() == [("2g.20gb", 2)]
    assert rig.sent.states() == {"a1": "failed", "a2": "ready"}
    assert {a.id: a.error for a in rig.sent.report().allocations} == {
        "a1": wire.LEASE_EXPIRED,
        "a2": None,
    }


def test_a_lease_is_counted_from_the_heartbeat_and_not_from_its_answer(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: leased()}))
    answer = a_lease(rig)
    rig.later(TTL - MARGIN_S - 1)
    granted(rig, answer)
    assert rig.sent.states() == {"a1": "ready"}
    rig.later(1)
    assert rig.instances() == []


def test_an_answer_that_comes_too_late_begins_nothing(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: leased()}))
    answer = a_lease(rig)
    rig.later(TTL)
    granted(rig, answer)
    assert rig.instances() == []


def test_renewed_leases_carry_it_to_its_end(rig: Rig) -> None:
    begun(rig)
    for _ in range(12):
        rig.later(5)
        granted(rig)
    assert rig.sent.states() == {"a1": "ready"}
    # Answers that come out of order, and again, take nothing back.
    newest = a_lease(rig)
    granted(rig, dataclasses.replace(newest, seq=newest.seq - 1))
    granted(rig, newest)
    rig.later(TTL - MARGIN_S - 1)
    assert rig.sent.states() == {"a1": "ready"}


@pytest.mark.parametrize("jump", [-HOUR, HOUR / 2])
def test_a_jump_of_the_clock_changes_no_lease(rig: Rig, jump: float) -> None:
    begun(rig)
    rig.wall.now += jump
    rig.later(TTL - MARGIN_S - 1)
    assert rig.sent.states() == {"a1": "ready"}
    rig.later(1)
    assert rig.instances() == []


def test_what_was_ended_for_its_lease_never_runs_again(rig: Rig) -> None:
    begun(rig)
    rig.later(TTL)
    for generation in (2, 3):
        granted(rig)
        rig.desire(a_document({rig.gpu: leased(ends=NOW + 2 * HOUR)}, generation=generation))
        assert rig.instances() == []
        assert rig.sent.states() == {"a1": "failed"}
    # Another allocation, as of the same booking's next try, is a new matter.
    rig.desire(
        a_document(
            {rig.gpu: [dataclasses.replace(a_slice("a9"), lease=True)]},
            generation=4,
        )
    )
    assert rig.sent.states() == {"a1": "empty", "a9": "ready"}


def test_it_is_proven_empty_when_the_portal_has_heard(rig: Rig) -> None:
    begun(rig)
    rig.later(TTL)
    rig.desire(a_document({rig.gpu: leased(state="release")}, generation=2))
    assert rig.sent.states() == {"a1": "empty"}
    rig.delivered()
    rig.desire(a_document({rig.gpu: []}, generation=3))
    rig.delivered()
    assert rig.node.store.held == {}


@pytest.mark.parametrize(
    "spoil",
    cases(
        {
            "of another node": (lambda lease: dataclasses.replace(lease, node="node-2"),),
            "of an older epoch": (lambda lease: dataclasses.replace(lease, epoch=0),),
            "of an epoch whose document is not here": (lambda lease: dataclasses.replace(lease, epoch=2),),
            "of a heartbeat that was never sent": (
                lambda lease: dataclasses.replace(lease, seq=lease.seq + 1),
            ),
        }
    ),
)
def test_an_answer_proves_nothing(rig: Rig, spoil: Callable[[wire.Lease], wire.Lease]) -> None:
    rig.desire(a_document({rig.gpu: leased()}))
    granted(rig, spoil(a_lease(rig)))
    assert rig.instances() == []


def test_an_answer_with_another_key_or_that_is_none_proves_nothing(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: leased()}))
    granted(rig, key=b"x" * 32)
    rig.agent.handle(LeaseRead(b"nonsense"), rig.sent)
    rig.agent.turn(rig.sent)
    assert rig.instances() == []


def test_a_restart_goes_on_with_the_lease_that_is_left(tmp_path: Path) -> None:
    with a_rig(tmp_path) as first:
        begun(first)
    with a_rig(tmp_path, at=NOW + 5) as second:
        second.steady.now += 5
        second.agent.turn(second.sent)
        assert second.sent.states() == {"a1": "ready"}
        second.later(TTL - MARGIN_S - 5)
        assert second.instances() == []


def test_an_agent_that_was_away_too_long_ends_it_first_of_all(tmp_path: Path) -> None:
    with a_rig(tmp_path) as first:
        begun(first)
    with a_rig(tmp_path, at=NOW + TTL) as second:
        second.steady.now += TTL
        second.agent.turn(second.sent)
        assert second.instances() == []
        assert second.sent.states() == {"a1": "failed"}


def test_a_mark_on_disk_outlives_the_agent_that_set_it(tmp_path: Path) -> None:
    with a_rig(tmp_path) as first:
        begun(first)
        first.later(TTL)
    with a_rig(tmp_path, at=NOW + TTL) as second:
        second.steady.now += TTL
        second.agent.turn(second.sent)
        granted(second)
        assert second.instances() == []
        assert second.node.store.held["a1"].fenced


def test_a_lease_of_another_boot_is_none(tmp_path: Path) -> None:
    with a_rig(tmp_path) as first:
        begun(first)
    saved = tmp_path / "lease.json"
    saved.write_text(saved.read_text().replace('"boot": "', '"boot": "another-'))
    with a_rig(tmp_path, at=NOW + 1) as second:
        second.agent.turn(second.sent)
        assert second.instances() == []


def test_a_full_disk_keeps_nothing_from_being_ended(rig: Rig) -> None:
    begun(rig)
    (rig.node.store.folder / "state.json.new").mkdir()
    rig.later(TTL)
    assert rig.instances() == []


def test_even_a_program_that_must_be_killed_is_gone_before_another_may_begin(
    tmp_path: Path,
) -> None:
    with a_rig(tmp_path, owners=lambda hardware: (SimulatedUsers(hardware),)) as rig:
        begun(rig)
        gpu = rig.hardware.gpus[0]
        rig.later(3)
        (pid,) = gpu.processes
        gpu.processes[pid] = dataclasses.replace(gpu.processes[pid], stubborn=True)
        rig.later(TTL - MARGIN_S - 3)
        assert gpu.processes
        rig.later(KILL_AFTER_S)
        assert not gpu.processes
        assert rig.instances() == []
    assert TTL - MARGIN_S + KILL_AFTER_S + 5 < portal.LEASE_EXPIRY_SECONDS
    assert portal.MARGIN_SECONDS == MARGIN_S


def test_what_may_begin_elsewhere_is_ended_and_not_frozen() -> None:
    notice = wire.Notice(id="n1", told=NOW, at=NOW + HOUR, method="suspend")
    (wanted,) = leased()
    wanted = dataclasses.replace(wanted, notice=notice)
    desired = a_document({"GPU-1": [wanted]})
    held = {"a1": Record(wanted, "GPU-1", given=True)}
    (target,) = gpu_targets(desired, held, NOW + 1)
    assert [(task.ending, task.allocation.notice) for task in target.tasks] == [(False, notice)]
    held = {"a1": dataclasses.replace(held["a1"], fenced=True)}
    (target,) = gpu_targets(desired, held, NOW + 1)
    assert [(task.ending, task.allocation.notice) for task in target.tasks] == [(True, None)]
