"""Answers that improve: what a request waits for may happen after its thread is free again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework.response import Response


@dataclass(frozen=True, slots=True)
class Wait:
    """What a better answer waits for: the decision on `subject`, for at most `seconds`.

    `render(found, applied)` makes that answer, inside a transaction of the tenant. `found` is what
    the subject has become; `applied` is False when the request was not made to wait. It may raise
    Refused.
    """

    tenant_id: UUID
    subject: UUID
    seconds: int
    render: Callable[[Any, bool], Response]


@dataclass(frozen=True, slots=True)
class Deferred:
    """A wait, and how its end becomes a complete response."""

    wait: Wait
    conclude: Callable[[Any, bool], HttpResponseBase]


class DeferredResponse(Response):
    """The answer as it is now. Whoever serves requests may wait and send a better one instead.

    `view_headers` are the names that the view has set: all others came from the middlewares and
    belong to the better answer, too.
    """

    deferred: Deferred
    view_headers: frozenset[str] = frozenset()
