"""What a booking's programs find on its node: environment, description, CDI, `run`."""

import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from allocation import wire
from allocation.agent import run
from allocation.agent.bookings import Bookings
from allocation.agent.parts import Part, Place, parts_of
from tests.agent.builders import (
    HOUR,
    NODE,
    NOW,
    Rig,
    a_document,
    a_rig,
    a_slice,
    a_whole,
    cases,
)

GANG = wire.Gang(
    tenant="biology",
    booking="BK-7",
    members=(wire.Member(node="node-0", devices=8), wire.Member(node=NODE, devices=2)),
)
NAME = "biology.BK-7"


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
    told = []
    for node in ("node-0", NODE):
        desired = a_document({"GPU-1": [a_whole()]}, gangs=(GANG,), node=node)
        part = parts_of(desired, {"w1": "GPU-1"}, NOW, Place(node, tmp_path))[NAME]
        told.append((part.address, part.port, part.world_size, part.rank))
    assert [rank for *_, rank in told] == [0, 1]
    assert told[0][:3] == told[1][:3]


def test_bookings_meet_at_different_ports_below_those_that_kernels_lend() -> None:
    def port(name: str) -> int:
        return Part(name, "", "", "", False, 0, 1, (), (), 0).port  # noqa: FBT003

    ports = {port(f"{tenant}.BK-{n}") for tenant in ("helix", "biology") for n in range(100)}
    assert len(ports) > 190
    assert all(20_000 <= one < 32_000 for one in ports)


def test_a_booking_on_one_node_meets_at_home(rig: Rig, tmp_path: Path) -> None:
    rig.desire(a_document(two_gpus(rig)))

    assert described(tmp_path)["master"]["address"] == "127.0.0.1"
    assert described(tmp_path)["nodes"] == [{"node": NODE, "devices": 2}]
    assert in_a_shell(tmp_path, NAME, "$NNODES $NODE_RANK $GPU_BOOKING_WORLD_SIZE") == "1 0 2"


def test_there_is_nothing_until_all_of_a_booking_is_there_and_nothing_after(
    rig: Rig, tmp_path: Path
) -> None:
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


def test_a_file_that_can_not_be_written_is_reported_and_written_later(
    rig: Rig, tmp_path: Path
) -> None:
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


def test_cdi_gives_a_slice_its_own_capabilities_and_not_its_neighbours(
    rig: Rig, tmp_path: Path
) -> None:
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


# `run`.


def ran(state: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "allocation.agent", "run", "--state", str(state), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "MINE": "kept"},
    )


def booked(state: Path, **more: object) -> None:
    """A booking that is active by the real clock, on two whole GPUs."""
    part = Part(
        name=NAME,
        booking="BK-7",
        tenant="biology",
        owner=str(more.pop("owner", pwd.getpwuid(os.getuid()).pw_name)),
        sliced=bool(more.pop("sliced", False)),
        starts=0,
        ends=int(str(more.pop("ends", 4_000_000_000))),
        devices=("GPU-1", "GPU-2"),
        members=GANG.members,
        rank=1,
        folder=str(state / "bookings" / NAME),
    )
    Bookings(state / "bookings").sync({NAME: part})


