"""The log entries and messages of overrides."""

from datetime import datetime

from allocation.models import Override
from tenants.audit import audit_record, platform_record
from tenants.outbox import outbox_add


def override_record(actor_id: int, action: str, row: Override, now: datetime) -> None:
    """Writes what somebody did with an override to the log, and the message about it.

    What an operator decides is in the platform's log, too.
    """
    detail = {
        "kind": row.kind,
        "amount": f"{row.amount.normalize():f}",
        "project": row.project.slug if row.project else None,
        "gpu_class": row.gpu_class_id,
        "tier": row.tier_id,
        "budget": str(row.budget_id) if row.budget_id else None,
        "booking": row.booking.label if row.booking else None,
        "once": row.is_once,
        "until": row.until.isoformat() if row.until else None,
        "state": row.state,
        "answer": row.answer,
    }
    by_operator = row.decider == Override.Decider.OPERATOR and row.decided_by_id == actor_id
    if by_operator:
        after = {"tenant": row.tenant.slug, **detail}
        platform_record(actor_id, action, ("override", row.id), now, after=after)
    audit_record(
        tenant_id=row.tenant_id,
        actor_id=actor_id,
        action=action,
        target=("override", row.id),
        now=now,
        detail=detail,
    )
    outbox_add(tenant_id=row.tenant_id, kind=action, payload={"override": str(row.id)}, now=now)
