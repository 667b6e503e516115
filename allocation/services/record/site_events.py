"""Events of nodes, GPUs, maintenance and the policy for programs.

They belong to no tenant. The platform's webhooks get them, and so does each organisation that is
open, for webhooks of the whole organisation and its admins: its pages of the fleet show the same.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from allocation.models import Gpu, Maintenance, Node, PolicyVersion
from allocation.words.fleet import FleetText
from tenants.models import OutboxMessage, Tenant
from tenants.outbox import outbox_put


def node_event(kind: str, node: Node, text: FleetText | str, now: datetime) -> None:
    """Adds `node.unreachable` or `node.reachable`, in the caller's transaction."""
    _put(f"node.{kind}", node.id, {"node": {"name": node.name}}, str(text), now)


def gpu_event(kind: str, gpu: Gpu, node: Node, text: FleetText | str, now: datetime) -> None:
    """Adds `gpu.unhealthy` or `gpu.returned`, in the caller's transaction."""
    what = {"gpu": {"id": str(gpu.id), "node": node.name, "index": gpu.index, "health": gpu.health}}
    _put(f"gpu.{kind}", gpu.id, what, str(text), now)


def policy_event(version: PolicyVersion, now: datetime) -> None:
    """Adds `policy.activated`, in the caller's transaction."""
    subject = uuid5(NAMESPACE_URL, "gpu-portal:policy")
    sentence = f"Version {version.number} of the policy is live."
    _put("policy.activated", subject, {"policy": {"version": version.number}}, sentence, now)


def maintenance_event(
    kind: Maintenance.Event, row: Maintenance, now: datetime, later_dates: int = 0
) -> None:
    """Adds `maintenance.planned`, `.started`, `.ended` or `.cancelled`, in the caller's
    transaction. `later_dates` are planned or cancelled with it."""
    what = {
        "id": str(row.id),
        "where": row.where,
        "reason": row.reason,
        "starts": row.starts.isoformat(),
        "ends": row.ends.isoformat(),
        "drain_by": row.drain_by.isoformat(),
        "series": str(row.series) if row.series else None,
        "later_dates": later_dates,
    }
    sentence = f"Maintenance of {row.where} {_MAINTENANCE[kind]}: {row.reason}."
    _put(f"maintenance.{kind.value}", row.id, {"maintenance": what}, sentence, now)


_MAINTENANCE = {
    Maintenance.Event.PLANNED: "is planned",
    Maintenance.Event.STARTED: "has begun",
    Maintenance.Event.ENDED: "is over",
    Maintenance.Event.CANCELLED: "is cancelled",
}


def _put(kind: str, subject: UUID, what: Mapping[str, Any], sentence: str, now: datetime) -> None:
    payload = {"subject": str(subject), "data": dict(what), "message": sentence}
    tenants = Tenant.objects.filter(is_open=True).order_by("slug").values_list("id", flat=True)
    outbox_put(
        [
            OutboxMessage(tenant_id=tenant, kind=kind, payload=payload, created=now)
            for tenant in (None, *tenants)
        ]
    )
