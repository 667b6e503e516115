"""MPS daemons as units of systemd: one for each shared GPU, none twice, none for an unbooked
process."""

import dataclasses
import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from agent.owner.device_acls import DeviceAcls
from agent.owner.mps_units import MpsUnits
from agent.owner.shares import ActiveBooking
from tests.agent.builders import HOUR, NOW, Rig, a_rig
from tests.agent.owner.test_shares import a_share, shared

ROOT = 0
NOBODY = pwd.getpwnam("nobody")

# Keeps what it was called with, and which units run, as systemd would. A file `refuses` makes it
# refuse to start.
SYSTEMCTL = """#!/bin/sh
cd "$(dirname "$0")" || exit 1
for last; do :; done
echo "$1 $last" >> calls
case "$1" in
  list-units) mark="  "; for unit in units/*; do
      [ -e "$unit" ] || continue
      echo "$mark${unit#units/} loaded active running GPU portal: MPS daemon"; mark="* "
    done ;;
  start) [ ! -e refuses ] || { echo "Job failed" >&2; exit 1; }; : > "units/$last" ;;
  stop) rm -f "units/$last" ;;
esac
"""


@dataclasses.dataclass
class Systemd:
    """A program `systemctl`, with what it remembers."""

    folder: Path

    @classmethod
    def at(cls, folder: Path) -> "Systemd":
        (folder / "units").mkdir(parents=True)
        program = folder / "systemctl"
        program.write_text(SYSTEMCTL)
        program.chmod(0o755)
        return cls(folder)

    def agent(self) -> MpsUnits:
        """As an agent has it that just started."""
        return MpsUnits(self.folder / "mps", str(self.folder / "systemctl"))

    def calls(self, word: str) -> list[str]:
        lines = (self.folder / "calls").read_text().split("\n")
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{word} ")]

    def running(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "units").iterdir())

    def refuse(self, *, yes: bool) -> None:
        if yes:
            (self.folder / "refuses").touch()
        else:
            (self.folder / "refuses").unlink()


@pytest.fixture
def systemd(tmp_path: Path) -> Systemd:
    return Systemd.at(tmp_path / "systemd")


def settled(units: MpsUnits, wanted: dict[str, int | None]) -> list[str]:
    """What is wrong once systemd has answered."""
    units.sync(wanted)
    assert units._idle.wait(20)
    return units._problems()


def test_a_daemon_is_found_again_by_the_next_agent_and_not_started_twice(systemd: Systemd) -> None:
    first = systemd.agent()
    assert settled(first, {"GPU-a": ROOT, "GPU-b": NOBODY.pw_uid}) == []
    assert first.is_settled(["GPU-a", "GPU-b"])
    first.stop()
    assert systemd.running() == ["gpu-mps@GPU-a.service", "gpu-mps@GPU-b.service"]
    reported = (systemd.folder / "mps" / "GPU-b.env").read_text()
    assert reported == f"MPS_UID={NOBODY.pw_uid}\nMPS_GID={NOBODY.pw_gid}\nMPS_MODE=0700\n"
    second = systemd.agent()
    assert settled(second, {"GPU-a": ROOT, "GPU-b": NOBODY.pw_uid}) == []
    assert systemd.calls("start") == ["gpu-mps@GPU-a.service", "gpu-mps@GPU-b.service"]
    assert systemd.calls("stop") == []
    assert settled(second, {"GPU-b": NOBODY.pw_uid}) == []
    second.stop()
    assert systemd.running() == ["gpu-mps@GPU-b.service"]
    assert not (systemd.folder / "mps" / "GPU-a.env").exists()


def test_another_account_gets_a_daemon_of_its_own(systemd: Systemd) -> None:
    units = systemd.agent()
    settled(units, {"GPU-a": ROOT})
    assert settled(units, {"GPU-a": NOBODY.pw_uid}) == []
    assert systemd.calls("stop") == ["gpu-mps@GPU-a.service"]
    assert len(systemd.calls("start")) == 2
    # A directory service that is late ends nobody's work.
    assert settled(units, {"GPU-a": None}) == []
    assert (len(systemd.calls("stop")), len(systemd.calls("start"))) == (1, 2)
    assert settled(units, {"GPU-a": None, "GPU-b": None}) == [
        "the MPS daemon of GPU-b: its account is not known"
    ]
    units.stop()


