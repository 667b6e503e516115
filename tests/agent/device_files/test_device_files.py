"""Devices that have only files: read from a list, booked whole, and empty when nobody has them open."""

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
from agent.device_files.listed import ListedDevice, devices_read
from agent.device_files.port import FileDevices, FileWatch, ListedNodes
from agent.host.open_files import HostOpenFiles, Openers
from agent.owner.booking_files import BookingFiles
from agent.owner.shares import NodeContext
from agent.ports.clock import Clock
from agent.ports.gpu import GpuError, Place
from agent.process import Agent
from tests.agent.builders import NODE, NOW, a_document, a_rig, a_whole

HOLDER = "import sys; f = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


@pytest.fixture
def device() -> Iterator[str]:
    """A character device that nobody else has: one side of a new terminal."""
    main, other = os.openpty()
    yield os.ttyname(other)
    os.close(main)
    os.close(other)


def written(folder: Path, *tables: str) -> Path:
    path = folder / "devices.toml"
    path.write_text("\n".join(f"[[device]]\n{table}" for table in tables))
    return path


def port_of(device: str, pids: list[tuple[int, bool]] | None = None) -> FileDevices:
    ended = [] if pids is None else pids
    listed = (ListedDevice("DEV-A1", "Alveo U55C", (device,), 16_384),)
    return FileDevices(
        listed,
        lambda pid, *, force: ended.append((pid, force)),
        HostOpenFiles(paths=frozenset({device})),
    )


def test_a_list_is_read_in_its_order(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        'serial = "A1"\nname = " Alveo U55C "\nfiles = ["/dev/x0", "/dev/x1"]\n'
        'memory_mb = 16384\npci = "0000:3B:00.0"',
        'serial = "A2"\nname = "NPU"\nfiles = ["/dev/accel0"]\nmemory_mb = 1',
    )
    assert devices_read(path) == (
        ListedDevice("DEV-A1", "Alveo U55C", ("/dev/x0", "/dev/x1"), 16_384, "0000:3b:00.0"),
        ListedDevice("DEV-A2", "NPU", ("/dev/accel0",), 1),
    )


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ((), "1 to 64"),
        (("serial = 1",), "device 1: serial"),
        (('serial = "a/b"',), "device 1: serial"),
        (('serial = "a"\nname = ""',), "device 1: name"),
        (('serial = "a"\nname = "b"\nfiles = []',), "device 1: files"),
        (('serial = "a"\nname = "b"\nfiles = ["dev/x"]',), "absolute"),
        (('serial = "a"\nname = "b"\nfiles = ["/dev/x"]\nmemory_mb = true',), "memory_mb"),
        (('serial = "a"\nname = "b"\nfiles = ["/dev/x"]\nmemory_mb = 1\npci = "x"',), "pci"),
        (('serial = "a"\nname = "b"\nfiles = ["/dev/x"]\nspeed = 1',), "speed is not known"),
        (
            ('serial = "a"\nname = "b"\nfiles = ["/dev/x"]\nmemory_mb = 1',) * 2,
            "two devices have the serial a",
        ),
        (
            (
                'serial = "a"\nname = "b"\nfiles = ["/dev/x"]\nmemory_mb = 1',
                'serial = "c"\nname = "b"\nfiles = ["/dev/x"]\nmemory_mb = 1',
            ),
            "two devices have the file /dev/x",
        ),
        (("serial = ",), "devices.toml"),
    ],
)
def test_a_wrong_list_says_where(tables: tuple[str, ...], says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        devices_read(written(tmp_path, *tables))


def test_who_has_a_file_open_is_on_the_device_and_can_be_ended(device: str) -> None:
    ended: list[tuple[int, bool]] = []
    port = port_of(device, ended)
    assert port.truth("DEV-A1").processes in (0, None)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, device], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        port = port_of(device, ended)
        truth = port.truth("DEV-A1")
        assert (truth.mode, truth.processes) == ("whole", 1)
        assert str(holder.pid) in truth.holders[0]
        (reading,) = port.readings("DEV-A1")
        assert (reading.utilisation, reading.power_mw, reading.processes) == (None, None, 1)
        port.end_processes("DEV-A1", None, force=True, only=())
        assert ended == []
        port.end_processes("DEV-A1", None, force=False)
        assert ended == [(holder.pid, False)]
        assert FileWatch(lambda pid: f"user of {pid}").users([holder.pid]) == (f"user of {holder.pid}",)
    finally:
        holder.communicate()


