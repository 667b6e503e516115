"""Events of nodes, GPUs and the policy for programs.

They belong to no tenant. Each organisation that is open gets them, for webhooks of the whole
organisation and its admins: its pages of the fleet show the same.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from allocation.models import Gpu, Node, PolicyVersion
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


def _put(kind: str, subject: UUID, what: Mapping[str, Any], sentence: str, now: datetime) -> None:
    payload = {"subject": str(subject), "data": dict(what), "message": sentence}
    tenants = Tenant.objects.filter(is_open=True).order_by("slug").values_list("id", flat=True)
    outbox_put(
        [
            OutboxMessage(tenant_id=tenant, kind=kind, payload=payload, created=now)
            for tenant in tenants
        ]
    )
