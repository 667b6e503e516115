"""The record of who did what, written inside the caller's transaction."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from tenants.models import AuditEntry


def audit_record(
    *,
    tenant_id: UUID | None,
    actor_id: int | None,
    action: str,
    target: tuple[str, object],
    now: datetime,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Writes one entry; `target` is (kind, id), as in ("booking", booking.id).

    Without a tenant the entry is the platform's: what operators do, in `operator_tx`.
    """
    audit_entry(
        tenant_id=tenant_id, actor_id=actor_id, action=action, target=target, now=now, detail=detail
    ).save(force_insert=True)


def audit_entry(
    *,
    tenant_id: UUID | None,
    actor_id: int | None,
    action: str,
    target: tuple[str, object],
    now: datetime,
    detail: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """The entry, not written yet: for those who write many at once by `audit_write`."""
    kind, identifier = target
    return AuditEntry(
        tenant_id=tenant_id,
        at=now,
        actor_id=actor_id,
        action=action,
        object_kind=kind,
        object_id=str(identifier),
        detail=dict(detail or {}),
    )


def audit_write(entries: Iterable[AuditEntry]) -> None:
    """Writes entries in their order, in one statement."""
    AuditEntry.objects.bulk_create(entries)
