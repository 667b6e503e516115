"""The portal's programs on machines 1 and 2, and one simulated node."""

import sys
from pathlib import Path
from typing import Any

import httpx
import psycopg

from devtools.launch.embedded import PLAIN_ENVIRONMENT
from devtools.launch.processes import Program
from devtools.launch.programs import PROGRAMS
from tests.machines.site import STORES, Machines
from tests.servers.servers import ROOT
from tests.servers.waiting import wait_until

PLACES = {"web": 8000, "operators": 8001}
NODE, HARDWARE, PROJECT = "gpu-a1-01", "h100:8", "language-models"
BODY = {"project": PROJECT, "request": "1 1g.10gb h100 10m"}
_CAPACITY = "import django; django.setup(); from tests.bench.live.admissions import capacity_make as f; f()"


class Portal:
    """A portal on these machines; `names` are the programs that each of the two runs."""

    def __init__(self, machines: Machines, folder: Path, names: tuple[str, ...]) -> None:
        """Makes the database and starts the programs."""
        self.machines, self.folder, self.names = machines, folder, names
        made = machines.database_make(folder)
        self.token = str(made["tokens"]["tenant_admin"])
        machines.python("portal_system", "-c", _CAPACITY)
        for machine in STORES:
            for name in names:
                self.start(machine, name)
        for machine in STORES:
            wait_until(lambda machine=machine: self._answers(machine), seconds=120)  # type: ignore[misc]

    @property
    def webs(self) -> list[str]:
        """The addresses of both webs."""
        return [self._place(machine, "web") for machine in STORES]

    def _place(self, machine: int, name: str) -> str:
        return f"http://{self.machines.address[machine]}:{PLACES[name]}"

    def _answers(self, machine: int) -> bool:
        try:
            return httpx.get(f"{self._place(machine, 'web')}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def start(self, machine: int, name: str) -> None:
        """Starts a program, as its unit or its container does."""
        (program,) = [each for each in PROGRAMS if each.name == name]
        listen: tuple[str, ...] = ()
        if program.listens:
            listen = ("--host", self.machines.address[machine], "--port", str(PLACES[name]))
        needs = dict.fromkeys(program.needs, self._place(machine, "operators"))
        environment = self.machines.environment(program.role, **program.settings, **needs)
        command = (sys.executable, *(word.replace("%h", f"machine-{machine}") for word in program.arguments))
        quiet = {"PYTHONWARNINGS": "ignore"}
        self.machines.program_start(
            machine, name, Program(name, (*command, *listen), {**environment, **quiet}, ROOT)
        )

    def start_again(self, machine: int, names: list[str]) -> None:
        """Starts what ran on a machine that was killed."""
        for name in names:
            if name in self.names:
                self.start(machine, name)
            else:
                self.machines.server_start(machine, name)

    def agent_start(self) -> None:
        """Starts the node, which enrols itself at the first web."""
        token = self.machines.python("portal_system", "manage.py", "enrol_token", "--node", NODE).strip()
        command = (
            *(sys.executable, "-m", "devtools.simulated", "--portal", self.webs[0], "--name", NODE),
            *("--simulate", HARDWARE, "--state", str(self.folder / NODE)),
        )
        environment = {**PLAIN_ENVIRONMENT, "GPU_AGENT_TOKEN": token, "PYTHONUNBUFFERED": "1"}
        self.machines.program_start(0, "agent", Program("agent", command, environment, ROOT))

    def invariants(self) -> str:
        """Checks the guarantees; raises where one is broken."""
        return self.machines.python("portal_system", "manage.py", "invariants")

    def stored(self) -> list[tuple[Any, ...]]:
        """Name and number of each booking of the load in the database."""
        statement = "SELECT name, number FROM allocation_booking WHERE name LIKE 'load-%'"
        with psycopg.connect(self.machines.dsn("postgres")) as session:
            return session.execute(statement).fetchall()
