"""Serves many nodes of another scheduler in one process.

Each node has an identity, a folder below `--state` and a loop of its own, in a thread. They share
what the scheduler says.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import logging
import signal
import time
from collections.abc import Callable, Iterable, Mapping

from agent.assembly import IDENTITY, node_assemble
from agent.engine.schedulers import Scheduler, scheduler_open
from agent.owner.accounts import AccountDirectory
from agent.ports.gpu import GpuError
from agent.ports.link import Link
from agent.ports.systemd import Supervisor
from agent.process import Agent, Stop
from agent.report.examination import Examiner, doctor_command
from agent.state.enrol import EnrolmentRefused, identity_ensure
from agent.state.store import StoreError, folder_locked

log = logging.getLogger("agent")

ACCOUNTS = "accounts.json"
_ALIVE_WITHIN_S = 45.0
_ELSEWHERE = ("cdi", "data", "mps_units", "metrics")


def main(options: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Returns 0 after a stop, 1 when the nodes can't be served."""
    try:
        _refuse_elsewhere(options)
        with contextlib.ExitStack() as stack:
            stack.enter_context(folder_locked(options.state))
            engine = _Engine(options, environment, stack)
            _serve([engine.served(name) for name in engine.names], engine.supervisor)
    except (EnrolmentRefused, GpuError, StoreError, OSError, ValueError) as error:
        log.error("%s", error)  # noqa: TRY400 - the message says it all
        return 1
    return 0


def _refuse_elsewhere(options: argparse.Namespace) -> None:
    """Raises ValueError for options that need the agent on the node itself."""
    wrong = [name for name in _ELSEWHERE if getattr(options, name)]
    if options.device_permissions != "off":
        wrong.append("device_permissions")
    if options.cgroup != "off":
        wrong.append("cgroup")
    if wrong:
        raise ValueError(f"there is no --{wrong[0].replace('_', '-')} with --engine {options.engine}")


@dataclasses.dataclass(frozen=True, slots=True)
class ServedNode:
    """The agent of one node, with its link to the portal."""

    agent: Agent
    link: Link
    examiner: Examiner


class Heartbeats:
    """Notifies systemd that the engine is alive while the loops of all nodes turn."""

    def __init__(
        self, tell: Callable[[], None], names: Iterable[str], steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell = tell
        self._steady = steady
        self._turned = dict.fromkeys(names, steady())

    def of(self, name: str) -> Callable[[], None]:
        """Returns what the loop of a node calls at each turn."""

        def turned() -> None:
            now = self._turned[name] = self._steady()
            if all(now - each < _ALIVE_WITHIN_S for each in list(self._turned.values())):
                self._tell()

        return turned


class _Engine:
    """What the agents of all nodes share; `stack` stops them."""

    def __init__(
        self, options: argparse.Namespace, environment: Mapping[str, str], stack: contextlib.ExitStack
    ) -> None:
        """Raises GpuError, OSError, ValueError."""
        self._options = options
        self._environment = environment
        self._stack = stack
        self._scheduler = scheduler_open(options, environment)
        self.names = options.nodes or self._scheduler.nodes()
        self.supervisor = Supervisor(environment)
        self._alive = Heartbeats(self.supervisor.alive, self.names)

    def served(self, name: str) -> ServedNode:
        """Returns the agent of a node, which is enrolled first if it has no identity. Raises what
        `main` takes."""
        options = self._options
        own = argparse.Namespace(**{**vars(options), "name": name, "state": options.state / name})
        self._stack.enter_context(folder_locked(own.state))
        hardware = self._scheduler.hardware(own)
        identity = identity_ensure(
            own.state / IDENTITY,
            own.portal,
            token_of(options.token or "", name),
            hardware.inventory,
            again=own.enrol_again,
        )
        directory = AccountDirectory(own.state / ACCOUNTS)
        node = node_assemble(own, identity, hardware, directory, self._stack)
        agent = Agent(dataclasses.replace(node, alive=self._alive.of(name)))
        link = Link(url=identity.redis_url, node=identity.node, deliver=agent.inbox.put)
        examiner = Examiner(_doctor(own, self._scheduler), self._environment, agent.inbox.put)
        self._stack.callback(examiner.stop)
        return ServedNode(agent, link, examiner)


def token_of(text: str, name: str) -> str | None:
    """Returns the token of a node in `NODE=TOKEN,…`, or the only one that there is."""
    pairs = [part.strip().rpartition("=") for part in text.split(",") if part.strip()]
    return next((token for node, _, token in pairs if node in (name, "")), None)


def _doctor(options: argparse.Namespace, scheduler: Scheduler) -> list[str]:
    words = ["agent", "doctor", "--engine", options.engine, "--nodes", options.name]
    return doctor_command([*words, *scheduler.doctor(options)], options)


def _serve(served: Iterable[ServedNode], supervisor: Supervisor) -> None:
    """Runs the agents until a signal asks them to end, or one of them fails, which it raises."""
    served = tuple(served)

    def stop(*_: object) -> None:
        for each in served:
            each.agent.inbox.put(Stop())

    # A signal only asks the loops to end, so that no step is cut in half.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    log.info("serving %d nodes", len(served))
    with concurrent.futures.ThreadPoolExecutor(len(served), thread_name_prefix="node") as pool:
        for each in served:
            each.link.start()
            each.examiner.start()
        loops = [pool.submit(each.agent.run, each.link) for each in served]
        supervisor.ready()
        concurrent.futures.wait(loops, return_when=concurrent.futures.FIRST_EXCEPTION)
        supervisor.stopping()
        stop()
    for each in served:
        each.link.stop()
    for loop in loops:
        loop.result()
    log.info("stopped; what runs on the nodes continues")
