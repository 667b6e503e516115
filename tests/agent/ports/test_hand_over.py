"""What a booking's programs find on its node: environment, description, CDI, `run`."""

import json
import os
import subprocess
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import wire
from agent.owner.shares import ActiveBooking, NodeContext, active_bookings
from agent.state.store import folder_locked
from tests.agent.builders import (
    HOUR,
    NODE,
    NOW,
    Rig,
    a_document,
    a_rig,
    a_slice,
    a_whole,
)

GANG = wire.Gang(
    tenant="biology",
    booking="BK-7",
    members=(wire.Member(node="node-0", devices=8), wire.Member(node=NODE, devices=2)),
)
NAME = "biology.BK-7"


@pytest.fixture
def _narrow() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_narrow")
def test_people_reach_their_bookings_whatever_umask_the_agent_has(tmp_path: Path) -> None:
    state = tmp_path / "lib" / "gpu-agent"
    with folder_locked(state), a_rig(state) as rig:
        rig.desire(a_document({rig.gpu: [a_whole("w1")]}))
        own = state / "bookings" / NAME
        folders = [state.parent, state, own.parent, own, own / "w1"]
        assert [oct(each.stat().st_mode & 0o777) for each in folders] == ["0o755"] * 5
        files = [own / "env", own / "booking.json", own / "w1" / "env", own / "w1" / "booking.json"]
        assert [oct(each.stat().st_mode & 0o777) for each in files] == ["0o644"] * 4
        assert (state / "state.json").stat().st_mode & 0o777 == 0o600
    # What a site has closed by itself stays closed: `doctor` warns of it.
    state.chmod(0o700)
    with folder_locked(state):
        assert state.stat().st_mode & 0o777 == 0o700


def two_gpus(rig: Rig) -> dict[str, list[wire.DesiredAllocation]]:
    one, two = rig.hardware.gpus
    return {one.uuid: [a_whole("w1")], two.uuid: [a_whole("w2")]}


def described(state: Path, name: str = NAME) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((state / "bookings" / name / "booking.json").read_text())
    return found


def specification(state: Path, name: str = NAME) -> dict[str, Any]:
    path = state / "cdi" / f"gpu-portal.local-booking-{name}.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def edits(spec: dict[str, Any], name: str) -> tuple[list[str], dict[str, str]]:
    (device,) = [each for each in spec["devices"] if each["name"] == name]
    paths = [node["path"] for node in device["containerEdits"]["deviceNodes"]]
    return paths, dict(line.split("=", 1) for line in device["containerEdits"]["env"])


