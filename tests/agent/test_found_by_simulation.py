"""What seeded schedules of faults have found in the agent, each as the smallest case of its own."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.nvml.gpu import NvmlGpu
from agent.plan.targets import Record
from agent.ports import handover
from agent.ports.gpu import GpuError, Place
from agent.ports.link import DocumentRead
from agent.state import store
from agent.state.store import Store, StoreError
from tests.agent.builders import (
    KEYS,
    NOW,
    Rig,
    a_document,
    a_rig,
    a_slice,
    a_whole,
    noticed,
    signed,
)


def full(path: Path, raw: bytes) -> None:
    raise OSError(28, "No space left on device")


def test_a_driver_that_refuses_to_make_a_slice_and_then_to_undo_it_ends_no_agent(
    rig: Rig,
) -> None:
    rig.driver.faults["nvmlGpuInstanceCreateComputeInstance"].append("NVML_ERROR_UNKNOWN")
    rig.driver.faults["nvmlGpuInstanceDestroy"].append("NVML_ERROR_TIMEOUT")
    rig.hardware.gpus[0].mig = True
    with pytest.raises(GpuError, match="usable"):
        NvmlGpu(rig.hardware.process_signal, rig.hardware.reset).create(rig.gpu, Place(14, 0, 2))
    assert rig.instances() == [("2g.20gb", 0)]

    rig.desire(a_document({rig.gpu: [a_slice()]}))
    assert rig.sent.states() == {"a1": "ready"}


def test_a_proof_that_a_restart_would_forget_is_not_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    monkeypatch.setattr(store, "write_synced", full)
    rig.desire(a_document({rig.gpu: [a_slice(state="release")]}, generation=2))
    assert (rig.sent.states(), rig.instances()) == ({"a1": "ending"}, [])

    monkeypatch.undo()
    rig.later(5)
    assert rig.sent.states() == {"a1": "empty"}


def test_nothing_is_begun_for_a_document_that_could_not_be_kept(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    monkeypatch.setattr(store, "write_synced", full)
    newer = [a_whole(state="release"), a_slice()]
    rig.desire(a_document({rig.gpu: newer}, generation=2))
    assert not rig.hardware.gpus[0].mig, "not even its mode was changed"

    monkeypatch.undo()
    rig.later(5)
    assert rig.sent.states() == {"a1": "ready", "w1": "empty"}


def test_a_store_that_can_not_be_written_is_as_it_was_written_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Store(tmp_path / "state.json", keys=KEYS, epoch=1, now=NOW)
    found.save()
    monkeypatch.setattr(store, "write_synced", full)
    found.held["a1"] = Record(a_slice(), "GPU-1")
    with pytest.raises(StoreError):
        found.save()
    assert found.held == {}


def test_numbers_rise_over_a_restart_with_a_clock_that_was_set_back(tmp_path: Path) -> None:
    ahead = Store(tmp_path / "state.json", keys=KEYS, epoch=1, now=NOW + 3600)
    ahead.save()
    last = max(ahead.next_seq() for _ in range(90))
    assert Store(tmp_path / "state.json", keys=KEYS, epoch=1, now=NOW).next_seq() > last


def test_what_was_told_to_be_empty_is_not_begun_again_by_a_clock_that_was_set_back(
    rig: Rig,
) -> None:
    rig.desire(a_document({rig.gpu: [a_slice(ends=NOW + 60)]}))
    rig.later(60)
    assert rig.sent.states() == {"a1": "empty"}
    rig.wall.now -= 30
    rig.later(5)
    assert (rig.sent.states(), rig.instances()) == ({"a1": "empty"}, [])

    rig.desire(a_document({rig.gpu: [a_slice(ends=NOW + 90)]}, generation=2))
    assert rig.sent.states() == {"a1": "ready"}, "the document gave it more time"


def test_a_booking_that_got_more_time_while_it_was_ended_keeps_its_programs(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_whole(ends=NOW + 60)]}))
    rig.hardware.process_start(rig.gpu, label="w1", stubborn=True)
    rig.later(60)
    assert rig.sent.states() == {"w1": "ending"}

    rig.desire(a_document({rig.gpu: [a_whole(ends=NOW + 90)]}, generation=2))
    assert rig.sent.states() == {"w1": "ready"}


class Died(BaseException):
    """As a kill -9: no handler sees it."""


@pytest.mark.parametrize("write", [1, 2, 3, 4])
def test_an_agent_that_dies_while_it_hands_over_leaves_no_file_behind(
    write: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [write]
    really: Callable[[Path, str], None] = handover.write_atomic

    def dies(path: Path, text: str) -> None:
        left[0] -= 1
        if not left[0]:
            raise Died
        really(path, text)

    for module in ("ports.handover", "owner.booking_files"):
        monkeypatch.setattr(f"agent.{module}.write_atomic", dies)
    with pytest.raises(Died), a_rig(tmp_path) as rig:
        rig.desire(a_document({rig.gpu: [a_slice()]}))
    monkeypatch.undo()
    with a_rig(tmp_path) as rig:
        rig.desire(a_document({rig.gpu: [a_slice(state="release")]}, generation=2))
        assert rig.sent.states() == {"a1": "empty"}
        assert list((tmp_path / "bookings").iterdir()) == []


def test_a_stranger_is_not_ended_for_a_booking_that_never_began_here(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: []}))
    rig.hardware.process_start(rig.gpu, label="unbooked")
    never_seen = a_whole(state="release")
    rig.desire(a_document({rig.gpu: [never_seen]}, generation=2))
    assert rig.sent.states() == {"w1": "empty"}
    rig.later(60)
    assert [p.label for p in rig.hardware.gpus[0].processes.values()] == ["unbooked"]


def test_what_is_forgotten_is_not_told_again_before_the_next_look(rig: Rig, tmp_path: Path) -> None:
    """An owner's word between two looks makes a report of what the last look saw."""
    other = rig.hardware.gpus[1].uuid
    runs = noticed(a_whole("w2", booking="BK-8"))
    gone = a_whole(state="release")
    rig.desire(a_document({rig.gpu: [a_whole()], other: [runs]}))
    rig.desire(a_document({rig.gpu: [gone], other: [runs]}, generation=2))
    newest = a_document({rig.gpu: [], other: [runs]}, generation=3)
    rig.agent.handle(DocumentRead(signed(newest).to_json()), rig.sent)
    rig.agent.turn(rig.sent)
    rig.delivered()
    assert set(rig.node.store.held) == {"w2"}

    os.utime(tmp_path / "bookings/biology.BK-8/saved", (NOW + 1, NOW + 1))
    rig.later(1)
    assert rig.sent.states() == {"w2": "ready"}


def test_a_hand_over_that_found_no_room_leaves_nothing_behind(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was released before there was room again, so nobody would have looked for its files."""
    write = handover.write_atomic

    def full_at_the_mark(path: Path, text: str) -> None:
        if path.name == "booking.json":
            raise OSError(28, "No space left on device")
        write(path, text)

    monkeypatch.setattr(handover, "write_atomic", full_at_the_mark)
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    assert rig.sent.states() == {"w1": "preparing"}
    assert list(rig.node.handover.root.iterdir()) == []

    monkeypatch.undo()
    rig.desire(a_document({rig.gpu: [a_whole(state="release")]}, generation=2))
    assert rig.sent.states() == {"w1": "empty"}
