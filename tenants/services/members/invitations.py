"""Invitations to a tenant: its admins and leads create them, the invited person answers.

The address that an inviter types is never looked up: the answer is the same whether or not the
account exists. An invitation is matched with an account only when that person lists theirs.
"""

import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import connection, transaction

from tenants.access import Actor
from tenants.audit import audit_record, platform_record
from tenants.models import Invitation, Membership, Project, Role, Tenant, User
from tenants.outbox import outbox_add
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.wall import tenant_tx
from tenants.queries import ReceivedInvitation, received_invitations
from tenants.services.members.people import require_another_lead, role_project
from tenants.words import refusal_text

LIFETIME = timedelta(days=14)
# Limits unwanted mail to invited people.
MAX_PER_DAY = 200
MAX_ADDRESS_LENGTH = 254
_USERNAME = re.compile(r"[a-z0-9][a-z0-9._@+-]{1,149}")


@dataclass(frozen=True, slots=True)
class InvitationRequest:
    """A sign-in name or an e-mail address, and the role offered."""

    invitee: str
    role: str
    project: Project | None
    made_with: UUID | None = None


def invitation_create(*, actor: Actor, to: str, role: str, project: str | None, now: datetime) -> Invitation:
    """Invites the person with the sign-in name or e-mail address `to`, for 14 days.

    An open invitation of the same person to the same project or tenant is renewed. Made with a
    token, it ends with the token.

    Raises:
        Refused: `not_found` (project), `not_allowed`, `bad_role`, `bad_invitee`,
            `too_many_invitations`.
    """
    found = role_project(actor, role, project)
    request = InvitationRequest(_invitee_read(to), role, found, actor.token_id)
    return _invite(actor.tenant_id, actor.user_id, request, now)


def admin_invite(*, operator: User, tenant: Tenant, to: str, now: datetime) -> Invitation:
    """Invites a person, as an operator, to become an admin of the tenant.

    Raises:
        Refused: `bad_invitee` or `too_many_invitations`.
    """
    request = InvitationRequest(_invitee_read(to), Role.TENANT_ADMIN, None)
    invitation = _invite(tenant.id, operator.pk, request, now)
    after = {"invitee": invitation.invitee, "expires": invitation.expires.isoformat()}
    platform_record(operator.pk, "tenant.admin_invited", ("tenant", tenant.slug), now, after=after)
    return invitation


@transaction.atomic
def invitation_revoke(*, actor: Actor, invitation_id: UUID, now: datetime) -> None:
    """Revokes an open invitation. Raises Refused `not_found`."""
    found = (
        Invitation.objects.select_for_update()
        .filter(tenant_id=actor.tenant_id, id=invitation_id, state=Invitation.State.OPEN)
        .first()
    )
    if found is None or not may_see(actor, found):
        raise missing("invitation")
    _decide(found, Invitation.State.REVOKED, actor.user_id, now)


def may_see(actor: Actor, invitation: Invitation) -> bool:
    """Whether the actor may see and revoke the invitation, because they may give its role."""
    if invitation.project_id is None:
        return actor.is_tenant_admin
    return actor.may_lead(invitation.project_id)


def invitation_accept(*, user: User, invitation_id: UUID, now: datetime) -> ReceivedInvitation:
    """Makes the person a member with the offered role, which replaces an earlier one.

    Raises:
        Refused: `not_found`, without an open invitation, or `last_lead`, for a smaller role of the
            project's only lead.
    """
    offer = _received(user, invitation_id, now)
    with tenant_tx(offer.tenant_id):
        found = _open_locked(invitation_id)
        _lead_keep(found, user)
        membership_id, before = _join(user, invitation_id, now)
        _decide(found, Invitation.State.ACCEPTED, user.pk, now)
        if before != found.role:
            audit_record(
                tenant_id=found.tenant_id,
                actor_id=user.pk,
                action="membership.set",
                target=("membership", membership_id),
                now=now,
                detail={
                    "user": user.pk,
                    "project": str(found.project_id) if found.project_id else None,
                    "before": before,
                    "role": found.role,
                    "invitation": str(found.id),
                },
            )
    return offer


