"""Operations of REST, each declared by a function: path, input, answer, scope and reach.

Handlers get the view, which has the actor, the clock and the parameters, then the terms, then what
stands in the path. All but a `post` run in one transaction, which is of the tenant or of an
operator; a `post` runs once per idempotency key. What a handler returns is shown by the `answer`; a
list is a query set, of which one page is shown. An `operation` has the name of its handler, unless
it says another.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.api.cuts import DRY_RUN, dry_or_not, is_dry
from tenants.api.project_tokens import IN_PROJECT
from tenants.api.scopes import WRITES
from tenants.platform.costly import Kind, costly
from tenants.platform.rest.fields import Strict
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.platform.rest.terms import body_of_terms
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area

Out: TypeAlias = type[serializers.Serializer[Any]]
Handler: TypeAlias = Callable[..., Any]
Declare: TypeAlias = Callable[[Handler], Handler]
Heads: TypeAlias = Callable[[Any], dict[str, str]]
_PARAMETER = re.compile(r"(ie)?s?/<[^>]+>")


class Endpoint(ApiView):
    """The operations at one path. `for_operators`: other callers are refused."""

    for_operators: ClassVar[bool] = False

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        """Authenticates. Raises Refused."""
        super().initial(request, *args, **kwargs)
        if self.for_operators:
            self.require_operator()

    def opened(self) -> AbstractContextManager[None]:
        """Opens a transaction of the tenant, or of an operator."""
        return operator_tx() if self.for_operators else self.tx()

    def inside(self) -> AbstractContextManager[None]:
        """Makes the transaction of an idempotency key that of an operator."""
        return operator_tx() if self.for_operators else nullcontext()


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The operations of one noun. `scope`: what a token needs for all but GET.

    `in_project`: a token that is limited to one project may call them, because the services show
    and change only what `Actor.only_project` allows. `area`: what operators need a role for.
    """

    scope: str
    in_project: bool = False
    for_operators: bool = False
    area: Area | None = None
    _views: dict[str, type[Endpoint]] = field(default_factory=dict)

    @property
    def urls(self) -> list[URLPattern]:
        """The routes under /api/v1."""
        return [path(at, view.as_view(), name=_name(at)) for at, view in self._views.items()]

    def list(
        self,
        at: str,
        summary: str,
        out: Out,
        order: Sequence[str] = (),
        *,
        query: type[PageQuery] = PageQuery,
        operation: str = "",
    ) -> Declare:
        """Declares the GET of a list; `order` is a total one, as in order_by. Without it there are
        so few rows that all are one page."""

        def declare(handler: Handler) -> Handler:
            name, asked = operation or handler.__name__, query if order else None

            @described(name, summary, answer=page(out), query=asked)
            def get(view: Endpoint, request: Request, **keys: Any) -> Response:  # noqa: ANN401 (of the path)
                with view.opened():
                    rows: QuerySet[Any] = handler(view, **keys)
                    if not order:
                        return list_response(out(rows, many=True).data)
                    scope = f"{request.path}:{view.actor.tenant_id}:{view.actor.user_id}"
                    found, following = page_of(rows, keys=order, query=view.query, scope=scope)
                    return list_response(out(found, many=True).data, following)

            self._add(at, "get", get, handler)
            if asked is not None:
                self._views[at].queries = {**self._views[at].queries, "GET": asked}
            return handler

        return declare

    def rows(self, at: str, summary: str, out: Out, *, query: type[Strict], kind: Kind) -> Declare:
        """Declares the costly GET of rows that are computed, all at once; `query` has the parameters.
        The handler opens its own transaction."""

        def declare(handler: Handler) -> Handler:
            @described(handler.__name__, summary, answer=page(out), query=query)
            def get(view: Endpoint, request: Request) -> Response:
                return list_response(out(handler(view), many=True).data)

            self._add(at, "get", get, handler)
            self._views[at].queries = {**self._views[at].queries, "GET": query}
            costly(kind)(self._views[at])
            return handler

        return declare

    def get(
        self, at: str, summary: str, out: Out, *, operation: str = "", heads: Heads | None = None
    ) -> Declare:
        """Declares the GET of one thing. `heads`: the headers of its answer."""

        def declare(handler: Handler) -> Handler:
            @described(operation or handler.__name__, summary, answer=out)
            def get(view: Endpoint, request: Request, **keys: Any) -> Response:  # noqa: ANN401 (of the path)
                with view.opened():
                    found = handler(view, **keys)
                    return Response(out(found).data, headers=heads(found) if heads else None)

            return self._add(at, "get", get, handler)

        return declare

    def post(  # noqa: PLR0913 (named parts of one declaration)
        self,
        at: str,
        summary: str,
        out: Out,
        *,
        terms: type[Any] | None = None,
        status: int = 200,
        secret: Sequence[str] = (),
        operation: str = "",
        kind: Kind | None = None,
        many: bool = False,
        dry: bool = False,
        heads: Heads | None = None,
    ) -> Declare:
        """Declares a POST. A repetition with the same key has null for `secret` fields. With a `kind`
        it writes nothing and is costly. `many`: the answer is a list. `dry`: it takes a dry run.
        `heads`: the headers of its answer."""

        def declare(handler: Handler) -> Handler:
            body = None if terms is None else body_of_terms(terms)
            name = operation or handler.__name__
            known = name if name.startswith("create_") else f"act_{name}"

            shown, headers = out(many=True) if many else out, (DRY_RUN,) if dry else ()

            @described(known, summary, answer=shown, request=body, status=status, headers=headers)
            def post(view: Endpoint, request: Request, **keys: Any) -> HttpResponseBase:  # noqa: ANN401
                sent = () if body is None else (view.sent(body),)

                def work() -> Response:
                    found = handler(view, *sent, **keys)
                    data, more = out(found, many=many).data, heads(found) if heads else None
                    return Response(data, status=status, headers=more)

                def once() -> Response:
                    with view.inside():
                        return work()

                if dry and is_dry(request):
                    with view.opened():
                        return dry_or_not(request, work)
                return view.once(once, secret=secret)

            self._add(at, "post", post, handler)
            if kind is not None:
                costly(kind, "POST")(self._views[at])
            return handler

        return declare

    def put(
        self, at: str, summary: str, out: Out, *, terms: type[Any], operation: str = "", dry: bool = False
    ) -> Declare:
        """Declares a PUT, which needs no key: a repetition changes nothing. `dry`: it takes a dry run."""
        return self._change("put", at, summary, out, terms, operation, dry=dry)

    def patch(self, at: str, summary: str, out: Out, *, terms: type[Any], operation: str = "") -> Declare:
        """Declares a PATCH of terms that have a version, so that a repetition changes nothing."""
        return self._change("patch", at, summary, out, terms, operation)

    def _change(  # noqa: PLR0913 (named parts of one declaration)
        self,
        method: str,
        at: str,
        summary: str,
        out: Out,
        terms: type[Any],
        operation: str,
        *,
        dry: bool = False,
    ) -> Declare:
        def declare(handler: Handler) -> Handler:
            body, headers = body_of_terms(terms), (DRY_RUN,) if dry else ()

            @described(operation or handler.__name__, summary, answer=out, request=body, headers=headers)
            def change(view: Endpoint, request: Request, **keys: Any) -> Response:  # noqa: ANN401 (of the path)
                sent = view.sent(body)

                def work() -> Response:
                    return Response(out(handler(view, sent, **keys)).data)

                with view.opened():
                    return dry_or_not(request, work) if dry else work()

            return self._add(at, method, change, handler)

        return declare

    def delete(self, at: str, summary: str, *, operation: str = "") -> Declare:
        """Declares a DELETE."""

        def declare(handler: Handler) -> Handler:
            @described(operation or handler.__name__, summary, status=204)
            def delete(view: Endpoint, request: Request, **keys: Any) -> Response:  # noqa: ANN401
                with view.opened():
                    handler(view, **keys)
                return Response(status=204)

            return self._add(at, "delete", delete, handler)

        return declare

    def _add(self, at: str, method: str, act: Handler, handler: Handler) -> Handler:
        act.__doc__ = handler.__doc__
        if at not in self._views:
            own = {"__doc__": "", "for_operators": self.for_operators, "area": self.area}
            self._views[at] = type("At", (Endpoint,), own)
        setattr(self._views[at], method, act)
        if method != "get":
            WRITES[_name(at)] = self.scope
        if self.in_project:
            IN_PROJECT.add(_name(at))
        return handler


def _name(at: str) -> str:
    """`api-stand-in-end` for `stand-ins/<uuid:stand_in_id>/end`."""
    return "api-" + _PARAMETER.sub(lambda found: "y" if found[1] else "", at).replace("/", "-")
