"""Invitations: leads and tenant admins create and revoke them, the invited person answers."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.models import Invitation, Role
from tenants.platform.errors import missing
from tenants.platform.rest.fields import Strict, Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.queries import invitations_of, received_invitations
from tenants.services import (
    invitation_accept,
    invitation_create,
    invitation_decline,
    invitation_revoke,
)


class InvitationOut(serializers.Serializer[Any]):
    """An invitation, as people who can give its role see it."""

    id = serializers.UUIDField()
    to = serializers.CharField(source="invitee")
    role = serializers.ChoiceField(choices=Role.values)
    project = serializers.CharField(source="project.slug", default=None, allow_null=True)
    state = serializers.ChoiceField(choices=Invitation.State.values)
    created = serializers.DateTimeField()
    expires = serializers.DateTimeField()


class InvitationNew(Strict):
    """The invited person and the role; `tenant_admin` takes no project."""

    to = Text(max_length=254, help_text="An e-mail address or a sign-in name.")
    role = Text(max_length=16)
    project = Text(required=False, max_length=40)


class ReceivedInvitationOut(serializers.Serializer[Any]):
    """An invitation, as the invited person sees it."""

    id = serializers.UUIDField()
    role = serializers.ChoiceField(choices=Role.values)
    project = serializers.CharField(help_text="The project's name; empty for the whole tenant.")
    inviter = serializers.CharField()
    expires = serializers.DateTimeField()


class Invitations(ApiView):
    """Invitations to the caller's tenant and projects."""

    queries = {"GET": PageQuery}

    @described(
        "list_invitations",
        "Open and declined invitations (leads and tenant admins)",
        answer=page(InvitationOut),
        query=PageQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists invitations, the latest first; of projects that the caller leads."""
        with self.tx():
            rows = invitations_of(self.actor.tenant_id, self.now)
            if not self.actor.is_tenant_admin:
                led = [each for each, role in self.actor.roles.items() if role == Role.LEAD]
                rows = rows.filter(project__in=led)
            found, next_cursor = page_of(
                rows,
                keys=("-created", "-id"),
                query=self.query,
                scope=f"invitations:{self.actor.tenant_id}:{self.actor.user_id}",
            )
            return list_response(InvitationOut(found, many=True).data, next_cursor)

    @described(
        "create_invitation",
        "Invite a person (leads and tenant admins)",
        answer=InvitationOut,
        status=201,
        request=InvitationNew,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Invites a person; the answer is the same whether or not the account exists."""
        sent = self.sent(InvitationNew)

        def work() -> Response:
            invitation = invitation_create(
                actor=self.actor,
                to=sent["to"],
                role=sent["role"],
                project=sent.get("project"),
                now=self.now,
            )
            return Response(InvitationOut(invitation).data, status=201)

        return self.once(work)


class InvitationOne(ApiView):
    """One invitation."""

    @described("revoke_invitation", "Revoke an invitation", answer=None, status=204)
    def delete(self, request: Request, invitation_id: UUID) -> Response:
        """Revokes the invitation."""
        with self.tx():
            invitation_revoke(actor=self.actor, invitation_id=invitation_id, now=self.now)
        return Response(status=204)


class MyInvitations(ApiView):
    """Invitations to the caller in the token's tenant; others are answered on the page."""

    @described("list_my_invitations", "Invitations to you", answer=page(ReceivedInvitationOut))
    def get(self, request: Request) -> Response:
        """Lists all invitations, the oldest first."""
        with self.tx():
            offers = received_invitations(self.user.credential, self.now)
        mine = [offer for offer in offers if offer.tenant_id == self.actor.tenant_id]
        return list_response(ReceivedInvitationOut(mine, many=True).data)


class MyInvitationAccept(ApiView):
    """Yes."""

    @described("act_accept_invitation", "Accept an invitation", answer=ReceivedInvitationOut)
    def post(self, request: Request, invitation_id: UUID) -> HttpResponseBase:
        """Accepts the invitation."""

        def work() -> Response:
            _in_tenant(self, invitation_id)
            joined = invitation_accept(user=self.user, invitation_id=invitation_id, now=self.now)
            return Response(ReceivedInvitationOut(joined).data)

        return self.once(work)


class MyInvitationDecline(ApiView):
    """No."""

    @described("act_decline_invitation", "Decline an invitation", answer=ReceivedInvitationOut)
    def post(self, request: Request, invitation_id: UUID) -> HttpResponseBase:
        """Declines the invitation."""

        def work() -> Response:
            _in_tenant(self, invitation_id)
            offer = invitation_decline(user=self.user, invitation_id=invitation_id, now=self.now)
            return Response(ReceivedInvitationOut(offer).data)

        return self.once(work)


def _in_tenant(view: ApiView, invitation_id: UUID) -> None:
    """Raises Refused `not_found` for an invitation to another tenant than the token's."""
    offers = received_invitations(view.user.credential, view.now)
    if (invitation_id, view.actor.tenant_id) not in {(each.id, each.tenant_id) for each in offers}:
        raise missing("invitation")
