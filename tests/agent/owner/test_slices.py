"""One systemd slice per booking: closed first, then opened, closed at the end, and ended.

Systemd's programs are a script here that answers as systemd 252 did.
"""

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent import unit
from agent.options import options_parse
from agent.owner.slices import Claim, Slices
from agent.ports.gpu import GpuError
from agent.ports.group_use import GroupUse
from agent.ports.programs import ProcessOwner
from agent.ports.systemd import Systemd, available_mb, booking_of, is_inside, unit_of
from agent.run import NotNow, slice_reached
from agent.unit import SLICES, unit_text
from devtools.simulated import __main__ as simulated
from devtools.simulated.device_nodes import SimulatedDeviceNodes
from devtools.simulated.hardware import Hardware
from devtools.simulated.programs import SimulatedPrograms
from tests.agent.builders import (
    HOUR,
    NOW,
    FakeTime,
    Rig,
    a_document,
    a_rig,
    a_slice,
    a_whole,
    noticed,
)
from tests.agent.owner.systemd_fake import ADA, EVE, UNIT, Fake
from wire import DesiredAllocation

UNITS = Path(unit.__file__).with_name("units")
COMMON = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


@pytest.fixture
def kept(tmp_path: Path, fake: Fake) -> Iterator[Rig]:
    """A node whose bookings are kept in slices."""
    with a_rig(tmp_path, slices=fake.slices) as rig:
        yield rig


def allowed(*paths: str) -> list[str]:
    return [f"{path} rw" for path in (*COMMON, *paths)]


def error(rig: Rig, name: str = "w1") -> str:
    (one,) = [each for each in rig.sent.report().allocations if each.id == name]
    return one.error or ""


class Seen:
    """An observer of hand-overs, called after the guard."""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake
        self.then: list[tuple[bool, list[str]]] = []

    def given(self, allocation: DesiredAllocation, device: str) -> None:
        self.then.append((self.fake.group().exists(), self.fake.rules()))

    def taken(self, allocation: str) -> None:
        there = self.fake.group().exists()
        self.then.append((there, self.fake.rules() if there else []))


def test_the_slice_is_there_with_its_rules_before_the_device_is_handed_over(
    tmp_path: Path, fake: Fake
) -> None:
    seen = Seen(fake)
    with a_rig(tmp_path, slices=fake.slices, owners=lambda _: (seen,)) as rig:
        wanted = dataclasses.replace(a_whole(), memory_mb=512)
        rig.desire(a_document({rig.gpu: [wanted]}))
        assert seen.then == [(True, allowed("/dev/nvidia0"))]
        assert fake.logins() == [UNIT]
        drop = fake.folder / "control" / f"{UNIT}.d"
        assert (drop / "50-MemoryMax.conf").read_text().endswith(f"MemoryMax={512 << 20}\n")
        before = len(fake.calls())
        rig.later(5)
        assert len(fake.calls()) == before, "what is as it should be costs no program"
        # Closed before it is taken back, and so before anything can prove it empty.
        rig.later(HOUR)
        assert seen.then[1] == (False, []), "an empty slice is gone at once"
    assert rig.sent.states() == {"w1": "empty"}
    assert fake.logins() == []
    assert not fake.group().exists()
    assert not (fake.folder / "control" / f"{UNIT}.d").exists()


def test_two_slices_of_a_gpu_have_their_own_capability_files_and_no_others(kept: Rig, fake: Fake) -> None:
    other = dataclasses.replace(a_slice("a2", slot=2, booking="BK-9"), owner="eve")
    kept.desire(a_document({kept.gpu: [a_slice(), other]}))
    mine = fake.rules(unit_of(ADA, "biology.BK-2041"))
    theirs = fake.rules(unit_of(EVE, "biology.BK-9"))
    assert set(mine) & set(theirs) == set(allowed("/dev/nvidia0"))
    assert [sum("nvidia-caps" in rule for rule in each) for each in (mine, theirs)] == [2, 2]


