"""Writes projects, memberships, a person's settings, and accounts as operators manage them."""

import zoneinfo
from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Lower

from tenants.access import Actor, access_project, require_tenant_admin
from tenants.audit import actor_record, platform_record
from tenants.models import (
    ApiToken,
    Invitation,
    KnownPerson,
    Mail,
    Membership,
    OperatorRole,
    Passkey,
    Password,
    Project,
    Role,
    SecondFactor,
    ServiceAccount,
    Session,
    SignOnIdentity,
    User,
)
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.labels import labels_check, reference_check
from tenants.services.input_values import name_read, slug_read
from tenants.words import refusal_text

PROJECT_ROLES = (Role.VIEWER, Role.RESEARCHER, Role.LEAD)


def project_create(*, actor: Actor, slug: str, name: str, now: datetime) -> Project:
    """Creates an open project.

    Raises:
        Refused: `not_allowed`, `bad_slug`, `bad_name`, `slug_taken` (also by a closed project).
    """
    require_tenant_admin(actor)
    project, is_new = Project.objects.get_or_create(
        tenant_id=actor.tenant_id,
        slug=slug_read(slug),
        defaults={"name": name_read(name, longest=120)},
    )
    if not is_new:
        raise invalid("slug_taken", refusal_text("project_slug_taken"), "slug")
    actor_record(actor, "project.created", ("project", project.id), now, {"slug": project.slug})
    return project


def project_open_set(*, actor: Actor, slug: str, is_open: bool, now: datetime) -> Project:
    """Opens or closes a project. When it closes, planned bookings are cancelled; running ones stay.

    Raises:
        Refused: `not_allowed` or `not_found`.
    """
    require_tenant_admin(actor)
    project = access_project(actor, slug)
    changed = Project.objects.filter(id=project.id).exclude(is_open=is_open).update(is_open=is_open)
    if changed:
        action = "project.opened" if is_open else "project.closed"
        actor_record(actor, action, ("project", project.id), now)
    project.is_open = is_open
    return project


def project_labels_set(
    *,
    actor: Actor,
    project: Project,
    labels: Mapping[str, str] | None,
    external_ref: str | None,
    now: datetime,
) -> Project:
    """Sets labels and the reference of a project, also of charges that stand; None keeps them.

    Raises:
        Refused: `not_allowed`, `bad_label`, `too_many_labels` or `bad_reference`.
    """
    if labels is None and external_ref is None:
        return project
    if not actor.may_lead(project.id):
        raise denied(refusal_text("leads_and_admins_only"))
    before = {"labels": project.labels, "external_ref": project.external_ref}
    after = {
        "labels": before["labels"] if labels is None else labels_check(labels),
        "external_ref": before["external_ref"] if external_ref is None else reference_check(external_ref),
    }
    if after != before:
        Project.objects.filter(id=project.id).update(**after)
        detail = {"before": before, "after": after}
        actor_record(actor, "project.labels_set", ("project", project.id), now, detail)
    return Project.objects.get(id=project.id)


@transaction.atomic
def membership_role_set(*, actor: Actor, membership_id: UUID, role: str, now: datetime) -> Membership:
    """Changes the role of a member of a project. New members are invited.

    Raises:
        Refused: `not_found`, `not_allowed`, `bad_role` or `last_lead`.
    """
    membership = _membership(actor, membership_id)
    if membership.project_id is None or role not in PROJECT_ROLES:
        raise invalid("bad_role", refusal_text("membership_role"), "role")
    if role == Role.LEAD and ServiceAccount.objects.filter(user=membership.user).exists():
        raise invalid("bad_role", refusal_text("service_account_role"), "role")
    before = membership.role
    if before == role:
        return membership
    if before == Role.LEAD and not actor.is_tenant_admin:
        require_another_lead(membership)
    if not Membership.objects.filter(id=membership.id, role=before).update(role=role):
        raise missing("membership")
    membership.role = role
    detail = {
        "user": membership.user_id,
        "project": str(membership.project_id),
        "before": before,
        "role": role,
    }
    actor_record(actor, "membership.set", ("membership", membership.id), now, detail)
    return membership


