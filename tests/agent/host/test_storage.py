"""The storage of a node, from its mounts."""

from pathlib import Path

import pytest

import wire
from agent.host.storage import mounts_read, storage_read

MOUNTS = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
23 22 259:1 / /boot/efi rw shared:2 - vfat /dev/nvme0n1p1 rw
24 22 259:3 / /scratch rw,relatime shared:3 - xfs /dev/nvme1n1 rw
25 22 259:3 /tmp /tmp rw,relatime shared:3 - xfs /dev/nvme1n1 rw
26 22 9:0 / /data\\040sets rw master:4 propagate_from:2 - xfs /dev/md0 rw
27 22 8:1 / /disk rw - ext4 /dev/sda1 rw
28 22 0:50 / /home rw shared:5 - nfs4 10.0.0.1:/home rw
29 22 0:51 / /project rw shared:6 - lustre 10.0.0.2@tcp:/p rw
30 22 0:52 / /proc rw - proc proc rw
31 22 259:2 /var/lib/gpu-agent /var/lib/gpu-agent rw - ext4 /dev/nvme0n1p2 rw
32 22 253:0 / /mixed rw - ext4 /dev/mapper/mixed rw
"""
SIZES = {"/scratch": 3_840 * 10**9, "/data sets": 7_680 * 10**9}


@pytest.fixture
def block(tmp_path: Path) -> Path:
    """Block devices as /sys has them: a RAID of two NVMe drives, and a volume on NVMe and a disk."""
    sys = tmp_path / "sys"
    real = {
        "259:1": "nvme/nvme0/nvme0n1/nvme0n1p1",
        "259:2": "nvme/nvme0/nvme0n1/nvme0n1p2",
        "259:3": "nvme/nvme1/nvme1n1",
        "259:4": "nvme/nvme2/nvme2n1",
        "8:1": "ata1/block/sda/sda1",
        "9:0": "virtual/block/md0",
        "253:0": "virtual/block/dm-0",
    }
    found = sys / "dev" / "block"
    found.mkdir(parents=True)
    for number, path in real.items():
        (sys / "devices" / path).mkdir(parents=True)
        (found / number).symlink_to(sys / "devices" / path)
    for under, over in (("259:3", "9:0"), ("259:4", "9:0"), ("259:4", "253:0"), ("8:1", "253:0")):
        slaves = found / over / "slaves"
        slaves.mkdir(exist_ok=True)
        (slaves / Path(real[under]).name).symlink_to(sys / "devices" / real[under])
    return found


def read(tmp_path: Path, block: Path, text: str) -> wire.NodeStorage | None:
    file = tmp_path / "mountinfo"
    file.write_text(text)
    return storage_read(file, block, lambda path: SIZES[path])


def test_local_nvme_counts_once_and_shared_mounts_are_listed(tmp_path: Path, block: Path) -> None:
    found = read(tmp_path, block, MOUNTS)
    assert found == wire.NodeStorage(local_gb=3_840 + 7_680, shared=("/home", "/project"))


def test_a_node_of_its_system_alone_has_none_and_an_unreadable_one_is_not_known(
    tmp_path: Path, block: Path
) -> None:
    system = "".join(f"{line}\n" for line in MOUNTS.splitlines()[:2])
    assert read(tmp_path, block, system) == wire.NodeStorage(local_gb=0)
    assert storage_read(tmp_path / "missing", block) is None


def test_this_machine_s_own_mounts_are_read() -> None:
    text = Path("/proc/self/mountinfo").read_text()
    assert len(mounts_read(text)) == len(text.splitlines())
    assert storage_read() is not None
