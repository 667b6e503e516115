"""Requests of one organisation that arrive together are written in one transaction.

The first thread that arrives works at once. Those that arrive meanwhile wait, and the first of them
then does the work of all. Nobody waits for company: there is no timer.

A request that is refused, repeats a key, asks a hook or needs locks is answered alone, as one that
arrives alone is. So is each one of them if the transaction fails.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from threading import Event, Lock
from typing import Generic, TypeVar

from rest_framework.response import Response

from tenants.access import Actor
from tenants.api.idempotency import KeyedRequest, StoredAnswer, key_write, keys_known
from tenants.platform.collected import Collection, NotTogether
from tenants.platform.errors import Refused
from tenants.platform.log_ids import log_ids
from tenants.platform.reference import reference_tx
from tenants.platform.rows import rows_together
from tenants.services.policy_hooks.questions import HookQuestion

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


Answered = Response | StoredAnswer


@dataclass(frozen=True, slots=True)
class Intake:
    """A request that may be written together with others of its organisation. `work` makes its
    answer in a transaction; its lines in the log have `ids`."""

    actor: Actor
    keyed: KeyedRequest | None
    work: Callable[[], Response]
    now: datetime
    is_final: bool
    ids: Mapping[str, str]

    @property
    def key(self) -> tuple[int, str] | None:
        """The idempotency key and whose it is."""
        return None if self.keyed is None else (self.actor.user_id, self.keyed.key)


def intakes_write(intakes: Sequence[Intake]) -> list[Answered | None]:
    """Writes all in one transaction, with their keys; returns the answers. A request without an
    answer has written nothing."""
    tenant_id = intakes[0].actor.tenant_id
    with reference_tx(tenant_id), rows_together() as together:
        sent = Counter(each.key for each in intakes if each.key is not None)
        known = keys_known(tenant_id, sent) | {key for key, times in sent.items() if times > 1}
        return [None if each.key in known else _answer(each, together) for each in intakes]


def _answer(intake: Intake, together: Collection) -> Response | None:
    try:
        with together.member(), log_ids(**intake.ids):
            response = intake.work()
            if intake.keyed is not None:
                key_write(
                    intake.actor, intake.keyed, response, intake.now, is_final=intake.is_final
                )
    except (Refused, HookQuestion, NotTogether):
        return None
    return response


@cache
def gathering_here() -> Gathering[Intake, Answered]:
    """Returns what gathers in this process."""
    return Gathering(intakes_write)
