"""Gathers what arrives together, so that it takes one transaction instead of many.

The first thread that arrives works at once. Those that arrive meanwhile wait, and the first of them
then does the work of all. Nobody waits for company: there is no timer.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)
Member = TypeVar("Member")
Answer = TypeVar("Answer")

MOST_TOGETHER = 64
WAIT_SECONDS = 1.0
"""A thread that has waited this long works alone: what it waits for may be locked."""
ALONE_AFTER_FAILURE = 16
"""After work that failed together, so many members of the key are not gathered."""


@dataclass(eq=False, slots=True)
class _Place(Generic[Member, Answer]):
    """A thread that waits, and its answer. A leader does the work of others, too."""

    member: Member
    turn: Event = field(default_factory=Event)
    is_leader: bool = False
    answer: Answer | None = None


class Gathering(Generic[Member, Answer]):
    """Members by key. `together` answers many of them; those that have no answer work alone."""

    def __init__(self, together: Callable[[Sequence[Member]], Sequence[Answer | None]]) -> None:
        self._together = together
        self._lock = Lock()
        # A key is here while a leader works.
        self._waiting: dict[Hashable, deque[_Place[Member, Answer]]] = {}
        self._alone: Counter[Hashable] = Counter()

    def answer(self, key: Hashable, member: Member, alone: Callable[[], Answer]) -> Answer:
        """Returns the member's answer. `alone` works for this member only, in its own thread."""
        place = _Place[Member, Answer](member)
        if not self._join(key, place):
            return alone()
        self._wait(key, place)
        if not place.is_leader:
            return alone() if place.answer is None else place.answer
        try:
            self._lead(key, place)
            return alone() if place.answer is None else place.answer
        finally:
            self._pass_on(key)

    def _join(self, key: Hashable, place: _Place[Member, Answer]) -> bool:
        """Takes a place, or returns False after a failure."""
        with self._lock:
            if self._alone[key] > 0:
                self._alone[key] -= 1
                return False
            del self._alone[key]
            if key in self._waiting:
                self._waiting[key].append(place)
            else:
                self._waiting[key] = deque()
                place.is_leader = True
                place.turn.set()
            return True

    def _wait(self, key: Hashable, place: _Place[Member, Answer]) -> None:
        if place.turn.wait(WAIT_SECONDS):
            return
        with self._lock:
            queue = self._waiting.get(key)
            if queue is not None and place in queue:
                queue.remove(place)
                return
        # It is among those whose work is being done.
        place.turn.wait()

    def _lead(self, key: Hashable, first: _Place[Member, Answer]) -> None:
        """Answers all who wait now. A leader that is alone does nothing here."""
        with self._lock:
            queue = self._waiting[key]
            others = [queue.popleft() for _ in range(min(len(queue), MOST_TOGETHER - 1))]
        if not others:
            return
        try:
            answers = self._together([first.member, *(each.member for each in others)])
            for place, answer in zip([first, *others], answers, strict=True):
                place.answer = answer
        except Exception:  # noqa: BLE001 (each member meets its own error when it works alone)
            logger.info("Work of %d failed together; each is done alone.", len(others) + 1)
            with self._lock:
                self._alone[key] = ALONE_AFTER_FAILURE
        finally:
            for place in others:
                place.turn.set()

    def _pass_on(self, key: Hashable) -> None:
        with self._lock:
            queue = self._waiting[key]
            if not queue:
                del self._waiting[key]
                return
            following = queue.popleft()
        following.is_leader = True
        following.turn.set()
