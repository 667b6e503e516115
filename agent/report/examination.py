"""Runs `doctor` in a process of its own and delivers its results to the agent.

A driver that hangs or crashes stops that process only.
"""

import argparse
import contextlib
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import wire

log = logging.getLogger(__name__)

# `doctor` ends within 20 s by itself.
LIMIT_S = 25.0
_KILLED_S = 1.0
_TOKEN = "GPU_AGENT_TOKEN"  # noqa: S105 (the name of a variable)


@dataclass(frozen=True, slots=True)
class ExaminationDone:
    """What `doctor` found."""

    checks: tuple[wire.CheckResult, ...]


class Examiner:
    """One examination of this node; `deliver` is called with it from a thread of its own."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        deliver: Callable[[ExaminationDone], None],
        limit_s: float = LIMIT_S,
        turns: contextlib.AbstractContextManager[object] | None = None,
    ) -> None:
        """`turns`: those of many nodes on one machine wait for each other, such as by a semaphore."""
        self._command = command
        self._environment = {name: environment[name] for name in environment if name != _TOKEN}
        self._deliver = deliver
        self._limit_s = limit_s
        self._turns = turns or contextlib.nullcontext()
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def start(self) -> None:
        """Begins it, and waits for nothing."""
        threading.Thread(target=self._examine, name="examiner", daemon=True).start()

    def stop(self) -> None:
        """Ends an examination that is still under way."""
        self._stopped = True
        if self._child is not None:
            self._child.kill()

    def _examine(self) -> None:
        try:
            with self._turns:
                if self._stopped:
                    return
                checks = self._checks()
        except (OSError, ValueError, LookupError, TypeError) as error:
            checks = _none("unread", name=type(error).__name__, error=error)
        if not self._stopped:
            self._deliver(ExaminationDone(checks))

    def _checks(self) -> tuple[wire.CheckResult, ...]:
        self._child = child = subprocess.Popen(  # noqa: S603 (ourselves, no shell)
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
        )
        try:
            output, _ = child.communicate(timeout=self._limit_s)
        except subprocess.TimeoutExpired:
            child.kill()
            # What hangs in a driver does not end by a KILL either: it is left behind.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.communicate(timeout=_KILLED_S)
            return _none("no_answer", limit=f"{self._limit_s:.0f}")
        return checks_read(json.loads(output))


def checks_read(results: Mapping[str, Any]) -> tuple[wire.CheckResult, ...]:
    """Returns what `doctor --json` printed, as the portal takes it.

    Raises ValueError, LookupError or TypeError for what is none of that.
    """
    return tuple(
        wire.CheckResult(
            name=_line(row["name"]),
            state=row["state"],
            seen=_line(row["seen"]),
            do="" if row["state"] == "ok" else _line(row["do"]),
            seen_code=_line(row.get("seen_code", "")),
            do_code="" if row["state"] == "ok" else _line(row.get("do_code", "")),
            facts=_facts(row.get("facts", {})),
        )
        for row in results["checks"][: wire.CHECKS_MAX]
    )


def doctor_command(doctor: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Returns the call of the module and words `doctor` that fits the agent's own options."""
    command = [sys.executable, "-m", *doctor, "--json", "--state", str(options.state)]
    for name in ("portal", "interface", "device_list", "amd", "host_cores", "host_memory"):
        value = getattr(options, name)
        if value:
            command += [f"--{name.replace('_', '-')}", str(value)]
    return command


def _facts(facts: Mapping[str, Any]) -> tuple[wire.CheckFact, ...]:
    known = list(facts.items())[: wire.CHECK_FACTS_MAX]
    return tuple(wire.CheckFact(name=name, value=_line(value)) for name, value in known)


def _none(code: str, **facts: object) -> tuple[wire.CheckResult, ...]:
    texts = {name: str(fact) for name, fact in facts.items()}
    why = wire.CHECK_TEXTS[code] % texts
    log.warning("this node was not examined: %s", why)
    return (
        wire.CheckResult(
            name="doctor",
            state="unknown",
            seen=_line(why),
            do=wire.CHECK_TEXTS["fix_by_hand"],
            seen_code=code,
            do_code="fix_by_hand",
            facts=_facts(texts),
        ),
    )


def _line(text: object) -> str:
    """One line of printable text, no longer than the portal takes."""
    plain = " ".join(str(text).split())
    return "".join(each if each.isprintable() else "?" for each in plain)[: wire.LINE_MAX_LENGTH]
