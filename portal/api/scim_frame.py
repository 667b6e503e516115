"""SCIM's frame: the directory's token, its JSON, its errors and its lists."""

import json
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from itertools import pairwise
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from portal.words import refusal_text
from tenants.access import client_address
from tenants.models import Tenant
from tenants.platform.errors import Refused, invalid
from tenants.platform.wall import operator_tx, require_operators_process
from tenants.services.directory.tokens import directory_of
from tenants.services.sign_in.rate_limits import call_limit_check

LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
CONTENT = "application/scim+json"
# `attributes` and the order are hints, which may be left aside (RFC 7644, 3.4.2.3 and 3.9).
PARAMETERS = frozenset(
    ("filter", "startIndex", "count", "attributes", "excludedAttributes", "sortBy", "sortOrder")
)
MOST = 200
LONGEST_BODY = 1_000_000
KINDS = (
    "invalidFilter",
    "invalidSyntax",
    "invalidValue",
    "invalidPath",
    "mutability",
    "noTarget",
    "uniqueness",
)

M = TypeVar("M", bound=Model)
Answer = tuple[dict[str, Any] | None, HTTPStatus]
Act = Callable[[HttpRequest, Tenant], Answer]


def served(request: HttpRequest, acts: Mapping[str, Act]) -> HttpResponse:
    """Finds the directory's tenant by the token and answers with SCIM's JSON, errors as well."""
    require_operators_process()
    try:
        with operator_tx():
            tenant = _tenant(request)
            if tenant is None:
                return _error(HTTPStatus.UNAUTHORIZED, "Send the directory's bearer token.")
            call_limit_check("token", f"directory {tenant.id}", timezone.now())
            act = acts.get(request.method or "")
            if act is None:
                return _error(HTTPStatus.METHOD_NOT_ALLOWED, f"Use {', '.join(acts)}.")
            _check_parameters(request)
            if request.method != "GET":
                # A change is computed from what is there, so one is made after the other.
                Tenant.objects.select_for_update().get(id=tenant.id)
            body, status = act(request, tenant)
    except Refused as refusal:
        return _refused(refusal)
    if body is None:
        return HttpResponse(status=status)
    return JsonResponse(body, status=status, content_type=CONTENT)


def _tenant(request: HttpRequest) -> Tenant | None:
    kind, _, clear = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not clear:
        return None
    return directory_of(clear, now=timezone.now(), address=client_address(request.META))


def _check_parameters(request: HttpRequest) -> None:
    """A parameter that is not read would widen a search: to everybody, where `FILTER` names one."""
    for name, values in request.GET.lists():
        if name not in PARAMETERS:
            raise invalid("invalidValue", refusal_text("scim_parameter", name=name[:80]), name[:80])
        if len(values) > 1:
            raise invalid("invalidValue", refusal_text("scim_parameter_twice", name=name), name)


def listed(request: HttpRequest, rows: QuerySet[M], shown: Callable[[M], dict[str, Any]]) -> Answer:
    """Returns the page of rows that `startIndex` and `count` ask for."""
    start = max(1, _whole(request, "startIndex", 1))
    count = min(MOST, max(0, _whole(request, "count", MOST)))
    page = rows[start - 1 : start - 1 + count]
    return {
        "schemas": [LIST],
        "totalResults": rows.count(),
        "startIndex": start,
        "itemsPerPage": len(page),
        "Resources": [shown(row) for row in page],
    }, HTTPStatus.OK


def body_of(request: HttpRequest) -> dict[str, Any]:
    """Returns the body, which is a JSON object. Raises Refused `invalidSyntax`."""
    if len(request.body) > LONGEST_BODY:
        raise invalid("invalidSyntax", refusal_text("scim_body_long"), "body")
    try:
        found = json.loads(request.body, object_pairs_hook=_named_once)
    except (ValueError, RecursionError):
        raise invalid("invalidSyntax", refusal_text("scim_body_json"), "body") from None
    if not isinstance(found, dict):
        raise invalid("invalidSyntax", refusal_text("scim_body_object"), "body")
    if not all(map(_is_storable, _texts_in(found))):
        raise invalid("invalidValue", refusal_text("scim_character"), "body")
    return found


def _texts_in(value: object) -> Iterator[str]:
    """All names and texts of a JSON value."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            left += [*each, *each.values()]
        elif isinstance(each, list):
            left += each


def _is_storable(text: str) -> bool:
    """Returns whether PostgreSQL stores the text: it has no NUL and no half of a pair."""
    return "\0" not in text and not any("\ud800" <= one <= "\udfff" for one in text)


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of the body. Names of attributes have no case, so none may come twice."""
    found = dict(pairs)
    if len({name.lower() for name in found}) < len(pairs):
        names = sorted(name.lower() for name, _ in pairs)
        twice = next(name for name, after in pairwise(names) if name == after)
        raise invalid("invalidSyntax", refusal_text("scim_twice", name=twice[:80]), "body")
    return found


def _whole(request: HttpRequest, name: str, default: int) -> int:
    text = request.GET.get(name, str(default))
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise invalid("invalidValue", refusal_text("scim_number", name=name), name)
    return int(text)


def _refused(refusal: Refused) -> HttpResponse:
    status = {
        "missing": HTTPStatus.NOT_FOUND,
        "denied": HTTPStatus.FORBIDDEN,
        "invalid": HTTPStatus.BAD_REQUEST,
    }.get(refusal.kind, HTTPStatus.CONFLICT)
    if refusal.code == "too_many_requests":
        status = HTTPStatus.TOO_MANY_REQUESTS
    return _error(status, refusal.sentence, refusal.code)


def _error(status: HTTPStatus, detail: str, kind: str = "") -> HttpResponse:
    body = {"schemas": [ERROR], "status": str(int(status)), "detail": detail}
    if kind in KINDS:
        body["scimType"] = kind
    return JsonResponse(body, status=status, content_type=CONTENT)
