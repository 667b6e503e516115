"""The bearer token of a tenant's directory. In `operator_tx`."""

import hashlib
import secrets
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from tenants.audit import audit_record
from tenants.models import DirectoryToken, Tenant
from tenants.services.sign_on.providers import Editor

BRAND = "gpup_scim_"
SHOWN_LENGTH = len(BRAND) + 4
LAST_USED_INTERVAL = timedelta(minutes=1)


@transaction.atomic
def directory_token_set(*, editor: Editor, now: datetime) -> str:
    """Creates the token, or replaces it at once; returns its text, which is not stored."""
    clear = BRAND + secrets.token_urlsafe(32)
    DirectoryToken.objects.filter(tenant=editor.tenant).delete()
    DirectoryToken.objects.create(
        tenant=editor.tenant,
        digest=_digest(clear),
        prefix=clear[:SHOWN_LENGTH],
        created=now,
        created_by_id=editor.user_id,
    )
    _note(editor, "directory_token.set", now)
    return clear


@transaction.atomic
def directory_token_remove(*, editor: Editor, now: datetime) -> None:
    """Removes the token: the directory is refused from its next call on. Idempotent."""
    if DirectoryToken.objects.filter(tenant=editor.tenant).delete()[0]:
        _note(editor, "directory_token.removed", now)


def directory_token_of(tenant_id: UUID) -> DirectoryToken | None:
    """The tenant's token, without its text."""
    return DirectoryToken.objects.select_related("created_by").filter(tenant=tenant_id).first()


def directory_of(clear: str, *, now: datetime, address: str) -> Tenant | None:
    """The open tenant whose directory has the token; notes its use at most once a minute."""
    found = (
        DirectoryToken.objects.select_related("tenant")
        .filter(digest=_digest(clear), tenant__is_open=True)
        .first()
    )
    if found is None:
        return None
    if found.last_used is None or found.last_used <= now - LAST_USED_INTERVAL:
        found.last_used, found.last_address = now, address or None
        found.save(update_fields=["last_used", "last_address"])
    return found.tenant


def _note(editor: Editor, action: str, now: datetime) -> None:
    audit_record(
        tenant_id=editor.tenant.id,
        actor_id=editor.user_id,
        action=action,
        target=("tenant", editor.tenant.id),
        now=now,
    )


def _digest(clear: str) -> bytes:
    # A plain hash suffices, because 256 random bits cannot be guessed.
    return hashlib.sha256(clear.encode("utf-8", "surrogatepass")).digest()
