"""The wheel for nodes, in an environment that has it and what it asks for, and no checkout."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from agent.state.enrol import Identity, identity_save
from tests.agent.builders import KEYS, NODE
from tests.servers.servers import ROOT

pytestmark = pytest.mark.turn

NEVER = ("django", "rest_framework", "celery", "numpy", "psycopg", "portal", "tenants")
SOURCES = ("agent", "allocation", "billing", "gpu_client", "portal", "solver", "tenants", "wire")


def needed(extra: str, requirements: Iterable[str]) -> Iterator[metadata.Distribution]:
    """The distributions that these requirements name for an extra, and what those require."""
    for asked in map(Requirement, requirements):
        if asked.marker is not None and not asked.marker.evaluate({"extra": extra}):
            continue
        found = metadata.distribution(asked.name)
        yield found
        for each in asked.extras or {""}:
            yield from needed(each, found.requires or ())


def linked(site: Path, distributions: Iterable[metadata.Distribution]) -> set[str]:
    """Puts installed distributions into another environment; returns their names."""
    names = set()
    for each in distributions:
        names.add(each.name.lower())
        files = [path for path in each.files or () if path.parts[0] not in ("..", "__pycache__")]
        for top in {path.parts[0] for path in files}:
            target = site / top
            if not target.exists():
                target.symlink_to(Path(str(each.locate_file(top))))
    return names


class Installed:
    """A virtual environment with the wheel."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        venv.create(folder, with_pip=False, symlinks=True)
        (self.site,) = folder.glob("lib/python3*/site-packages")
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
        quiet = ("--quiet", "--disable-pip-version-check", "--no-compile")
        ran([*pip, *quiet, "--no-index", "--no-deps", str(wheel)], folder)
        (info,) = self.site.glob("gpu_portal-*.dist-info")
        asked = metadata.Distribution.at(info).requires or []
        self.packages = linked(self.site, needed("agent", asked))

    def run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        return ran([str(self.folder / "bin" / words[0]), *words[1:]], self.folder, environment)


def ran(words: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    """What it wrote, in a plain environment: no PYTHONPATH leads back here."""
    plain = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **(environment or {})}
    done = subprocess.run(
        words, cwd=folder, env=plain, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, (words, done.stdout[-1000:], done.stderr[-2000:])
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: what earlier builds left in a checkout gets into a wheel."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__", "migrations", "var")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    ran([sys.executable, *words, "--wheel-dir", "dist", "."], source)
    (found,) = (source / "dist").glob("gpu_portal-*-py3-none-any.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed") / "venv", wheel)


def test_the_wheel_has_the_agent_its_data_and_nothing_of_the_portal(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    code = {name for name in names if ".dist-info/" not in name}
    kinds = ("agent/", "wire/", "gpu_client/")
    assert {name for name in code if not name.startswith(kinds)} == set()
    here = {
        str(path.relative_to(ROOT))
        for kind in ("agent", "wire")
        for path in (ROOT / kind).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != "README.md"
    }
    client = {str(path.relative_to(ROOT)) for path in (ROOT / "gpu_client").glob("*.py")}
    assert code == here | client


def test_the_command_names_what_a_node_does_not_have(installed: Installed) -> None:
    said = installed.run(
        "python",
        "-I",
        "-c",
        "from gpu_client.__main__ import console\ntry: console()\nexcept SystemExit as error: print(error)",
    )
    assert "from a checkout of the portal, pip install '.[cli]'" in said


def test_every_module_loads_without_the_server_s_packages(installed: Installed) -> None:
    # The last one is for versions of Python before 3.11.3.
    assert installed.packages - {"async-timeout"} == {"nvidia-ml-py", "redis", "hiredis"}
    reported = installed.run(
        "python",
        "-I",
        "-c",
        "import agent, importlib, json, pkgutil, sys, wire\n"
        "for package in (agent, wire):\n"
        "    found = pkgutil.walk_packages(package.__path__, f'{package.__name__}.')\n"
        "    for each in found: importlib.import_module(each.name)\n"
        "print(json.dumps([agent.__file__, sorted(sys.modules)]))",
    )
    origin, modules = json.loads(reported)
    assert Path(origin).parent == installed.site / "agent"
    assert "agent.__main__" in modules
    assert {name.partition(".")[0] for name in modules}.isdisjoint(NEVER)


def test_doctor_and_units_come_with_it(installed: Installed) -> None:
    reported = installed.run(
        "python",
        "-I",
        "-c",
        "import runpy, sys\n"
        "sys.argv = ['gpu-agent', 'doctor', '--json']\n"
        "sys.exit(0 if runpy.run_module('agent')['main'](sys.argv[1:], {}) < 2 else 2)",
    )
    checks = {each["name"]: each for each in json.loads(reported)["checks"]}
    assert checks["NVML binding"]["state"] == "ok"
    unit = installed.run("gpu-agent", "unit")
    assert f"ExecStart={installed.folder}/bin/gpu-agent\n" in unit
    assert "nvidia-cuda-mps-control" in installed.run("gpu-agent", "unit", "gpu-mps@.service")
    assert "--mps-units" in installed.run("gpu-agent", "--help")


def test_the_agent_serves_and_ends_when_it_is_told(installed: Installed, tmp_path: Path) -> None:
    """As systemd starts it: it says when it serves, and that it ends.

    The GPUs are simulated by a checkout's tools, which the wheel does not have.
    """
    tools = tmp_path / "tools"
    shutil.copytree(ROOT / "devtools" / "simulated", tools / "devtools" / "simulated")
    state = tmp_path / "state"
    state.mkdir()
    identity_save(state / "identity.json", Identity(NODE, KEYS, 1, "redis://127.0.0.1:1/0"))
    options = ("-m", "devtools.simulated", "--simulate", "h100:2", "--state", str(state))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(20)
        running = subprocess.Popen(
            [installed.folder / "bin" / "python", *options],
            cwd=tools,
            env={"PATH": os.environ["PATH"], "NOTIFY_SOCKET": str(tmp_path / "notify")},
            stderr=subprocess.DEVNULL,
        )
        try:
            assert supervisor.recv(64) == b"READY=1"
            running.send_signal(signal.SIGTERM)
            said = {supervisor.recv(64) for _ in range(2)}
            assert said == {b"WATCHDOG=1", b"STOPPING=1"}
            assert running.wait(20) == 0
        finally:
            running.kill()
            running.wait()