def in_a_shell(state: Path, name: str, words: str) -> str:
    """What a shell says that has sourced the booking's `env`."""
    path = state / "bookings" / name / "env"
    done = subprocess.run(
        ["/bin/sh", "-c", f'. "{path}"; echo "{words}"'], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_gang_finds_its_nodes_its_rank_and_its_meeting_point(rig: Rig, tmp_path: Path) -> None:
    rig.desire(a_document(two_gpus(rig), gangs=(GANG,)))

    found = described(tmp_path)
    assert found["devices"] == [gpu.uuid for gpu in rig.hardware.gpus]
    assert [node["node"] for node in found["nodes"]] == ["node-0", NODE]
    assert (found["node_rank"], found["world_size"]) == (1, 10)
    assert found["master"]["address"] == "node-0"
    words = "$CUDA_VISIBLE_DEVICES $MASTER_ADDR $NNODES $NODE_RANK $NPROC_PER_NODE $WORLD_SIZE."
    devices = ",".join(found["devices"])
    assert in_a_shell(tmp_path, NAME, words) == f"{devices} node-0 2 1 2 ."
    torchrun = {k: v for k, v in found["environment"].items() if k.startswith("PET_")}
    assert torchrun == {
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": "2",
        "PET_MASTER_ADDR": "node-0",
        "PET_MASTER_PORT": str(found["master"]["port"]),
    }


def test_every_node_of_a_gang_says_the_same_of_where_to_meet(tmp_path: Path) -> None:
    reported = []
    for node in ("node-0", NODE):
        desired = a_document({"GPU-1": [a_whole()]}, gangs=(GANG,), node=node)
        part = active_bookings(desired, {"w1": "GPU-1"}, NOW, NodeContext(node, tmp_path))[NAME]
        reported.append((part.address, part.port, part.world_size, part.rank))
    assert [rank for *_, rank in reported] == [0, 1]
    assert reported[0][:3] == reported[1][:3]


def test_bookings_meet_at_different_ports_below_those_that_kernels_lend() -> None:
    def port(name: str) -> int:
        return ActiveBooking(name, "", "", "", False, 0, 1, (), (), 0).port  # noqa: FBT003

    ports = {port(f"{tenant}.BK-{n}") for tenant in ("helix", "biology") for n in range(100)}
    assert len(ports) > 190
    assert all(20_000 <= one < 32_000 for one in ports)


def test_a_booking_on_one_node_meets_at_home(rig: Rig, tmp_path: Path) -> None:
    rig.desire(a_document(two_gpus(rig)))

    assert described(tmp_path)["master"]["address"] == "127.0.0.1"
    assert described(tmp_path)["nodes"] == [{"node": NODE, "devices": 2}]
    assert in_a_shell(tmp_path, NAME, "$NNODES $NODE_RANK $GPU_BOOKING_WORLD_SIZE") == "1 0 2"


def test_there_is_nothing_until_all_of_a_booking_is_there_and_nothing_after(rig: Rig, tmp_path: Path) -> None:
    folder, cdi = tmp_path / "bookings" / NAME, tmp_path / "cdi"
    second = rig.hardware.gpus[1]
    rig.hardware.process_start(second.uuid, label="x", stubborn=True)
    rig.later(1)
    rig.desire(a_document(two_gpus(rig)))
    assert rig.sent.states() == {"w1": "ready", "w2": "preparing"}
    assert not (folder / "booking.json").exists()
    assert list(cdi.iterdir()) == []

    second.processes.clear()
    rig.later(5)
    assert rig.sent.states() == {"w1": "ready", "w2": "ready"}
    assert (folder / "env").exists()
    assert len(list(cdi.iterdir())) == 1

    rig.later(HOUR)
    assert set(rig.sent.states().values()) == {"empty"}
    assert not folder.exists()
    assert list(cdi.iterdir()) == []


def test_after_a_restart_past_the_end_files_of_the_earlier_life_are_gone(tmp_path: Path) -> None:
    with a_rig(tmp_path) as rig:
        rig.desire(a_document(two_gpus(rig)))
    assert specification(tmp_path)
    with a_rig(tmp_path, at=NOW + HOUR) as rig:
        rig.agent.turn(rig.sent)
        assert list((tmp_path / "cdi").iterdir()) == []
        assert list((tmp_path / "bookings").iterdir()) == []


def test_a_file_that_can_not_be_written_is_reported_and_written_later(rig: Rig, tmp_path: Path) -> None:
    in_the_way = tmp_path / "bookings" / NAME / "env.new"
    in_the_way.mkdir(parents=True)
    rig.desire(a_document(two_gpus(rig)))
    assert f"the files of {NAME}" in (rig.sent.report().error or "")
    assert rig.sent.states() == {"w1": "ready", "w2": "ready"}
    in_the_way.rmdir()
    rig.later(5)
    assert rig.sent.report().error is None
    assert described(tmp_path)


def test_an_extension_is_in_the_files_at_once(rig: Rig, tmp_path: Path) -> None:
    rig.desire(a_document(two_gpus(rig)))
    longer = {u: [a_whole(w[0].id, ends=NOW + 2 * HOUR)] for u, w in two_gpus(rig).items()}
    rig.desire(a_document(longer, generation=2))
    assert described(tmp_path)["ends"] == NOW + 2 * HOUR


def test_cdi_names_the_doors_of_whole_gpus(rig: Rig, tmp_path: Path) -> None:
    rig.desire(a_document(two_gpus(rig)))
    spec = specification(tmp_path)
    assert (spec["kind"], spec["cdiVersion"]) == ("gpu-portal.local/booking", "0.6.0")
    paths, values = edits(spec, NAME)
    common = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    assert paths == [*common, "/dev/nvidia0", "/dev/nvidia1"]
    assert values["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert values["CUDA_VISIBLE_DEVICES"] == ",".join(gpu.uuid for gpu in rig.hardware.gpus)
    paths, values = edits(spec, f"{NAME}.1")
    assert paths == [*common, "/dev/nvidia1"]
    assert values["CUDA_VISIBLE_DEVICES"] == rig.hardware.gpus[1].uuid
    assert values["PET_NPROC_PER_NODE"] == "1"


def test_cdi_gives_a_slice_its_own_capabilities_and_not_its_neighbours(rig: Rig, tmp_path: Path) -> None:
    mine, other = a_slice(), a_slice("a2", slot=2, booking="BK-9")
    rig.desire(a_document({rig.gpu: [mine, other]}))
    one, _ = edits(specification(tmp_path, "biology.BK-2041"), "biology.BK-2041")
    two, _ = edits(specification(tmp_path, "biology.BK-9"), "biology.BK-9")
    caps = [{path for path in paths if "nvidia-caps" in path} for paths in (one, two)]
    assert [len(each) for each in caps] == [2, 2]
    assert not caps[0] & caps[1]
    assert "/dev/nvidia0" in one
    assert "/dev/nvidia1" not in one


def test_two_tenants_with_the_same_number_do_not_meet(rig: Rig, tmp_path: Path) -> None:
    rival = replace(a_whole("w2"), tenant="rival", owner="eve")
    one, two = rig.hardware.gpus
    rig.desire(a_document({one.uuid: [a_whole("w1")], two.uuid: [rival]}))
    assert described(tmp_path)["devices"] == [one.uuid]
    assert described(tmp_path, "rival.BK-7")["devices"] == [two.uuid]
    assert "/dev/nvidia1" not in edits(specification(tmp_path), NAME)[0]


@pytest.mark.parametrize("owner", ["eve$(touch pwned)", "eve' ; touch pwned; '", "a b\nc"])
def test_what_people_are_called_is_never_run_by_a_shell(
    rig: Rig, tmp_path: Path, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rig.desire(a_document({rig.gpu: [replace(a_whole(), owner=owner)]}))
    assert in_a_shell(tmp_path, NAME, "$GPU_BOOKING_OWNER") == owner
    assert not (tmp_path / "pwned").exists()


def test_the_files_go_before_the_device_does(rig: Rig, tmp_path: Path) -> None:
    """While a program that does not want to end still holds the device, nobody is sent to it."""
    rig.desire(a_document(two_gpus(rig)))
    rig.hardware.process_start(rig.gpu, label="x", stubborn=True)
    rig.later(HOUR)
    assert rig.sent.states()["w1"] == "ending"
    assert not (tmp_path / "bookings" / NAME / "booking.json").exists()
    assert list((tmp_path / "cdi").iterdir()) == []


def test_the_files_of_an_ending_booking_are_gone_when_its_processes_are_asked_to_end(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.desire(a_document(two_gpus(rig)))
    rig.hardware.process_start(rig.gpu, label="x")
    there: list[bool] = []
    real = rig.node.port.end_processes

    def looks(gpu: str, instance: int | None, *, force: bool, only: Collection[int] | None = None) -> None:
        there.append((tmp_path / "bookings" / NAME / "booking.json").exists())
        real(gpu, instance, force=force, only=only)

    monkeypatch.setattr(rig.node.port, "end_processes", looks)
    rig.later(HOUR)
    assert there == [False]
