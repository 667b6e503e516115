"""People of a tenant as its directory sees them: created, renamed, disabled, removed.

In `operator_tx`. A directory never finds accounts outside its tenant, and never opens one: an
account that it creates has no password, and signs in by the tenant's provider.
"""

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Q, QuerySet

from tenants.audit import audit_record, platform_record
from tenants.models import (
    ApiToken,
    DirectoryGroup,
    DirectoryPerson,
    KnownPerson,
    Membership,
    Role,
    Session,
    SignOnIdentity,
    SignOnProvider,
    Tenant,
    User,
)
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.text import first_invisible
from tenants.services.members.people import require_another_admin
from tenants.services.sign_on.people import account_named, roles_for_everybody_set
from tenants.words import refusal_text

LONGEST_NAME = 150
LONGEST_ID = 255


@dataclass(frozen=True, slots=True)
class PersonTerms:
    """A person as the directory states it. `is_active`: None leaves it as it is."""

    user_name: str
    external_id: str = ""
    given: str = ""
    family: str = ""
    is_active: bool | None = None


def directory_people(tenant: Tenant) -> QuerySet[User]:
    """The people of the tenant, by sign-in name: members, and those that the directory created."""
    held = Membership.objects.filter(tenant=tenant)
    made = DirectoryPerson.objects.filter(tenant=tenant)
    return (
        User.objects.filter(
            Q(id__in=held.values("user_id")) | Q(id__in=made.values("user_id")),
            is_staff=False,
            service_account=None,
        )
        .select_related("directory_person")
        .order_by("username")
    )


def directory_people_named(tenant: Tenant, user_name: str) -> QuerySet[User]:
    """Those whose `userName` this is, in any case: the directory's own, else the sign-in name."""
    made = DirectoryPerson.objects.filter(tenant=tenant)
    named = made.filter(user_name__iexact=user_name)
    own = ~Q(id__in=made.values("user_id")) & Q(username__iexact=user_name)
    return directory_people(tenant).filter(Q(id__in=named.values("user_id")) | own)


def directory_person(tenant: Tenant, key: str) -> User:
    """The person by sign-in name, which is their `id` in the directory's calls.

    Raises:
        Refused: `not_found`.
    """
    found = None if first_invisible(key) else directory_people(tenant).filter(username=key).first()
    if found is None:
        raise missing("person")
    return found


def is_active_in(tenant: Tenant, user: User) -> bool:
    """Whether the account is open, and the tenant to it."""
    known = KnownPerson.objects.filter(tenant=tenant, user=user, disabled__isnull=False)
    return user.is_active and not known.exists()


@transaction.atomic
def directory_person_create(*, tenant: Tenant, terms: PersonTerms, now: datetime) -> User:
    """Creates an account without a password, with the roles that everybody's group gives.

    Raises:
        Refused: `bad_name`, or `uniqueness` if somebody in the tenant has this `userName` or
            `externalId`.
    """
    _check(terms)
    # One after the other, so that the same person gets one account.
    Tenant.objects.select_for_update().get(id=tenant.id)
    same = directory_people_named(tenant, terms.user_name)
    provider = SignOnProvider.objects.filter(tenant=tenant).first()
    identity = None
    if provider is not None and terms.external_id:
        identity = SignOnIdentity.objects.filter(
            tenant=tenant, issuer=provider.issuer, subject=terms.external_id
        )
    _external_id_check(tenant, None, terms)
    if same.exists() or (identity is not None and identity.exists()):
        raise Refused("uniqueness", refusal_text("directory_person_taken", user_name=terms.user_name))
    user = account_named(terms.user_name, f"{terms.given} {terms.family}", tenant)
    user.first_name, user.last_name = terms.given, terms.family
    user.save(update_fields=["first_name", "last_name"])
    DirectoryPerson.objects.create(
        tenant=tenant,
        user=user,
        user_name=terms.user_name,
        external_id=terms.external_id,
        created=now,
    )
    KnownPerson.objects.get_or_create(tenant=tenant, user=user)
    if provider is not None:
        if terms.external_id:
            SignOnIdentity.objects.create(
                tenant=tenant,
                user=user,
                issuer=provider.issuer,
                subject=terms.external_id,
                created=now,
                last_sign_in=now,
            )
        roles_for_everybody_set(provider, user, now)
    _note(tenant, user, "directory.created", now, {"user_name": terms.user_name})
    if terms.is_active is False:
        directory_active_set(tenant=tenant, user=user, is_active=False, now=now)
    return user


