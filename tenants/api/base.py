"""The base of every REST view: authentication, strict parameters, one clock, idempotency."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import copy_context
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, cast

from django.conf import settings
from django.core.handlers.exception import response_for_exception
from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tenants.access import Actor, client_address, role_needed
from tenants.api.auth import Caller, TokenAuthentication
from tenants.api.cuts import is_dry
from tenants.api.gathered import GatheredResponse, Intake, is_gathered_here
from tenants.api.idempotency import (
    NOT_STORED,
    KeyedRequest,
    StoredAnswer,
    answer_replace,
    answer_store,
    key_take,
    keyed_request_of,
)
from tenants.api.project_tokens import project_check
from tenants.api.scopes import scope_check
from tenants.models import User
from tenants.platform.costly import Costly
from tenants.platform.deferred import Deferred, DeferredResponse, Wait
from tenants.platform.errors import Refused, denied, invalid
from tenants.platform.log_ids import log_id, log_ids_now
from tenants.platform.reference import reference_tx
from tenants.platform.rest.body import Body, body_of
from tenants.platform.rest.fields import Strict, single_values, validated
from tenants.platform.rest.schema import takes_body, takes_dry_run
from tenants.platform.rows import with_last_rows
from tenants.platform.wall import tenant_tx
from tenants.rules.operator_roles import Area
from tenants.services.policy_hooks.calls import hook_asking
from tenants.services.sign_in.rate_limits import call_limit_check
from tenants.words import refusal_text


class ApiView(APIView):
    """A view that needs a token. `queries` declares the query parameters of each method; an unknown
    parameter is refused, and so are a body and a dry run where none is declared. `area`: what
    operators need a role for. `has_reference`: its transactions keep reference data in memory.

    Handlers open their own transactions (`self.tx`); none spans a whole request.
    """

    authentication_classes: Sequence[type[BaseAuthentication]] = (TokenAuthentication,)
    permission_classes: Sequence[type[BasePermission]] = (IsAuthenticated,)
    renderer_classes = (JSONRenderer,)
    http_method_names = ["get", "head", "post", "put", "patch", "delete"]
    queries: ClassVar[Mapping[str, type[Strict]]] = {}
    has_reference: ClassVar[bool] = False
    area: ClassVar[Area | None] = None
    # A dry run of any route computes what its request would do.
    costly: ClassVar[Costly] = Costly("preview", ("POST", "PUT", "PATCH", "DELETE"), "dry-run")

    now: datetime
    query: dict[str, Any]

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        """Authenticates, reads the clock once, counts the call, validates the parameters."""
        self.now = timezone.now().replace(microsecond=0)
        # A web process has counted the calls that it passes on to the operators' process.
        if not settings.SERVES_OPERATORS:
            call_limit_check("address", client_address(request.META), self.now)
        super().initial(request, *args, **kwargs)
        if request.auth is not None:
            log_id(user=self.caller.actor.user_id)
            scope_check(request, self.caller.scopes)
            project_check(request, self.actor)
            call_limit_check("token", str(self.caller.token_id), self.now)
        # HEAD is answered by the handler of GET, which takes the same parameters.
        method = "GET" if request.method == "HEAD" else request.method
        form = self.queries.get(method or "", Strict)
        self.query = validated(form, single_values(request.query_params))
        handler = getattr(self, (method or "").lower(), None)
        if not takes_body(handler):
            self.sent(Strict)
        if self._acts() and is_dry(request) and not takes_dry_run(handler):
            raise invalid("no_dry_run", refusal_text("no_dry_run"), "Prefer")

    def finalize_response(
        self, request: Request, response: Response, *args: object, **kwargs: object
    ) -> Response:
        """Forbids caches to store answers, because each belongs to one caller."""
        response["Cache-Control"] = "no-store"
        final = super().finalize_response(request, response, *args, **kwargs)
        if isinstance(final, DeferredResponse | GatheredResponse):
            final.view_headers = frozenset(name for name, _ in final.items())
        return final

    @property
    def caller(self) -> Caller:
        """The authenticated caller."""
        return cast(Caller, self.request.auth)

    @property
    def user(self) -> User:
        """The caller's account."""
        return cast(User, self.request.user)

    @property
    def actor(self) -> Actor:
        """The caller as a member of the token's tenant."""
        return self.caller.actor

    @cached_property
    def body(self) -> Body:
        """The JSON object of the body. Raises Refused."""
        return body_of(self.request)

    @cached_property
    def idempotency(self) -> KeyedRequest | None:
        """The request's idempotency key, if it has one. Raises Refused."""
        return keyed_request_of(self.request, self.body.raw)

    def sent(self, form: type[Strict]) -> Any:  # noqa: ANN401 (a form's values have many shapes)
        """The validated values of the body. Raises Refused."""
        return validated(form, self.body.data)

    def tx(self) -> AbstractContextManager[None]:
        """Opens a short transaction in the caller's tenant."""
        opened = reference_tx if self.has_reference else tenant_tx
        return opened(self.actor.tenant_id)

    def require_operator(self) -> None:
        """Raises Refused: `not_allowed` unless the caller is an operator, `role_needed` unless one of
        their roles reaches: it reads the `area` for a GET, and acts in it for the other methods."""
        if not self.caller.is_operator:
            raise denied(refusal_text("operators_only"))
        if not self._reaches():
            raise role_needed(self.caller.rights, self._area(), act=self._acts())

    def is_for_operator(self) -> bool:
        """Whether an operator asks whose roles reach; the others read as the members that they are.
        Raises Refused `role_needed` for a change."""
        if self.caller.is_operator and self._acts():
            self.require_operator()
        return self.caller.is_operator and self._reaches()

    def _acts(self) -> bool:
        return self.request.method not in ("GET", "HEAD")

    def _reaches(self) -> bool:
        return self.caller.rights.may(self._area(), act=self._acts())

    def _area(self) -> Area:
        if self.area is None:
            raise LookupError(f"{type(self).__name__} declares no area of operators")
        return self.area

    def once(
        self,
        work: Callable[[], Response],
        *,
        wait: Callable[[Response], Wait | None] | None = None,
        secret: Iterable[str] = (),
        is_gathered: bool = False,
    ) -> HttpResponseBase:
        """Runs `work` in one transaction, at most once per idempotency key. If it needs an answer
        of the tenant's policy hook, the transaction is undone; `work` runs again after the call.
        `is_gathered`: the transaction may be that of other requests, too, if the server gathers
        them (`GatheredResponse`); not with `secret`.
        `wait` names the decision that is waited for, or None; a replay has null for `secret` fields.
        """
        keyed, is_final = self.idempotency, wait is None

        def answered(kept: StoredAnswer | Response) -> HttpResponseBase:
            if isinstance(kept, StoredAnswer) and (wait is None or kept.is_final):
                return kept.replay()
            response = kept.response() if isinstance(kept, StoredAnswer) else kept
            waits = wait(response) if wait else None
            return self.deferred(response, waits, keyed) if waits else response

        def one() -> StoredAnswer | Response:
            return with_last_rows(lambda: self._work_once(work, keyed, secret, is_final=is_final))

        def alone() -> HttpResponseBase:
            try:
                return answered(hook_asking(one))
            except Refused as refusal:
                if keyed is None:
                    raise
                return self._refused(keyed, refusal)

        if not is_gathered or not is_gathered_here():
            return alone()
        context, complete = copy_context(), self._completed
        return GatheredResponse(
            Intake(
                self.actor,
                keyed,
                work,
                self.now,
                is_final,
                log_ids_now(),
                answered=lambda response: complete(lambda: answered(response)),
                alone=lambda: context.run(complete, alone),
                refused=lambda refusal: complete(lambda: self.handle_exception(refusal)),
            )
        )

    def _completed(self, answer: Callable[[], HttpResponseBase]) -> HttpResponseBase:
        """Returns the answer of a gathered request with its errors handled, and rendered."""
        request: Request = self.request
        try:
            response = self._refusal_or(answer)
        except Exception as error:  # noqa: BLE001 (Django answers every error with 500)
            response = response_for_exception(request._request, error)
        # The stubs know only REST framework's own responses.
        final: HttpResponseBase = self.finalize_response(request, cast(Response, response))
        return final.render() if isinstance(final, SimpleTemplateResponse) else final

    def _refusal_or(self, answer: Callable[[], HttpResponseBase]) -> HttpResponseBase:
        try:
            return answer()
        except Exception as error:  # noqa: BLE001 (this raises what is no refusal)
            return self.handle_exception(error)

    def _work_once(
        self,
        work: Callable[[], Response],
        keyed: KeyedRequest | None,
        secret: Iterable[str],
        *,
        is_final: bool,
    ) -> StoredAnswer | Response:
        with self.tx():
            kept = None if keyed is None else key_take(self.actor, keyed, self.now)
            if kept is not None:
                return kept
            response = work()
            if keyed is not None:
                answer_store(self.actor, keyed, _without(response, secret), is_final=is_final)
        return response

    def deferred(self, response: Response, wait: Wait, keyed: KeyedRequest | None = None) -> DeferredResponse:
        """Returns the present answer, with a callback that makes the final one."""

        def conclude(found: object, applied: bool) -> HttpResponseBase:  # noqa: FBT001 (one call)
            return self._final_answer(wait, keyed, found, applied)

        answer = DeferredResponse(response.data, status=response.status_code, headers=dict(response.items()))
        answer.deferred = Deferred(wait, conclude)
        return answer

    def _refused(self, keyed: KeyedRequest, refusal: Refused) -> HttpResponseBase:
        """Answers with the refusal; stores it under its key if a repetition would get the same."""
        response = self.handle_exception(refusal)
        if response.status_code in NOT_STORED or refusal.code == "idempotency_key_reused":
            return response
        with self.tx():
            kept = key_take(self.actor, keyed, self.now)
            if kept is None:
                answer_store(self.actor, keyed, response, is_final=True)
        return response if kept is None else kept.replay()

    def _final_answer(
        self,
        wait: Wait,
        keyed: KeyedRequest | None,
        found: object,
        applied: bool,  # noqa: FBT001 (one call)
    ) -> HttpResponseBase:
        """Renders the final answer, in a transaction of the tenant."""
        try:
            response = wait.render(found, applied)
        except Refused as refusal:
            response = self.handle_exception(refusal)
        if keyed is not None:
            answer_replace(self.actor, keyed, response)
        complete: HttpResponseBase = self.finalize_response(self.request, response).render()
        return complete


def list_response(items: Iterable[Any], next_cursor: str | None = None) -> Response:
    """Answers with a page of a list: `items`, and the cursor of the `next` page."""
    return Response({"items": list(items), "next": next_cursor})


def _without(response: Response, secret: Iterable[str]) -> Response:
    hidden = dict.fromkeys(secret)
    if not hidden:
        return response
    return Response({**response.data, **hidden}, status=response.status_code, headers=dict(response.items()))
