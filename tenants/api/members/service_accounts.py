"""Service accounts of projects, and their tokens."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.api.members.me import TokenMade, TokenOut, TokenPage, TokenRotation
from tenants.models import Membership, ServiceAccount
from tenants.platform.rest.fields import Strict, Text, Whole
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.services.credentials.service_accounts import (
    SCOPES,
    ServiceToken,
    service_account_close,
    service_account_create,
    service_account_one,
    service_accounts_of,
    service_token_create,
    service_token_revoke,
    service_token_rotate,
    service_tokens_of,
)


class ServiceAccountNew(Strict):
    """A new service account."""

    name = Text(max_length=80)
    project = Text(max_length=40)
    role = Text(
        max_length=16,
        required=False,
        default="researcher",
        help_text="In the project: `researcher` or `viewer`.",
    )


class ServiceAccountOut(serializers.Serializer[Any]):
    """An account of a program; what it books names it."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    username = serializers.CharField(source="user.username", help_text="As bookings show it.")
    project = serializers.CharField(source="project.slug")
    role = serializers.SerializerMethodField()
    created = serializers.DateTimeField()

    def get_role(self, account: ServiceAccount) -> str | None:
        """Returns its role in the project; None when somebody removed it from the members."""
        held = Membership.objects.filter(user_id=account.user_id).first()
        return held.role if held else None


class ServiceTokenNew(Strict):
    """A new token of a service account."""

    name = Text(max_length=80, required=False, default="Token")
    days = Whole(required=False, default=90, min_value=1, max_value=365)
    scopes = serializers.ListField(
        child=serializers.CharField(max_length=8),
        allow_empty=False,
        max_length=len(SCOPES),
        help_text="`read`, `book` or both.",
    )


class ServiceAccounts(ApiView):
    """Service accounts that the caller manages."""

    queries = {"GET": PageQuery}

    @described(
        "list_service_accounts",
        "Service accounts",
        answer=page(ServiceAccountOut),
        query=PageQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists all of them for the tenant's admins, those of their projects for leads."""
        with self.tx():
            rows, next_cursor = page_of(
                service_accounts_of(self.actor),
                keys=("name", "id"),
                query=self.query,
                scope=f"service-accounts:{self.actor.tenant_id}:{self.actor.user_id}",
            )
            return list_response(ServiceAccountOut(rows, many=True).data, next_cursor)

    @described(
        "create_service_account",
        "Create an account for a program, which belongs to a project",
        answer=ServiceAccountOut,
        status=201,
        request=ServiceAccountNew,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Creates the account, without a token."""
        sent = self.sent(ServiceAccountNew)

        def work() -> Response:
            made = service_account_create(
                actor=self.actor, credential=self.user.credential, **sent, now=self.now
            )
            return Response(ServiceAccountOut(made).data, status=201)

        return self.once(work)


class ServiceAccountOne(ApiView):
    """One service account."""

    @described("get_service_account", "One service account", answer=ServiceAccountOut)
    def get(self, request: Request, account_id: UUID) -> Response:
        """Describes the account."""
        with self.tx():
            return Response(ServiceAccountOut(service_account_one(self.actor, account_id)).data)

    @described(
        "close_service_account",
        "Close a service account for good: its tokens end, its bookings stay",
        answer=None,
        status=204,
    )
    def delete(self, request: Request, account_id: UUID) -> Response:
        """Closes the account."""
        with self.tx():
            service_account_close(actor=self.actor, account_id=account_id, now=self.now)
        return Response(status=204)


class ServiceTokens(ApiView):
    """The tokens of a service account, each for its project only."""

    queries = {"GET": PageQuery}

    @described(
        "list_service_tokens",
        "Tokens of a service account",
        answer=TokenPage,
        query=PageQuery,
    )
    def get(self, request: Request, account_id: UUID) -> Response:
        """Lists tokens, the latest first."""
        with self.tx():
            account = service_account_one(self.actor, account_id)
            rows, next_cursor = page_of(
                service_tokens_of(account),
                keys=("-created", "-id"),
                query=self.query,
                scope=f"service-tokens:{account.id}",
            )
            return list_response(TokenOut(rows, many=True).data, next_cursor)

    @described(
        "create_service_token",
        "Create a token of a service account; it ends at the latest with the token that creates it",
        answer=TokenMade,
        status=201,
        request=ServiceTokenNew,
    )
    def post(self, request: Request, account_id: UUID) -> HttpResponseBase:
        """Creates a token; the answer shows its secret once."""
        terms = ServiceToken(**self.sent(ServiceTokenNew))

        def work() -> Response:
            token, clear = service_token_create(
                actor=self.actor,
                account_id=account_id,
                token=terms,
                now=self.now,
                made_with=self.caller.token_id,
            )
            return Response({**TokenOut(token).data, "token": clear}, status=201)

        return self.once(work, secret=("token",))


class ServiceTokenOne(ApiView):
    """One token of a service account."""

    @described("revoke_service_token", "Revoke a token, and those made with it", answer=TokenOut)
    def delete(self, request: Request, account_id: UUID, token_id: UUID) -> Response:
        """Revokes the token; idempotent."""
        with self.tx():
            token = service_token_revoke(
                actor=self.actor, account_id=account_id, token_id=token_id, now=self.now
            )
            return Response(TokenOut(token).data)


class ServiceTokenRotate(ApiView):
    """The replacement of a token of a service account."""

    @described(
        "rotate_service_token",
        "Replace a token of a service account; the old one works for some hours more",
        answer=TokenMade,
        status=201,
        request=TokenRotation,
    )
    def post(self, request: Request, account_id: UUID, token_id: UUID) -> HttpResponseBase:
        """Creates the successor; the answer shows its secret once."""
        sent = self.sent(TokenRotation)

        def work() -> Response:
            token, clear = service_token_rotate(
                actor=self.actor,
                account_id=account_id,
                token_id=token_id,
                overlap_hours=sent["overlap_hours"],
                now=self.now,
                made_with=self.caller.token_id,
            )
            return Response({**TokenOut(token).data, "token": clear}, status=201)

        return self.once(work, secret=("token",))
