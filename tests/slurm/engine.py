"""`gpu-agent --engine slurm` as a process of its own, restartable."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.agent.processes import Portal
from tests.slurm.cluster import OWNER, Cluster

MODELS = "h100=NVIDIA H100 80GB HBM3:81559"


class Engine:
    """The engine of some nodes. Every member of the portal has the account `OWNER`."""

    def __init__(self, portal: Portal, cluster: Cluster, state: Path, nodes: str = "n1") -> None:
        self.portal = portal
        self.state = state
        self._cluster = cluster
        self._nodes = nodes
        self._hooks = state.parent / "hooks"
        self._hooks.mkdir(mode=0o755, exist_ok=True)
        login = self._hooks / "login"
        login.write_text(f"#!/bin/sh\necho {OWNER}\n")
        login.chmod(0o755)
        self.running: subprocess.Popen[bytes] | None = None

    def start(self, **environment: str) -> None:
        """Starts it; its log is `engine.log` next to its state."""
        options = {
            **self._cluster.environment,
            "GPU_AGENT_ENGINE": "slurm",
            "GPU_AGENT_PORTAL": self.portal.url,
            "GPU_AGENT_TOKEN": "one-time",
            "GPU_AGENT_STATE": str(self.state),
            "GPU_AGENT_NODES": self._nodes,
            "GPU_AGENT_GPU_MODELS": MODELS,
            "GPU_AGENT_HOOKS": str(self._hooks),
            "PYTHONPATH": os.getcwd(),
            **environment,
        }
        with (self.state.parent / "engine.log").open("ab") as log:
            self.running = subprocess.Popen([sys.executable, "-m", "agent"], env=options, stderr=log)

    def kill(self) -> None:
        """Kills it as a loss of power would."""
        self._end(signal.SIGKILL)

    def kill_after(self, seconds: float) -> None:
        """Kills it at a moment of its work: that moment is what a test draws."""
        assert self.running is not None
        try:
            self.running.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def stop(self) -> int:
        """Asks it to end; returns its exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        assert self.running is not None
        self.running.send_signal(number)
        code = self.running.wait(15)
        self.running = None
        return code

    def log(self) -> str:
        """Returns what it has logged."""
        return (self.state.parent / "engine.log").read_text()

    def close(self) -> None:
        """Kills what still runs."""
        if self.running is not None:
            self.kill()
