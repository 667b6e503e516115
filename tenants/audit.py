"""The record of who did what, written inside the caller's transaction."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from tenants.models import AuditEntry


def audit_record(
    *,
    tenant_id: UUID,
    actor_id: int | None,
    action: str,
    target: tuple[str, object],
    now: datetime,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Writes one entry; `target` is (kind, id), as in ("booking", booking.id)."""
    kind, identifier = target
    AuditEntry.objects.create(
        tenant_id=tenant_id,
        at=now,
        actor_id=actor_id,
        action=action,
        object_kind=kind,
        object_id=str(identifier),
        detail=dict(detail or {}),
    )