def test_it_has_no_slices_and_a_missing_file_is_a_lost_device(device: str, tmp_path: Path) -> None:
    port = port_of(device)
    port.set_mode("DEV-A1", "whole")
    with pytest.raises(GpuError, match="booked whole"):
        port.set_mode("DEV-A1", "sliced")
    with pytest.raises(GpuError, match="no slices"):
        port.create("DEV-A1", Place(0, 0, 1))
    with pytest.raises(GpuError, match="no slices"):
        port.destroy("DEV-A1", 1)
    plain = tmp_path / "plain"
    plain.touch()
    for path in (str(plain), str(tmp_path / "missing")):
        with pytest.raises(GpuError, match="no device file") as error:
            port_of(path).truth("DEV-A1")
        assert error.value.fault == "lost"
    nodes = ListedNodes((ListedDevice("DEV-A1", "Alveo", (device,), 0),))
    assert (nodes.of("DEV-A1"), nodes.of("DEV-B"), nodes.common()) == ((device,), (), ())


def test_doctor_examines_the_list(device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def doctor(path: Path) -> dict[str, str]:
        agent.main(["doctor", "--json", "--state", str(tmp_path), "--device-list", str(path)], {})
        return {each["name"]: each["state"] for each in json.loads(capsys.readouterr().out)["checks"]}

    found = doctor(written(tmp_path, f'serial = "A1"\nname = "Alveo"\nfiles = ["{device}"]\nmemory_mb = 1'))
    assert found["device list"] == "ok"
    assert found["device files"] in ("ok", "warn")
    assert "MIG mode" not in found
    found = doctor(
        written(tmp_path, 'serial = "A1"\nname = "Alveo"\nfiles = ["/dev/not-there"]\nmemory_mb = 1')
    )
    assert (found["device list"], found["device files"]) == ("ok", "fail")
    assert doctor(tmp_path / "missing.toml")["device list"] == "fail"


@pytest.mark.turn
def test_an_agent_hands_it_over_with_its_files_and_proves_it_empty(device: str, tmp_path: Path) -> None:
    """The whole agent on a device of a list, which somebody has open before the booking."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, device], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"open\n"
    listed = (ListedDevice("DEV-A1", "Alveo U55C", (device,), 16_384),)
    # Of what others have open nothing is hidden here.
    seen = OnlyPid(device, holder.pid)
    port = FileDevices(listed, lambda pid, *, force: seen.end(pid, force=force), seen)
    with a_rig(tmp_path) as rig:
        place = NodeContext(NODE, tmp_path / "bookings", files_of=ListedNodes(listed).of)
        node = dataclasses.replace(rig.node, port=port, place=place, bookings=BookingFiles(place.root))
        rig.agent = Agent(node, Clock(wall=rig.wall, steady=rig.steady))
        rig.desire(a_document({"DEV-A1": [a_whole("a1", ends=NOW + 60)]}))
        assert rig.sent.states() == {"a1": "preparing"}, "somebody has it"
        seen.end(holder.pid, force=True)
        rig.later(10)
        assert rig.sent.states() == {"a1": "ready"}
        (folder,) = (tmp_path / "bookings").iterdir()
        written_env = (folder / "env").read_text()
        assert f"GPU_BOOKING_DEVICE_FILES={device}" in written_env
        assert "CUDA_VISIBLE_DEVICES" not in written_env
        rig.later(70)
        assert rig.sent.states() == {"a1": "empty"}
    holder.communicate()


class OnlyPid:
    """Open files, as if there was one program on the node."""

    def __init__(self, path: str, pid: int) -> None:
        self._path, self._pid = path, pid

    def openers(self) -> Openers:
        found = HostOpenFiles(paths=frozenset({self._path})).openers().of(self._path)
        return Openers({self._path: frozenset(each for each in found if each.pid == self._pid)})

    def end(self, pid: int, *, force: bool) -> None:
        assert pid == self._pid
        os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)
        os.waitpid(pid, 0)
