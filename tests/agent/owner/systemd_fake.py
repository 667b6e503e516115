"""A node's systemd, played by a script that answers as systemd 252 did."""

import shutil
from pathlib import Path

from agent.owner.slices import Slices, SliceSettings
from agent.ports.systemd import Systemd
from devtools.simulated.device_nodes import SimulatedDeviceNodes
from devtools.simulated.hardware import Hardware
from devtools.simulated.programs import SimulatedPrograms
from tests.agent.builders import (
    FakeTime,
)

FAKE = Path(__file__).with_name("fake_systemd.sh")
ADA, EVE = 1001, 1002
UNIT = r"gpu-booking-1001.biology.BK\x2d7.slice"


class Fake:
    """A node's systemd, as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "cgroup").mkdir(parents=True)
        (folder / "cgroup" / "cgroup.controllers").write_text("cpuset cpu memory\n")
        (folder / "version").write_text("systemd 252 (252.38-1~deb12u1)\n")
        for name in ("systemctl", "systemd-run", "busctl"):
            shutil.copy(FAKE, folder / name)
            (folder / name).chmod(0o755)

    def units(self) -> Systemd:
        return Systemd(self.folder / "cgroup", self.folder / "control", self.folder / "proc")

    def group(self, unit: str = UNIT) -> Path:
        return self.folder / "cgroup" / "gpu.slice" / "gpu-booking.slice" / unit

    def populate(self, *, programs: bool, unit: str = UNIT) -> None:
        (self.group(unit) / "cgroup.events").write_text(f"populated {int(programs)}\n")

    def rules(self, unit: str = UNIT) -> list[str]:
        """The devices that a slice may open; its policy must be closed."""
        drop = self.folder / "control" / f"{unit}.d"
        assert (drop / "50-DevicePolicy.conf").read_text() == "[Slice]\nDevicePolicy=closed\n"
        lines = (drop / "50-DeviceAllow.conf").read_text().splitlines()
        assert lines[:2] == ["[Slice]", "DeviceAllow="]
        return [line.removeprefix("DeviceAllow=") for line in lines[2:]]

    def refuse(self, *, on: bool) -> None:
        (self.folder / "refuse").touch() if on else (self.folder / "refuse").unlink()

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def logins(self, uid: int = ADA) -> list[str]:
        file = self.folder / "logins" / str(uid)
        return file.read_text().splitlines() if file.exists() else []

    def slices(self, hardware: Hardware, steady: FakeTime) -> Slices:
        accounts = {"ada": ("ada", ADA), "eve": ("eve", EVE)}
        logins, nodes = self.folder / "logins", SimulatedDeviceNodes(hardware)
        site = SliceSettings(nodes, accounts.get, logins=logins, number_of=lambda path: 0)
        return Slices(self.units(), site, SimulatedPrograms(hardware), steady)
