"""Checks of `doctor` on a node whose devices are those of a list."""

import dataclasses
from pathlib import Path

from agent.device_files.listed import ListedDevice, devices_read
from agent.device_files.port import is_device
from agent.doctor.checks import Check, Finding, found, said
from agent.host.open_files import HostOpenFiles

_FILES = "device files"


def list_checks(path: Path) -> list[Check]:
    """Returns the checks in the order of the report."""
    examination = ListExamination(path)
    return [
        Check("device list", examination.read, _FILES),
        Check("device files", examination.files, _FILES),
        Check("programs on devices", examination.holders, _FILES),
    ]


@dataclasses.dataclass(slots=True)
class ListExamination:
    """One list while it is examined."""

    path: Path
    devices: tuple[ListedDevice, ...] = ()

    def read(self) -> Finding:
        """Reads the list."""
        try:
            self.devices = devices_read(self.path)
        except (OSError, ValueError) as error:
            return Finding("fail", said("device_list_wrong", error=error), said("fix_device_list"))
        names = ", ".join(f"{device.name} ({device.id})" for device in self.devices)
        return Finding("ok", said("device_list", devices=names))

    def files(self) -> Finding:
        """Whether all files are there, and who may open them."""
        paths = [file for device in self.devices for file in device.files]
        if not paths:
            return Finding("unknown", said("device_list_unread"))
        missing = [path for path in paths if not is_device(path)]
        if missing:
            seen = said("files_missing", paths=", ".join(missing))
            return Finding("fail", seen, said("fix_device_list_files"))
        open_ = [path for path in paths if Path(path).stat().st_mode & 0o006]
        seen = said("files", paths=len(paths), open=len(open_))
        return found(good=not open_, seen=seen, do=said("fix_files_open"))

    def holders(self) -> Finding:
        """Which programs have the files open now."""
        paths = frozenset(file for device in self.devices for file in device.files)
        if not paths:
            return Finding("unknown", said("device_list_unread"))
        openers = HostOpenFiles(paths=paths).openers()
        if openers.hidden:
            return Finding(
                "fail", said("device_list_hidden", count=len(openers.hidden)), said("fix_identity")
            )
        there = [f"{path}: {each}" for path in sorted(paths) for each in sorted(openers.of(path))]
        seen = said("each", gpus="; ".join(there)) if there else said("no_holders")
        return found(good=not there, seen=seen, do=said("fix_holders"))
