"""Writes the provider of a tenant, and which roles its groups give. In `operator_tx`.

Client secrets are encrypted with a key of their tenant. It is derived from `AGENTS_MASTER_KEY`,
which no web process and no backup has.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import transaction
from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from tenants.audit import audit_record
from tenants.models import Project, Role, SignOnGroup, SignOnProvider, Tenant
from tenants.platform.errors import Refused, invalid, missing
from tenants.services.input_values import name_read
from tenants.words import refusal_text

MAX_GROUPS = 200
EVERYBODY = "*"


@dataclass(frozen=True, slots=True)
class ProviderTerms:
    """What an admin enters. Without a secret the present one stays."""

    issuer: str
    client_id: str
    secret: str = field(default="", repr=False)
    groups_claim: str = "groups"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses from the discovery document of a provider."""

    authorization: str
    token: str
    keys: str
    userinfo: str = ""
    has_issuer_in_answer: bool = False


@dataclass(frozen=True, slots=True)
class Editor:
    """Who changes the sign-on of which tenant."""

    tenant: Tenant
    user_id: int


def provider_of(tenant_id: UUID) -> SignOnProvider | None:
    """Returns the provider of the tenant, if it has one."""
    return SignOnProvider.objects.filter(tenant_id=tenant_id).select_related("tenant").first()


def provider_on(slug: str) -> SignOnProvider | None:
    """Returns the provider of an open tenant that people can sign in with now."""
    found = SignOnProvider.objects.filter(tenant__slug=slug, tenant__is_open=True, is_on=True)
    return found.select_related("tenant").first()


def endpoints_of(provider: SignOnProvider) -> Endpoints:
    """Returns the provider's addresses as they were last read."""
    return Endpoints(**provider.endpoints)


def client_secret(provider: SignOnProvider) -> str:
    """Returns the client secret. Raises Refused `secret_lost`."""
    found = secret_open(provider.tenant_id, provider.sealed_secret)
    if found is None:
        raise Refused(
            "secret_lost",
            refusal_text("secret_lost"),
        )
    return found


@transaction.atomic
def provider_set(
    *, editor: Editor, terms: ProviderTerms, endpoints: Endpoints, now: datetime
) -> SignOnProvider:
    """Sets the provider, with the endpoints that its discovery document names.

    Another issuer switches single sign-on off until somebody switches it on again.

    Raises:
        Refused: `bad_name` or `bad_secret`.
    """
    client_id = name_read(terms.client_id, param="client_id", longest=200)
    claim = name_read(terms.groups_claim, param="groups_claim", longest=80)
    before = provider_of(editor.tenant.id)
    if not terms.secret and before is None:
        raise invalid("bad_secret", refusal_text("secret_missing"), "secret")
    if len(terms.secret) > 500 or "\x00" in terms.secret:
        raise invalid("bad_secret", refusal_text("secret_long"), "secret")
    values: dict[str, object] = {
        "issuer": terms.issuer,
        "client_id": client_id,
        "groups_claim": claim,
        "endpoints": asdict(endpoints),
        "checked": now,
        "is_on": before is not None and before.is_on and before.issuer == terms.issuer,
    }
    if terms.secret:
        values["sealed_secret"] = secret_seal(editor.tenant.id, terms.secret)
    provider, _ = SignOnProvider.objects.update_or_create(tenant=editor.tenant, defaults=values)
    _record(
        editor,
        "sign_on.set",
        now,
        before=_shown(before),
        after={**_shown(provider), "has_new_secret": bool(terms.secret)},
    )
    return provider


@transaction.atomic
def provider_endpoints_set(*, editor: Editor, endpoints: Endpoints, now: datetime) -> None:
    """Stores the addresses that the discovery document names now."""
    SignOnProvider.objects.filter(tenant=editor.tenant).update(endpoints=asdict(endpoints), checked=now)