@transaction.atomic
def membership_remove(*, actor: Actor, membership_id: UUID, now: datetime) -> None:
    """Ends a membership; its rights end with the next request. Everybody may end their own.

    Raises:
        Refused: `not_found`, `not_allowed`, `last_admin` or `last_lead`.
    """
    membership = _membership(actor, membership_id, may_be_own=True)
    if membership.role == Role.TENANT_ADMIN:
        require_another_admin(membership)
    if membership.role == Role.LEAD and not actor.is_tenant_admin:
        require_another_lead(membership)
    membership.delete()
    detail = {"user": membership.user_id, "role": membership.role}
    actor_record(actor, "membership.removed", ("membership", membership_id), now, detail)


def user_zone_set(*, actor: Actor, zone: str, now: datetime) -> None:
    """Sets the zone in which the actor reads and enters times. Raises Refused `bad_zone`."""
    if zone not in zoneinfo.available_timezones():
        raise invalid("bad_zone", refusal_text("bad_zone"), "zone")
    User.objects.filter(id=actor.user_id).update(time_zone=zone)
    actor_record(actor, "user.zone_set", ("user", actor.user_id), now, {"zone": zone})


def user_mails_set(*, actor: Actor, mails: str, now: datetime) -> None:
    """Sets which mails the actor gets, in all tenants. Raises Refused `bad_mails`."""
    if mails not in User.Mails.values:
        raise invalid("bad_mails", refusal_text("bad_mails", values=", ".join(User.Mails.values)), "mails")
    User.objects.filter(id=actor.user_id).update(mails=mails)
    actor_record(actor, "user.mails_set", ("user", actor.user_id), now, {"mails": mails})


def role_project(actor: Actor, role: str, project: str | None) -> Project | None:
    """The project of the offered role, None for the tenant; only if the actor may give it.

    Raises:
        Refused: `not_found`, `not_allowed` or `bad_role`.
    """
    if role == Role.TENANT_ADMIN:
        require_tenant_admin(actor)
        if project:
            raise invalid("bad_role", refusal_text("admin_everywhere"), "role")
        return None
    if role not in PROJECT_ROLES:
        raise invalid("bad_role", refusal_text("invited_role"), "role")
    found = access_project(actor, project or "", "project")
    if not actor.may_lead(found.id):
        raise denied(refusal_text("leads_and_admins_only"))
    return found


def _membership(actor: Actor, membership_id: UUID, *, may_be_own: bool = False) -> Membership:
    """The membership, if the actor may change it."""
    found = Membership.objects.filter(tenant_id=actor.tenant_id, id=membership_id)
    membership = found.select_related("user").first()
    if membership is None or not _can_see(actor, membership):
        raise missing("membership")
    is_own = may_be_own and membership.user_id == actor.user_id
    if not is_own and not _may_change(actor, membership.project_id):
        raise denied(refusal_text("leads_and_admins_only"))
    return membership


def _can_see(actor: Actor, membership: Membership) -> bool:
    if membership.project_id is None:
        return actor.is_tenant_admin
    return actor.role_in(membership.project_id) is not None


def _may_change(actor: Actor, project_id: UUID | None) -> bool:
    return actor.is_tenant_admin if project_id is None else actor.may_lead(project_id)


def require_another_lead(leaving: Membership) -> None:
    """Raises Refused `last_lead` if the project has no other lead with an open account.

    Tenant admins can lead any project, so they may leave one without.
    """
    # In one order, as with admins below.
    leads = list(
        Membership.objects.select_for_update(of=("self",))
        .filter(project=leaving.project, role=Role.LEAD)
        .select_related("user")
        .order_by("id")
    )
    if not any(_is_open(each) for each in leads if each.id != leaving.id):
        raise Refused(
            "last_lead",
            refusal_text("last_lead"),
            owner="tenant_admin",
        )


