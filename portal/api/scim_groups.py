"""SCIM 2.0 groups of a tenant's directory: list, create, get, replace, patch and delete."""

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from portal.api.scim_frame import Answer, body_of, listed, served
from portal.words import refusal_text
from tenants.models import DirectoryGroup, Tenant
from tenants.platform.errors import invalid
from tenants.platform.text import first_invisible
from tenants.services.directory.groups import (
    GroupTerms,
    directory_group,
    directory_group_change,
    directory_group_create,
    directory_group_remove,
    directory_groups,
    group_members,
)

if TYPE_CHECKING:
    from scim2_models import Group

GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"


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
    if (wanted := request.GET.get("filter")) is not None:
        from scim2_models import Group  # noqa: PLC0415 (see portal.api.scim_resources)

        from portal.api.scim_resources import filter_read  # noqa: PLC0415 (see there)

        name, value = filter_read(Group, wanted, ("displayName", "externalId"))
        if first_invisible(value):
            groups = groups.none()
        field = "name__iexact" if name == "displayName" else "external_id"
        groups = groups.filter(**{field: value})
    left_out = request.GET.get("excludedAttributes", "").lower().split(",")
    has_members = not any(each.rpartition(":")[2].strip() == "members" for each in left_out)
    return listed(request, groups, lambda group: _shown(tenant, group, has_members=has_members))


def _create(request: HttpRequest, tenant: Tenant) -> Answer:
    from scim2_models import Group  # noqa: PLC0415 (see portal.api.scim_resources)

    from portal.api.scim_resources import resource_read  # noqa: PLC0415 (see there)

    terms = _terms(resource_read(Group, body_of(request)))
    group = directory_group_create(tenant=tenant, terms=terms, now=timezone.now())
    return _shown(tenant, group), HTTPStatus.CREATED


def _get(_: HttpRequest, tenant: Tenant, group: DirectoryGroup) -> Answer:
    return _shown(tenant, group), HTTPStatus.OK


def _replace(request: HttpRequest, tenant: Tenant, group: DirectoryGroup) -> Answer:
    """Replaces what is sent; what is left out stays."""
    from scim2_models import Group  # noqa: PLC0415 (see portal.api.scim_resources)

    from portal.api.scim_resources import resource_read  # noqa: PLC0415 (see there)

    stated = resource_read(Group, body_of(request))
    terms, given = _terms(stated), stated.model_fields_set
    if "members" not in given:
        present = (user.username for user in group_members(tenant, group))
        terms = replace(terms, members=frozenset(present))
    if "external_id" not in given:
        terms = replace(terms, external_id=group.external_id)
    return _changed(tenant, group, terms)


def _patch(request: HttpRequest, tenant: Tenant, group: DirectoryGroup) -> Answer:
    """Applies the operations, all or none."""
    from scim2_models import Group  # noqa: PLC0415 (see portal.api.scim_resources)

    from portal.api.scim_resources import resource_patched  # noqa: PLC0415 (see there)

    stated = _shown(tenant, group)
    stated["members"] = [{"value": each["value"], "display": each["display"]} for each in stated["members"]]
    return _changed(tenant, group, _terms(resource_patched(Group, stated, body_of(request))))


def _changed(tenant: Tenant, group: DirectoryGroup, terms: GroupTerms) -> Answer:
    found = directory_group_change(group=group, terms=terms, now=timezone.now())
    return _shown(tenant, found), HTTPStatus.OK


def _remove(_: HttpRequest, tenant: Tenant, group: DirectoryGroup) -> Answer:
    directory_group_remove(group=group, now=timezone.now())
    return None, HTTPStatus.NO_CONTENT


def _terms(stated: "Group") -> GroupTerms:
    if any((each.type or "User").lower() != "user" for each in stated.members or []):
        raise invalid("invalidValue", refusal_text("scim_member_type"), "members")
    members = frozenset(str(each.value or "") for each in stated.members or [])
    return GroupTerms(stated.display_name or "", stated.external_id or "", members)


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