@transaction.atomic
def directory_person_change(*, tenant: Tenant, user: User, terms: PersonTerms, now: datetime) -> User:
    """Changes the name of an account that the directory created, and whether it is active.

    Of people who were invited, only `is_active` is changed: their name is their own.

    Raises:
        Refused: `bad_name`, `uniqueness`, `last_admin`.
    """
    _check(terms)
    Tenant.objects.select_for_update().get(id=tenant.id)
    _external_id_check(tenant, user, terms)
    made = DirectoryPerson.objects.filter(tenant=tenant, user=user).first()
    if made is not None:
        if directory_people_named(tenant, terms.user_name).exclude(id=user.id).exists():
            raise Refused("uniqueness", refusal_text("directory_person_taken", user_name=terms.user_name))
        made.user_name = terms.user_name
        made.save(update_fields=["user_name"])
        user.first_name, user.last_name = terms.given, terms.family
        user.save(update_fields=["first_name", "last_name"])
    if terms.is_active is None:
        return user
    return directory_active_set(tenant=tenant, user=user, is_active=terms.is_active, now=now)


@transaction.atomic
def directory_active_set(*, tenant: Tenant, user: User, is_active: bool, now: datetime) -> User:
    """Disables the person in the tenant and ends what they could still use, or enables them.

    Disabling revokes their tokens of the tenant and ends their sessions: those of the tenant's
    provider, and all of an account that the directory created. Idempotent.

    Raises:
        Refused: `last_admin`.
    """
    known, _ = KnownPerson.objects.select_for_update().get_or_create(tenant=tenant, user=user)
    if (known.disabled is None) == is_active:
        return user
    if not is_active:
        for membership in _admin_roles(tenant, user):
            require_another_admin(membership)
        _access_end(tenant, user, now)
    KnownPerson.objects.filter(tenant=tenant, user=user).update(disabled=None if is_active else now)
    _note(tenant, user, "member.enabled" if is_active else "member.disabled", now, {})
    return user


@transaction.atomic
def directory_person_remove(*, tenant: Tenant, user: User, now: datetime) -> None:
    """Disables the person and ends their roles in the tenant; bookings and charges stay.

    Raises:
        Refused: `last_admin`.
    """
    directory_active_set(tenant=tenant, user=user, is_active=False, now=now)
    for membership in Membership.objects.filter(tenant=tenant, user=user).order_by("id"):
        Membership.objects.filter(id=membership.id).delete()
        _note(tenant, user, "membership.removed", now, {"role": membership.role})
    for group in DirectoryGroup.objects.filter(tenant=tenant, members__contains=[user.pk]):
        group.members = [each for each in group.members if each != user.pk]
        group.save(update_fields=["members"])
    SignOnIdentity.objects.filter(tenant=tenant, user=user).delete()
    DirectoryPerson.objects.filter(tenant=tenant, user=user).delete()


def _admin_roles(tenant: Tenant, user: User) -> list[Membership]:
    rows = Membership.objects.filter(tenant=tenant, user=user, role=Role.TENANT_ADMIN)
    return list(rows.order_by("id"))


def _access_end(tenant: Tenant, user: User, now: datetime) -> None:
    sessions = Session.objects.filter(user=user)
    if not DirectoryPerson.objects.filter(tenant=tenant, user=user).exists():
        sessions = sessions.filter(only_tenant=tenant)
    sessions.delete()
    ApiToken.objects.filter(tenant=tenant, user=user, revoked=None).update(revoked=now)


def _check(terms: PersonTerms) -> None:
    texts = (terms.user_name, terms.given, terms.family)
    if not terms.user_name.strip() or any(len(each) > LONGEST_NAME for each in texts):
        sentence = refusal_text("directory_name", longest_name=LONGEST_NAME)
        raise invalid("bad_name", sentence, "userName")
    if len(terms.external_id) > LONGEST_ID:
        raise invalid("bad_name", refusal_text("directory_id_long", longest_id=LONGEST_ID), "externalId")
    if any(first_invisible(each) for each in (*texts, terms.external_id)):
        raise invalid("bad_name", refusal_text("directory_name_invisible"), "userName")


def _external_id_check(tenant: Tenant, user: User | None, terms: PersonTerms) -> None:
    made = DirectoryPerson.objects.filter(tenant=tenant, external_id=terms.external_id)
    if terms.external_id and made.exclude(user=user).exists():
        raise Refused("uniqueness", refusal_text("directory_id_taken", external_id=terms.external_id))


def _note(tenant: Tenant, user: User, action: str, now: datetime, detail: dict[str, object]) -> None:
    audit_record(
        tenant_id=tenant.id,
        actor_id=None,
        action=action,
        target=("user", user.pk),
        now=now,
        detail={"username": user.username, "by": "directory", **detail},
    )
    if action == "directory.created":
        after = {"username": user.username, "tenant": tenant.slug, "by": "directory"}
        platform_record(None, "account.created", ("user", user.pk), now, after=after)
