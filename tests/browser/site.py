"""The seeded site that browsers look at: a running one by PORTAL_URL, or one of our own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from devtools.launch.embedded import free_port

ROOT = Path(__file__).resolve().parents[2]
TENANT = "helix"


class SiteDidNotStart(Exception):
    """The launcher ended before it said that the portal is ready; the message has its output."""


@dataclass(frozen=True)
class Person:
    """Somebody who can sign in."""

    username: str
    password: str


@dataclass(frozen=True)
class Site:
    """An address, and by role who can sign in there and which token they have."""

    url: str
    people: Mapping[str, Person]
    tokens: Mapping[str, str]

    def tenant(self, path: str = "") -> str:
        """The address of a page of the demo's tenant."""
        return f"{self.url}/t/{TENANT}/{path}"


@contextmanager
def site() -> Iterator[Site]:
    """PORTAL_URL's site with the people of PORTAL_DEMO (var/demo.json), or a fresh own one."""
    url = os.environ.get("PORTAL_URL", "")
    if url:
        yield _site(url, Path(os.environ.get("PORTAL_DEMO", ROOT / "var" / "demo.json")))
        return
    with TemporaryDirectory(prefix="portal-") as folder, _launched(Path(folder) / "var") as own:
        yield own


@contextmanager
def _launched(var: Path) -> Iterator[Site]:
    port = free_port()
    command = [sys.executable, "-m", "devtools.local", "--var", str(var), "--port", str(port)]
    # The addresses of the tests' own servers would be taken for the site's.
    environment = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        _wait_until_ready(process)
        yield _site(f"http://localhost:{port}", var / "demo.json")
    finally:
        process.terminate()
        process.communicate(timeout=60)
        subprocess.run([*command[:5], "--clean"], cwd=ROOT, env=environment, check=True)


def _wait_until_ready(process: "subprocess.Popen[str]") -> None:
    said = ""
    for line in process.stdout or ():
        said += line
        if "The portal is ready" in line:
            return
    raise SiteDidNotStart(said)


def _site(url: str, demo: Path) -> Site:
    keys = json.loads(demo.read_text(encoding="utf-8"))
    people = {role: Person(**person) for role, person in keys["passwords"].items()}
    return Site(url, people, keys["tokens"])
