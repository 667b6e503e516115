"""SCIM 2.0 (RFC 7644) for the directory of a tenant: people, by its bearer token.

The operators' process serves it: only that process creates accounts. `Users` takes list (filter
`userName eq "…"`), create, get, replace, patch and delete. Groups: `portal.api.scim_groups`. What
is sent is applied or refused: an answer of 200 never hides that something was left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from portal.api.scim_frame import MOST, Answer, body_of, listed, served
from portal.words import refusal_text
from tenants.models import DirectoryPerson, Tenant, User
from tenants.platform.errors import invalid
from tenants.platform.text import first_invisible
from tenants.services.directory.people import (
    PersonTerms,
    directory_people,
    directory_people_named,
    directory_person,
    directory_person_change,
    directory_person_create,
    directory_person_remove,
    is_active_in,
)

if TYPE_CHECKING:
    from portal.api.scim_resources import Person

USER = "urn:ietf:params:scim:schemas:core:2.0:User"


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
    if (wanted := request.GET.get("filter")) is not None:
        from portal.api.scim_resources import Person, filter_read  # noqa: PLC0415 (see there)

        people = _named(tenant, *filter_read(Person, wanted, ("userName", "externalId")))
    return listed(request, people, lambda user: _shown(tenant, user))


def _named(tenant: Tenant, attribute: str, value: str) -> QuerySet[User]:
    people = directory_people(tenant)
    if first_invisible(value):
        return people.none()
    if attribute == "externalId":
        return people.filter(directory_person__external_id=value)
    return directory_people_named(tenant, value)


def _create(request: HttpRequest, tenant: Tenant) -> Answer:
    from portal.api.scim_resources import Person, resource_read  # noqa: PLC0415 (see there)

    terms = _terms(resource_read(Person, body_of(request)))
    user = directory_person_create(tenant=tenant, terms=terms, now=timezone.now())
    return _shown(tenant, directory_person(tenant, user.username)), HTTPStatus.CREATED


def _get(_: HttpRequest, tenant: Tenant, user: User) -> Answer:
    return _shown(tenant, user), HTTPStatus.OK


def _replace(request: HttpRequest, tenant: Tenant, user: User) -> Answer:
    """Sets what is stated. What is left out stays as it is."""
    from portal.api.scim_resources import Person, resource_read  # noqa: PLC0415 (see there)

    before = _shown(tenant, user)
    stated = resource_read(Person, body_of(request))
    terms = _terms(stated)
    kept = {
        each: before["name"][key]
        for each, key in (("given", "givenName"), ("family", "familyName"))
        if stated.name is None or getattr(stated.name, f"{each}_name") is None
    }
    sent = {name: value for name, value in _values(stated.model_dump()).items() if value is not None}
    return _changed(tenant, user, replace(terms, **kept), sent), HTTPStatus.OK


def _patch(request: HttpRequest, tenant: Tenant, user: User) -> Answer:
    """Applies the operations, all or none: the person then reads as they state it."""
    from portal.api.scim_resources import Person, resource_patched  # noqa: PLC0415 (see there)

    before = _shown(tenant, user)
    wanted = resource_patched(Person, before, body_of(request))
    if wanted.active is None:
        raise invalid("invalidValue", refusal_text("scim_active"), "active")
    terms = _terms(wanted)
    if wanted.active == before["active"]:
        # Somebody else may change it meanwhile.
        terms = replace(terms, is_active=None)
    return _changed(tenant, user, terms, _values(wanted.model_dump())), HTTPStatus.OK


def _values(shown: Mapping[str, Any]) -> dict[str, Any]:
    """What can be stated of a person, flat. A formatted name is the name that is shown."""
    name = {"formatted": shown.get("displayName"), **(shown.get("name") or {})}
    kept = {key: shown.get(key) for key in ("userName", "externalId", "displayName", "active")}
    return kept | {f"name.{key}": value for key, value in name.items()}


def _changed(tenant: Tenant, user: User, terms: PersonTerms, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Changes the person. Raises Refused if a value that is wanted was neither there nor is now."""
    before = _values(_shown(tenant, user))
    directory_person_change(tenant=tenant, user=user, terms=terms, now=timezone.now())
    shown = _shown(tenant, directory_person(tenant, user.username))
    after = _values(shown)
    for name, value in wanted.items():
        if not any(_is_same(name, value, each.get(name)) for each in (before, after)):
            raise invalid("mutability", refusal_text("scim_kept", name=name), name)
    return shown


def _is_same(name: str, one: object, other: object) -> bool:
    if name == "userName":
        # Its case does not count (RFC 7643, 4.1.1).
        return str(one).casefold() == str(other).casefold()
    return (one or "") == (other or "") if name != "active" else one == other


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


def _terms(stated: "Person") -> PersonTerms:
    name = stated.name
    return PersonTerms(
        user_name=stated.user_name or "",
        external_id=stated.external_id or "",
        given=(name.given_name if name else None) or "",
        family=(name.family_name if name else None) or "",
        is_active=stated.active,
    )


urlpatterns = [
    path("scim/v2/Users", scim_users, name="scim-users"),
    path("scim/v2/Users/<str:key>", scim_user, name="scim-user"),
    path("scim/v2/ServiceProviderConfig", scim_config, name="scim-config"),
]