def test_what_systemd_refuses_is_not_handed_over(kept: Rig, fake: Fake) -> None:
    fake.refuse(on=True)
    kept.desire(a_document({kept.gpu: [a_whole()]}))
    assert kept.sent.states() == {"w1": "preparing"}
    assert "systemctl refused: Failed to set unit properties" in error(kept)
    assert kept.node.handover.devices() == {}
    assert fake.logins() == []
    fake.refuse(on=False)
    kept.later(5)
    assert kept.sent.states() == {"w1": "ready"}
    assert fake.rules() == allowed("/dev/nvidia0")


def test_an_owner_without_an_account_and_a_device_without_a_file_are_refused(
    tmp_path: Path, fake: Fake
) -> None:
    def missing(path: str) -> int:
        raise FileNotFoundError(path)

    def slices(hardware: Hardware, steady: FakeTime) -> Slices:
        found = fake.slices(hardware, steady)
        found._site = dataclasses.replace(found._site, number_of=missing)
        return found

    with a_rig(tmp_path, slices=slices) as rig:
        nobody = dataclasses.replace(a_whole("w2", booking="BK-9"), owner="nobody-here")
        rig.desire(a_document({rig.gpu: [a_whole()], rig.hardware.gpus[1].uuid: [nobody]}))
        assert "there is no file /dev/nvidiactl; see nvidia-modprobe" in error(rig)
        assert "no local account is known for nobody-here" in error(rig, "w2")
        assert set(rig.sent.states().values()) == {"preparing"}


def test_the_end_closes_the_slice_asks_everything_in_it_and_kills_it(kept: Rig, fake: Fake) -> None:
    kept.desire(a_document({kept.gpu: [a_whole()]}))
    pid = kept.hardware.process_start(kept.gpu, label="w1", stubborn=True)
    fake.populate(programs=True)
    (fake.group() / "cgroup.kill").touch()
    kept.later(HOUR)
    assert fake.rules() == []
    assert f"systemctl kill --signal=TERM {UNIT}" in fake.calls()
    assert kept.sent.states() == {"w1": "ending"}
    assert (fake.group() / "cgroup.kill").read_text() == ""
    kept.later(10)
    assert (fake.group() / "cgroup.kill").read_text() == "1"
    assert pid not in kept.hardware.gpus[0].processes
    assert kept.sent.states() == {"w1": "empty"}
    fake.populate(programs=False)
    kept.later(5)
    assert not fake.group().exists()


def test_a_slice_that_can_not_be_closed_keeps_its_device_from_being_proven_empty(
    kept: Rig, fake: Fake
) -> None:
    kept.desire(a_document({kept.gpu: [a_whole()]}))
    fake.populate(programs=True)
    (fake.group() / "cgroup.kill").touch()
    fake.refuse(on=True)
    kept.later(HOUR)
    assert kept.sent.states() == {"w1": "ending"}
    assert "systemctl refused" in error(kept)
    assert fake.logins() == [], "no login finds the way there"
    kept.later(11)
    # The kernel ends what is there without systemd.
    assert (fake.group() / "cgroup.kill").read_text() == "1"
    assert kept.sent.states() == {"w1": "ending"}
    fake.populate(programs=False)
    kept.later(5)
    assert kept.sent.states() == {"w1": "empty"}, "nothing is there, and nothing gets there"
    fake.refuse(on=False)
    kept.later(5)
    assert not fake.group().exists()


def test_a_part_of_a_booking_that_ends_takes_its_device_and_no_program(kept: Rig, fake: Fake) -> None:
    one, two = kept.hardware.gpus
    kept.desire(a_document({one.uuid: [a_whole()], two.uuid: [a_whole("w2")]}))
    assert fake.rules() == allowed("/dev/nvidia0", "/dev/nvidia1")
    fake.populate(programs=True)
    kept.desire(a_document({one.uuid: [a_whole(state="release")], two.uuid: [a_whole("w2")]}, generation=2))
    assert kept.sent.states()["w1"] == "empty"
    assert fake.rules() == allowed("/dev/nvidia1")
    assert not [call for call in fake.calls() if call.startswith("systemctl kill")]


class Dies(Seen):
    """An agent that is killed when a device was just handed over, or taken."""

    def given(self, allocation: DesiredAllocation, device: str) -> None:
        raise KeyboardInterrupt

    def taken(self, allocation: str) -> None:
        raise KeyboardInterrupt


