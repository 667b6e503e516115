"""The containers say the same as the launcher, and agents get nothing of the portal."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from portal.embedded import AGENTS_VALKEY_SETTINGS, VALKEY_SETTINGS
from portal.local import Demo, Secrets, Stores, portal_programs
from tests.servers.servers import ROOT

SERVICES: dict[str, Any] = yaml.safe_load(
    (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
)["services"]
AGENTS = [name for name in SERVICES if name.startswith("agent-")]
# What only one of the two needs.
LAUNCHER_ONLY = {"HOME", "LANG", "PATH", "PYTHONUNBUFFERED", "TZ", "DJANGO_SETTINGS_MODULE"}
LAUNCHER_ONLY |= {"COOKIE_PREFIX", "MAIL_URL", "DEMO_FILE", "LOG_LEVEL", "DEBUG", "PYTHONWARNINGS"}
COMPOSE_ONLY = {"AGENTS_REDIS_PUBLIC_URL", "ALLOWED_HOSTS"}


def options(service: str) -> set[str]:
    """The server's settings, without accounts and what makes it durable."""
    words = [word.removeprefix("--") for word in SERVICES[service]["command"][1:]]
    return {word for word in words if not word.startswith(("user ", "save ", "appendonly "))}


def test_both_valkeys_are_bounded_as_the_launchers_are() -> None:
    assert options("valkey") == set(VALKEY_SETTINGS)
    assert options("valkey-agents") == set(AGENTS_VALKEY_SETTINGS)


def launched() -> dict[str, set[str]]:
    """What the launcher tells each process."""
    own: Any = Secrets(**dict.fromkeys(Secrets.__dataclass_fields__, "x"))  # type: ignore[arg-type]
    demo = Demo(Path("/nowhere"), "127.0.0.1", 1)
    stores = Stores("postgresql:///x", "redis://x", "redis://y")
    return {one.name: set(one.environment) for one in portal_programs(demo, own, stores)}


@pytest.mark.parametrize("name", launched())
def test_processes_are_told_the_same(name: str) -> None:
    told = SERVICES[name]["environment"].keys() - COMPOSE_ONLY
    assert told == launched()[name] - LAUNCHER_ONLY - COMPOSE_ONLY


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_has_its_own_folder_and_nothing_of_the_portal(name: str) -> None:
    agent = SERVICES[name]
    assert agent["volumes"] == [f"{name}:/var/lib/gpu-agent"]
    assert agent["environment"].keys() == {"NODE", "HARDWARE"}
    assert agent["networks"] == ["nodes"]


def test_agents_reach_the_web_and_their_own_server_alone() -> None:
    reachable = {name for name, one in SERVICES.items() if "nodes" in one.get("networks", [])}
    assert reachable == {"web", "valkey-agents", *AGENTS}


def test_no_two_containers_share_an_agents_folder_but_the_one_that_makes_its_token() -> None:
    for name in AGENTS:
        users = [key for key, one in SERVICES.items() if name in str(one.get("volumes", ""))]
        assert sorted(users) == [name, name.replace("agent-", "enrol-")]
