"""The machines of the simulated cloud: each boots after a while and runs a simulated agent."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

STOP_SECONDS = 10
# In the metadata of a machine: when it is taken back.
NOTICE = "leaves-at"
SPOT = "@spot"
SPOT_SECONDS, NOTICE_SECONDS = 900, 120


@dataclass
class Machine:
    """A machine as the cloud knows it. `fleet` are its GPUs, such as `h100:4`; with `@spot` the cloud takes
    it back after a while, and says so before in its metadata."""

    id: str
    name: str
    fleet: str
    boot: str
    created: float
    state: str = "BUILD"
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def leaves(self) -> float | None:
        """When the cloud takes it back."""
        text = self.metadata.get(NOTICE)
        return datetime.fromisoformat(text).timestamp() if text else None


def boot_values(script: str) -> dict[str, str]:
    """The values that a boot script sets: `GPU_AGENT_TOKEN=…`."""
    found: dict[str, str] = {}
    for line in script.splitlines():
        name, mark, value = line.partition("=")
        if mark and name.startswith("GPU_AGENT_") and name.replace("_", "").isalpha():
            found[name] = " ".join(shlex.split(value))
    return found


class Machines:
    """All machines, kept in a file, so that a cloud that starts again knows them."""

    def __init__(
        self, folder: Path, boot_seconds: float, clock: Callable[[], float] = time.time, *, runs: bool = True
    ) -> None:
        """Reads what there is; `runs`: a machine that has booted runs an agent."""
        self._folder, self._boot_seconds, self._clock, self._runs = folder, boot_seconds, clock, runs
        self._file = folder / "machines.json"
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        rows = json.loads(self._file.read_text(encoding="utf-8")) if self._file.exists() else []
        self.all: dict[str, Machine] = {row["id"]: Machine(**row) for row in rows}

    def add(self, machine: Machine) -> None:
        """Adds a machine, which begins to boot."""
        self.all[machine.id] = machine
        self._store()

    def notify(self, key: str, metadata: Mapping[str, str]) -> None:
        """Adds to the metadata of a machine."""
        self.all[key].metadata.update(metadata)
        self._store()

    def turn(self) -> None:
        """Boots what is due, starts agents that have ended, and takes spot machines back."""
        for machine in list(self.all.values()):
            if machine.leaves is not None and self._clock() >= machine.leaves:
                self.remove(machine.id)
                continue
            is_old = self._clock() >= machine.created + SPOT_SECONDS
            if machine.fleet.endswith(SPOT) and is_old and machine.leaves is None:
                leaves = datetime.fromtimestamp(int(self._clock()) + NOTICE_SECONDS, UTC)
                self.notify(machine.id, {NOTICE: leaves.isoformat()})
            if machine.state == "BUILD" and self._clock() >= machine.created + self._boot_seconds:
                machine.state = "ACTIVE"
                self._store()
            agent = self._agents.get(machine.id)
            if self._runs and machine.state == "ACTIVE" and (agent is None or agent.poll() is not None):
                self._agents[machine.id] = self._agent_start(machine)

    def remove(self, key: str) -> bool:
        """Ends a machine; returns whether it was there."""
        machine = self.all.pop(key, None)
        if machine is None:
            return False
        self._store()
        self._agent_end(key)
        shutil.rmtree(self._folder / key, ignore_errors=True)
        return True

    def close(self) -> None:
        """Ends all agents; the machines stay."""
        for key in list(self._agents):
            self._agent_end(key)

    def _store(self) -> None:
        new = self._file.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text(json.dumps([asdict(each) for each in self.all.values()]), encoding="utf-8")
        new.rename(self._file)

    def _agent_start(self, machine: Machine) -> "subprocess.Popen[bytes]":
        values = boot_values(machine.boot)
        state = self._folder / machine.id
        # After the first start the agent has its identity, and its token is used up.
        token = {} if (state / "identity.json").exists() else {"GPU_AGENT_TOKEN": values["GPU_AGENT_TOKEN"]}
        return subprocess.Popen(  # noqa: S603 (our own module, never a shell)
            [
                *(sys.executable, "-m", "devtools.simulated", "--portal", values["GPU_AGENT_PORTAL"]),
                *(
                    "--name",
                    values["GPU_AGENT_NAME"],
                    "--simulate",
                    machine.fleet.removesuffix(SPOT),
                    "--state",
                    str(state),
                ),
            ],
            env={**_plain(os.environ), **token},
            start_new_session=True,
        )

    def _agent_end(self, key: str) -> None:
        agent = self._agents.pop(key, None)
        if agent is None or agent.poll() is not None:
            return
        os.killpg(agent.pid, signal.SIGTERM)
        try:
            agent.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()


def _plain(environment: Mapping[str, str]) -> dict[str, Any]:
    return {name: environment[name] for name in ("HOME", "LANG", "PATH", "TZ") if name in environment}
