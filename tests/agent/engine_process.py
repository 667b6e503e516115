"""`gpu-agent --engine …` as a process of its own, restartable."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


class AnyPortal(Protocol):
    """Where the engine enrols."""

    @property
    def url(self) -> str: ...


class EngineProcess:
    """Its state is in a folder that outlives it. `options` are those of its kind, as variables."""

    def __init__(self, portal: AnyPortal, state: Path, options: Mapping[str, str]) -> None:
        self.portal = portal
        self.state = state
        self._options = options
        self.running: subprocess.Popen[bytes] | None = None

    def start(self, **environment: str) -> None:
        """Starts it; its log is `engine.log` next to its state."""
        options = {
            "PATH": os.environ["PATH"],
            "GPU_AGENT_PORTAL": self.portal.url,
            "GPU_AGENT_TOKEN": "gpup_engine_once",
            "GPU_AGENT_STATE": str(self.state),
            "PYTHONPATH": os.getcwd(),
            **self._options,
            **environment,
        }
        with (self.state.parent / "engine.log").open("ab") as log:
            self.running = subprocess.Popen([sys.executable, "-m", "agent"], env=options, stderr=log)

    def enrol(self, token: str, *options: str) -> "subprocess.CompletedProcess[str]":
        """Enrols it as an operator does."""
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "agent",
                "enroll",
                "--token",
                token,
                "--portal",
                self.portal.url,
                *options,
            ],
            env={
                "PATH": os.environ["PATH"],
                "GPU_AGENT_STATE": str(self.state),
                "PYTHONPATH": os.getcwd(),
                **self._options,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

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
