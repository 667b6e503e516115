"""SCIM 2.0 (RFC 7644) for the directory of a tenant: people, by its bearer token.

The operators' process serves it: only that process creates accounts. `Users` takes list (filter
`userName eq "…"`), create, get, replace, patch and delete; groups are the sign-in provider's.
"""

import json
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from tenants.access import client_address
from tenants.models import DirectoryPerson, Tenant, User
from tenants.platform.errors import Refused, invalid
from tenants.platform.wall import operator_tx, require_operators_process
from tenants.services.directory.people import (
    PersonTerms,
    directory_people,
    directory_person,
    directory_person_change,
    directory_person_create,
    directory_person_remove,
    is_active_in,
)
from tenants.services.directory.tokens import directory_of
from tenants.services.rate_limits import call_limit_check

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
CONTENT = "application/scim+json"
MOST = 200
LONGEST_BODY = 100_000
_FILTER = re.compile(
    r'\s*(userName|externalId)\s+eq\s+"([^"\\\x00-\x1f]{1,255})"\s*', re.IGNORECASE
)

Answer = tuple[dict[str, Any] | None, HTTPStatus]


@csrf_exempt
def scim_users(request: HttpRequest) -> HttpResponse:
    """Lists people, or creates one."""
    return _served(request, {"GET": _list, "POST": _create})


@csrf_exempt
def scim_user(request: HttpRequest, key: str) -> HttpResponse:
    """Returns, changes or removes one person."""

    def on(act: Callable[[HttpRequest, Tenant, User], Answer]) -> Callable[..., Answer]:
        return lambda request, tenant: act(request, tenant, directory_person(tenant, key))

    acts = {"GET": on(_get), "PUT": on(_replace), "PATCH": on(_patch), "DELETE": on(_remove)}
    return _served(request, acts)


@csrf_exempt
def scim_config(request: HttpRequest) -> HttpResponse:
    """Returns what of SCIM is there (`ServiceProviderConfig`)."""

    def config(_: HttpRequest, __: Tenant) -> Answer:
        off = {"supported": False}
        return {
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"],
            "patch": {"supported": True},
            "bulk": {**off, "maxOperations": 0, "maxPayloadSize": 0},
            "filter": {"supported": True, "maxResults": MOST},
            "changePassword": off,
            "sort": off,
            "etag": off,
            "authenticationSchemes": [
                {"type": "oauthbearertoken", "name": "Bearer token", "description": "Per tenant."}
            ],
        }, HTTPStatus.OK

    return _served(request, {"GET": config})


def _served(request: HttpRequest, acts: dict[str, Callable[..., Answer]]) -> HttpResponse:
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


def _list(request: HttpRequest, tenant: Tenant) -> Answer:
    people = directory_people(tenant)
    if wanted := request.GET.get("filter", ""):
        found = _FILTER.fullmatch(wanted)
        if found is None:
            raise invalid("invalidFilter", 'Filter by userName eq "…".', "filter")
        people = _named(people, found[1].lower(), found[2])
    start = max(1, _whole(request, "startIndex", 1))
    count = min(MOST, max(0, _whole(request, "count", MOST)))
    shown = people[start - 1 : start - 1 + count]
    return {
        "schemas": [LIST],
        "totalResults": people.count(),
        "startIndex": start,
        "itemsPerPage": len(shown),
        "Resources": [_shown(tenant, user) for user in shown],
    }, HTTPStatus.OK


def _named(people: Any, attribute: str, value: str) -> Any:  # noqa: ANN401 (a query of users)
    if attribute == "externalid":
        return people.filter(directory_person__external_id=value)
    made = people.filter(directory_person__user_name__iexact=value)
    return made if made.exists() else people.filter(username__iexact=value)


def _create(request: HttpRequest, tenant: Tenant) -> Answer:
    terms = _terms(_body(request))
    user = directory_person_create(tenant=tenant, terms=terms, now=timezone.now())
    return _shown(tenant, directory_person(tenant, user.username)), HTTPStatus.CREATED


def _get(_: HttpRequest, tenant: Tenant, user: User) -> Answer:
    return _shown(tenant, user), HTTPStatus.OK


def _replace(request: HttpRequest, tenant: Tenant, user: User) -> Answer:
    return _changed(tenant, user, _body(request))