def test_killed_after_the_slice_was_made_the_next_life_closes_and_removes_it(
    tmp_path: Path, fake: Fake
) -> None:
    with a_rig(tmp_path, slices=fake.slices, owners=lambda _: (Dies(fake),)) as rig:
        with pytest.raises(KeyboardInterrupt):
            rig.desire(a_document({rig.gpu: [a_whole()]}))
        assert fake.rules() == allowed("/dev/nvidia0")
    fake.populate(programs=True)
    with a_rig(tmp_path, slices=fake.slices, at=NOW + HOUR) as rig:
        rig.agent.turn(rig.sent)
        assert fake.rules() == []
        assert rig.sent.states() == {"w1": "empty"}
        assert f"systemctl kill --signal=TERM {UNIT}" in fake.calls()
        fake.populate(programs=False)
        rig.later(5)
    assert not fake.group().exists()


def test_killed_after_the_device_was_closed_the_next_life_does_not_open_it_again(
    tmp_path: Path, fake: Fake
) -> None:
    with a_rig(tmp_path, slices=fake.slices) as rig:
        rig.desire(a_document({rig.gpu: [a_whole()]}))
        slices = rig.node.slices
        assert slices is not None
        slices.disallow("biology.BK-7", "w1")
        fake.populate(programs=True)
    done = len(fake.calls())
    with a_rig(tmp_path, slices=fake.slices, at=NOW + HOUR) as rig:
        rig.agent.turn(rig.sent)
    assert not [call for call in fake.calls()[done:] if "nvidia0" in call]


def test_a_restart_in_between_leaves_a_booking_its_slice(tmp_path: Path, fake: Fake) -> None:
    with a_rig(tmp_path, slices=fake.slices) as rig:
        rig.desire(a_document({rig.gpu: [a_whole()]}))
    fake.populate(programs=True)
    shutil.rmtree(fake.folder / "logins")  # as after a reboot
    with a_rig(tmp_path, slices=fake.slices, at=NOW + 60) as rig:
        rig.agent.turn(rig.sent)
    assert fake.rules() == allowed("/dev/nvidia0")
    assert fake.logins() == [UNIT]
    assert not [call for call in fake.calls() if call.startswith("systemctl kill")]


def test_new_minors_after_a_reset_and_a_late_driver(kept: Rig, fake: Fake) -> None:
    kept.desire(a_document({kept.gpu: [a_whole()]}))
    slices = kept.node.slices
    assert slices is not None

    class Nodes(SimulatedDeviceNodes):
        paths: tuple[str, ...] | None = ("/dev/nvidia5",)

        def of(self, device: str) -> tuple[str, ...]:
            if self.paths is None:
                raise GpuError("hangs", "no answer")
            return self.paths

    nodes, number = Nodes(kept.hardware), [1]
    slices._nodes = nodes
    slices._site = dataclasses.replace(slices._site, number_of=lambda path: number[0])
    kept.later(5)
    assert fake.rules() == allowed("/dev/nvidia5")
    nodes.paths = None
    done = len(fake.calls())
    kept.later(5)
    assert len(fake.calls()) == done, "a driver that is late takes nothing"
    nodes.paths, number[0] = ("/dev/nvidia5",), 2
    kept.later(5)
    assert any("set-property" in call for call in fake.calls()[done:]), "another device, one name"


class Three(SimulatedPrograms):
    """Two programs of the owner and one of somebody else name the booking; one is inside."""

    def named(self, names: object) -> tuple[int, ...]:
        return (11, 12, 13)

    def owner_of(self, pid: int) -> ProcessOwner:
        return ProcessOwner(frozenset(), "eve" if pid == 13 else "ada")

    def birth(self, pid: int) -> str | None:
        return "long ago"


