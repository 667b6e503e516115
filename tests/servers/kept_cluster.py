"""A migrated PostgreSQL cluster, kept on disk for the next test process.

Creating a cluster and running all migrations takes seconds of processor time, and each test process
needs both. The first one stores what it made below `.pytest_cache/`; the others copy it. The folder
has the digest of everything that decides what the cluster contains, so a changed migration makes a
new one.
"""

import fcntl
import hashlib
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".pytest_cache" / "postgres"
MADE_FROM = (
    "*/migrations/**/*.py",
    "portal/storage/*.py",
    "devtools/launch/embedded.py",
    "portal/settings.py",
    "tenants/platform/**/*.py",
    "tests/servers/kept_cluster.py",
    "tests/servers/servers.py",
    "requirements-test.lock",
)
MOST_KEPT = 3


class KeptCluster:
    """The kept cluster of the present code, which may have to be made first."""

    def __init__(self, folder: Path = KEPT) -> None:
        self.folder = folder / _digest()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data = self.folder / "data"
        self.password = self._password()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Other test processes wait meanwhile."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def copy_to(self, data: Path) -> bool:
        """Copy the cluster to the new folder `data`; False: there is none yet."""
        if not self.data.exists():
            return False
        shutil.copytree(self.data, data, copy_function=shutil.copy2)
        _owner_copy(self.data, data)
        return True

    def keep(self, data: Path) -> None:
        """Store the files of a stopped cluster, and remove those of old code."""
        new = self.folder / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(data, new)
        _owner_copy(data, new)
        new.rename(self.data)
        by_age = sorted(self.folder.parent.iterdir(), key=lambda each: each.stat().st_mtime)
        for old in by_age[:-MOST_KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def _password(self) -> str:
        """The password of all roles in the cluster, chosen by the first process that asks."""
        path = self.folder / "password"
        own = self.folder / f"password.{secrets.token_hex(4)}"
        own.touch(mode=0o600)
        own.write_text(secrets.token_hex(16), encoding="utf-8")
        with suppress(FileExistsError):
            path.hardlink_to(own)
        own.unlink()
        return path.read_text(encoding="utf-8")


def _digest() -> str:
    found = hashlib.sha256()
    for pattern in MADE_FROM:
        for path in sorted(ROOT.glob(pattern)):
            found.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
            found.update(path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def _owner_copy(source: Path, copied: Path) -> None:
    """Give copied files to whoever owns the originals; PostgreSQL does not run as root."""
    owner = source.stat()
    for path in (copied, *copied.rglob("*")):
        shutil.chown(path, owner.st_uid, owner.st_gid)
