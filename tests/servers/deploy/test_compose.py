"""The containers say the same as the launcher, and agents get nothing of the portal."""

import os
import re
import shlex
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from devtools.launch.embedded import (
    AGENTS_VALKEY_SETTINGS,
    BUILTIN_LOCALE,
    INITDB_OPTIONS,
    VALKEY_SETTINGS,
)
from devtools.launch.programs import (
    NOTEBOOK_PROGRAM,
    PROGRAMS,
    SHARD_PROGRAM,
    Demo,
    PortalProgram,
    Secrets,
    Stores,
    portal_programs,
)
from portal.storage.database import ROLE_TIMEOUTS
from tests.servers.servers import ROOT

TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
FILE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, Any] = FILE["services"]
AGENTS = [name for name in SERVICES if name.startswith("agent-")]
# What must be given; the file's first lines make them.
SECRETS = sorted(set(re.findall(r"\$\{(\w+):\?", TEXT)))
PUBLIC = {"web", "notebooks"}
# What only one of the two needs.
LAUNCHER_ONLY = {"HOME", "LANG", "PATH", "PYTHONUNBUFFERED", "TZ", "DJANGO_SETTINGS_MODULE"}
LAUNCHER_ONLY |= {"COOKIE_PREFIX", "MAIL_URL", "DEMO_FILE", "LOG_LEVEL", "DEBUG", "PYTHONWARNINGS"}
LAUNCHER_ONLY |= {"WEBHOOK_ALLOW", "SIGN_ON_ALLOW"}
# The simulated cloud of the demo.
LAUNCHER_ONLY |= {"PROVIDERS_FILE", "CLOUD_PASSWORD"}
COMPOSE_ONLY = {"AGENTS_REDIS_PUBLIC_URL", "ALLOWED_HOSTS", "SOLVER_SHARDS"}


def options(service: str) -> set[str]:
    """The server's settings, without accounts and what makes it durable."""
    words = [word.removeprefix("--") for word in SERVICES[service]["command"][1:]]
    return {word for word in words if not word.startswith(("user ", "save ", "appendonly "))}


def test_both_valkeys_are_bounded_as_the_launchers_are() -> None:
    assert options("valkey") == set(VALKEY_SETTINGS)
    assert options("valkey-agents") == set(AGENTS_VALKEY_SETTINGS)


@pytest.mark.parametrize(
    "program", [*PROGRAMS, NOTEBOOK_PROGRAM, SHARD_PROGRAM], ids=lambda program: program.name
)
def test_a_program_that_its_watchdog_ends_starts_again(program: PortalProgram) -> None:
    """Nobody can end process 1, so each container has an init; systemd is in test_units.py."""
    service = SERVICES[program.name]
    assert (service["init"], service["restart"]) == (True, "unless-stopped")


def test_no_container_writes_a_secret_into_its_log() -> None:
    for name, service in SERVICES.items():
        command = service.get("command", "")
        words = command if isinstance(command, str) else " ".join(command)
        # A token goes into a file, and from there into a variable.
        kept = re.sub(r"> \S+|\$\$\([^)]*\)", "", words)
        assert not re.search(r"\b(cat|echo|printenv|env)\b|set -x|demo\.json", kept), name


def test_the_cluster_is_made_as_the_launchers_is() -> None:
    """Without its encoding initdb takes the locale's, C, and no database can be made."""
    given = SERVICES["postgres"]["environment"]["POSTGRES_INITDB_ARGS"]
    assert re.split(r"[ =]+", given.strip()) == [*INITDB_OPTIONS, *BUILTIN_LOCALE]


