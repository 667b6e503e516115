"""The list of a node's devices that have only files, which the site writes.

[[device]]
serial = "XFL1ABCD"          # what it keeps when it moves to another slot
name = "Alveo U55C"          # its product
files = ["/dev/dri/renderD128", "/dev/xclmgmt24832"]
memory_mb = 16384            # of the device, in MiB
pci = "0000:3b:00.0"         # for its NUMA node; may be left out
"""

import dataclasses
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MOST_DEVICES, MOST_FILES = 64, 16
_SERIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,55}")
_PCI = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclasses.dataclass(frozen=True, slots=True)
class ListedDevice:
    """A device of the list. `id` stands for a GPU's UUID in messages."""

    id: str
    name: str
    files: tuple[str, ...]
    memory_mb: int
    pci: str = ""


def devices_read(path: Path) -> tuple[ListedDevice, ...]:
    """Returns the devices of a list, in its order.

    Raises:
        OSError: it can't be read.
        ValueError: it is no such list. The text says where.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get("device")
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(found, list) or not 0 < len(found) <= MOST_DEVICES:
        raise ValueError(f"{path}: it needs 1 to {MOST_DEVICES} tables [[device]]")
    devices = tuple(_device(path, number, each) for number, each in enumerate(found, 1))
    for kind, names in (
        ("serial", [device.id for device in devices]),
        ("file", [file for device in devices for file in device.files]),
    ):
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"{path}: two devices have the {kind} {min(twice).removeprefix('DEV-')}")
    return devices


def _device(path: Path, number: int, found: Mapping[str, Any]) -> ListedDevice:
    unknown = sorted(found.keys() - _CHECKS.keys())
    if unknown:
        raise ValueError(
            f"{path}: device {number}: {unknown[0]} is not known: {', '.join(sorted(_CHECKS))} are"
        )
    values = {"pci": "", **found}
    for key, (is_good, needs) in _CHECKS.items():
        if not is_good(values.get(key)):
            raise ValueError(f"{path}: device {number}: {key} needs {needs}")
    return ListedDevice(
        f"DEV-{values['serial']}",
        values["name"].strip(),
        tuple(values["files"]),
        values["memory_mb"],
        values["pci"].lower(),
    )


def _are_paths(value: object) -> bool:
    if not isinstance(value, list) or not 0 < len(value) <= MOST_FILES:
        return False
    return all(isinstance(file, str) and Path(file).is_absolute() for file in value)


_CHECKS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "serial": (
        lambda value: isinstance(value, str) and bool(_SERIAL.fullmatch(value)),
        "letters, digits, - and _, at most 56",
    ),
    "name": (lambda value: isinstance(value, str) and 0 < len(value.strip()) <= 80, "1 to 80 characters"),
    "files": (_are_paths, f"1 to {MOST_FILES} absolute paths"),
    "memory_mb": (lambda value: type(value) is int and 0 < value < 2**31, "a number of MiB"),
    "pci": (
        lambda value: isinstance(value, str) and (not value or bool(_PCI.fullmatch(value.lower()))),
        "an address such as 0000:3b:00.0",
    ),
}
