"""Device files are opened to a booking's owner and closed at its end."""

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from agent.owner.booking_files import BookingFiles
from agent.owner.device_acls import DeviceAcls, SetFacl
from agent.owner.shares import ActiveBooking, NodeContext, active_bookings
from agent.ports.gpu import GpuError
from devtools.simulated.device_nodes import SimulatedAccess, SimulatedDeviceNodes
from tests.agent.builders import HOUR, NODE, NOW, Rig, a_document, a_slice, a_whole

ADA, EVE = 1001, 1002
COMMON = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


def uid_of(name: str) -> int | None:
    return {"ada": ADA, "eve": EVE}.get(name)


def device_acls(rig: Rig, access: SimulatedAccess, state: Path) -> DeviceAcls:
    return DeviceAcls(SimulatedDeviceNodes(rig.hardware), access, state / "doors.json", uid_of)


def parts(rig: Rig, state: Path, now: float = NOW) -> dict[str, ActiveBooking]:
    given = rig.node.handover.devices()
    return active_bookings(rig.node.store.desired, given, now, NodeContext(NODE, state / "bookings"))


def test_a_slices_doors_open_to_its_owner_alone_and_close_at_its_end(rig: Rig, tmp_path: Path) -> None:
    access = SimulatedAccess()
    found = device_acls(rig, access, tmp_path)
    other = dataclasses.replace(a_slice("a2", slot=2, booking="BK-9"), owner="eve")
    rig.desire(a_document({rig.gpu: [a_slice(), other]}))
    assert found.sync(parts(rig, tmp_path)) == []
    caps = {uid: {p for p, u in access.rights if u == uid and "caps" in p} for uid in (ADA, EVE)}
    assert [len(each) for each in caps.values()] == [2, 2]
    assert not caps[ADA] & caps[EVE]
    assert {("/dev/nvidia0", ADA), ("/dev/nvidia0", EVE)} <= access.rights

    rig.desire(a_document({rig.gpu: [a_slice()]}, generation=2))
    found.sync(parts(rig, tmp_path))
    assert {uid for _, uid in access.rights} == {ADA}
    found.sync({})
    assert access.rights == set()


def test_a_door_that_two_bookings_of_one_owner_use_stays_open_for_the_second(
    rig: Rig, tmp_path: Path
) -> None:
    access = SimulatedAccess()
    found = device_acls(rig, access, tmp_path)
    rig.desire(a_document({rig.gpu: [a_slice(), a_slice("a2", slot=2, booking="BK-9")]}))
    both = parts(rig, tmp_path)
    found.sync(both)
    del both["biology.BK-2041"]
    found.sync(both)
    assert ("/dev/nvidia0", ADA) in access.rights


def test_doors_that_a_killed_agent_left_open_are_closed_by_the_next_life(rig: Rig, tmp_path: Path) -> None:
    access = SimulatedAccess()
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    device_acls(rig, access, tmp_path).sync(parts(rig, tmp_path))
    assert access.rights == {(path, ADA) for path in (*COMMON, "/dev/nvidia0")}
    device_acls(rig, access, tmp_path).sync({})
    assert access.rights == set()


def test_what_is_about_to_be_opened_is_on_disk_first(rig: Rig, tmp_path: Path) -> None:
    class Dies(SimulatedAccess):
        def give(self, right: tuple[str, int]) -> None:
            super().give(right)
            raise KeyboardInterrupt

    access = Dies()
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    with pytest.raises(KeyboardInterrupt):
        device_acls(rig, access, tmp_path).sync(parts(rig, tmp_path))
    device_acls(rig, access, tmp_path).sync({})
    assert access.rights == set()


def test_a_door_that_can_not_be_closed_is_told_and_tried_again(rig: Rig, tmp_path: Path) -> None:
    class Stuck(SimulatedAccess):
        stuck = True

        def take(self, right: tuple[str, int]) -> None:
            if self.stuck and right[0] == "/dev/nvidia0":
                raise OSError("busy")
            super().take(right)

    access = Stuck()
    found = device_acls(rig, access, tmp_path)
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    found.sync(parts(rig, tmp_path))
    assert found.sync({}) == ["/dev/nvidia0 was not closed: busy"]
    access.stuck = False
    assert found.sync({}) == []
    assert access.rights == set()