def test_what_systemd_refuses_is_told_and_tried_again(systemd: Systemd, tmp_path: Path) -> None:
    units = systemd.agent()
    systemd.refuse(yes=True)
    assert settled(units, {"GPU-a": ROOT}) == ["the MPS daemon of GPU-a: systemctl refused: Job failed"]
    assert units.is_settled(["GPU-a"])
    systemd.refuse(yes=False)
    assert settled(units, {"GPU-a": ROOT}) == []
    units.stop()
    nowhere = MpsUnits(tmp_path / "mps", str(tmp_path / "no-systemctl"))
    assert "No such file" in settled(nowhere, {"GPU-a": ROOT})[0]
    nowhere.stop()


class OpenDeviceAcls:
    """Knows whose devices are open."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def sync(self, parts: Mapping[str, ActiveBooking]) -> list[str]:
        self.opened = sorted(parts)
        return []


def with_daemons(rig: Rig, units: MpsUnits) -> None:
    bookings = rig.node.bookings
    bookings.uid_of = lambda _: os.geteuid()
    rig.agent._owners._node = dataclasses.replace(rig.node, mps=units)


def test_a_share_has_its_daemon_before_its_files_and_until_it_is_empty(
    systemd: Systemd, tmp_path: Path
) -> None:
    unit = "gpu-mps@{}.service".format
    file = tmp_path / "state" / "bookings" / "biology.BK-1" / "booking.json"
    (tmp_path / "state").mkdir()
    with a_rig(tmp_path / "state") as rig:
        units = systemd.agent()
        with_daemons(rig, units)
        share = a_share(ends=NOW + HOUR)
        rig.desire(shared({rig.gpu: [share]}))
        assert units._idle.wait(20)
        rig.later(5)
        assert systemd.running() == [unit(rig.gpu)]
        assert file.exists()
        rig.hardware.process_start(rig.gpu, label="biology.BK-1", stubborn=True)
        gone = dataclasses.replace(share, state="release")
        rig.desire(shared({rig.gpu: [gone]}, 2))
        assert rig.sent.states() == {"s1": "ending"}
        assert not file.exists()
        assert systemd.running() == [unit(rig.gpu)], "its programs have ten seconds to end"
        rig.later(10)
        assert rig.sent.states() == {"s1": "empty"}
        rig.later(5)
        assert units._idle.wait(20)
        assert systemd.running() == []
        units.stop()


def test_a_share_has_no_files_while_its_daemon_is_not_there(tmp_path: Path) -> None:
    """With a systemctl that does not answer; a refusal is reported, and delays nothing."""
    systemctl = tmp_path / "systemctl"
    os.mkfifo(tmp_path / "answer")
    systemctl.write_text(f"#!/bin/sh\n[ $1 = list-units ] || read line < {tmp_path}/answer\n")
    systemctl.chmod(0o755)
    (tmp_path / "state").mkdir()
    with a_rig(tmp_path / "state") as rig:
        units = MpsUnits(tmp_path / "mps", str(systemctl))
        with_daemons(rig, units)
        device_acls = OpenDeviceAcls()
        rig.node.bookings._device_acls = cast(DeviceAcls, device_acls)
        rig.desire(shared({rig.gpu: [a_share()]}))
        folder = tmp_path / "state" / "bookings" / "biology.BK-1"
        assert rig.sent.states() == {"s1": "ready"}
        assert not (folder / "booking.json").exists()
        assert device_acls.opened == ["biology.BK-1"], "the daemon's account needs the device"
        (tmp_path / "answer").write_text("continue\n")
        assert units._idle.wait(20)
        rig.later(5)
        assert (folder / "booking.json").exists()
        # The next agent has not heard of it yet, and takes nothing back.
        restarted = MpsUnits(tmp_path / "mps", str(systemctl))
        with_daemons(rig, restarted)
        rig.agent._owners.files_sync(rig.wall.now)
        assert (folder / "booking.json").exists()
        (tmp_path / "answer").write_text("continue\n")
        for each in (units, restarted):
            each.stop()