@transaction.atomic
def provider_on_set(*, editor: Editor, is_on: bool, now: datetime) -> None:
    """Switches single sign-on on or off. Sessions that it began stay until they expire.

    Raises:
        Refused: `no_provider` or `no_groups`.
    """
    provider = SignOnProvider.objects.select_for_update().filter(tenant=editor.tenant).first()
    if provider is None:
        raise Refused("no_provider", refusal_text("no_provider"))
    if is_on and not SignOnGroup.objects.filter(tenant=editor.tenant).exists():
        raise Refused("no_groups", refusal_text("no_groups"))
    if provider.is_on == is_on:
        return
    provider.is_on = is_on
    provider.save(update_fields=["is_on"])
    _record(
        editor,
        "sign_on.on" if is_on else "sign_on.off",
        now,
        before={"is_on": not is_on},
        after={"is_on": is_on},
    )


@transaction.atomic
def group_add(*, editor: Editor, group: str, role: str, project: str, now: datetime) -> SignOnGroup:
    """Gives the members of a group a role, from their next sign-in on.

    Raises:
        Refused: `bad_name`, `bad_role`, `not_found` (project), `group_taken`, `too_many_groups`.
    """
    name = name_read(group, param="group", longest=200)
    found = _project(editor.tenant, role, project)
    if role == Role.TENANT_ADMIN and name == EVERYBODY:
        raise invalid("bad_role", refusal_text("group_role_tenant"), "group")
    if SignOnGroup.objects.filter(tenant=editor.tenant).count() >= MAX_GROUPS:
        raise Refused("too_many_groups", refusal_text("too_many_groups", max_groups=MAX_GROUPS))
    made, is_new = SignOnGroup.objects.get_or_create(
        tenant=editor.tenant, group=name, project=found, defaults={"role": role}
    )
    if not is_new:
        raise invalid("group_taken", refusal_text("group_taken"), "group")
    _record(editor, "sign_on.group_added", now, after=_group_shown(made))
    return made


@transaction.atomic
def group_remove(*, editor: Editor, group_id: UUID, now: datetime) -> SignOnGroup:
    """Takes the role from the members of a group, at their next sign-in. Raises `not_found`."""
    found = SignOnGroup.objects.filter(tenant=editor.tenant, id=group_id)
    group = found.select_related("project").first()
    if group is None:
        raise missing("group", "group")
    found.delete()
    _record(editor, "sign_on.group_removed", now, before=_group_shown(group))
    return group


def _project(tenant: Tenant, role: str, slug: str) -> Project | None:
    if role not in Role.values:
        raise invalid("bad_role", refusal_text("group_role_project"), "role")
    if role == Role.TENANT_ADMIN:
        if slug:
            raise invalid("bad_role", refusal_text("admin_everywhere"), "project")
        return None
    found = Project.objects.filter(tenant=tenant, slug=slug).first()
    if found is None:
        raise missing("project", "project")
    return found


def _shown(provider: SignOnProvider | None) -> dict[str, object]:
    if provider is None:
        return {}
    return {
        "issuer": provider.issuer,
        "client_id": provider.client_id,
        "groups_claim": provider.groups_claim,
    }


def _group_shown(group: SignOnGroup) -> dict[str, object]:
    place = {"in_project": group.project.slug} if group.project else {}
    return {"group": group.group, "role": group.role, **place}


def _record(
    editor: Editor,
    action: str,
    now: datetime,
    *,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
) -> None:
    audit_record(
        tenant_id=editor.tenant.id,
        actor_id=editor.user_id,
        action=action,
        target=("tenant", editor.tenant.slug),
        now=now,
        detail={"before": dict(before or {}), "after": dict(after or {})},
    )


_HEADER = {"alg": "dir", "enc": "A256GCM"}
_ALGORITHMS = ["dir", "A256GCM"]


def secret_seal(tenant_id: UUID, secret: str) -> str:
    """Returns the encrypted secret."""
    return jwe.encrypt_compact(_HEADER, secret.encode(), _key(tenant_id), _ALGORITHMS)


def secret_open(tenant_id: UUID, sealed: str) -> str | None:
    """Returns the secret; None when the master key or the tenant is another one."""
    try:
        found = jwe.decrypt_compact(sealed, _key(tenant_id), _ALGORITHMS).plaintext
    except (JoseError, ValueError):
        return None
    return None if found is None else found.decode()


def _key(tenant_id: UUID) -> OctKey:
    message = b"single sign-on:" + tenant_id.bytes
    key = settings.AGENTS_MASTER_KEY.encode()
    return OctKey.import_key(hmac.digest(key, message, hashlib.sha256))
