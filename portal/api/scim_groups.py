"""SCIM 2.0 groups of a tenant's directory: list, create, get, replace, patch and delete."""

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from portal.api.scim_frame import Answer, body_of, listed, served
from portal.words import refusal_text
from tenants.models import DirectoryGroup, Tenant
from tenants.platform.errors import invalid
from tenants.services.directory.groups import (
    GroupTerms,
    directory_group,
    directory_group_change,
    directory_group_create,
    directory_group_remove,
    directory_groups,
    group_members,
)

GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
_FILTER = re.compile(
    r'\s*(displayName|externalId)\s+eq\s+"([^"\\\x00-\x1f]{1,255})"\s*', re.IGNORECASE
)
_MEMBER = re.compile(r'members\[value\s+eq\s+"([^"\\\x00-\x1f]{1,255})"\]', re.IGNORECASE)


@csrf_exempt
def scim_groups(request: HttpRequest) -> HttpResponse:
    """Lists groups, or creates one."""
    return served(request, {"GET": _list, "POST": _create})


@csrf_exempt
def scim_group(request: HttpRequest, key: str) -> HttpResponse:
    """Returns, changes or removes one group."""

    def on(
        act: Callable[[HttpRequest, Tenant, DirectoryGroup], Answer],
    ) -> Callable[[HttpRequest, Tenant], Answer]:
        return lambda request, tenant: act(request, tenant, directory_group(tenant, key))

    acts = {"GET": on(_get), "PUT": on(_replace), "PATCH": on(_patch), "DELETE": on(_remove)}
    return served(request, acts)


def _list(request: HttpRequest, tenant: Tenant) -> Answer:
    groups = directory_groups(tenant)
    if wanted := request.GET.get("filter", ""):
        found = _FILTER.fullmatch(wanted)
        if found is None:
            raise invalid("invalidFilter", refusal_text("scim_filter_group"), "filter")
        name = "name__iexact" if found[1].lower() == "displayname" else "external_id"
        groups = groups.filter(**{name: found[2]})
    has_members = "members" not in request.GET.get("excludedAttributes", "").split(",")
    return listed(request, groups, lambda group: _shown(tenant, group, has_members=has_members))


def _create(request: HttpRequest, tenant: Tenant) -> Answer:
    terms = _terms(body_of(request))
    group = directory_group_create(tenant=tenant, terms=terms, now=timezone.now())
    return _shown(tenant, group), HTTPStatus.CREATED


def _get(_: HttpRequest, tenant: Tenant, group: DirectoryGroup) -> Answer:
    return _shown(tenant, group), HTTPStatus.OK


def _replace(request: HttpRequest, tenant: Tenant, group: DirectoryGroup) -> Answer:
    return _changed(tenant, group, body_of(request))


def _patch(request: HttpRequest, tenant: Tenant, group: DirectoryGroup) -> Answer:
    stated = _shown(tenant, group)
    operations = body_of(request).get("Operations")
    if not isinstance(operations, list):
        raise invalid("invalidSyntax", refusal_text("scim_operations"), "Operations")
    for each in operations:
        if not isinstance(each, dict):
            raise invalid("invalidSyntax", refusal_text("scim_operation"), "Operations")
        act = str(each.get("op", "")).lower()
        if act not in ("add", "remove", "replace"):
            raise invalid("invalidSyntax", refusal_text("scim_group_operations"), "Operations")
        _apply(stated, act, str(each.get("path") or ""), each.get("value"))
    return _changed(tenant, group, stated)


def _apply(stated: dict[str, Any], act: str, where: str, value: object) -> None:
    """Applies one operation to the group as it is stated; ignores attributes that we don't keep."""
    if not where:
        if not isinstance(value, dict):
            raise invalid("invalidPath", refusal_text("scim_path"), "Operations")
        for name, inner in value.items():
            _apply(stated, act, str(name), inner)
        return
    one = _MEMBER.fullmatch(where)
    if one is not None and act == "remove":
        stated["members"] = [each for each in stated["members"] if each["value"] != one[1]]
    elif where.lower() == "members":
        stated["members"] = _members(stated["members"], act, value)
    elif where in ("displayName", "externalId") and act != "remove":
        stated[where] = value


def _members(present: list[dict[str, Any]], act: str, value: object) -> list[dict[str, Any]]:
    if value is None and act == "remove":
        return []
    rows: list[Any] = value if isinstance(value, list) else [value]
    names = _names(rows)
    if act == "replace":
        return rows
    if act == "remove":
        return [each for each in present if each["value"] not in names]
    return [*(each for each in present if each["value"] not in names), *rows]


def _names(rows: object) -> frozenset[str]:
    """The ids of the members in a list of objects with `value`."""
    if not isinstance(rows, list):
        raise invalid("invalidValue", refusal_text("scim_members"), "members")
    found = [each.get("value") if isinstance(each, dict) else None for each in rows]
    names = [each for each in found if isinstance(each, str)]
    if len(names) < len(found):
        raise invalid("invalidValue", refusal_text("scim_member"), "members")
    return frozenset(names)


def _changed(tenant: Tenant, group: DirectoryGroup, stated: dict[str, Any]) -> Answer:
    found = directory_group_change(group=group, terms=_terms(stated), now=timezone.now())
    return _shown(tenant, found), HTTPStatus.OK


def _remove(_: HttpRequest, tenant: Tenant, group: DirectoryGroup) -> Answer:
    directory_group_remove(group=group, now=timezone.now())
    return None, HTTPStatus.NO_CONTENT


def _terms(stated: dict[str, Any]) -> GroupTerms:
    name, external = stated.get("displayName"), stated.get("externalId") or ""
    if not isinstance(name, str) or not isinstance(external, str):
        raise invalid("invalidValue", refusal_text("scim_display_name"), "displayName")
    return GroupTerms(name, external, _names(stated.get("members") or []))


def _shown(tenant: Tenant, group: DirectoryGroup, *, has_members: bool = True) -> dict[str, Any]:
    base = f"{settings.PUBLIC_URL}/scim/v2"
    shown: dict[str, Any] = {
        "schemas": [GROUP],
        "id": str(group.id),
        "displayName": group.name,
        **({"externalId": group.external_id} if group.external_id else {}),
        "meta": {"resourceType": "Group", "location": f"{base}/Groups/{group.id}"},
    }
    if has_members:
        shown["members"] = [
            {
                "value": user.username,
                "display": user.display_name,
                "type": "User",
                "$ref": f"{base}/Users/{user.username}",
            }
            for user in group_members(tenant, group)
        ]
    return shown


urlpatterns = [
    path("scim/v2/Groups", scim_groups, name="scim-groups"),
    path("scim/v2/Groups/<str:key>", scim_group, name="scim-group"),
]
