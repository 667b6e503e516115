"""The caller: account, settings, tokens and sessions."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.models import Project, Scope, Tenant, User
from tenants.platform.errors import missing
from tenants.platform.rest.fields import Strict, Text, Whole
from tenants.platform.rest.pagination import PageQuery, page_of, page_of_rows
from tenants.platform.rest.schema import described, page
from tenants.services import (
    TokenLimits,
    own_session_end,
    own_sessions_end,
    token_create,
    token_revoke,
    token_rotate,
    tokens_revoke,
    user_mails_set,
    user_zone_set,
)
from tenants.services.credentials.tokens import MAX_OVERLAP_HOURS, own_tokens
from tenants.services.sign_in.sessions import sessions_of


class RoleOut(serializers.Serializer[Any]):
    """A role in a project."""

    project = serializers.CharField()
    role = serializers.CharField()


class TenantOut(serializers.Serializer[Any]):
    """The tenant that the token is for."""

    slug = serializers.CharField()
    name = serializers.CharField()


class MeOut(serializers.Serializer[Any]):
    """The person of the token, in the token's tenant."""

    username = serializers.CharField()
    name = serializers.CharField()
    time_zone = serializers.CharField()
    mails = serializers.ChoiceField(choices=User.Mails.choices)
    tenant = TenantOut()
    is_tenant_admin = serializers.BooleanField()
    is_operator = serializers.BooleanField()
    roles = RoleOut(many=True)
    token_id = serializers.UUIDField()


class MeChange(Strict):
    """The caller's settings."""

    time_zone = Text(max_length=64, required=False)
    mails = serializers.ChoiceField(choices=User.Mails.choices, required=False)


class Me(ApiView):
    """The caller."""

    @described("get_me", "Your account and roles", answer=MeOut)
    def get(self, request: Request) -> Response:
        """Describes the caller in the token's tenant."""
        return Response(self._shown())

    @described(
        "set_me",
        "Set your time zone, and which mails you get",
        answer=MeOut,
        request=MeChange,
    )
    def put(self, request: Request) -> Response:
        """Changes settings; describes the caller."""
        sent = self.sent(MeChange)
        with self.tx():
            if "time_zone" in sent:
                user_zone_set(actor=self.actor, zone=sent["time_zone"], now=self.now)
            if "mails" in sent:
                user_mails_set(actor=self.actor, mails=sent["mails"], now=self.now)
        return Response(self._shown())

    def _shown(self) -> dict[str, Any]:
        actor = self.actor
        with self.tx():
            tenant = Tenant.objects.get(id=actor.tenant_id)
            user = User.objects.get(id=actor.user_id)
            slugs = dict(Project.objects.values_list("id", "slug"))
        roles = {slugs[project]: role for project, role in actor.roles.items() if project in slugs}
        shown = MeOut(
            {
                "username": user.username,
                "name": actor.name,
                "time_zone": user.time_zone,
                "mails": user.mails,
                "tenant": tenant,
                "is_tenant_admin": actor.is_tenant_admin,
                "is_operator": self.caller.is_operator,
                "roles": [{"project": slug, "role": roles[slug]} for slug in sorted(roles)],
                "token_id": self.caller.token_id,
            }
        )
        return dict(shown.data)