def test_run_starts_the_command_with_the_bookings_environment_and_its_status(
    tmp_path: Path,
) -> None:
    booked(tmp_path)
    program = 'echo "$MINE $GPU_BOOKING $CUDA_VISIBLE_DEVICES $MASTER_ADDR $1"; exit 7'
    done = ran(tmp_path, "BK-7", "--", "sh", "-c", program, "sh", "--part")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == "kept BK-7 GPU-1,GPU-2 node-0 --part\n"
    one = ran(tmp_path, "--part", "1", NAME, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert one.stdout == "GPU-2\n"


@pytest.mark.parametrize(
    ("more", "arguments", "code", "words"),
    cases(
        {
            "a booking that is not here": (
                {},
                ("BK-8", "--", "true"),
                4,
                "no devices on this node",
            ),
            "one that is over": ({"ends": 1000}, ("BK-7", "--", "true"), 4, "ended at 01 Jan"),
            "somebody else's, by its number": (
                {"owner": "somebody"},
                ("BK-7", "--", "true"),
                4,
                "of somebody, and you are",
            ),
            "several slices, none said": ({"sliced": True}, ("BK-7", "--", "true"), 4, "--part 0"),
            "a device that it has not": ({}, ("--part", "2", "BK-7", "--", "true"), 4, "2 devices"),
            "no command": ({}, ("BK-7",), 2, "say what to run"),
            "a command that is not there": ({}, ("BK-7", "--", "no-such-thing"), 127, "No such"),
            "a command that is no program": ({}, ("BK-7", "--", "/etc"), 126, "denied"),
        }
    ),
)
def test_run_says_why_it_does_not_start(
    tmp_path: Path, more: dict[str, object], arguments: tuple[str, ...], code: int, words: str
) -> None:
    booked(tmp_path, **more)
    done = ran(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr


def test_somebody_elses_booking_runs_for_who_says_its_full_name(tmp_path: Path) -> None:
    booked(tmp_path, owner="somebody")
    assert ran(tmp_path, NAME, "--", "true").returncode == 0


def test_a_number_that_is_two_bookings_here_is_asked_back(tmp_path: Path) -> None:
    booked(tmp_path)
    other = tmp_path / "bookings" / "rival.BK-7"
    other.mkdir()
    (other / "booking.json").write_text("{}")
    with pytest.raises(run.NotNow, match=r"biology.BK-7 or rival.BK-7"):
        run.booking_find(tmp_path / "bookings", "BK-7", "ada", NOW)


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

    def looks(
        gpu: str, instance: int | None, *, force: bool, only: Collection[int] | None = None
    ) -> None:
        there.append((tmp_path / "bookings" / NAME / "booking.json").exists())
        real(gpu, instance, force=force, only=only)

    monkeypatch.setattr(rig.node.port, "end_processes", looks)
    rig.later(HOUR)
    assert there == [False]


# Distributed training and MPI.

TORCHRUN = """#!/bin/sh
# As torchrun takes the defaults of its options from PET_*, one program for each device here.
rank=0
while [ $rank -lt $PET_NPROC_PER_NODE ]; do
    global=$((PET_NODE_RANK * PET_NPROC_PER_NODE + rank))
    env LOCAL_RANK=$rank RANK=$global WORLD_SIZE=$((PET_NNODES * PET_NPROC_PER_NODE)) \\
        MASTER_ADDR=$PET_MASTER_ADDR MASTER_PORT=$PET_MASTER_PORT "$@"
    rank=$((rank + 1))
done
"""
MPIRUN = """#!/bin/sh
echo "hosts $(tr '\\n' ' ' < "$OMPI_MCA_orte_default_hostfile")"
[ "$OMPI_MCA_orte_default_hostfile" = "$PRTE_MCA_prte_default_hostfile" ]
echo "machines $(tr '\\n' ' ' < "$HYDRA_HOST_FILE")"
[ "$HYDRA_HOST_FILE" = "$I_MPI_HYDRA_HOST_FILE" ] && exec "$@"
"""


def a_launcher(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_the_same_line_on_every_node_starts_a_gang_with_all_its_ranks(tmp_path: Path) -> None:
    """What every program of a gang of two nodes with two GPUs each is told by its launcher."""
    torchrun = a_launcher(tmp_path, "torchrun", TORCHRUN)
    nodes = ("node-0", NODE)
    gang = wire.Gang(
        tenant="biology",
        booking="BK-7",
        members=tuple(wire.Member(node=node, devices=2) for node in nodes),
    )
    said: list[str] = []
    for node in nodes:
        state = tmp_path / node
        mine = [a_whole(f"{node}-{n}", starts=0, ends=4_000_000_000) for n in (1, 2)]
        document = a_document({f"GPU-{n}": [mine[n - 1]] for n in (1, 2)}, gangs=(gang,), node=node)
        given = {each.id: f"GPU-{node}-{n}" for n, each in enumerate(mine)}
        parts = parts_of(document, given, NOW, Place(node, state / "bookings"))
        Bookings(state / "bookings").sync(parts)
        program = "echo $RANK of $WORLD_SIZE at $MASTER_ADDR $MASTER_PORT on $CUDA_VISIBLE_DEVICES"
        done = ran(state, NAME, "--", torchrun, "sh", "-c", program)
        assert done.stderr == ""
        said += done.stdout.splitlines()
    port = Part(NAME, "", "", "", False, 0, 1, (), (), 0).port  # noqa: FBT003
    assert said == [
        f"{rank} of 4 at node-0 {port} on GPU-{node}-0,GPU-{node}-1"
        for rank, node in enumerate(["node-0", "node-0", NODE, NODE])
    ]


def test_an_mpi_launcher_finds_the_hosts_of_the_gang(tmp_path: Path) -> None:
    booked(tmp_path)
    mpirun = a_launcher(tmp_path, "mpirun", MPIRUN)
    done = ran(tmp_path, NAME, "--", mpirun, "sh", "-c", "echo rank 0 on $CUDA_VISIBLE_DEVICES")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"hosts node-0 slots=8 {NODE} slots=2 ",
        f"machines node-0:8 {NODE}:2 ",
        "rank 0 on GPU-1,GPU-2",
    ]


# `saved`.


def said_saved(state: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "allocation.agent", "saved", "--state", str(state), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )


@pytest.mark.parametrize("name", ["BK-7", NAME])
def test_its_owner_says_that_everything_is_saved(tmp_path: Path, name: str) -> None:
    booked(tmp_path)
    bookings = Bookings(tmp_path / "bookings")
    assert bookings.said() == {}
    before = int(time.time())
    done = said_saved(tmp_path, name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert before <= bookings.said()[NAME] <= time.time()


def test_a_program_says_it_by_touching_the_file_that_its_environment_names(tmp_path: Path) -> None:
    booked(tmp_path)
    assert ran(tmp_path, NAME, "--", "sh", "-c", 'touch "$GPU_BOOKING_SAVED"').returncode == 0
    assert list(Bookings(tmp_path / "bookings").said()) == [NAME]


@pytest.mark.parametrize(
    ("more", "arguments", "code", "words"),
    cases(
        {
            "a booking that is not here": ({}, ("BK-8",), 4, "no devices on this node"),
            "one that is over": ({"ends": 1000}, ("BK-7",), 4, "ended at 01 Jan"),
            "somebody else's": ({"owner": "somebody"}, ("BK-7",), 4, "of somebody, and you are"),
            "no booking": ({}, (), 2, "required: booking"),
        }
    ),
)
def test_who_may_not_speak_for_a_booking_is_told_so(
    tmp_path: Path, more: dict[str, object], arguments: tuple[str, ...], code: int, words: str
) -> None:
    booked(tmp_path, **more)
    done = said_saved(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert Bookings(tmp_path / "bookings").said() == {}


@pytest.mark.skipif(os.getuid() != 0, reason="needs two accounts")
def test_the_file_is_its_owners_and_no_other_account_may_touch_it(tmp_path: Path) -> None:
    daemon, other = pwd.getpwnam("daemon"), pwd.getpwnam("nobody")
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    booked(tmp_path, owner="daemon")
    path = tmp_path / "bookings" / NAME / "saved"
    assert path.stat().st_uid == daemon.pw_uid
    touch = ["touch", "-c", str(path)]
    refused = subprocess.run(touch, user=other.pw_uid, capture_output=True, check=False)
    assert refused.returncode != 0
    subprocess.run(touch, user=daemon.pw_uid, check=True)
    assert list(Bookings(tmp_path / "bookings").said()) == [NAME]
