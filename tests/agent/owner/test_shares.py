"""Shares: several bookings on one whole GPU, distinguished by the owners of their programs."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import wire
from agent.owner.device_holders import share_holders
from agent.owner.shares import NodeContext, active_bookings, environment
from agent.ports.programs import ProcessOwner
from tests.agent.builders import HOUR, NOW, Rig, a_document, a_rig, a_whole, cases, noticed


def a_share(
    name: str = "s1",
    share: int = 250,
    *,
    booking: str = "BK-1",
    owner: str = "ada",
    ends: int = NOW + HOUR,
) -> wire.DesiredAllocation:
    whole = a_whole(name, booking=booking, ends=ends)
    return dataclasses.replace(whole, share=share, owner=owner)


def shared(gpus: dict[str, list[wire.DesiredAllocation]], generation: int = 1) -> wire.Desired:
    return a_document(gpus, generation=generation, mode="shared")


def error(rig: Rig, name: str) -> str:
    (found,) = [each for each in rig.sent.report().allocations if each.id == name]
    return found.error or ""


def test_several_shares_are_on_one_gpu_at_once(rig: Rig) -> None:
    wanted = [a_share("s1"), a_share("s2", 500, booking="BK-2")]
    rig.desire(shared({rig.gpu: wanted}))
    assert rig.sent.states() == {"s1": "ready", "s2": "ready"}
    report = rig.sent.report()
    assert {a.devices for a in report.allocations} == {(rig.gpu,)}
    assert report.gpus[0].mode == "whole"


def test_programs_of_a_neighbour_do_not_keep_a_share_from_beginning_or_ending(rig: Rig) -> None:
    one, two = a_share("s1"), a_share("s2", 500, booking="BK-2")
    rig.desire(shared({rig.gpu: [one]}))
    rig.hardware.process_start(rig.gpu, label="biology.BK-1", stubborn=True)
    rig.desire(shared({rig.gpu: [one, two]}, 2))
    assert rig.sent.states() == {"s1": "ready", "s2": "ready"}
    mine = rig.hardware.process_start(rig.gpu, label="biology.BK-2")
    gone = dataclasses.replace(two, state="release")
    rig.desire(shared({rig.gpu: [one, gone]}, 3))
    assert rig.sent.states() == {"s1": "ready", "s2": "empty"}
    assert mine not in rig.hardware.gpus[0].processes
    assert len(rig.hardware.gpus[0].processes) == 1


def test_a_share_is_not_empty_while_a_program_of_it_runs(rig: Rig) -> None:
    one = a_share("s1")
    rig.desire(shared({rig.gpu: [one]}))
    rig.hardware.process_start(rig.gpu, label="biology.BK-1", stubborn=True)
    rig.desire(shared({rig.gpu: [dataclasses.replace(one, state="release")]}, 2))
    assert rig.sent.states() == {"s1": "ending"}
    rig.later(10)
    assert rig.sent.states() == {"s1": "empty"}


def test_a_whole_booking_waits_until_every_share_has_left(rig: Rig) -> None:
    one = a_share("s1", ends=NOW + 60)
    rig.desire(shared({rig.gpu: [one]}))
    rig.hardware.process_start(rig.gpu, label="biology.BK-1", stubborn=True)
    then = a_whole("w1", starts=NOW + 60)
    rig.desire(shared({rig.gpu: [one, then]}, 2))
    rig.later(60)
    assert rig.sent.states() == {"s1": "ending", "w1": "preparing"}
    assert error(rig, "w1") == "waits until BK-1 has left"
    rig.later(10)
    assert rig.sent.states() == {"s1": "empty", "w1": "ready"}


@pytest.mark.parametrize(
    ("other", "words"),
    cases(
        {
            "of another account": (
                a_share("s2", booking="BK-2", owner="eve"),
                "a shared GPU is for one account here",
            ),
            "more than is left": (a_share("s2", 751, booking="BK-2"), "more than the GPU"),
            "no share at all": (a_share("s2", 0, booking="BK-2"), "no share of 0 thousandths"),
            "more than a GPU": (a_share("s2", 1001, booking="BK-2"), "more than the GPU"),
        }
    ),
)
def test_a_share_that_can_not_be_beside_another_is_not_handed_over(
    other: wire.DesiredAllocation, words: str, rig: Rig, tmp_path: Path
) -> None:
    rig.desire(shared({rig.gpu: [a_share("s1"), other]}))
    assert rig.sent.states()["s1"] == "ready"
    assert rig.sent.states()["s2"] != "ready"
    assert words in error(rig, "s2")
    assert not (tmp_path / "bookings" / "biology.BK-2").exists()


def test_several_accounts_share_a_gpu_where_the_site_lets_them(tmp_path: Path) -> None:
    with a_rig(tmp_path) as rig:
        rig.agent._node = dataclasses.replace(rig.node, one_account=False)
        wanted = [a_share("s1"), a_share("s2", booking="BK-2", owner="eve")]
        rig.desire(shared({rig.gpu: wanted}))
        assert rig.sent.states() == {"s1": "ready", "s2": "ready"}


def test_a_share_tells_its_programs_its_part_of_the_gpu(rig: Rig, tmp_path: Path) -> None:
    place = NodeContext("node-1", tmp_path, Path("/run/mps"), {rig.gpu: 80_000})
    part = active_bookings(shared({rig.gpu: [a_share()]}), {"s1": rig.gpu}, NOW, place)["biology.BK-1"]
    values = environment(part)
    assert values["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert values["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=20000M"
    assert values["CUDA_MPS_PIPE_DIRECTORY"] == f"/run/mps/{rig.gpu}"
    assert values["CUDA_VISIBLE_DEVICES"] == rig.gpu


def test_of_several_shares_a_program_uses_one(rig: Rig, tmp_path: Path) -> None:
    gpus = {gpu.uuid: [a_share(f"s{gpu.index}", 100 + gpu.index)] for gpu in rig.hardware.gpus}
    rig.desire(shared(gpus))
    booking = json.loads((tmp_path / "bookings/biology.BK-1/booking.json").read_text())
    assert booking["isolated"] is False
    assert booking["environment"]["CUDA_VISIBLE_DEVICES"] == rig.gpu
    visible = [each["CUDA_VISIBLE_DEVICES"] for each in booking["parts"]]
    assert visible == [gpu.uuid for gpu in rig.hardware.gpus]


def test_a_whole_gpu_is_isolated_and_knows_nothing_of_mps(rig: Rig, tmp_path: Path) -> None:
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    booking = json.loads((tmp_path / "bookings/biology.BK-7/booking.json").read_text())
    assert booking["isolated"] is True
    assert not [name for name in booking["environment"] if "MPS" in name]


def test_a_notice_of_a_share_reaches_its_programs_alone_and_is_never_suspended(rig: Rig) -> None:
    one, two = a_share("s1"), a_share("s2", booking="BK-2")
    rig.desire(shared({rig.gpu: [one, two]}))
    mine = rig.hardware.process_start(rig.gpu, label="biology.BK-1")
    rig.hardware.process_start(rig.gpu, label="biology.BK-2")
    rig.desire(shared({rig.gpu: [noticed(one, method="suspend"), two]}, 2))
    assert [pid for pid, _ in rig.programs.warned] == [mine]
    rig.later(120)
    rig.later(1)
    assert rig.sent.states() == {"s1": "empty", "s2": "ready"}
    assert "only a whole GPU can be suspended" in error(rig, "s1")
    assert [p.label for p in rig.hardware.gpus[0].processes.values()] == ["biology.BK-2"]


def test_telemetry_of_a_shared_gpu_is_nobodys_in_particular(rig: Rig) -> None:
    rig.desire(shared({rig.gpu: [a_share("s1"), a_share("s2", booking="BK-2")]}))
    rig.later(10)
    last = rig.sent.messages("telemetry")[-1]
    assert isinstance(last, wire.Telemetry)
    assert last.samples[0].allocation is None


class Port:
    """Three programs on one GPU."""

    def pids(self, gpu: str, instance: int | None) -> tuple[int, ...]:
        return (1, 2, 3)


class Known:
    def __init__(self, owner_of: dict[int, ProcessOwner]) -> None:
        self._whose = owner_of

    def owner_of(self, pid: int) -> ProcessOwner:
        return self._whose[pid]


def test_a_program_that_names_no_booking_is_of_its_accounts_share_if_there_is_only_one() -> None:
    programs: Any = Known(
        {1: ProcessOwner(account="ada"), 2: ProcessOwner(account="root"), 3: ProcessOwner()}
    )
    port: Any = Port()
    one, two = a_share("s1"), a_share("s2", booking="BK-2", owner="eve")
    assert share_holders(port, programs, "GPU-1", [one, two]) == {"s1": (1,), "s2": ()}
    both = a_share("s3", booking="BK-3")
    assert share_holders(port, programs, "GPU-1", [one, both]) == {"s1": (), "s3": ()}


def test_where_programs_can_not_be_told_apart_a_share_is_never_proven_empty() -> None:
    port: Any = Port()
    assert share_holders(port, None, "GPU-1", [a_share("s1")]) == {"s1": None}
