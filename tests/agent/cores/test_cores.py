"""Cores for work without a GPU: each booking keeps to its own, and finds no GPU."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import __main__ as agent
from agent.cores.port import HostCores
from agent.hardware import REAL, NodeHardware, hardware_open
from agent.host.machine import process_signal
from agent.options import options_parse
from agent.owner.accounts import AccountDirectory
from agent.owner.booking_files import BookingFiles
from agent.owner.cgroups import Cgroups
from agent.owner.shares import ActiveBooking, NodeContext, environment
from agent.ports.clock import Clock
from agent.ports.gpu import GpuError, Place
from agent.ports.handover import Handover
from agent.ports.host_cores import CoreDevices, CoreTopology, core_device, core_of_device
from agent.ports.programs import HostPrograms
from agent.process import Agent
from tests.agent.builders import NODE, NOW, a_document, a_rig, a_whole
from wire import HOST_CORE, Member

DEVICES = {core_device(NODE, core): core for core in (4, 5)}
FOUR, FIVE = DEVICES
SLEEPER = "import sys; print('up', flush=True); sys.stdin.read()"


def a_port(folder: Path) -> HostCores:
    port = HostCores(
        DEVICES,
        16_384,
        programs=HostPrograms(),
        bookings=folder / "bookings",
        signal_process=process_signal,
    )
    port.fresh_s = 0
    return port


@contextlib.contextmanager
def a_program(name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that names a booking, as `gpu-agent run` starts it."""
    tenant, _, booking = name.partition(".")
    marks = {"GPU_BOOKING": booking, "GPU_BOOKING_TENANT": tenant}
    program = subprocess.Popen(
        [sys.executable, "-c", SLEEPER],
        env={**os.environ, **marks},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == b"up\n"
    try:
        yield program
    finally:
        program.communicate()


def handed(folder: Path, booking: str, device: str) -> None:
    place = folder / "bookings" / f"helix.{booking}" / device
    place.mkdir(parents=True)
    (place / "booking.json").write_text(json.dumps({"device": device, "ready": 1}))


def test_a_core_is_a_device_that_is_booked_whole(tmp_path: Path) -> None:
    port = a_port(tmp_path)
    found = port.inventory()
    assert [(each.uuid, each.name, each.memory_mb, each.index) for each in found] == [
        (FOUR, HOST_CORE, 8_192, 0),
        (FIVE, HOST_CORE, 8_192, 1),
    ]
    assert port.truth(FOUR).processes == 0
    (reading,) = port.readings(FOUR)
    assert (reading.utilisation, reading.power_mw, reading.processes) == (None, None, 0)
    port.set_mode(FOUR, "whole")
    with pytest.raises(GpuError, match="booked whole"):
        port.set_mode(FOUR, "sliced")
    with pytest.raises(GpuError, match="no slices"):
        port.create(FOUR, Place(0, 0, 1))
    with pytest.raises(GpuError, match="no slices"):
        port.destroy(FOUR, 0)
    with pytest.raises(GpuError, match="none of the cores"):
        port.truth("CORE-other-4")


def test_a_program_is_on_the_cores_of_the_booking_that_it_names(tmp_path: Path) -> None:
    handed(tmp_path, "BK-1", FOUR)
    handed(tmp_path, "BK-2", FIVE)
    port = a_port(tmp_path)
    with a_program("helix.BK-1") as program:
        assert port.pids(FOUR, None) == (program.pid,)
        assert port.pids(FIVE, None) == ()
        port.end_processes(FOUR, None, force=False, only=())
        assert program.poll() is None
        port.end_processes(FOUR, None, force=True)
        program.wait(10)
        assert port.truth(FOUR).processes == 0


def test_a_program_that_hides_its_booking_is_found_in_its_cgroup(tmp_path: Path) -> None:
    group = tmp_path / "cgroup" / "helix.BK-1"
    group.mkdir(parents=True)
    (group / "cpuset.cpus").write_text("4-5\n")
    (group / "cgroup.procs").write_text("4711\n4712\n")
    empty = tmp_path / "cgroup" / "helix.BK-2"
    empty.mkdir()
    cgroups = Cgroups(tmp_path / "cgroup", HostPrograms())
    assert cgroups.on_cores() == {4: (4711, 4712), 5: (4711, 4712)}
    port = a_port(tmp_path).kept_by(cgroups)
    assert port.truth(FIVE).processes == 2


def test_a_booking_that_resumes_on_another_core_has_left_its_first_one(tmp_path: Path) -> None:
    port = a_port(tmp_path)
    run = a_whole("a1", ends=NOW + 60)
    port.given(run, FOUR)
    with a_program(f"{run.tenant}.{run.booking}") as program:
        port.taken("a1")
        assert port.pids(FOUR, None) == (program.pid,), "it was taken back, and still has a program"
        port.given(a_whole("a2", ends=NOW + 60), FIVE)
        assert port.pids(FOUR, None) == ()
        assert port.pids(FIVE, None) == (program.pid,)


def test_an_agent_gives_cores_and_takes_them_back_when_their_programs_have_ended(tmp_path: Path) -> None:
    port = a_port(tmp_path)
    with a_rig(tmp_path) as rig:
        place = NodeContext(NODE, tmp_path / "bookings", topology=CoreDevices())
        handover = Handover(place.root, (port,), topology=CoreDevices())
        node = dataclasses.replace(
            rig.node,
            port=port,
            place=place,
            bookings=BookingFiles(place.root),
            handover=handover,
            programs=HostPrograms(),
            suspender=None,
        )
        rig.agent = Agent(node, Clock(wall=rig.wall, steady=rig.steady))
        both = {device: [a_whole(f"a{core}", ends=NOW + 60)] for device, core in DEVICES.items()}
        rig.desire(a_document(both))
        assert rig.sent.states() == {"a4": "ready", "a5": "ready"}
        assert handover.cores() == {"a4": (4,), "a5": (5,)}
        (folder,) = (tmp_path / "bookings").iterdir()
        env = (folder / "env").read_text()
        assert "export CUDA_VISIBLE_DEVICES=''" in env
        assert "export NVIDIA_VISIBLE_DEVICES=void" in env
        assert "export GPU_BOOKING_CORES=4-5" in env
        assert "export OMP_NUM_THREADS=2" in env
        assert "CUDA_VISIBLE_DEVICES=''" in (folder / "a4" / "env").read_text()
        with a_program(folder.name) as program:
            rig.later(61)
            assert program.wait(10) == -signal.SIGTERM
            rig.later(1)
        assert rig.sent.states() == {"a4": "empty", "a5": "empty"}


def test_a_booking_of_cores_has_one_process_by_node_and_no_gpu() -> None:
    part = ActiveBooking(
        name="helix.BK-1",
        booking="BK-1",
        tenant="helix",
        owner="mara",
        sliced=False,
        starts=0,
        ends=1,
        devices=tuple(DEVICES),
        members=(Member(node=NODE, devices=2),),
        rank=0,
    )
    found = environment(part)
    assert (found["CUDA_VISIBLE_DEVICES"], found["NPROC_PER_NODE"]) == ("", "1")
    assert found["GPU_BOOKING_WORLD_SIZE"] == "1"
    on_gpu = environment(dataclasses.replace(part, devices=("GPU-1",)))
    assert on_gpu["CUDA_VISIBLE_DEVICES"] == "GPU-1"


def opened(folder: Path, *more: str) -> NodeHardware:
    arguments = ["--state", str(folder), "--name", "cpu-1", *more]
    options = options_parse(arguments, {})
    with contextlib.ExitStack() as stack:
        return hardware_open(REAL, options, AccountDirectory(folder / "accounts.json"), stack)


def test_the_options_choose_cores_and_memory(tmp_path: Path) -> None:
    machine = opened(tmp_path, "--host-cores", "0-2,7", "--host-memory", "8192")
    inventory = machine.inventory()
    assert (inventory.cores, inventory.memory_mb, len(inventory.gpus)) == (4, 8192, 4)
    assert [core_of_device(gpu.uuid) for gpu in inventory.gpus] == [0, 1, 2, 7]
    assert {gpu.memory_mb for gpu in inventory.gpus} == {2048}
    assert inventory.limits == "counted"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--host-cores", "0-1"), "needs --host-memory"),
        (("--host-cores", "0-1", "--host-memory", "1", "--engine", "slurm"), "Slurm gives the cores"),
        (("--leave-cores", "0-1", "--engine", "kubernetes"), "Kubernetes gives the cores"),
        (("--host-cores", "0,0", "--host-memory", "1"), "invalid"),
        (("--host-cores", "two", "--host-memory", "1"), "invalid"),
    ],
)
def test_what_does_not_go_together_is_refused(
    options: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options_parse([*options], {})
    assert says in capsys.readouterr().err


def test_cores_and_device_files_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leave out options"):
        opened(tmp_path, "--host-cores", "0", "--host-memory", "1", "--device-permissions", "acl")


def test_gpus_leave_the_cores_of_the_other_agent() -> None:
    whole = CoreTopology({0: (0, 1), 1: (2, 3)}, {"GPU-1": 1})
    left = whole.without((2, 3))
    assert left.choose("GPU-1", 2, ()) == (0, 1)
    assert left.choose("GPU-1", 3, ()) == ()


def test_doctor_examines_the_cores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def doctor(cores: str, memory: int) -> dict[str, str]:
        options = ["--host-cores", cores, "--host-memory", str(memory)]
        agent.main(["doctor", "--json", "--state", str(tmp_path), *options], {})
        return {each["name"]: each["state"] for each in json.loads(capsys.readouterr().out)["checks"]}

    found = doctor("0", 64)
    assert found["memory of the cores"] == "ok"
    assert found["host cores"] in ("ok", "unknown")
    assert "MIG mode" not in found
    found = doctor("16000", 1 << 30)
    assert found["memory of the cores"] == "fail"
    assert found["host cores"] in ("fail", "unknown")