class Lacks(SimulatedAccess):
    """A node without one device file, as setfacl and stat find it."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def is_world_accessible(self, path: str) -> bool:
        if path == self.path:
            raise FileNotFoundError(path)
        return False


def test_a_missing_device_file_keeps_back_no_other_booking(rig: Rig, tmp_path: Path) -> None:
    access = Lacks("/dev/nvidia0")
    found = device_acls(rig, access, tmp_path)
    one, two = rig.hardware.gpus
    other = dataclasses.replace(a_whole("w2", booking="BK-9"), owner="eve")
    rig.desire(a_document({one.uuid: [a_whole()], two.uuid: [other]}))
    reported = found.sync(parts(rig, tmp_path))
    assert reported == ["/dev/nvidia0 was not opened: there is no such file; see nvidia-modprobe"]
    assert ("/dev/nvidia1", EVE) in access.rights
    assert found.sync(parts(rig, tmp_path)) == reported
    access.path = ""
    assert found.sync(parts(rig, tmp_path)) == []
    assert ("/dev/nvidia0", ADA) in access.rights
    found.sync({})
    assert access.rights == set()


def test_a_device_whose_files_are_not_told_keeps_back_no_other_of_its_booking(
    rig: Rig, tmp_path: Path
) -> None:
    one, two = rig.hardware.gpus

    class Silent(SimulatedDeviceNodes):
        def of(self, device: str) -> tuple[str, ...]:
            if device == one.uuid:
                raise OSError("no capability file")
            return super().of(device)

    access = SimulatedAccess()
    rig.desire(a_document({one.uuid: [a_whole("w1")], two.uuid: [a_whole("w2")]}))
    found = DeviceAcls(Silent(rig.hardware), access, tmp_path / "doors.json", uid_of)
    (reported,) = found.sync(parts(rig, tmp_path))
    assert reported.startswith(f"the files of {one.uuid} of biology.")
    assert ("/dev/nvidia1", ADA) in access.rights
    assert ("/dev/nvidia0", ADA) not in access.rights


def test_a_driver_that_is_late_takes_no_right_from_a_booking_that_goes_on(rig: Rig, tmp_path: Path) -> None:
    class Late(SimulatedDeviceNodes):
        late = False

        def of(self, device: str) -> tuple[str, ...]:
            if self.late:
                raise GpuError("hangs", "no answer")
            return super().of(device)

    access, nodes = SimulatedAccess(), Late(rig.hardware)
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    found = DeviceAcls(nodes, access, tmp_path / "doors.json", uid_of)
    found.sync(parts(rig, tmp_path))
    nodes.late = True
    (reported,) = found.sync(parts(rig, tmp_path))
    assert "no answer" in reported
    assert ("/dev/nvidia0", ADA) in access.rights
    found.sync({})
    assert access.rights == set()
    # The next one to have it may find it under another number.
    found.sync(parts(rig, tmp_path))
    assert ("/dev/nvidia0", ADA) not in access.rights


def test_an_owner_without_an_account_here_is_told_and_opens_nothing(rig: Rig, tmp_path: Path) -> None:
    access = SimulatedAccess()
    nobody = dataclasses.replace(a_whole(), owner="nobody-here")
    rig.desire(a_document({rig.gpu: [nobody]}))
    bookings = BookingFiles(tmp_path / "other", device_acls=device_acls(rig, access, tmp_path))
    reported = bookings.sync(parts(rig, tmp_path))
    assert "there is no account nobody-here here" in (reported or "")
    assert access.rights == set()


def test_the_rights_follow_the_booking_to_its_end(rig: Rig, tmp_path: Path) -> None:
    access = SimulatedAccess()
    found = device_acls(rig, access, tmp_path)
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    found.sync(parts(rig, tmp_path, NOW + HOUR - 1))
    assert access.rights
    found.sync(parts(rig, tmp_path, NOW + HOUR))
    assert access.rights == set()


@pytest.mark.long  # needs the system's setfacl, and a file system that knows it
def test_setfacl_opens_a_file_to_an_account_and_closes_it(tmp_path: Path) -> None:
    path = tmp_path / "nvidia0"
    path.touch(mode=0o660)
    access = SetFacl()
    access.give((str(path), ADA))

    def rights() -> str:
        reported = ["getfacl", "-n", "-p", "-c", str(path)]
        return subprocess.run(reported, capture_output=True, text=True, check=True).stdout

    assert f"user:{ADA}:rw-" in rights()
    for _ in range(2):
        access.take((str(path), ADA))
    assert str(ADA) not in rights()
    access.take((str(tmp_path / "gone"), ADA))
    with pytest.raises(OSError, match="gone"):
        access.give((str(tmp_path / "gone"), ADA))


def test_setfacl_is_called_with_the_account_and_the_path_and_no_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "setfacl"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin{os.pathsep}/usr/bin")
    path = tmp_path / "a b;c"
    path.touch(mode=0o666)
    access = SetFacl()
    assert access.is_world_accessible(str(path))
    access.give((str(path), ADA))
    access.take((str(path), ADA))
    said = (tmp_path / "said").read_text().splitlines()
    assert said == [f"-m u:{ADA}:rw {path}", f"-x u:{ADA} {path}"]


def test_without_setfacl_the_agent_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="setfacl"):
        SetFacl()
