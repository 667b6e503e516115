"""The agents of many nodes, each in a thread, and what they share."""

import argparse
import contextlib
import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from agent.assembly import node_assemble
from agent.engine.schedulers import Scheduler, scheduler_open
from agent.hardware import NodeHardware
from agent.owner.accounts import AccountDirectory
from agent.ports.link import Link
from agent.ports.systemd import Supervisor
from agent.process import Agent, Leave, Stop
from agent.report.examination import Examiner, doctor_command
from agent.state.enrol import Identity
from agent.state.store import folder_locked
from wire import HOSTS_MAX

ACCOUNTS = "accounts.json"
EXAMINED_AT_ONCE = 2
_ALIVE_WITHIN_S = 45.0
_TURN_S = 1.0
IdentityOf = Callable[[argparse.Namespace, NodeHardware], Identity]


@dataclasses.dataclass(frozen=True, slots=True)
class ServedNode:
    """The agent of one node, with its link to the portal."""

    agent: Agent
    link: Link
    examiner: Examiner


class Heartbeats:
    """Notifies systemd that the engine is alive while the loops of all nodes turn."""

    def __init__(self, tell: Callable[[], None], steady: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._steady = steady
        self._lock = threading.Lock()
        self._turned: dict[str, float] = {}

    def of(self, name: str) -> Callable[[], None]:
        """Returns what the loop of a node calls at each turn."""
        with self._lock:
            self._turned[name] = self._steady()

        def turned() -> None:
            with self._lock:
                now = self._steady()
                if name in self._turned:
                    self._turned[name] = now
                is_alive = all(now - each < _ALIVE_WITHIN_S for each in self._turned.values())
            if is_alive:
                self._tell()

        return turned

    def drop(self, name: str) -> None:
        """Waits for a loop no more."""
        with self._lock:
            self._turned.pop(name, None)


class Serving:
    """`opened` returns the agent of a node, whose parts the stack stops. At its end all are stopped."""

    def __init__(self, opened: Callable[[str, contextlib.ExitStack], ServedNode], alive: Heartbeats) -> None:
        self._opened = opened
        self._alive = alive
        self._pool = ThreadPoolExecutor(HOSTS_MAX, thread_name_prefix="node")
        self._running: dict[str, tuple[ServedNode, Future[None], contextlib.ExitStack]] = {}

    def __enter__(self) -> "Serving":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for served, _, _ in self._running.values():
            served.agent.inbox.put(Stop())
        # Links take a second to end, so all of them end at once.
        with ThreadPoolExecutor(max(1, len(self._running))) as ending:
            ended = [ending.submit(self._ended, name) for name in list(self._running)]
        self._pool.shutdown()
        for each in ended:
            each.result()

    @property
    def names(self) -> set[str]:
        """The nodes whose agents run."""
        return set(self._running)

    def start(self, name: str) -> None:
        """Starts the agent of a node. Raises what `opened` raises."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._alive.drop, name)
            served = self._opened(name, stack)
            served.link.start()
            stack.callback(served.link.stop)
            served.examiner.start()
            future = self._pool.submit(served.agent.run, served.link)
            self._running[name] = served, future, stack.pop_all()

    def leave(self, name: str) -> None:
        """Asks an agent to end when it holds nothing any more."""
        self._running[name][0].agent.inbox.put(Leave())

    def stop(self, name: str) -> None:
        """Ends an agent, if it runs; what runs on the node continues. Raises what ended it before."""
        if name in self._running:
            self._running[name][0].agent.inbox.put(Stop())
            self._ended(name)

    def reap(self) -> None:
        """Removes agents that have left. Raises what ended one."""
        for name in [name for name, (_, future, _) in self._running.items() if future.done()]:
            self._ended(name)

    def _ended(self, name: str) -> None:
        _, future, stack = self._running.pop(name)
        with stack:
            future.result()


class Engine:
    """What the agents of all nodes share."""

    def __init__(self, options: argparse.Namespace, environment: Mapping[str, str]) -> None:
        """Raises GpuError, OSError, ValueError."""
        self.options = options
        self._environment = environment
        self.scheduler = scheduler_open(options, environment)
        self.supervisor = Supervisor(environment)
        self.alive = Heartbeats(self.supervisor.alive)
        self._stopped = threading.Event()
        # Each examination is a process: those of many nodes at once would not end in time.
        self._examinations = threading.Semaphore(EXAMINED_AT_ONCE)

    def options_of(self, name: str) -> argparse.Namespace:
        """The options of the agent of one node."""
        return argparse.Namespace(**{**vars(self.options), "name": name, "state": self.options.state / name})

    def opened(self, name: str, identity_of: IdentityOf, stack: contextlib.ExitStack) -> ServedNode:
        """Returns the agent of a node; `stack` stops its parts. Raises what `main` takes."""
        own = self.options_of(name)
        stack.enter_context(folder_locked(own.state))
        hardware = self.scheduler.hardware(own)
        identity = identity_of(own, hardware)
        directory = AccountDirectory(own.state / ACCOUNTS)
        node = node_assemble(own, identity, hardware, directory, stack)
        agent = Agent(dataclasses.replace(node, alive=self.alive.of(name)))
        link = Link(url=identity.redis_url, node=identity.node, deliver=agent.inbox.put)
        doctor = _doctor(own, self.scheduler)
        examiner = Examiner(doctor, self._environment, agent.inbox.put, turns=self._examinations)
        stack.callback(examiner.stop)
        return ServedNode(agent, link, examiner)

    def run(self, turn: Callable[[], None]) -> None:
        """Calls `turn` each second until a signal asks to end."""
        # A signal only asks the loops to end, so that no step is cut in half.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopped.set())
        alive = self.alive.of("")
        self.supervisor.ready()
        while not self._stopped.wait(_TURN_S):
            turn()
            alive()
        self.supervisor.stopping()


def _doctor(options: argparse.Namespace, scheduler: Scheduler) -> list[str]:
    words = ["agent", "doctor", "--engine", options.engine, "--nodes", options.name]
    return doctor_command([*words, *scheduler.doctor(options)], options)
