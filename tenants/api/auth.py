"""Authentication with a bearer token, which is looked up on every request."""

from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from tenants.access import Actor, client_address, operator_rights
from tenants.models import Tenant, User
from tenants.platform.wall import operator_tx, require_operators_process
from tenants.rules.operator_roles import NO_RIGHTS, Rights
from tenants.services import TokenHolder, token_verify

SENTENCE = "Send a valid token, as in `Authorization: Bearer gpup_pat_…`."


@dataclass(frozen=True, slots=True)
class Caller:
    """The person of a token, in the token's tenant."""

    actor: Actor
    token_id: UUID
    is_operator: bool
    scopes: frozenset[str]
    rights: Rights = NO_RIGHTS


class TokenAuthentication(BaseAuthentication):
    """Accepts `Authorization: Bearer …` only, never cookies."""

    def authenticate(self, request: Request) -> tuple[User, Caller] | None:
        """The user and the caller, or None without a token.

        Raises:
            AuthenticationFailed: for every invalid token alike.
        """
        header = get_authorization_header(request).split()
        if not header:
            return None
        if len(header) != 2 or header[0].lower() != b"bearer":
            raise AuthenticationFailed(SENTENCE, code="bad_token")
        now = timezone.now()
        address = client_address(request.META)
        holder = token_verify(header[1].decode("latin-1"), now=now, address=address)
        user = holder.account if holder else None
        if holder is None or user is None:
            raise AuthenticationFailed(SENTENCE, code="bad_token")
        if user.is_staff:
            # Before anything of the request is read, because it may be passed on unchanged.
            require_operators_process()
        elif settings.SERVES_OPERATORS:
            raise AuthenticationFailed(SENTENCE, code="bad_token")
        # A token for one project has no rights of an operator.
        is_operator = user.is_staff and holder.project_id is None
        rights = operator_rights(user, now) if is_operator else NO_RIGHTS
        caller = Caller(_actor(holder, user), holder.token_id, is_operator, holder.scopes, rights)
        return user, caller

    def authenticate_header(self, request: Request) -> str:
        """The header of 401; without it Django REST framework would answer 403."""
        return 'Bearer realm="portal"'


def _actor(holder: TokenHolder, user: User) -> Actor:
    if holder.actor is not None:
        return holder.actor
    if not user.is_staff:
        raise AuthenticationFailed(SENTENCE, code="bad_token")
    return _operator_of_no_tenant(holder, user)


def _operator_of_no_tenant(holder: TokenHolder, user: User) -> Actor:
    """The actor, without roles, of an operator without a membership in the token's tenant."""
    with operator_tx():
        tenant = Tenant.objects.get(slug=holder.tenant_slug)
    return Actor(
        user_id=user.id,
        name=user.display_name,
        tenant_id=tenant.id,
        tenant_slug=tenant.slug,
        is_tenant_admin=False,
        roles={},
        time_zone=user.time_zone,
    )


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call] # registers itself
    """Describes the authentication in the OpenAPI document."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """Returns the scheme of an HTTP bearer token."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "gpup_pat_…"}
