"""Driver errors, unbooked processes, and slices made by hand."""

from pathlib import Path

import pytest

import wire
from tests.agent.builders import NOW, Rig, a_document, a_rig, a_slice, a_whole, cases


def errors(rig: Rig) -> list[tuple[str, int]]:
    return [(error.kind, error.code) for error in rig.sent.report().errors]


@pytest.mark.parametrize(
    ("xid", "bits", "reported"),
    cases(
        {
            "an Xid": (48, 0, ("xid", 48)),
            "a memory error of two bits": (0, 2, ("ecc", 2)),
            "a storm of corrected ones": (0, 1, ("ecc", 1)),
        }
    ),
)
def test_an_error_of_a_gpu_is_in_the_next_report(
    rig: Rig, xid: int, bits: int, reported: tuple[str, int]
) -> None:
    rig.later(0)
    rig.hardware.fail(rig.hardware.gpus[0], xid, bits=bits)
    rig.later(5)
    (error,) = rig.sent.report().errors
    assert error == wire.HardwareError(
        gpu=rig.gpu,
        kind="xid" if reported[0] == "xid" else "ecc",
        code=reported[1],
        instance=None,
        at=NOW + 5,
    )


def test_a_gpu_that_is_gone_does_not_silence_the_others(rig: Rig) -> None:
    rig.later(0)
    lost, well = rig.hardware.gpus
    rig.hardware.fail(lost, 79)
    rig.later(5)
    rig.hardware.fail(well, 63)
    rig.later(5)
    assert errors(rig) == [("xid", 79), ("xid", 63)]
    # It is listened to again when it is back.
    lost.lost = False
    rig.later(5)
    rig.hardware.fail(lost, 48)
    rig.later(5)
    assert errors(rig)[-1] == ("xid", 48)


@pytest.mark.parametrize(
    ("asked", "reported"), [(0, "none"), (1, "reset"), (2, "reboot"), (4, "drain"), (6, "reset")]
)
def test_with_xid_154_the_driver_is_asked_what_it_wants(rig: Rig, asked: int, reported: str) -> None:
    rig.later(0)
    rig.hardware.gpus[0].recovery = asked
    rig.hardware.fail(rig.hardware.gpus[0], 154)
    rig.later(5)
    (error,) = rig.sent.report().errors
    assert (error.code, error.recovery) == (154, reported)


def test_an_old_driver_does_not_say_what_it_wants(tmp_path: Path) -> None:
    with a_rig(tmp_path, driver="550") as rig:
        rig.later(0)
        rig.hardware.fail(rig.hardware.gpus[0], 154)
        rig.later(5)
        assert [error.recovery for error in rig.sent.report().errors] == [None]


def test_an_agent_without_events_serves_all_the_same(rig: Rig) -> None:
    rig.driver.faults["nvmlEventSetCreate"] += ["NVML_ERROR_NOT_SUPPORTED"] * 99
    rig.desire(a_document({rig.gpu: [a_whole("w1")]}))
    assert rig.sent.states() == {"w1": "ready"}


def test_an_error_of_a_slice_names_it(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_slice("a1")]}))
    rig.later(1)
    (device,) = rig.sent.report().allocations[0].devices
    (number,) = rig.hardware.gpus[0].instances
    rig.hardware.fail(rig.hardware.gpus[0], 94, instance=number)
    rig.later(5)
    assert [error.instance for error in rig.sent.report().errors] == [device]


def test_a_gpu_that_is_gone_still_had_its_error_told(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_whole("w1")]}))
    rig.hardware.fail(rig.hardware.gpus[0], 79)
    rig.later(5)
    report = rig.sent.report()
    assert errors(rig) == [("xid", 79)]
    assert rig.gpu not in {gpu.uuid for gpu in report.gpus}
    assert rig.sent.states() == {"w1": "failed"}


def test_errors_are_told_in_each_report_and_once_in_each(rig: Rig) -> None:
    rig.later(0)
    rig.hardware.fail(rig.hardware.gpus[0], 63)
    rig.hardware.fail(rig.hardware.gpus[0], 63)
    rig.later(5)
    said = len(rig.sent.messages("report"))
    rig.later(5)
    # Nothing new: nothing said.
    assert len(rig.sent.messages("report")) == said
    rig.later(60)
    assert errors(rig) == [("xid", 63)]
    assert len(rig.sent.messages("report")) == said + 1


def test_a_process_on_a_gpu_that_nobody_was_given_is_told_with_its_user(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: []}, mode="whole"))
    rig.hardware.process_start(rig.gpu, label="mining", user="eve")
    rig.later(5)
    assert rig.sent.report().foreign == (
        wire.UnbookedDevice(gpu=rig.gpu, slot=None, processes=1, users=("eve",)),
    )
    # Nothing is done to it.
    assert len(rig.hardware.running(rig.hardware.gpus[0])) == 1


def test_a_bookings_own_processes_are_nobodys_business(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_whole("w1")]}))
    rig.later(0)
    rig.hardware.process_start(rig.gpu, label="training", user="ada")
    rig.later(5)
    assert rig.sent.report().foreign == ()
    # Negative control: the same process is foreign once the booking is over.
    rig.desire(a_document({rig.gpu: []}, mode="whole", generation=2))
    rig.hardware.process_start(rig.gpu, label="left-over", user="ada", stubborn=True)
    rig.later(30)
    rig.hardware.process_start(rig.gpu, label="later", user="ada")
    rig.later(5)
    assert [item.users for item in rig.sent.report().foreign] == [("ada",)]


def test_a_slice_made_by_hand_is_told_of_nobody_and_stays_while_it_is_used(rig: Rig) -> None:
    gpu = rig.hardware.gpus[0]
    rig.hardware.mode_set(gpu, mig=True)
    made = rig.hardware.instance_create(gpu, 9, 0, 4)
    rig.hardware.compute_create(gpu, made)
    rig.hardware.process_start(gpu.mig_uuid(made), label="by-hand", user="root")
    rig.desire(a_document({rig.gpu: [a_slice("a1", slot=0)]}))
    rig.later(5)
    report = rig.sent.report()
    assert [(i.slot, i.allocation) for g in report.gpus for i in g.instances] == [(0, None)]
    assert [(item.slot, item.users) for item in report.foreign] == [(0, ("root",))]
    assert rig.sent.states() == {"a1": "preparing"}
    assert rig.instances() == [("3g.40gb", 0)]
    # Idle, it makes room for who booked the place.
    (process,) = rig.hardware.running(gpu)
    rig.hardware.process_signal(process.pid, force=True)
    rig.later(5)
    assert rig.instances() == [("2g.20gb", 0)]
