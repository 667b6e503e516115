"""SCIM 2.0 (RFC 7644) for the directory of a tenant: people, by its bearer token.

The operators' process serves it: only that process creates accounts. `Users` takes list (filter
`userName eq "…"`), create, get, replace, patch and delete. Groups: `portal.api.scim_groups`.
"""

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from portal.api.scim_frame import MOST, Answer, body_of, listed, served
from portal.words import refusal_text
from tenants.models import DirectoryPerson, Tenant, User
from tenants.platform.errors import invalid
from tenants.services.directory.people import (
    PersonTerms,
    directory_people,
    directory_person,
    directory_person_change,
    directory_person_create,
    directory_person_remove,
    is_active_in,
)

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
_FILTER = re.compile(
    r'\s*(userName|externalId)\s+eq\s+"([^"\\\x00-\x1f]{1,255})"\s*', re.IGNORECASE
)


@csrf_exempt
def scim_users(request: HttpRequest) -> HttpResponse:
    """Lists people, or creates one."""
    return served(request, {"GET": _list, "POST": _create})


@csrf_exempt
def scim_user(request: HttpRequest, key: str) -> HttpResponse:
    """Returns, changes or removes one person."""

    def on(act: Callable[[HttpRequest, Tenant, User], Answer]) -> Callable[..., Answer]:
        return lambda request, tenant: act(request, tenant, directory_person(tenant, key))

    acts = {"GET": on(_get), "PUT": on(_replace), "PATCH": on(_patch), "DELETE": on(_remove)}
    return served(request, acts)


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

    return served(request, {"GET": config})


def _list(request: HttpRequest, tenant: Tenant) -> Answer:
    people = directory_people(tenant)
    if wanted := request.GET.get("filter", ""):
        found = _FILTER.fullmatch(wanted)
        if found is None:
            raise invalid("invalidFilter", refusal_text("scim_filter_person"), "filter")
        people = _named(people, found[1].lower(), found[2])
    return listed(request, people, lambda user: _shown(tenant, user))


def _named(people: Any, attribute: str, value: str) -> Any:  # noqa: ANN401 (a query of users)
    if attribute == "externalid":
        return people.filter(directory_person__external_id=value)
    made = people.filter(directory_person__user_name__iexact=value)
    return made if made.exists() else people.filter(username__iexact=value)


def _create(request: HttpRequest, tenant: Tenant) -> Answer:
    terms = _terms(body_of(request))
    user = directory_person_create(tenant=tenant, terms=terms, now=timezone.now())
    return _shown(tenant, directory_person(tenant, user.username)), HTTPStatus.CREATED


def _get(_: HttpRequest, tenant: Tenant, user: User) -> Answer:
    return _shown(tenant, user), HTTPStatus.OK


def _replace(request: HttpRequest, tenant: Tenant, user: User) -> Answer:
    return _changed(tenant, user, body_of(request))


def _patch(request: HttpRequest, tenant: Tenant, user: User) -> Answer:
    """Applies `replace` and `add` of the attributes that we keep; ignores others."""
    stated = _shown(tenant, user)
    operations = body_of(request).get("Operations")
    if not isinstance(operations, list):
        raise invalid("invalidSyntax", refusal_text("scim_operations"), "Operations")
    for each in operations:
        if not isinstance(each, dict):
            raise invalid("invalidSyntax", refusal_text("scim_operation"), "Operations")
        if str(each.get("op", "")).lower() not in ("replace", "add"):
            raise invalid("invalidSyntax", refusal_text("scim_replace_only"), "Operations")
        _apply(stated, str(each.get("path") or ""), each.get("value"))
    return _changed(tenant, user, stated)


def _apply(stated: dict[str, Any], where: str, value: object) -> None:
    if not where:
        if not isinstance(value, dict):
            raise invalid("invalidPath", refusal_text("scim_path"), "Operations")
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
        "displayName": user.display_name,
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
        raise invalid("invalidValue", refusal_text("scim_name"), "name")
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
        raise invalid("invalidValue", refusal_text("scim_texts"), "active")
    return PersonTerms(is_active=active, **texts)


urlpatterns = [
    path("scim/v2/Users", scim_users, name="scim-users"),
    path("scim/v2/Users/<str:key>", scim_user, name="scim-user"),
    path("scim/v2/ServiceProviderConfig", scim_config, name="scim-config"),
]
