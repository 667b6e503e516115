"""`gpu-agent doctor`: what of this node works with the agent, and what to do.

Looks only: it changes nothing, ends nothing and needs no agent that runs. Exit status: 0 when no
check fails, 1 when one does, 2 for a wrong call.
"""

import argparse
import contextlib
import dataclasses
import json
import logging
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from agent.amd.library import Smi, library_load
from agent.doctor.amd import amd_checks
from agent.doctor.checks import Check, Finding, Said, State, said
from agent.doctor.driver import ExaminedDriver, driver_checks, driver_load, list_checks
from agent.doctor.host import HostOptions, core_checks, host_checks
from agent.doctor.kubernetes import Asked, kubernetes_checks, pod_checks
from agent.doctor.slurm import engine_checks, slurm_checks
from agent.engine_options import (
    SCHEDULER_CONFIG,
    amd_option,
    charges_option,
    cores_options,
    device_list_option,
    kubernetes_options,
    models_option,
    slurmrestd_options,
)
from agent.kubernetes.api import KubernetesApi, access_find
from agent.run import state_option
from agent.slurm.access import slurm_open

ALL_S = 18.0
# Errors that a check raises on an unusual machine. They are shown; the other checks continue.
_REFUSED = (OSError, ValueError, LookupError, subprocess.SubprocessError)
_WORDS: dict[State, str] = {"ok": "ok", "warn": "WARN", "fail": "FAIL", "unknown": "unknown"}
_ORDER: tuple[Literal["fail", "warn", "unknown", "ok"], ...] = ("fail", "warn", "unknown", "ok")


@dataclasses.dataclass(frozen=True, slots=True)
class Drivers:
    """Where the drivers of NVIDIA and of AMD are loaded from."""

    nvidia: Callable[[contextlib.ExitStack], ExaminedDriver] = driver_load
    amd: Callable[[], Smi] = library_load
    is_simulated: bool = False


REAL = Drivers()


def main(arguments: Sequence[str], environment: Mapping[str, str], drivers: Drivers = REAL) -> int:
    """Prints the findings; returns the exit status."""
    options = _parser(environment).parse_args(arguments)
    began = time.monotonic()
    nvidia = not (options.amd or options.device_list)
    asked = HostOptions(options.state, options.portal, options.interface, drivers.is_simulated, nvidia)
    with contextlib.ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)  # what a check sees, it says itself
        try:
            checks = _checks(options, environment, asked, lambda: _of_devices(options, drivers, stack))
        except (OSError, ValueError) as error:
            sys.stderr.write(f"{error}\n")
            return 2
        found = list(checks_run(checks, ALL_S))
    sys.stdout.write(_json(found) if options.json else _text(found, time.monotonic() - began))
    return 1 if any(each.finding.state == "fail" for each in found) else 0


def _checks(
    options: argparse.Namespace,
    environment: Mapping[str, str],
    asked: HostOptions,
    of_driver: Callable[[], Sequence[Check]],
) -> list[Check]:
    """Returns the checks of the engine. Raises OSError, ValueError where they can't be made."""
    if options.engine == "slurm":
        slurm = slurm_open(options)
        return [*engine_checks(asked), *slurm_checks(slurm, options.nodes, options.slurm_account)]
    if options.engine == "kubernetes":
        named = (options.kubernetes_api, options.kubernetes_token, options.kubernetes_ca)
        api = KubernetesApi(access_find(*named, environment))
        nodes = [name for name in options.nodes.split(",") if name]
        own = Asked(
            nodes=nodes,
            models=options.gpu_models,
            way=options.kubernetes_bookings,
            own=options.kubernetes_holders,
            config=options.kubernetes_volcano or SCHEDULER_CONFIG,
        )
        return [*pod_checks(asked), *kubernetes_checks(api, own)]
    if options.host_cores:
        return [*host_checks(asked), *core_checks(options.host_cores, options.host_memory)]
    return [*host_checks(asked), *of_driver()]


def _of_devices(
    options: argparse.Namespace, drivers: Drivers, stack: contextlib.ExitStack
) -> Sequence[Check]:
    if options.device_list:
        return list_checks(options.device_list)
    if options.amd:
        return amd_checks(drivers.amd, options.amd, stack, has_files=not drivers.is_simulated)
    return driver_checks(drivers.nvidia, stack)


