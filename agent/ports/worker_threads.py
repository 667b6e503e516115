"""Runs calls that may never return on threads that can be abandoned.

A thread that hangs in a driver can't be ended, and an agent that waited for it would miss leases
and ends. So the caller waits for a limited time; while a call is pending, its thread gets no other.
"""

import concurrent.futures
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from agent.ports.gpu import GpuError
from wire import NOT_ANSWERING

log = logging.getLogger(__name__)

T = TypeVar("T")

ASK_LIMIT_S = 2.0
CHANGE_LIMIT_S = 6.0
OPEN_LIMIT_S = 60.0
# When one thread hangs the others probably will, and leases can't wait for each in turn.
BRIEF_LIMIT_S = 0.25
# A call that returns within this time was only slow.
HANGS_AFTER_S = 10.0


class CallTimeout(Exception):
    """The call has not returned yet. It may still take effect."""


class WorkerThread:
    """One thread that makes one call at a time. It never keeps the process from ending."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[concurrent.futures.Future[Any], Callable[[], Any]]]
        self._jobs = queue.SimpleQueue()
        self._last: concurrent.futures.Future[Any] | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether an abandoned call is still pending."""
        return self._last is not None and not self._last.done()

    def ask(self, job: Callable[[], T], limit_s: float) -> T:
        """Raises Late, at once while an earlier call is out, and whatever the job raises."""
        if self.busy:
            raise CallTimeout
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._last = answer
        self._jobs.put((answer, job))
        concurrent.futures.wait([answer], timeout=limit_s)
        if not answer.done():
            raise CallTimeout
        return answer.result()

    def _work(self) -> None:
        while True:
            answer, job = self._jobs.get()
            try:
                result = job()
            except Exception as error:  # noqa: BLE001 - it is raised where the job was asked for
                answer.set_exception(error)
            else:
                answer.set_result(result)


class WorkerThreads:
    """One thread per GPU, and one for calls about all of them. `steady` never jumps."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._threads: dict[str, WorkerThread] = {}
        self._asked: dict[str, float] = {}
        self._hangs_after: dict[str, float] = {}
        self._warned: set[str] = set()

    def ask(self, about: str, job: Callable[[], T]) -> T:
        """Makes a short call. Raises GpuError("hangs"), and what the job raises."""
        alone = not any(thread.busy for name, thread in self._threads.items() if name != about)
        self._allow(about, HANGS_AFTER_S)
        return self._ask(about, job, ASK_LIMIT_S if alone else BRIEF_LIMIT_S)

    def change(
        self,
        about: str,
        job: Callable[[], T],
        limit_s: float = CHANGE_LIMIT_S,
        hangs_s: float = HANGS_AFTER_S,
    ) -> T:
        """Makes a longer call, which hangs after `hangs_s`. Raises as `ask`."""
        self._allow(about, hangs_s)
        return self._ask(about, job, limit_s)

    def hanging(self) -> tuple[str, ...]:
        """Returns what has a call that hangs."""
        now = self._steady()
        long = (name for name, since in self._asked.items() if now - since >= self._hangs_after[name])
        return tuple(sorted(name for name in long if self._threads[name].busy))

    @property
    def idle(self) -> bool:
        """Whether no call is pending."""
        return not any(thread.busy for thread in self._threads.values())

    def _allow(self, about: str, hangs_s: float) -> None:
        """Sets the limit of the next call; a pending one keeps its own."""
        thread = self._threads.get(about)
        if thread is None or not thread.busy:
            self._hangs_after[about] = hangs_s

    def _ask(self, about: str, job: Callable[[], T], limit_s: float) -> T:
        thread = self._threads.get(about)
        if thread is None:
            thread = self._threads[about] = WorkerThread(f"driver-{about}")
        if not thread.busy:
            self._asked[about] = self._steady()
        try:
            answer = thread.ask(job, limit_s)
        except CallTimeout as late:
            if about not in self._warned:
                self._warned.add(about)
                log.error("a call about %s has not come back", about)  # noqa: TRY400
            raise GpuError("hangs", NOT_ANSWERING) from late
        self._warned.discard(about)
        return answer
