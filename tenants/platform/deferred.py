"""Answers that take long and occupy no thread: they wait for a decision, or follow events."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from django.http import HttpResponse
from django.http.response import HttpResponseBase, StreamingHttpResponse
from rest_framework.response import Response

_OF_THE_BYTES = frozenset({"Content-Length", "Content-Encoding"})


@dataclass(frozen=True, slots=True)
class Wait:
    """The decision that a final answer waits for: on `subject`, for at most `seconds`.

    `render(found, applied)` makes that answer in a transaction of the tenant. `found` is the
    present state of the subject; `applied` is False if the request did not wait. It may raise
    Refused.
    """

    tenant_id: UUID
    subject: UUID
    seconds: int
    render: Callable[[Any, bool], Response]


@dataclass(frozen=True, slots=True)
class Deferred:
    """A wait, and the callback that makes the complete response."""

    wait: Wait
    conclude: Callable[[Any, bool], HttpResponseBase]


class DeferredResponse(Response):
    """The present answer. The server may wait and send the final answer instead.

    `view_headers` are the headers that the view has set: all others came from middlewares and
    belong to the final answer, too.
    """

    deferred: Deferred
    view_headers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Follow:
    """A stream that a client follows from `position` on.

    `read(position, newest)` returns the parts after a position and where to continue, in a
    transaction of the tenant. The stream ends when `rights` of the credential change.
    """

    tenant_id: UUID
    credential: bytes
    rights: frozenset[object]
    position: int
    read: Callable[[int, int], tuple[Sequence[bytes], int]]


class FollowResponse(StreamingHttpResponse):
    """An empty stream, which the server fills until the client disconnects."""

    follow: Follow


class EarlyResponse(Protocol):
    """What passed the middlewares before its answer was there. `view_headers` are the headers that
    the view has set: all others came from middlewares."""

    view_headers: frozenset[str]
    cookies: Any

    def items(self) -> Iterable[tuple[str, str]]:
        """The headers."""


def with_headers_of(early: EarlyResponse, answer: HttpResponseBase) -> HttpResponseBase:
    """Returns `answer` with the headers that middlewares set on `early`, except for its bytes."""
    for name, value in early.items():
        if name not in early.view_headers and name not in _OF_THE_BYTES:
            answer[name] = value
    if isinstance(answer, HttpResponse):
        answer["Content-Length"] = str(len(answer.content))
    answer.cookies = early.cookies
    return answer