@pytest.mark.turn
def test_the_image_can_read_the_settings_while_it_is_built() -> None:
    """Collecting static files needs every setting that has no default."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    step = text[text.index("RUN SECRET_KEY") : text.index("python manage.py collectstatic")]
    given = dict(re.findall(r"(\w+)=(\"\$\([^)]*\)\)\"|\S+)", step))
    assert len(given) > 3
    settled = {
        name: sha256(name.encode()).hexdigest() if "$(" in value else value for name, value in given.items()
    }
    done = subprocess.run(
        [sys.executable, "-c", "import portal.settings"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **settled},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def launched() -> dict[str, Any]:
    """The programs as the launcher starts them."""
    own: Any = Secrets(**dict.fromkeys(Secrets.__dataclass_fields__, "x"))  # type: ignore[arg-type]
    demo = Demo(Path("/nowhere"), "127.0.0.1", 1)
    stores = Stores("postgresql:///x", "redis://x", "redis://y")
    return {one.name: one for one in portal_programs(demo, own, stores)}


@pytest.mark.parametrize("program", [*PROGRAMS, NOTEBOOK_PROGRAM], ids=lambda program: program.name)
def test_a_program_is_started_with_the_launchers_environment(program: PortalProgram) -> None:
    service, local = SERVICES[program.name], launched()[program.name]
    environment = service["environment"]
    assert environment.keys() - COMPOSE_ONLY == local.environment.keys() - LAUNCHER_ONLY - COMPOSE_ONLY
    assert f"//{program.role}:" in environment["DATABASE_URL"]
    assert {name: environment[name] for name in program.settings} == program.settings
    words = shlex.split(service["command"])
    assert words[0] == "python"
    assert tuple(words[1 : 1 + len(program.arguments)]) == program.arguments
    rest = words[1 + len(program.arguments) :]
    assert rest[::2] == (["--host", "--port"] if program.listens else [])


def test_notebooks_are_there_only_where_somebody_asks_for_them() -> None:
    assert SERVICES["notebooks"]["profiles"] == ["notebooks"]
    assert FILE["x-common"]["NOTEBOOK_URL"] == "${NOTEBOOK_URL:-}"


def test_a_shard_worker_is_a_program_of_its_own_and_knows_redis_alone() -> None:
    service = SERVICES["shards"]
    assert tuple(shlex.split(service["command"])) == ("python", *SHARD_PROGRAM.arguments)
    assert service["environment"].keys() == {"REDIS_URL"}
    assert service["profiles"] == ["shards"], "only where somebody asks for it"


def test_no_container_is_root_or_writes_outside_its_volumes() -> None:
    for name, one in SERVICES.items():
        assert one["user"] not in {"root", "0"}, name
        assert one["read_only"] is True, name
        assert one["cap_drop"] == ["ALL"], name
        assert one["security_opt"] == ["no-new-privileges:true"], name
        assert not {"privileged", "cap_add", "devices", "pid", "ipc"} & one.keys(), name
        assert all(re.match(r"[a-z0-9-]+:/", volume) for volume in one.get("volumes", [])), name


def test_only_demo_data_and_simulated_nodes_have_the_tools_for_development() -> None:
    with_tools = {name for name, one in SERVICES.items() if one["image"] == "gpu-portal-devtools"}
    assert with_tools == {"setup", *AGENTS}
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    (tools,) = [stage for stage in stages if "COPY devtools" in stage]
    assert tools.startswith("portal AS devtools\n")
    assert stages[-1] == "portal\n", "the image that is built without a target"
    assert "COPY . " not in text


def test_only_the_web_is_reached_from_outside_and_from_this_machine_alone() -> None:
    assert {name for name, one in SERVICES.items() if "ports" in one} == PUBLIC
    assert all(place.startswith("127.0.0.1:") for place in SERVICES["web"]["ports"])


def test_each_role_has_its_own_password_and_only_the_setup_knows_the_owners() -> None:
    for secret in ("POSTGRES_PASSWORD", "PORTAL_OWNER_PASSWORD"):
        users = {name for name, one in SERVICES.items() if secret in str(one.get("environment"))}
        assert users - {"postgres"} == {"setup"}
    for role in ROLE_TIMEOUTS:
        holders = {n for n, one in SERVICES.items() if f"//{role}:" in str(one.get("environment"))}
        wanted = {program.name for program in (*PROGRAMS, NOTEBOOK_PROGRAM) if program.role == role}
        others = {"portal_owner": {"setup"}, "portal_system": {n for n in SERVICES if "enrol" in n}}
        assert holders == wanted | others.get(role, set()), role


def test_all_that_the_file_names_is_in_it() -> None:
    for name, one in SERVICES.items():
        for other, rule in one.get("depends_on", {}).items():
            target = SERVICES[other]
            is_once = rule["condition"] == "service_completed_successfully"
            assert (target["restart"] == "no") is is_once, (name, other)
            assert is_once or "healthcheck" in target, (name, other)
        # podman-compose refuses a network that is named and not declared, `default` too.
        assert set(one.get("networks", [])) <= FILE["networks"].keys()
        assert {v.partition(":")[0] for v in one.get("volumes", [])} <= FILE["volumes"].keys()
    first = TEXT[: TEXT.index("docker compose up")]
    assert [name for name in SECRETS if not re.search(rf"\b{name}\b", first)] == []


def test_no_web_process_knows_what_nodes_keys_are_made_of() -> None:
    knows = {name for name, program in launched().items() if "AGENTS_MASTER_KEY" in program.environment}
    assert knows == launched().keys() - {"web", "notebooks"}


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_has_its_own_folder_and_nothing_of_the_portal(name: str) -> None:
    agent = SERVICES[name]
    assert agent["volumes"] == [f"{name}:/var/lib/gpu-agent"]
    assert agent["environment"].keys() == {"NODE", "HARDWARE"}
    assert agent["networks"] == ["nodes"]


def test_agents_reach_the_web_notebooks_and_their_own_server_alone() -> None:
    reachable = {name for name, one in SERVICES.items() if "nodes" in one.get("networks", [])}
    assert reachable == {"web", "notebooks", "valkey-agents", *AGENTS}


def test_no_two_containers_share_an_agents_folder_but_the_one_that_makes_its_token() -> None:
    for name in AGENTS:
        users = [key for key, one in SERVICES.items() if name in str(one.get("volumes", ""))]
        assert sorted(users) == [name, name.replace("agent-", "enrol-")]
