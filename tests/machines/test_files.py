"""The files for three machines say the same as the launcher, and give no program more than it needs."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from devtools.launch.embedded import AGENTS_VALKEY_SETTINGS, VALKEY_SETTINGS
from devtools.launch.programs import PROGRAMS, PortalProgram
from tests.servers.servers import ROOT

FOLDER = ROOT / "deploy" / "machines"
SCRIPT = (FOLDER / "server.sh").read_text(encoding="utf-8")
TEXT = (FOLDER / "docker-compose.yml").read_text(encoding="utf-8")
SERVICES: dict[str, Any] = yaml.safe_load(TEXT)["services"]
SERVERS = ("etcd", "sentinel", "patroni", "valkey", "valkey-agents")
EXPOSURE = "20"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_both_machines_run_what_the_launcher_runs(program: PortalProgram) -> None:
    service = SERVICES[program.name]
    words = shlex.split(service["command"])
    assert tuple(words[1 : 1 + len(program.arguments)]) == program.arguments
    environment = service["environment"]
    assert environment["DATABASE_URL"].startswith(f"postgresql://{program.role}:")
    assert "target_session_attrs=read-write" in environment["DATABASE_URL"]
    assert {name: environment[name] for name in program.settings} == program.settings
    assert set(program.needs) <= environment.keys()
    assert ("AGENTS_MASTER_KEY" in environment) is (program.role != "portal_web")
    assert service["profiles"] == ["stores"]


def test_no_container_is_root_and_the_third_machine_runs_two_servers() -> None:
    for name, one in SERVICES.items():
        assert one["user"] in {"postgres", "portal"}, name
        assert (one["read_only"], one["cap_drop"], one["init"]) == (True, ["ALL"], True), name
    assert {name for name, one in SERVICES.items() if "profiles" not in one} == {"etcd", "sentinel"}
    assert {name for name in SERVICES if name in SERVERS} == set(SERVERS)
    assert [SERVICES[name]["command"] for name in SERVERS] == [*SERVERS]


def test_valkeys_have_the_limits_of_the_launchers() -> None:
    plain = SCRIPT.replace("\\\n", " ")
    (common,) = re.findall(r'exec "\$VALKEY_SERVER" "\$file" --bind (.*) "\$@"', plain)
    (agents,) = re.findall(r'valkey valkey-agents 6380 "[^"]*" (.*)', plain)
    own = [" ".join(each.split()) for each in common.split("--")]
    assert set(VALKEY_SETTINGS) <= set(own)
    given = {*own, *(" ".join(each.split()) for each in agents.split("--"))}
    assert set(AGENTS_VALKEY_SETTINGS) <= given


def test_the_file_of_a_machine_has_each_variable_that_its_servers_need() -> None:
    needed = set(re.findall(r"\$\{([A-Z_0-9]+):\?", SCRIPT))
    listed = set(re.findall(r"^([A-Z_0-9]+)=", (FOLDER / "machine.env").read_text(), re.MULTILINE))
    assert needed == listed - {"PATRONI_POSTGRESQL_BIN_DIR"}
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    assert "deploy/machines/machine.env" in page


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_understands_the_unit_and_finds_it_closed(tmp_path: Path) -> None:
    unit = tmp_path / "gpu-server@etcd.service"
    text = (FOLDER / "gpu-server@.service").read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/gpu-portal", str(ROOT)))
    for words in (
        ["verify", "--man=no", str(unit)],
        ["security", "--no-pager", "--offline=true", f"--threshold={EXPOSURE}", str(unit)],
    ):
        done = subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout[-3000:]
