"""CDI specifications (Container Device Interface), one file per active booking, so that
`podman run --device gpu-portal.local/booking=helix.BK-12` has the booking's devices and no others.

A specification says what a container gets. It does not keep anybody from the devices.
"""

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from agent.owner.shares import ActiveBooking, environment
from agent.ports.commands import command_run
from agent.ports.gpu import GpuError
from agent.ports.handover import write_atomic
from agent.ports.readable import folder_ensure

log = logging.getLogger(__name__)

KIND = "gpu-portal.local/booking"
_PREFIX = "gpu-portal.local-booking-"
_VERSION = "0.6.0"
_TOOLKIT_S = 30


class DeviceNodes(Protocol):
    """The device files of GPUs."""

    def common(self) -> tuple[str, ...]:
        """Paths that every program with a GPU needs."""

    def of(self, device: str) -> tuple[str, ...]:
        """Paths of one GPU or slice, by UUID. Raises GpuError, OSError."""


class Cdi:
    """The files of one directory that container engines read, as /var/run/cdi."""

    def __init__(self, folder: Path, nodes: DeviceNodes, driver: Mapping[str, Any]) -> None:
        """`driver`: container edits for every container, with the driver's libraries.

        Raises OSError.
        """
        folder_ensure(folder)
        self._folder = folder
        self._nodes = nodes
        self._driver = driver
        self._written: dict[str, ActiveBooking | None] = {
            file.stem.removeprefix(_PREFIX): None for file in folder.glob(f"{_PREFIX}*.json")
        }

    def sync(self, parts: Mapping[str, ActiveBooking]) -> list[str]:
        """Makes the files be those of `parts`; returns what went wrong."""
        problems = []
        for name in sorted(self._written.keys() | parts.keys()):
            part = parts.get(name)
            if part is not None and self._written.get(name) == part:
                continue
            path = self._folder / f"{_PREFIX}{name}.json"
            try:
                # What is old is wrong, whether the new can be written or not.
                path.unlink(missing_ok=True)
                self._written.pop(name, None)
                if part is not None:
                    write_atomic(path, json.dumps(self._specification(part), indent=2) + "\n")
                    self._written[name] = part
            except (OSError, GpuError) as error:
                problems.append(f"the CDI file of {name}: {error}")
                log.warning("%s", problems[-1])
        return problems

    def _specification(self, part: ActiveBooking) -> dict[str, Any]:
        """All of the booking under its name, and each device under `<name>.<number>`."""
        every = [self._nodes.of(device) for device in part.devices]
        devices = [self._device(part.name, part, every[:1] if part.divided else every, None)]
        for number, paths in enumerate(every):
            devices.append(self._device(f"{part.name}.{number}", part, [paths], number))
        return {
            "cdiVersion": _VERSION,
            "kind": KIND,
            "devices": devices,
            **({"containerEdits": self._driver} if self._driver else {}),
        }

    def _device(
        self, name: str, part: ActiveBooking, paths: list[tuple[str, ...]], number: int | None
    ) -> dict[str, Any]:
        # Or NVIDIA's own runtime would add devices by itself.
        values = {**environment(part, number, contained=True), "NVIDIA_VISIBLE_DEVICES": "void"}
        nodes = dict.fromkeys((*self._nodes.common(), *(path for each in paths for path in each)))
        return {
            "name": name,
            "containerEdits": {
                "deviceNodes": [{"path": path} for path in nodes],
                "env": [f"{key}={value}" for key, value in values.items()],
                # The programs read notices there, and report there that all is saved.
                "mounts": [
                    {
                        "hostPath": part.folder,
                        "containerPath": part.folder,
                        "options": ["rw", "bind"],
                    }
                ],
            },
        }


def driver_edits() -> dict[str, Any]:
    """What NVIDIA's container toolkit adds to every container: the driver's libraries and the hooks
    that make them found. Empty without the toolkit; then images must bring what they need."""
    toolkit = shutil.which("nvidia-ctk")
    if toolkit is None:
        log.warning("no nvidia-ctk here: CDI files name devices, but not the driver's libraries")
        return {}
    try:
        command = [toolkit, "--quiet", "cdi", "generate", "--format=json"]
        edits = json.loads(command_run(command, _TOOLKIT_S)).get("containerEdits", {})
    except (OSError, ValueError, AttributeError) as error:
        log.warning("nvidia-ctk does not list the driver's libraries: %s", error)
        return {}
    return edits if isinstance(edits, dict) else {}
