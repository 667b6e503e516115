"""The record of who did what, written inside the caller's transaction."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from tenants.models import AuditEntry, Tenant


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


def audit_everywhere(
    *,
    actor_id: int | None,
    action: str,
    target: tuple[str, object],
    now: datetime,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Writes the entry into the platform's log and into that of every tenant: for what an operator
    changes for all of them. In `operator_tx`."""
    tenants = Tenant.objects.order_by("slug").values_list("id", flat=True)
    audit_write(
        audit_entry(
            tenant_id=tenant_id,
            actor_id=actor_id,
            action=action,
            target=target,
            now=now,
            detail=detail,
        )
        for tenant_id in (None, *tenants)
    )


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