def test_programs_of_the_owner_alone_are_moved_into_the_slice(kept: Rig, fake: Fake) -> None:
    kept.desire(a_document({kept.gpu: [a_whole()]}))
    slices = kept.node.slices
    assert slices is not None
    slices._programs = Three(kept.hardware)
    (fake.folder / "proc" / "11").mkdir(parents=True)
    (fake.folder / "proc" / "11" / "cgroup").write_text(f"0::/gpu.slice/{UNIT}/gpu-run-11.scope\n")
    claims = [Claim(a_whole(), kept.gpu)]
    assert slices.sync(claims, set()) == slices.sync(claims, set()) == []
    moved = [call for call in fake.calls() if call.startswith("busctl")]
    assert len(moved) == 1, "systemd refuses a second request while the first is under way"
    assert moved[0].endswith(f"gpu-run-12.scope fail 2 PIDs au 1 12 Slice s {UNIT} 0")


def test_what_is_suspended_stays_in_its_closed_slice(kept: Rig, fake: Fake) -> None:
    kept.desire(a_document({kept.gpu: [a_whole()]}))
    pid = kept.hardware.process_start(kept.gpu, label="w1")
    fake.populate(programs=True)
    kept.desire(a_document({kept.gpu: [noticed(a_whole(), method="suspend")]}, generation=2))
    kept.later(120)
    for _ in range(3):
        kept.later(10)
    assert kept.sent.states() == {"w1": "empty"}
    assert kept.hardware.gpus[0].processes[pid].frozen
    assert fake.rules() == []
    assert not [call for call in fake.calls() if call.startswith("systemctl kill")]
    back = dataclasses.replace(a_whole("w2", starts=NOW + 150), resumes="w1")
    kept.desire(a_document({kept.gpu: [back]}, generation=3))
    assert fake.rules() == allowed("/dev/nvidia0")
    assert not kept.hardware.gpus[0].processes[pid].frozen


def limited(group: Path, limit: str, current: int, idle: int) -> None:
    """Files of a group's memory, in MiB."""
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{current << 20}\n")
    (group / "memory.stat").write_text(f"anon 1\nfile 2\ninactive_file {idle << 20}\n")


@pytest.mark.parametrize(("limit", "room"), [(str(1000 << 20), 700), ("max", None), (str(100 << 20), 0)])
def test_room_is_what_the_limit_leaves_beside_idle_files(
    tmp_path: Path, limit: str, room: int | None
) -> None:
    limited(tmp_path / "group", limit, 500, 200)
    assert available_mb(tmp_path / "group") == room
    assert available_mb(tmp_path / "none") is None


def test_a_pause_counts_its_room_against_the_booking_s_limit(kept: Rig, fake: Fake) -> None:
    kept.desire(a_document({kept.gpu: [a_whole()]}))
    kept.hardware.process_start(kept.gpu, label="w1")
    fake.populate(programs=True)
    limited(fake.group(), str(1 << 20), 1, 0)
    kept.desire(a_document({kept.gpu: [noticed(a_whole(), method="suspend")]}, generation=2))
    kept.later(120)
    assert "it was stopped, not suspended: the booking's memory limit leaves 0 MiB" in error(kept)


def test_without_rules_that_hold_the_agent_does_not_begin(fake: Fake) -> None:
    assert fake.units().existing() == frozenset()
    (fake.folder / "unenforced").touch()
    with pytest.raises(OSError, match="device rules have no effect here"):
        fake.units()
    (fake.folder / "unenforced").unlink()
    (fake.folder / "version").write_text("systemd 239 (239-82.el8)\n")
    with pytest.raises(OSError, match="systemd 244 or newer"):
        fake.units()
    (fake.folder / "cgroup" / "cgroup.controllers").unlink()
    with pytest.raises(OSError, match="cgroup v2 alone"):
        fake.units()


def test_a_silent_systemd_holds_up_the_agent_once_and_not_for_each_booking(fake: Fake) -> None:
    steady = FakeTime(1000.0)
    tree = (fake.folder / "cgroup", fake.folder / "control", fake.folder / "proc")
    units = Systemd(*tree, limit_s=0.2, steady=steady)
    answers = (fake.folder / "systemctl").read_text()
    (fake.folder / "systemctl").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(OSError, match=r"took longer than 0\.2 s"):
        units.apply(UNIT, ["DevicePolicy=closed"])
    (fake.folder / "systemctl").write_text(answers)
    with pytest.raises(OSError, match="does not answer"):
        units.apply(UNIT, ["DevicePolicy=closed"])
    steady.now += 10
    units.apply(UNIT, ["DevicePolicy=closed"])