def _patch(request: HttpRequest, tenant: Tenant, user: User) -> Answer:
    """Applies `replace` and `add` of the attributes that we keep; ignores others."""
    stated = _shown(tenant, user)
    operations = _body(request).get("Operations")
    if not isinstance(operations, list):
        raise invalid("invalidSyntax", "Operations is a list.", "Operations")
    for each in operations:
        if not isinstance(each, dict):
            raise invalid("invalidSyntax", "An operation is an object.", "Operations")
        if str(each.get("op", "")).lower() not in ("replace", "add"):
            raise invalid("invalidSyntax", "Use the operation replace.", "Operations")
        _apply(stated, str(each.get("path") or ""), each.get("value"))
    return _changed(tenant, user, stated)


def _apply(stated: dict[str, Any], where: str, value: object) -> None:
    if not where:
        if not isinstance(value, dict):
            raise invalid("invalidPath", "An operation without a path has an object.", "Operations")
        for name, inner in value.items():
            _apply(stated, str(name), inner)
        return
    group, _, inner_name = where.partition(".")
    if inner_name and group == "name":
        stated["name"] = {**stated["name"], inner_name: value}
    elif where == "name" and isinstance(value, dict):
        stated["name"] = {**stated["name"], **value}
    elif where in ("active", "userName"):
        stated[where] = value


def _changed(tenant: Tenant, user: User, stated: dict[str, Any]) -> Answer:
    terms = _terms(stated)
    directory_person_change(tenant=tenant, user=user, terms=terms, now=timezone.now())
    return _shown(tenant, directory_person(tenant, user.username)), HTTPStatus.OK


def _remove(_: HttpRequest, tenant: Tenant, user: User) -> Answer:
    directory_person_remove(tenant=tenant, user=user, now=timezone.now())
    return None, HTTPStatus.NO_CONTENT


def _shown(tenant: Tenant, user: User) -> dict[str, Any]:
    made: DirectoryPerson | None = getattr(user, "directory_person", None)
    if made is not None and made.tenant_id != tenant.id:
        made = None
    external = {"externalId": made.external_id} if made and made.external_id else {}
    return {
        "schemas": [USER],
        "id": user.username,
        "userName": made.user_name if made else user.username,
        "name": {"givenName": user.first_name, "familyName": user.last_name},
        "displayName": user.get_full_name() or user.username,
        "active": is_active_in(tenant, user),
        **external,
        "meta": {
            "resourceType": "User",
            "location": f"{settings.PUBLIC_URL}/scim/v2/Users/{user.username}",
        },
    }


def _terms(stated: dict[str, Any]) -> PersonTerms:
    name = stated.get("name", {})
    if not isinstance(name, dict):
        raise invalid("invalidValue", "name is an object.", "name")
    active = stated.get("active", True)
    if isinstance(active, str) and active.lower() in ("true", "false"):
        # As some directories send it.
        active = active.lower() == "true"
    texts = {
        "user_name": stated.get("userName", ""),
        "external_id": stated.get("externalId") or "",
        "given": name.get("givenName") or "",
        "family": name.get("familyName") or "",
    }
    if not isinstance(active, bool) or not all(isinstance(each, str) for each in texts.values()):
        raise invalid("invalidValue", "active is true or false, names are texts.", "active")
    return PersonTerms(is_active=active, **texts)


def _body(request: HttpRequest) -> dict[str, Any]:
    if len(request.body) > LONGEST_BODY:
        raise invalid("invalidSyntax", "The body is too long.", "body")
    try:
        found = json.loads(request.body)
    except ValueError:
        raise invalid("invalidSyntax", "The body is no JSON.", "body") from None
    if not isinstance(found, dict):
        raise invalid("invalidSyntax", "The body is a JSON object.", "body")
    return found


def _whole(request: HttpRequest, name: str, default: int) -> int:
    text = request.GET.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise invalid("invalidValue", f"{name} is a number.", name)
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
    if kind in ("invalidFilter", "invalidSyntax", "invalidValue", "invalidPath", "uniqueness"):
        body["scimType"] = kind
    return JsonResponse(body, status=status, content_type=CONTENT)


urlpatterns = [
    path("scim/v2/Users", scim_users, name="scim-users"),
    path("scim/v2/Users/<str:key>", scim_user, name="scim-user"),
    path("scim/v2/ServiceProviderConfig", scim_config, name="scim-config"),
]