def invitation_decline(*, user: User, invitation_id: UUID, now: datetime) -> ReceivedInvitation:
    """Declines the invitation. Raises Refused `not_found`, without an open invitation."""
    offer = _received(user, invitation_id, now)
    with tenant_tx(offer.tenant_id):
        _decide(_open_locked(invitation_id), Invitation.State.DECLINED, user.pk, now)
    return offer


def _invitee_read(text: str) -> str:
    """Returns a well-formed name or address in lower case; looks nothing up."""
    wanted = unicodedata.normalize("NFC", text).strip().lower()
    if not (_USERNAME.fullmatch(wanted) or _is_address(wanted)):
        raise invalid("bad_invitee", refusal_text("bad_invitee"), "to")
    return wanted


def _is_address(text: str) -> bool:
    try:
        validate_email(text)
    except ValidationError:
        return False
    return len(text) <= MAX_ADDRESS_LENGTH


@transaction.atomic
def _invite(tenant_id: UUID, inviter_id: int, request: InvitationRequest, now: datetime) -> Invitation:
    today = Invitation.objects.filter(tenant_id=tenant_id, created__gt=now - timedelta(days=1))
    if today.count() >= MAX_PER_DAY:
        raise Refused(
            "too_many_invitations",
            refusal_text("too_many_invitations", max_per_day=MAX_PER_DAY),
            owner="the platform",
        )
    invitation, _ = Invitation.objects.update_or_create(
        tenant_id=tenant_id,
        project=request.project,
        invitee=request.invitee,
        state=Invitation.State.OPEN,
        defaults={
            "role": request.role,
            "made_by_id": inviter_id,
            "made_with_id": request.made_with,
            "created": now,
            "expires": now + LIFETIME,
        },
    )
    audit_record(
        tenant_id=tenant_id,
        actor_id=inviter_id,
        action="invitation.created",
        target=("invitation", invitation.id),
        now=now,
        detail={
            "project": str(request.project.id) if request.project else None,
            "role": request.role,
        },
    )
    outbox_add(
        tenant_id=tenant_id,
        kind="invitation.created",
        payload={"invitation": str(invitation.id)},
        now=now,
    )
    return invitation


def _received(user: User, invitation_id: UUID, now: datetime) -> ReceivedInvitation:
    for offer in received_invitations(user.credential, now):
        if offer.id == invitation_id:
            return offer
    raise missing("invitation")


def _lead_keep(invitation: Invitation, user: User) -> None:
    """Raises Refused `last_lead` if accepting takes the lead from the project's only lead."""
    held = Membership.objects.filter(tenant_id=invitation.tenant_id, user=user)
    leading = held.filter(project=invitation.project, role=Role.LEAD).first()
    is_admin = held.filter(role=Role.TENANT_ADMIN).exists()
    if leading is not None and invitation.role != Role.LEAD and not is_admin:
        require_another_lead(leading)


def _join(user: User, invitation_id: UUID, now: datetime) -> tuple[UUID, str | None]:
    """Makes the invited person a member; returns the membership and the previous role.

    A database function does it, after checking the open invitation and the person's credential.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT * FROM portal_invitation_join(%s, %s, %s)",
            [user.credential, invitation_id, now],
        )
        row: tuple[UUID, str | None] | None = cursor.fetchone()
    if row is None:
        raise missing("invitation")
    return row


def _open_locked(invitation_id: UUID) -> Invitation:
    found = (
        Invitation.objects.select_for_update().filter(id=invitation_id, state=Invitation.State.OPEN).first()
    )
    if found is None:
        raise missing("invitation")
    return found


def _decide(invitation: Invitation, state: str, user_id: int, now: datetime) -> None:
    invitation.state, invitation.decided = state, now
    invitation.save(update_fields=["state", "decided"])
    audit_record(
        tenant_id=invitation.tenant_id,
        actor_id=user_id,
        action=f"invitation.{state}",
        target=("invitation", invitation.id),
        now=now,
    )
