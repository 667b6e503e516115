"""Events of nodes, GPUs, maintenance, the policy, outages, freezes and stops for programs.

They belong to no tenant. The platform's webhooks get them, and so does each organisation that is
open, for webhooks of the whole organisation and its admins: its pages show the same. A stop of one
organisation goes to no other.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from allocation.models import Gpu, Maintenance, Node, PolicyVersion, PortalMode, Stop
from allocation.words.events import site_event_text
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
    sentence = site_event_text("policy", number=version.number)
    _put("policy.activated", subject, {"policy": {"version": version.number}}, sentence, now)


def maintenance_event(kind: Maintenance.Event, row: Maintenance, now: datetime, later_dates: int = 0) -> None:
    """Adds `maintenance.planned`, `.started`, `.ended` or `.cancelled`, in the caller's
    transaction. `later_dates` are planned or cancelled with it."""
    what = _maintenance(row, later_dates)
    sentence = site_event_text(f"maintenance_{kind.value}", where=row.where, reason=row.reason)
    _put(f"maintenance.{kind.value}", row.id, {"maintenance": what}, sentence, now)


def maintenance_changed_event(row: Maintenance, was: Mapping[str, str], now: datetime) -> None:
    """Adds `maintenance.changed` with the earlier values, in the caller's transaction."""
    what = {"maintenance": _maintenance(row), "was": dict(was)}
    sentence = site_event_text("maintenance_changed", where=row.where, reason=row.reason)
    _put("maintenance.changed", row.id, what, sentence, now)


def _maintenance(row: Maintenance, later_dates: int = 0) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "where": row.where,
        "reason": row.reason,
        "starts": row.starts.isoformat(),
        "ends": row.ends.isoformat(),
        "drain_by": row.drain_by.isoformat(),
        "ended_at": row.ended_at.isoformat() if row.ended_at else None,
        "series": str(row.series) if row.series else None,
        "later_dates": later_dates,
    }


def mode_event(what: str, mode: PortalMode, now: datetime) -> None:
    """Adds `outage.begun`, `freeze.ended` and so on, in the caller's transaction."""
    said = {**_period(mode), "closed_at": mode.closed_at.isoformat() if mode.closed_at else None}
    sentence = site_event_text(f"{mode.kind}_{what}", why=_why(mode))
    _put(f"{mode.kind}.{what}", mode.id, {str(mode.kind): said}, sentence, now)


def stop_event(what: str, stop: Stop, now: datetime) -> None:
    """Adds `stop.begun` or `stop.ended`, in the caller's transaction. A pause of one booking is a
    stop, too, and has events of its own."""
    if stop.scope == Stop.Scope.BOOKING:
        return
    said = {**_period(stop), "scope": stop.scope, "name": stop.name, "id": str(stop.id)}
    sentence = site_event_text(f"stop_{what}", of=stop.of, why=_why(stop))
    _put(f"stop.{what}", stop.id, {"stop": said}, sentence, now, only=stop.tenant_id)


def _period(row: PortalMode | Stop) -> dict[str, Any]:
    times = {"until": row.until, "ended_at": row.ended_at}
    said = {name: at.isoformat() if at else None for name, at in times.items()}
    return {"reason": row.reason, "since": row.since.isoformat(), **said}


def _why(row: PortalMode | Stop) -> str:
    """The reason inside of a sentence, which ends with a full stop of its own."""
    return row.reason.rstrip(".")


def _put(
    kind: str,
    subject: UUID,
    what: Mapping[str, Any],
    sentence: str,
    now: datetime,
    only: UUID | None = None,
) -> None:
    """Adds the event for the platform and for all open tenants, or `only` for one of them."""
    payload = {"subject": str(subject), "data": dict(what), "message": sentence}
    rows = Tenant.objects.filter(is_open=True).order_by("slug")
    tenants = (rows if only is None else rows.filter(id=only)).values_list("id", flat=True)
    outbox_put(
        [
            OutboxMessage(tenant_id=tenant, kind=kind, payload=payload, created=now)
            for tenant in (None, *tenants)
        ]
    )