@dataclasses.dataclass(frozen=True, slots=True)
class CheckOutcome:
    """A check with what came of it, and the seconds that it took."""

    name: str
    finding: Finding
    seconds: float


def checks_run(checks: Iterable[Check], within: float) -> Iterator[CheckOutcome]:
    """Makes all checks in their order, in so many seconds together, whatever does not answer.

    A call that hangs is left alone. Nothing more is asked of what it hangs in.
    """
    deadline = time.monotonic() + within
    hanging: dict[str, str] = {}
    for check in checks:
        began = time.monotonic()
        left = deadline - began
        if check.asks in hanging:
            finding = Finding("unknown", said("hangs", asks=check.asks, check=hanging[check.asks]))
        elif left <= 0:
            finding = Finding("unknown", said("out_of_time", within=f"{within:g}"))
        else:
            answer = _within(check.look, min(check.limit, left))
            if answer is None:
                hanging[check.asks] = check.name
                answer = Finding("fail", said("no_answer", limit=f"{min(check.limit, left):.0f}"), check.late)
            finding = answer
        yield CheckOutcome(check.name, finding, time.monotonic() - began)


def _within(look: Callable[[], Finding], seconds: float) -> Finding | None:
    answers: queue.SimpleQueue[Finding] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(look())
        except _REFUSED as error:
            answers.put(Finding("unknown", said("error", name=type(error).__name__, error=error)))

    # A daemon: the process ends with it, wherever it hangs.
    threading.Thread(target=ask, daemon=True).start()
    try:
        return answers.get(timeout=seconds)
    except queue.Empty:
        return None


def _json(found: Sequence[CheckOutcome]) -> str:
    rows = [
        {
            "name": each.name,
            "state": each.finding.state,
            "seen": _line(each.finding.seen),
            "do": _line(each.finding.do) if each.finding.do else "",
            "seen_code": each.finding.seen.code,
            "do_code": each.finding.do.code if each.finding.do else "",
            "facts": {**each.finding.seen.facts, **_facts(each.finding.do)},
            "seconds": round(each.seconds, 3),
        }
        for each in found
    ]
    return json.dumps({"checks": rows}, indent=2) + "\n"


def _line(text: Said) -> str:
    return " ".join(str(text).split())


def _facts(text: Said | None) -> Mapping[str, str]:
    return text.facts if text else {}


def _text(found: Sequence[CheckOutcome], seconds: float) -> str:
    lines = []
    for each in found:
        finding = each.finding
        lines.append(f"{_WORDS[finding.state]:<8}{each.name}: {_line(finding.seen)}")
        if finding.do and finding.state != "ok":
            lines.append(f"{'':<8}  -> {finding.do}")
    count = Counter(each.finding.state for each in found)
    counts = ", ".join(f"{count[state]} {state}" for state in _ORDER)
    return "\n".join([*lines, f"{len(found)} checks in {seconds:.1f} s: {counts}", ""])


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    default = environment.get
    parser = argparse.ArgumentParser(prog="gpu-agent doctor", description=__doc__)
    state_option(parser, environment)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--portal", default=default("GPU_AGENT_PORTAL"), help="its address")
    parser.add_argument(
        "--engine",
        choices=("device", "slurm", "kubernetes"),
        default=default("GPU_AGENT_ENGINE", "device"),
        help="check what Slurm or Kubernetes needs for the portal, not this node's GPUs",
    )
    device_list_option(parser, environment)
    amd_option(parser, environment)
    cores_options(parser, environment)
    parser.add_argument("--reservation", default=default("GPU_AGENT_RESERVATION", "portal"), metavar="NAME")
    parser.add_argument("--nodes", default=default("GPU_AGENT_NODES", ""), metavar="NODE[,…]")
    slurmrestd_options(parser, environment)
    charges_option(parser, environment)
    models_option(parser, environment)
    kubernetes_options(parser, environment)
    parser.add_argument("--interface", default=default("GPU_AGENT_INTERFACE"), metavar="NAME")
    return parser
