"""REST views of operators: every change runs once, in a transaction that spans all tenants."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.response import Response

from tenants.api.base import ApiView
from tenants.platform.wall import operator_tx


class OperatorView(ApiView):
    """A view with methods for operators."""

    @contextmanager
    def operator_tx(self) -> Iterator[None]:
        """A transaction that sees every tenant. Raises Refused `not_allowed` for other callers."""
        self.require_operator()
        with operator_tx():
            yield

    def operate(
        self,
        work: Callable[[], object],
        answer: type[serializers.Serializer[Any]],
        status: int = 200,
        secret: Iterable[str] = (),
    ) -> HttpResponseBase:
        """Does `work` once per idempotency key and answers with its result.

        The caller has to be an operator: `require_operator()` runs before `work`. Fields named in
        `secret` are answered once and not stored.
        """

        def run() -> Response:
            with self.operator_tx():
                return Response(answer(work()).data, status=status)

        return self.once(run, secret=secret)
