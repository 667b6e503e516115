"""The agents of many nodes, each in a thread."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from agent.ports.link import Link
from agent.process import Agent, Leave, Stop
from agent.report.examination import Examiner
from wire import HOSTS_MAX

_ALIVE_WITHIN_S = 45.0


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
