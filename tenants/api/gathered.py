"""Requests of one organisation that arrive together are written in one transaction.

A view returns a `GatheredResponse`: the request is parsed and its caller is known, and the server
decides with which others it is written. A request that is refused, repeats a key, asks a hook or
needs locks leaves nothing and is answered alone.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.response import Response

from tenants.access import Actor
from tenants.api.idempotency import KeyedRequest, key_write, keys_known
from tenants.platform.collected import Collection, NotTogether
from tenants.platform.deferred import with_headers_of
from tenants.platform.errors import Refused
from tenants.platform.log_ids import log_ids
from tenants.platform.reference import reference_tx
from tenants.platform.rows import rows_together
from tenants.services.policy_hooks.questions import HookQuestion

_is_gathered_here: ContextVar[bool] = ContextVar("requests_gathered", default=False)


@dataclass(frozen=True, slots=True)
class Intake:
    """A request that may be written together with others of its organisation.

    `work` does what it asks for in a transaction, and its lines in the log have `ids`. `answered`
    makes the complete response of what `work` returned. `alone` does everything in a transaction of
    its own, and `refused` does nothing; both return the complete response.
    """

    actor: Actor
    keyed: KeyedRequest | None
    work: Callable[[], Response]
    now: datetime
    is_final: bool
    ids: Mapping[str, str]
    answered: Callable[[Response], HttpResponseBase]
    alone: Callable[[], HttpResponseBase]
    refused: Callable[[Refused], HttpResponseBase]

    @property
    def key(self) -> tuple[int, str] | None:
        """The idempotency key and whose it is."""
        return None if self.keyed is None else (self.actor.user_id, self.keyed.key)


class GatheredResponse(HttpResponse):
    """No answer yet. It passes the middlewares, whose headers belong to the answer, too."""

    view_headers: frozenset[str] = frozenset()
    _when_answered: Callable[[HttpResponseBase], None] | None = None

    def __init__(self, intake: Intake) -> None:
        super().__init__()
        self.intake = intake

    def when_answered(self, note: Callable[[HttpResponseBase], None]) -> None:
        """Calls `note` with the complete answer when it is there."""
        self._when_answered = note

    def completed(self, answer: HttpResponseBase) -> HttpResponseBase:
        """Returns the answer with the headers of the middlewares."""
        answer = with_headers_of(self, answer)
        if self._when_answered is not None:
            self._when_answered(answer)
        return answer


@contextmanager
def requests_gathered() -> Iterator[None]:
    """Says that the server takes a `GatheredResponse`. Elsewhere every request works alone."""
    token = _is_gathered_here.set(True)
    try:
        yield
    finally:
        _is_gathered_here.reset(token)


def is_gathered_here() -> bool:
    """Returns whether the server takes a `GatheredResponse`."""
    return _is_gathered_here.get()


def intakes_write(intakes: Sequence[Intake]) -> list[Response | None]:
    """Writes all in one transaction, with their keys; returns what they answer. A request without
    an answer has written nothing."""
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
                key_write(intake.actor, intake.keyed, response, intake.now, is_final=intake.is_final)
    except (Refused, HookQuestion, NotTogether):
        return None
    return response