class TokenOut(serializers.Serializer[Any]):
    """A token without its secret."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField()
    created = serializers.DateTimeField()
    expires = serializers.DateTimeField()
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=Scope.values))
    project = serializers.CharField(
        source="project.slug",
        default=None,
        allow_null=True,
        help_text="The only project in which it works; null is all of yours.",
    )
    last_used = serializers.DateTimeField(allow_null=True)
    last_address = serializers.CharField(allow_null=True, help_text="Where it was used last.")
    revoked = serializers.DateTimeField(allow_null=True)


TokenPage = page(TokenOut)


class TokenMade(TokenOut):
    """A new token: the only answer that contains its secret."""

    token = serializers.CharField(
        allow_null=True, help_text="Shown once; null when an Idempotency-Key is replayed."
    )


class EndedOut(serializers.Serializer[Any]):
    """The number of ended tokens or sessions."""

    ended = serializers.IntegerField(help_text="How many.")


class TokenNew(Strict):
    """A new token."""

    name = Text(max_length=80)
    days = Whole(required=False, default=90, min_value=1, max_value=365)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=Scope.values),
        required=False,
        allow_empty=False,
        max_length=len(Scope.values),
        help_text="By default those of the token that creates it; never more.",
    )
    project = Text(required=False, max_length=40, help_text="The only project in which it works.")


class TokenRotation(Strict):
    """The replacement of a token."""

    overlap_hours = Whole(
        required=False,
        default=24,
        max_value=MAX_OVERLAP_HOURS,
        help_text="How long the old token works next to the new one.",
    )


class Tokens(ApiView):
    """The caller's own tokens in this tenant."""

    queries = {"GET": PageQuery}

    @described("list_tokens", "Your tokens", answer=TokenPage, query=PageQuery)
    def get(self, request: Request) -> Response:
        """Lists tokens, the latest first."""
        with self.tx():
            tokens, next_cursor = page_of(
                own_tokens(self.actor).select_related("project"),
                keys=("-created", "-id"),
                query=self.query,
                scope=f"tokens:{self.actor.tenant_id}:{self.actor.user_id}",
            )
            return list_response(TokenOut(tokens, many=True).data, next_cursor)

    @described(
        "create_token",
        "Create a token; it ends at the latest with the token that creates it",
        answer=TokenMade,
        status=201,
        request=TokenNew,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Creates a token; the answer shows its secret once."""
        sent = self.sent(TokenNew)

        def work() -> Response:
            token, clear = token_create(
                actor=self.actor,
                name=sent["name"],
                days=sent["days"],
                now=self.now,
                limits=TokenLimits(sent.get("scopes"), sent.get("project")),
                made_with=self.caller.token_id,
            )
            return Response({**TokenOut(token).data, "token": clear}, status=201)

        return self.once(work, secret=("token",))

    @described("revoke_tokens", "Revoke all your tokens in this tenant, this one too", answer=EndedOut)
    def delete(self, request: Request) -> Response:
        """How many ended."""
        with self.tx():
            return Response({"ended": tokens_revoke(actor=self.actor, now=self.now)})


class TokenOne(ApiView):
    """One token."""

    @described("revoke_token", "Revoke a token, and those made with it", answer=TokenOut)
    def delete(self, request: Request, token_id: UUID) -> Response:
        """Revokes the token; idempotent."""
        with self.tx():
            token = token_revoke(actor=self.actor, token_id=token_id, now=self.now)
            return Response(TokenOut(token).data)


class TokenRotate(ApiView):
    """The replacement of a token."""

    @described(
        "rotate_token",
        "Replace a token; the old one works for some hours more",
        answer=TokenMade,
        status=201,
        request=TokenRotation,
    )
    def post(self, request: Request, token_id: UUID) -> HttpResponseBase:
        """Creates the successor; the answer shows its secret once."""
        sent = self.sent(TokenRotation)
        if token_id != self.caller.token_id and Scope.ADMIN not in self.caller.scopes:
            raise missing("token")

        def work() -> Response:
            token, clear = token_rotate(
                actor=self.actor,
                token_id=token_id,
                overlap_hours=sent["overlap_hours"],
                now=self.now,
                made_with=self.caller.token_id,
            )
            return Response({**TokenOut(token).data, "token": clear}, status=201)

        return self.once(work, secret=("token",))


class SessionOut(serializers.Serializer[Any]):
    """A browser in which the caller is signed in."""

    id = serializers.UUIDField()
    device = serializers.CharField(help_text="As in `Firefox on Linux`.")
    address = serializers.CharField(allow_null=True, help_text="From where it was used last.")
    created = serializers.DateTimeField()
    last_seen = serializers.DateTimeField(help_text="Noted once a minute.")
    expires = serializers.DateTimeField()


class Sessions(ApiView):
    """Browsers in which the caller is signed in, in any tenant."""

    queries = {"GET": PageQuery}

    @described("list_sessions", "Where you are signed in", answer=page(SessionOut), query=PageQuery)
    def get(self, request: Request) -> Response:
        """Lists sessions, the latest sign-in first."""
        with self.tx():
            rows, next_cursor = page_of_rows(
                sessions_of(self.user.credential, self.now),
                keys=("-created", "-id"),
                query=self.query,
                scope=f"sessions:{self.actor.user_id}",
            )
            return list_response(SessionOut(rows, many=True).data, next_cursor)

    @described("end_sessions", "Sign out everywhere", answer=EndedOut)
    def delete(self, request: Request) -> Response:
        """How many ended."""
        with self.tx():
            ended = own_sessions_end(user=self.user, now=self.now)
            return Response({"ended": ended})


class SessionOne(ApiView):
    """One session."""

    @described("end_session", "Sign out in one browser", answer=None, status=204)
    def delete(self, request: Request, session_id: UUID) -> Response:
        """Ends the session."""
        with self.tx():
            own_session_end(user=self.user, session_id=session_id, now=self.now)
        return Response(status=204)
