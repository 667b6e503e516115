"""The agent when documents, the disk or the GPUs are not as they should be."""

import dataclasses
from pathlib import Path

import pytest

from agent.ports.link import DocumentRead
from agent.state import store
from tests.agent.builders import (
    NOW,
    Rig,
    a_document,
    a_rig,
    a_slice,
    cases,
    signed,
)


@pytest.mark.parametrize(
    ("raw", "said"),
    cases(
        {
            "signed by someone else": (
                signed(a_document({}, generation=9), key=b"x" * 32).to_json(),
                "bad_mac",
            ),
            "for another node": (
                signed(a_document({}, generation=9, node="node-2")).to_json(),
                "is for node-2",
            ),
            "older than the one followed": (
                signed(a_document({}, generation=1)).to_json(),
                "(1, 1) is stale, we follow (1, 2)",
            ),
            "another one under the same number": (
                signed(a_document({}, generation=2)).to_json(),
                "(1, 2) is conflict",
            ),
            "no document at all": (b"hello", "malformed"),
        }
    ),
)
def test_a_document_that_must_not_be_followed_changes_nothing_and_is_told(
    raw: bytes, said: str, rig: Rig
) -> None:
    good = a_document({rig.gpu: [a_slice()]}, generation=2)
    rig.desire(good)
    rig.agent.handle(DocumentRead(raw), rig.sent)
    rig.agent.turn(rig.sent)

    report = rig.sent.report()
    assert said in (report.error or "")
    assert report.observed_generation == 2
    assert rig.sent.states() == {"a1": "ready"}

    rig.agent.handle(DocumentRead(signed(good).to_json()), rig.sent)
    rig.later(5)
    assert rig.sent.report().error is None


def test_without_a_writable_state_nothing_new_begins_and_what_runs_still_ends(
    rig: Rig, tmp_path: Path
) -> None:
    running = a_slice(ends=NOW + 10)
    rig.desire(a_document({rig.gpu: [running]}))
    (tmp_path / "state.json").unlink()
    (tmp_path / "state.json").mkdir()
    rig.desire(a_document({rig.gpu: [running, a_slice("a2", slot=2)]}, generation=2))

    assert rig.sent.states() == {"a1": "ready"}
    assert "can't be written" in (rig.sent.report().error or "")
    assert rig.instances() == [("2g.20gb", 0)]
    rig.later(10)
    assert rig.instances() == []
    # A proof that is not on disk is not reported.
    assert rig.sent.states() == {"a1": "ending"}

    (tmp_path / "state.json").rmdir()
    rig.later(5)
    assert rig.sent.states() == {"a1": "empty", "a2": "ready"}
    assert rig.sent.report().error is None


def test_a_lost_gpu_proves_nothing(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_slice(), a_slice("a2", slot=2)]}))
    rig.hardware.gpus[0].lost = True
    released = [a_slice(state="release"), a_slice("a2", slot=2)]
    rig.desire(a_document({rig.gpu: released}, generation=2))

    report = rig.sent.report()
    assert rig.sent.states() == {"a1": "ending", "a2": "failed"}
    assert [gpu.uuid for gpu in report.gpus] == [rig.hardware.gpus[1].uuid]
    assert report.error == f"{rig.gpu}: reading the GPU: the GPU is not there"

    rig.hardware.gpus[0].lost = False
    rig.later(5)
    assert rig.sent.states() == {"a1": "empty", "a2": "ready"}


def test_a_driver_that_does_not_answer_for_a_moment_fails_no_running_booking(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    before = rig.sent.report().allocations[0]
    rig.driver.faults["nvmlDeviceGetMigMode"].append("NVML_ERROR_TIMEOUT")
    rig.later(5)

    (found,) = rig.sent.report().allocations
    assert (found.state, found.devices) == ("ready", before.devices)
    assert found.error == "reading the GPU: Timeout"
    rig.later(5)
    assert rig.sent.report().allocations == (before,)


def test_a_passing_refusal_is_tried_again(rig: Rig) -> None:
    rig.driver.faults["nvmlDeviceCreateGpuInstanceWithPlacement"].append("NVML_ERROR_IN_USE")
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    (found,) = rig.sent.report().allocations
    assert (found.state, found.error) == (
        "preparing",
        "making the slice: a process still uses it",
    )

    rig.later(5)
    assert rig.sent.states() == {"a1": "ready"}


def test_a_lasting_refusal_fails_until_the_next_document(rig: Rig) -> None:
    wrong = dataclasses.replace(a_slice(), slot=1)
    rig.desire(a_document({rig.gpu: [wrong]}))
    assert rig.sent.states() == {"a1": "failed"}
    rig.later(5)
    assert rig.sent.states() == {"a1": "failed"}

    rig.desire(a_document({rig.gpu: [a_slice()]}, generation=2))
    assert rig.sent.states() == {"a1": "ready"}


def test_one_allocation_that_can_not_be_made_does_not_hold_up_the_others(rig: Rig) -> None:
    wrong = dataclasses.replace(a_slice(), slot=1)
    rig.desire(a_document({rig.gpu: [wrong, a_slice("a2", slot=4)]}))

    assert rig.sent.states() == {"a1": "failed", "a2": "ready"}


def test_a_model_that_needs_a_reset_and_gets_none_says_so(tmp_path: Path) -> None:
    with a_rig(tmp_path, simulate="a100:1") as rig:
        rig.hardware.reset_fails = "not supported"
        rig.desire(a_document({rig.gpu: [a_slice()]}))

        assert rig.sent.states() == {"a1": "preparing"}
        assert "not supported" in (rig.sent.report().gpus[0].error or "")


def test_if_the_proof_of_empty_can_not_be_kept_the_next_booking_waits(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, then = a_slice("a0", ends=NOW + 60), a_slice("a1", starts=NOW + 60)
    rig.desire(a_document({rig.gpu: [first, then]}))
    saves = iter([None])

    def full(path: Path, raw: bytes) -> None:
        if next(saves, 1) is not None:
            raise OSError("no space left")

    monkeypatch.setattr(store, "write_synced", full)
    rig.later(60)
    assert rig.instances() == []
    assert rig.sent.states()["a1"] == "preparing"

    monkeypatch.undo()
    rig.later(5)
    assert rig.sent.states() == {"a0": "empty", "a1": "ready"}