def require_another_admin(leaving: Membership) -> None:
    """Raises Refused `last_admin` if the tenant has no other admin with an open account."""
    # Locks all admins' rows in one order: if two remove each other, the second waits and then finds
    # that it is the last.
    admins = list(
        Membership.objects.select_for_update(of=("self",))
        .filter(tenant_id=leaving.tenant_id, role=Role.TENANT_ADMIN)
        .select_related("user")
        .order_by("id")
    )
    if not any(_is_open(each) for each in admins if each.id != leaving.id):
        raise Refused(
            "last_admin",
            refusal_text("last_admin"),
            owner="the platform",
        )


def _is_open(membership: Membership) -> bool:
    """Whether the member's account is open, and the tenant to it."""
    known = KnownPerson.objects.filter(tenant_id=membership.tenant_id, user=membership.user)
    return membership.user.is_active and not known.filter(disabled__isnull=False).exists()


@transaction.atomic
def account_open_set(*, operator: User, user_id: int, is_open: bool, now: datetime) -> User:
    """Closes or reopens an account. Closing ends its sessions; its tokens stop working.

    Raises:
        Refused: `not_found`, `own_account` or `erased`.
    """
    user = _locked(operator, user_id)
    if user.is_active == is_open:
        return user
    if is_open and user.username == f"erased-{user.pk}":
        raise Refused("erased", refusal_text("erased"))
    user.is_active = is_open
    user.save(update_fields=["is_active"])
    platform_record(
        operator_id=operator.pk,
        action="account.opened" if is_open else "account.closed",
        target=("user", user.pk),
        now=now,
        before={"is_open": not is_open},
        after={"is_open": is_open},
    )
    return user


@transaction.atomic
def account_erase(*, operator: User, user_id: int, now: datetime) -> User:
    """Erases the personal data of a closed account for good.

    Bookings, charges and log entries keep the account's number, which then has no name. Roles,
    tokens, sessions, the password, and invitations and mails to the person are removed.

    Raises:
        Refused: `not_found`, `own_account` or `account_open`.
    """
    user = _locked(operator, user_id)
    if user.is_active:
        raise Refused("account_open", refusal_text("account_open"))
    names = [user.username.lower(), *filter(None, [user.email.lower()])]
    Invitation.objects.annotate(to=Lower("invitee")).filter(to__in=names).delete()
    Mail.objects.filter(user=user).delete()
    Mail.objects.annotate(to=Lower("address")).filter(to__in=names).delete()
    Membership.objects.filter(user=user).delete()
    ApiToken.objects.filter(user=user, revoked=None).update(revoked=now)
    ApiToken.objects.filter(user=user).update(name="erased")
    Session.objects.filter(user=user).delete()
    Password.objects.filter(user=user).delete()
    SecondFactor.objects.filter(user=user).delete()
    Passkey.objects.filter(user=user).delete()
    SignOnIdentity.objects.filter(user=user).delete()
    OperatorRole.objects.filter(user=user, ended=None).update(ended=now, ended_by=operator)
    user.username, user.first_name, user.last_name = f"erased-{user.pk}", "", ""
    user.email, user.is_staff = "", False
    user.save(update_fields=["username", "first_name", "last_name", "email", "is_staff"])
    before = {"erased": False}
    after = {"erased": True}
    platform_record(operator.pk, "account.erased", ("user", user.pk), now, before=before, after=after)
    return user


def _locked(operator: User, user_id: int) -> User:
    user = User.objects.select_for_update().filter(id=user_id).first()
    if user is None:
        raise missing("account", "user")
    if user.pk == operator.pk:
        # So the last operator cannot lock everybody out.
        raise Refused("own_account", refusal_text("own_account_locked"))
    return user
