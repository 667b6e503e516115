"""The systemd units start the launcher's programs, each with its role's secrets and no other's."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent.owner.mps_units import FOLDER
from agent.unit import hidden, unit_text, units
from devtools.launch.programs import NOTEBOOK_PROGRAM, PROGRAMS, SHARD_PROGRAM, PortalProgram
from tests.servers.servers import ROOT

UNITS = ROOT / "deploy" / "systemd"
COMMON = UNITS / "gpu-portal-.service.d" / "common.conf"
INSTALLED = "/opt/gpu-portal"
PYTHON = f"{INSTALLED}/.venv/bin/python"
# The file of secrets that holds a role's DATABASE_URL.
FILES = {"portal_web": "web", "portal_operators": "operators", "portal_system": "system"}
# systemd's own scale, in tenths: 14 is "OK"; without the common part a unit has 96.
EXPOSURE = "16"


def lines(path: Path, name: str) -> list[str]:
    """The values of a setting, with systemd's doubled percent signs undone."""
    found = re.findall(rf"^{name}=(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return [value.replace("%%", "%") for value in found]


def unit(name: str) -> Path:
    return UNITS / f"gpu-portal-{name}.service"


def test_there_is_a_unit_for_each_program_and_no_other() -> None:
    assert {path.name for path in UNITS.glob("*.service")} == {
        unit(program.name).name for program in (*PROGRAMS, NOTEBOOK_PROGRAM, SHARD_PROGRAM)
    }


def test_a_shard_worker_has_no_secret_of_its_own() -> None:
    words = shlex.split(" ".join(lines(unit("shards"), "ExecStart")))
    assert words == [PYTHON, *SHARD_PROGRAM.arguments]
    assert lines(unit("shards"), "EnvironmentFile") == []


@pytest.mark.parametrize("program", [*PROGRAMS, NOTEBOOK_PROGRAM], ids=lambda program: program.name)
def test_a_unit_starts_what_the_launcher_starts(program: PortalProgram) -> None:
    words = shlex.split(" ".join(lines(unit(program.name), "ExecStart")))
    assert words[0] == PYTHON
    assert tuple(words[1 : 1 + len(program.arguments)]) == program.arguments
    rest = words[1 + len(program.arguments) :]
    assert rest[::2] == (["--host", "--port"] if program.listens else [])
    assert not program.listens or rest[1] == "127.0.0.1"
    environment = dict(
        word.split("=") for text in lines(unit(program.name), "Environment") for word in text.split()
    )
    assert environment == program.settings
    secrets = lines(unit(program.name), "EnvironmentFile")
    assert secrets == [f"/etc/gpu-portal/{FILES[program.role]}.env"]


def test_the_files_of_secrets_are_those_that_the_docs_make() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    for name in (*FILES.values(), "common"):
        assert f"/etc/gpu-portal/{name}.env" in page
    rows = {row.split("`")[1]: row for row in page.splitlines() if row.startswith("| `/etc/")}
    holders = {Path(path).stem for path, row in rows.items() if "AGENTS_MASTER_KEY" in row}
    assert holders == {"operators", "system", "owner"}, "a web process needs no key of nodes"
    for program in PROGRAMS:
        for need in (*program.needs, f"postgresql://{program.role}:"):
            assert need in page


def test_a_program_that_its_watchdog_ends_starts_again() -> None:
    common = UNITS / "gpu-portal-.service.d" / "common.conf"
    settings = common.read_text(encoding="utf-8").splitlines()
    assert {"Restart=always", "RestartSec=1", "StartLimitIntervalSec=0"} <= set(settings)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_understands_the_units_and_finds_them_closed(tmp_path: Path) -> None:
    folder = tmp_path / "units"
    shutil.copytree(UNITS, folder)
    for path in (*folder.glob("*.service"), *folder.glob("*/*.conf")):
        here = path.read_text(encoding="utf-8").replace(PYTHON, sys.executable)
        path.write_text(here.replace(INSTALLED, str(ROOT)), encoding="utf-8")
    units = [str(path) for path in sorted(folder.glob("gpu-portal*.*")) if path.is_file()]
    for words in (
        ["verify", "--man=no", *units],
        ["security", "--no-pager", "--offline=true", f"--threshold={EXPOSURE}", *units[:-1]],
    ):
        done = subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout[-2000:]


# systemd's own scale, in tenths. The agent changes GPUs and ends programs: it can't be closed more.
EXPOSED = {"gpu-agent.service": "42", "gpu-mps@.service": "32"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("name", EXPOSED)
def test_systemd_understands_the_units_of_a_node(name: str, tmp_path: Path) -> None:
    bins = tmp_path / "bin"
    bins.mkdir()
    (bins / "gpu-agent").symlink_to(sys.executable)
    text = unit_text(name, tmp_path)
    # Programs of the driver, and a setting that old versions of systemd pass over with a warning.
    text = text.replace("/usr/bin/nvidia-cuda-mps-control", sys.executable)
    file = tmp_path / name.replace("@", "@GPU-1")
    file.write_text(text.replace("DelegateSubgroup=agent\n", ""), encoding="utf-8")
    for words in (
        ["verify", "--man=no", str(file)],
        ["security", "--no-pager", "--offline=true", f"--threshold={EXPOSED[name]}", str(file)],
    ):
        done = subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout[-4000:]


def test_the_agent_s_unit_lets_work_go_on_and_gpus_be_reached() -> None:
    """Without one of these lines a restart ends runs, or device rules close the GPUs."""
    assert units() == sorted(EXPOSED)
    text = unit_text("gpu-agent.service", Path("/opt/gpu-agent")).splitlines()
    for line in (
        "Type=notify",
        "Restart=always",
        "StartLimitIntervalSec=0",
        "KillMode=process",
        "OOMPolicy=continue",
        "RuntimeDirectoryPreserve=yes",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
    ):
        assert line in text
    for setting in ("PrivateDevices", "ProtectClock", "DeviceAllow", "DevicePolicy", "PrivatePIDs"):
        assert not [line for line in text if line.startswith(f"{setting}=")]
    # A Python of pyenv, say: systemd ends such an agent with 203/EXEC.
    ours = [Path(each) for each in ("/root/.pyenv/bin/python3", "/usr/bin/python3.11", "/opt/x")]
    assert hidden(ours) == ours[:1]
    mps = unit_text("gpu-mps@.service", Path("/opt/gpu-agent"))
    assert f"CUDA_MPS_PIPE_DIRECTORY={FOLDER}/%i\n" in mps
    assert f"EnvironmentFile={FOLDER}/%i.env\n" in mps
    # systemd gives a RuntimeDirectory back to root before each command, so the daemon can't write.
    never = ("PartOf=", "BindsTo=", "RuntimeDirectory=")
    assert not [line for line in mps.splitlines() if line.startswith(never)]


def test_what_shuts_the_programs_in_is_in_the_common_part() -> None:
    """Also where no systemd-analyze is there to ask."""
    text = COMMON.read_text(encoding="utf-8").splitlines()
    for line in (
        "DynamicUser=yes",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "CapabilityBoundingSet=",
        "Restart=always",
    ):
        assert line in text
