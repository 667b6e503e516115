"""Operations of REST, each declared by a function: path, input, answer, scope and reach.

Handlers get the view, which has the actor, the clock and the parameters. A `get` runs in a
transaction of the tenant, a `post` in one that is run once per idempotency key. What a handler
returns is shown by the `answer`; a list is a query set, of which one page is shown.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.api.project_tokens import IN_PROJECT
from tenants.api.scopes import WRITES
from tenants.platform.costly import Kind, costly
from tenants.platform.rest.fields import Strict
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.platform.rest.terms import body_of_terms

Out: TypeAlias = type[serializers.Serializer[Any]]
Handler: TypeAlias = Callable[..., Any]
_PARAMETER = re.compile(r"s?/<[^>]+>")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The operations of one noun. `scope`: what a token needs for all but GET.

    `in_project`: a token that is limited to one project may call them, because the services show
    and change only what `Actor.only_project` allows.
    """

    scope: str
    in_project: bool = False
    _views: dict[str, type[ApiView]] = field(default_factory=dict)

    @property
    def urls(self) -> list[URLPattern]:
        """The routes under /api/v1."""
        return [path(at, view.as_view(), name=_name(at)) for at, view in self._views.items()]

    def list(
        self, at: str, summary: str, out: Out, order: Sequence[str] = ()
    ) -> Callable[[Handler], Handler]:
        """Declares the GET of a list; `order` is a total one, as in order_by. Without it there are
        so few rows that all are one page."""

        def declare(handler: Handler) -> Handler:
            @described(handler.__name__, summary, answer=page(out))
            def get(view: ApiView, request: Request) -> Response:
                with view.tx():
                    rows: QuerySet[Any] = handler(view)
                    if not order:
                        return list_response(out(rows, many=True).data)
                    scope = f"{at}:{view.actor.tenant_id}:{view.actor.user_id}"
                    found, following = page_of(rows, keys=order, query=view.query, scope=scope)
                    return list_response(out(found, many=True).data, following)

            self._add(at, "get", get, handler)
            if order:
                self._views[at].queries = {**self._views[at].queries, "GET": PageQuery}
            return handler

        return declare

    def rows(
        self, at: str, summary: str, out: Out, *, query: type[Strict], kind: Kind
    ) -> Callable[[Handler], Handler]:
        """Declares the costly GET of rows that are computed, all at once; `query` has the parameters.
        The handler opens its own transaction."""

        def declare(handler: Handler) -> Handler:
            @described(handler.__name__, summary, answer=page(out), query=query)
            def get(view: ApiView, request: Request) -> Response:
                return list_response(out(handler(view), many=True).data)

            self._add(at, "get", get, handler)
            self._views[at].queries = {**self._views[at].queries, "GET": query}
            costly(kind)(self._views[at])
            return handler

        return declare

    def post(
        self,
        at: str,
        summary: str,
        out: Out,
        *,
        terms: type[Any] | None = None,
        status: int = 200,
        secret: Sequence[str] = (),
    ) -> Callable[[Handler], Handler]:
        """Declares a POST; with `terms`, the handler gets them after the view. A repetition with the
        same key has null for `secret` fields."""

        def declare(handler: Handler) -> Handler:
            body = None if terms is None else body_of_terms(terms)
            name = handler.__name__
            operation = name if name.startswith("create_") else f"act_{name}"

            @described(operation, summary, answer=out, request=body, status=status)
            def post(view: ApiView, request: Request, **keys: Any) -> HttpResponseBase:  # noqa: ANN401
                sent = () if body is None else (view.sent(body),)

                def work() -> Response:
                    return Response(out(handler(view, *sent, **keys)).data, status=status)

                return view.once(work, secret=secret)

            self._add(at, "post", post, handler)
            return handler

        return declare

    def put(self, at: str, summary: str, out: Out, *, terms: type[Any]) -> Callable[[Handler], Handler]:
        """Declares a PUT, which needs no key: a repetition changes nothing."""

        def declare(handler: Handler) -> Handler:
            body = body_of_terms(terms)

            @described(handler.__name__, summary, answer=out, request=body)
            def put(view: ApiView, request: Request, **keys: Any) -> Response:  # noqa: ANN401 (of the path)
                sent = view.sent(body)
                with view.tx():
                    return Response(out(handler(view, sent, **keys)).data)

            self._add(at, "put", put, handler)
            return handler

        return declare

    def _add(self, at: str, method: str, act: Handler, handler: Handler) -> None:
        act.__doc__ = handler.__doc__
        view = self._views.setdefault(at, type("Endpoint", (ApiView,), {"__doc__": ""}))
        setattr(view, method, act)
        if method != "get":
            WRITES[_name(at)] = self.scope
        if self.in_project:
            IN_PROJECT.add(_name(at))


def _name(at: str) -> str:
    """`api-stand-in-end` for `stand-ins/<uuid:stand_in_id>/end`."""
    return "api-" + _PARAMETER.sub("", at).replace("/", "-")
