"""docker-compose.yml, started service by service as its `depends_on` says.

podman before 4.6 does not wait for health, and before 5 starts nothing whose dependencies have
dependencies. So the order is kept here, with the file's own conditions and health checks.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from tests.containers.engine import ROOT, Engine, NoEngine, compose_command
from tests.servers.waiting import wait_until

FILE = ROOT / "docker-compose.yml"
PROJECT = "portal-ring"
SECONDS = 90


class Composed:
    """The services of the file as containers of one project."""

    def __init__(self, engine: Engine, environment: Path) -> None:
        """`environment` is the file with secrets, in place of `.env`."""
        self.engine = engine
        self.environment = environment
        text = FILE.read_text(encoding="utf-8")
        self.services: Mapping[str, Any] = yaml.safe_load(text)["services"]

    def up(self) -> None:
        """Start every service as soon as what it depends on is as it must be."""
        left = dict(self.services)
        while left:
            ready = [name for name, one in left.items() if not left.keys() & _needs(one).keys()]
            for name in ready:
                for other, condition in _needs(left[name]).items():
                    self._await(other, condition)
            self._compose("up", "--detach", "--no-deps", *ready)
            for name in ready:
                del left[name]

    def down(self) -> None:
        """Remove containers, networks and volumes."""
        self._compose("down", "--volumes")

    def container(self, service: str) -> str:
        """The container's name."""
        return f"{PROJECT}_{service}_1"

    def logs(self, service: str) -> str:
        """What a service wrote."""
        return self.engine.podman("logs", self.container(service))

    def file(self, service: str, path: str) -> str:
        """A file of the container, which may have ended."""
        with TemporaryDirectory() as folder:
            copy = Path(folder) / "copy"
            self.engine.podman("cp", f"{self.container(service)}:{path}", str(copy))
            return copy.read_text(encoding="utf-8")

    def inside(self, service: str, *command: str) -> str:
        """The output of a command in a running container. Raises NoEngine."""
        return self.engine.podman("exec", self.container(service), *command)

    def state(self, service: str) -> str:
        """podman's word for the container: running, exited, …"""
        form = "{{.State.Status}}"
        return self.engine.podman("inspect", "--format", form, self.container(service)).strip()

    def _await(self, service: str, condition: str) -> None:
        if condition == "service_completed_successfully":
            code = self.engine.podman("wait", self.container(service), seconds=SECONDS).strip()
            if code != "0":
                raise NoEngine(f"{service} ended with {code}: {self.logs(service)[-3000:]}")
        else:
            wait_until(lambda: self._is_healthy(service), seconds=SECONDS)

    def _is_healthy(self, service: str) -> bool:
        try:
            self.engine.podman("healthcheck", "run", self.container(service), seconds=20)
        except NoEngine:
            return False
        return True

    def _compose(self, *words: str) -> None:
        options = ("--project-name", PROJECT, "--env-file", str(self.environment))
        self.engine.run(*compose_command(), *options, *words)


def _needs(service: Mapping[str, Any]) -> dict[str, str]:
    return {name: rule["condition"] for name, rule in service.get("depends_on", {}).items()}
