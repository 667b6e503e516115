"""Groups that a tenant's directory keeps. In `operator_tx`.

A group gives the roles that the tenant's admins mapped to its name for sign-on. As long as the
directory keeps groups, those of ID tokens do not count: a person's groups have one source.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from tenants.audit import audit_record
from tenants.models import DirectoryGroup, SignOnProvider, Tenant, User
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.text import first_invisible
from tenants.services.directory.people import directory_people
from tenants.services.sign_on.people import roles_of_groups_set
from tenants.services.sign_on.providers import EVERYBODY
from tenants.words import refusal_text

LONGEST_NAME = 200
LONGEST_ID = 255
MOST_GROUPS = 1000
MOST_MEMBERS = 5000


@dataclass(frozen=True, slots=True)
class GroupTerms:
    """A group as the directory states it; `members` are sign-in names."""

    name: str
    external_id: str = ""
    members: frozenset[str] = frozenset()


def directory_groups(tenant: Tenant) -> QuerySet[DirectoryGroup]:
    """The groups of the tenant's directory, by name."""
    return DirectoryGroup.objects.filter(tenant=tenant).order_by("name")


def directory_group(tenant: Tenant, key: str) -> DirectoryGroup:
    """The group with this id. Raises Refused `not_found`."""
    try:
        found = directory_groups(tenant).filter(id=UUID(key)).first()
    except ValueError:
        found = None
    if found is None:
        raise missing("group")
    return found


def group_members(tenant: Tenant, group: DirectoryGroup) -> QuerySet[User]:
    """The members of the group who are still people of the tenant."""
    return directory_people(tenant).filter(id__in=group.members)


@transaction.atomic
def directory_group_create(*, tenant: Tenant, terms: GroupTerms, now: datetime) -> DirectoryGroup:
    """Creates a group, and gives its members their roles.

    Raises:
        Refused: `bad_name`, `bad_members`, `uniqueness`, `too_many_groups`, `last_admin`.
    """
    _lock(tenant)
    if directory_groups(tenant).count() >= MOST_GROUPS:
        raise Refused("too_many_groups", refusal_text("directory_groups", most_groups=MOST_GROUPS))
    return _changed(DirectoryGroup(tenant=tenant, created=now), terms, now)


@transaction.atomic
def directory_group_change(*, group: DirectoryGroup, terms: GroupTerms, now: datetime) -> DirectoryGroup:
    """Changes the name and the members, and the roles of everybody concerned.

    Raises:
        Refused: as `directory_group_create`.
    """
    _lock(group.tenant)
    group.refresh_from_db()
    return _changed(group, terms, now)


@transaction.atomic
def directory_group_remove(*, group: DirectoryGroup, now: datetime) -> None:
    """Removes the group, and the roles that it gave. Raises Refused `last_admin`."""
    _lock(group.tenant)
    group.refresh_from_db()
    tenant, key = group.tenant, group.id
    group.delete()
    _roles_set(tenant, group.members, now)
    _note(tenant, key, "directory.group_removed", now, {"label": group.name})


def _changed(group: DirectoryGroup, terms: GroupTerms, now: datetime) -> DirectoryGroup:
    _check(group, terms)
    people = _people(group.tenant, terms.members)
    before = set(group.members or ())
    is_renamed = group.name != terms.name
    concerned = before | people if is_renamed else before ^ people
    group.name, group.external_id = terms.name, terms.external_id
    group.members = sorted(people)
    group.save()
    _roles_set(group.tenant, concerned, now)
    if concerned or is_renamed:
        detail = {"label": group.name, "added": len(people - before), "left": len(before - people)}
        _note(group.tenant, group.id, "directory.group_set", now, detail)
    return group


def _people(tenant: Tenant, names: Collection[str]) -> set[int]:
    if len(names) > MOST_MEMBERS:
        raise invalid(
            "invalidValue",
            refusal_text("directory_group_members", most_members=MOST_MEMBERS),
            "members",
        )
    if any(first_invisible(name) for name in names):
        raise invalid("invalidValue", refusal_text("directory_member"), "members")
    found = dict(directory_people(tenant).filter(username__in=names).values_list("username", "id"))
    unknown = sorted(set(names) - found.keys())
    if unknown:
        raise invalid("invalidValue", refusal_text("directory_no_person", unknown=unknown[0][:80]), "members")
    return set(found.values())


def _roles_set(tenant: Tenant, people: Collection[int], now: datetime) -> None:
    provider = SignOnProvider.objects.filter(tenant=tenant).first()
    if provider is None:
        # Without a provider nobody has mapped groups to roles.
        return
    for user in User.objects.filter(id__in=people).order_by("id"):
        if roles_of_groups_set(provider, user, now):
            raise Refused(
                "last_admin",
                refusal_text("directory_last_admin", user=user.username, tenant=tenant.name),
            )


def _check(group: DirectoryGroup, terms: GroupTerms) -> None:
    name = terms.name
    if not 1 <= len(name.strip()) <= LONGEST_NAME or first_invisible(name) or name == EVERYBODY:
        sentence = refusal_text("directory_group_name", longest_name=LONGEST_NAME, everybody=EVERYBODY)
        raise invalid("invalidValue", sentence, "displayName")
    if len(terms.external_id) > LONGEST_ID or first_invisible(terms.external_id):
        raise invalid("invalidValue", refusal_text("directory_id_long", longest_id=LONGEST_ID), "externalId")
    others = directory_groups(group.tenant).exclude(id=group.id)
    if others.filter(name__iexact=name).exists():
        raise Refused("uniqueness", refusal_text("directory_group_taken", name=name))
    if terms.external_id and others.filter(external_id=terms.external_id).exists():
        raise Refused("uniqueness", refusal_text("directory_id_taken", external_id=terms.external_id))


def _lock(tenant: Tenant) -> None:
    """One change after the other, so that roles follow all of them."""
    Tenant.objects.select_for_update().get(id=tenant.id)


def _note(tenant: Tenant, key: UUID, action: str, now: datetime, detail: dict[str, object]) -> None:
    audit_record(
        tenant_id=tenant.id,
        actor_id=None,
        action=action,
        target=("directory_group", key),
        now=now,
        detail={"by": "directory", **detail},
    )
