"""The storage of a node, from its mounts: local NVMe with its size, and shared file systems.

Shared file systems are never asked for anything: their server may hang.
"""

import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path

import wire

SHARED = frozenset(
    {
        *("afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.juicefs", "fuse.sshfs"),
        *("glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "quobyte"),
        *("smb3", "wekafs"),
    }
)
"""Types of file systems that other nodes have, too."""
_SYSTEM = ("/", "/boot", "/efi", "/usr", "/var", "/etc", "/opt", "/nix", "/snap")
_NVME = re.compile(r"/nvme\d")
_DEEP = 4
_SHOWN = 20
_LINE = re.compile(r"^\d+ \d+ (\d+:\d+) (\S+) (\S+) \S+(?: \S+)*? - (\S+) ")


@dataclasses.dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system. `root` is the part of it that is seen."""

    device: str
    root: str
    path: str
    kind: str


def mounts_read(text: str) -> tuple[Mount, ...]:
    """Returns the mounts of a `mountinfo`."""
    found = (_LINE.match(line) for line in text.splitlines())
    return tuple(Mount(each[1], each[2], _plain(each[3]), each[4]) for each in found if each)


def _size(path: str) -> int:
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize


def storage_read(
    mountinfo: Path = Path("/proc/self/mountinfo"),
    block: Path = Path("/sys/dev/block"),
    size_of: Callable[[str], int] = _size,
) -> wire.NodeStorage | None:
    """Returns what a node's programs can write to; None where the mounts can't be read.

    The file systems of the operating system don't count, nor do parts of others that are mounted once more.
    """
    try:
        mounts = mounts_read(mountinfo.read_text())
    except OSError:
        return None
    system = {mount.device for mount in mounts if _is_system(mount.path)}
    local: dict[str, int] = {}
    for mount in mounts:
        if mount.root == "/" and mount.device not in system and _is_nvme(block / mount.device):
            local.setdefault(mount.device, size_of(mount.path) // 10**9)
    shared = sorted({mount.path for mount in mounts if mount.kind in SHARED})
    return wire.NodeStorage(local_gb=sum(local.values()), shared=tuple(shared[:_SHOWN]))


def _is_system(path: str) -> bool:
    return path in _SYSTEM or path.startswith(("/boot/", "/snap/"))


def _is_nvme(device: Path, deep: int = 0) -> bool:
    """Whether a block device is on NVMe alone, also through RAID and volumes."""
    slaves = sorted((device / "slaves").glob("*")) if deep < _DEEP else []
    if slaves:
        return all(_is_nvme(each, deep + 1) for each in slaves)
    try:
        return _NVME.search(str(device.resolve(strict=True))) is not None
    except OSError:
        return False


def _plain(path: str) -> str:
    """Undoes the kernel's octal signs for blanks."""
    return re.sub(r"\\([0-7]{3})", lambda each: chr(int(each[1], 8)), path)