def test_options(tmp_path: Path) -> None:
    more = ["--slice-devices", "/dev/infiniband/rdma_cm,char-infiniband_verbs"]
    chosen = options_parse(["--device-permissions", "slice+acl", *more], {})
    assert chosen.slice_devices == ("/dev/infiniband/rdma_cm", "char-infiniband_verbs")
    for wrong in ("/dev/a b", "/etc/passwd", "/dev/a\nMemoryMax=1"):
        with pytest.raises(SystemExit):
            options_parse(["--slice-devices", wrong], {})
    state = ["--state", str(tmp_path), "--simulate", "h100:1"]
    assert simulated.main([*state, "--device-permissions", "slice", "--cgroup", "own"], {}) == 1


@given(st.text(st.sampled_from("abc-._:0é /"), min_size=1, max_size=20), st.integers(0, 70_000))
@settings(max_examples=50, deadline=None)
def test_a_unit_s_name_tells_its_booking_and_has_one_level(text: str, uid: int) -> None:
    unit = unit_of(uid, text)
    if text.isascii():
        assert booking_of(unit) == text
    assert unit.removesuffix(".slice").count("-") == 2
    assert "/" not in unit


def test_run_waits_until_it_is_in_the_slice() -> None:
    booking = {"slice": UNIT, "environment": {"GPU_BOOKING": "BK-7", "GPU_BOOKING_TENANT": "b"}}
    named = {"GPU_BOOKING": "BK-7", "GPU_BOOKING_TENANT": "b"}
    looks = iter([False, False, True])
    assert slice_reached(booking, named, inside=lambda unit: next(looks), wait=lambda s: None)
    assert not slice_reached(booking, {}, inside=lambda unit: False)
    assert slice_reached({**booking, "slice": ""}, {}, inside=lambda unit: False)
    with pytest.raises(NotNow, match="not moved this program"):
        slice_reached(booking, named, inside=lambda unit: False, wait=lambda s: None)
    assert not is_inside(UNIT)


def test_the_rules_are_units_that_systemd_reads(kept: Rig, fake: Fake, tmp_path: Path) -> None:
    kept.desire(a_document({kept.gpu: [dataclasses.replace(a_whole(), memory_mb=64)]}))
    units = tmp_path / "units"
    shutil.copytree(fake.folder / "control", units)
    for name in ("user-.slice", "gpu-booking-.slice"):
        (units / f"{name}.d").mkdir()
        (units / f"{name}.d" / "50-gpu-portal.conf").write_text(unit_text(f"{name}.conf", tmp_path))
    paths = [units / name for name in (UNIT, "user-1001.slice")]
    for path in paths:
        path.write_text("[Unit]\nDescription=try\n")
    assert set(SLICES) < {path.name for path in UNITS.iterdir()}
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed here")
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, paths)],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert str(units) not in said.stderr, said.stderr


def test_the_network_of_a_slice_is_what_systemd_counts(fake: Fake) -> None:
    steady = FakeTime(1000.0)
    units = Systemd(*(fake.folder / name for name in ("cgroup", "control", "proc")), steady=steady)
    units.apply(UNIT, ("DevicePolicy=closed",))
    assert any("IPAccounting=yes" in call for call in fake.calls())
    (fake.group() / "cpu.stat").write_text("usage_usec 5\n")
    (fake.folder / "traffic").write_text(
        f"Id={UNIT}\nIPIngressBytes=2097152\nIPEgressBytes=1024\n\nId=x.slice\nIPIngressBytes=[no data]\n"
    )
    assert units.use(UNIT) == GroupUse(5, received_kb=2048, sent_kb=1)
    (fake.folder / "traffic").write_text(
        f"Id={UNIT}\nIPIngressBytes={(1 << 64) - 1}\nIPEgressBytes=[no data]\n"
    )
    assert units.use(UNIT) == GroupUse(5, received_kb=2048, sent_kb=1), "one call is enough for a while"
    steady.now += 5
    assert units.use(UNIT) == GroupUse(5)
    fake.refuse(on=True)
    steady.now += 5
    assert units.use(UNIT) == GroupUse(5), "nothing is measured, and nothing fails"
