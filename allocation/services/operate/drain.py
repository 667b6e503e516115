"""Operators' actions on hardware: drain it, fence it, and return it to service."""

import logging
from datetime import datetime

from django.db.models import Q, QuerySet

from allocation.models import Allocation, Booking, Gpu, Node, Occupancy
from allocation.services.nodes.fleet import node_audit, node_state_set, operator_event
from allocation.services.record.site_events import gpu_event
from allocation.services.runs.end import STARTED, allocation_empty
from allocation.services.runs.interrupt import Interruption, drain_notify, run_interrupt
from allocation.words.events import event_text
from allocation.words.fleet import fleet_text
from allocation.words.refusals import refusal_text
from tenants.models import User
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid, text_within

logger = logging.getLogger(__name__)

ON_NODE = (*STARTED, Allocation.State.RELEASING)


def node_drain(*, operator: User, node: Node, reason: str, now: datetime, by: datetime | None = None) -> None:
    """Takes the node out of service. Running work must leave `by` then; without it, it continues.

    Raises:
        Refused: `deadline_past`.
    """
    deadline_check(by, now)
    before = {"state": node.state}
    after = {
        "state": Node.State.DRAINING.value,
        "by": by.isoformat() if by else None,
        "reason": reason,
    }
    facts = {"reason": reason, "operator": operator.username, "at": f"{now:%d %b %H:%M}"}
    if by is None:
        why = fleet_text("drained", **facts)
    else:
        why = fleet_text("drained_by", **facts, by=f"{by:%d %b %H:%M}")
    node_state_set(node, Node.State.DRAINING, why, by)
    node_audit(operator, node, "node.drained", now, before=before, after=after)
    if by is not None:
        text = event_text("node_drained", node=node.name, why=why)
        drain_notify(Q(gpu__node=node), by, Interruption("R63", text), now)


def deadline_check(by: datetime | None, now: datetime) -> None:
    """Raises Refused `deadline_past` for a deadline in the past."""
    if by is not None and by < now:
        raise invalid("deadline_past", refusal_text("deadline_past"), "by")


def gpu_return(*, operator: User, gpu: Gpu, note: str, now: datetime) -> None:
    """Returns a GPU to service, with a note of the repair.

    Raises:
        Refused: `gpu_in_service`, `note_needed`.
    """
    gpu = Gpu.objects.select_for_update(of=("self",)).select_related("node").get(id=gpu.id)
    if gpu.health == Gpu.Health.OK:
        raise Refused("gpu_in_service", refusal_text("gpu_in_service", gpu=_where(gpu)))
    was = gpu.health_text or gpu.health_reason.rstrip(".")
    before = {"gpu": gpu.index, "health": gpu.health, "reason": gpu.health_reason}
    gpu.health_set(Gpu.Health.OK)
    gpu.drain_by, gpu.needs_operator = None, False
    gpu.save(update_fields=[*Gpu.HEALTH_FIELDS, "drain_by", "needs_operator"])
    done = _note_read(note)
    text = fleet_text("gpu_returned", operator=operator.username, note=done, reason=was)
    operator_event(gpu.node, gpu, text, now)
    gpu_event("returned", gpu, gpu.node, f"{_where(gpu)} is in service again.", now)
    after = {"gpu": gpu.index, "health": gpu.health, "note": done}
    node_audit(operator, gpu.node, "gpu.returned", now, before=before, after=after)
    task_request("allocation.cycle")


def hardware_fence(*, operator: User, node: Node, gpu: Gpu | None, note: str, now: datetime) -> int:
    """Records the operator's statement that a GPU or the whole node is off and nothing runs on it.

    Besides an agent's proof, only this makes a place count as empty, so the statement has to be
    true. Work that ran there starts again elsewhere. Returns how many places it closed.

    Raises:
        Refused: `still_in_service` (drain it first), `note_needed`.
    """
    reason = fence_check(node, gpu, note)
    operator_event(node, gpu, fleet_text("fenced", operator=operator.username, note=reason), now)
    rows = fence_places(node, gpu)
    # Bookings are locked before nodes and in one order, as everywhere.
    bookings = Booking.objects.filter(allocations__in=rows).values("id")
    for booking in Booking.objects.select_for_update().filter(id__in=bookings).order_by("id"):
        run_interrupt(booking.id, Interruption("R62", event_text("node_off", node=node.name)), now)
    before = _open_places(node)
    for identifier in list(rows.order_by("booking_id", "id").values_list("id", flat=True)):
        allocation_empty(identifier, now)
    closed = before - _open_places(node)
    node_audit(
        operator,
        node,
        "node.fenced",
        now,
        before={"gpu": gpu.index if gpu else None, "open_places": before},
        after={"open_places": before - closed, "note": reason},
    )
    logger.warning("%s fenced %s: %d places closed", operator.username, node.name, closed)
    task_request("allocation.cycle")
    return closed


def fence_check(node: Node, gpu: Gpu | None, note: str) -> str:
    """The note as it is stored. Raises Refused as `hardware_fence`."""
    reason = _note_read(note)
    if _takes_work(node, gpu):
        where = _where(gpu) if gpu is not None else node.name
        raise Refused(
            "still_in_service",
            refusal_text("still_in_service", where=where),
        )
    return reason


def fence_places(node: Node, gpu: Gpu | None) -> QuerySet[Allocation]:
    """Allocations on the node, or on one of its GPUs, that a fence would close."""
    rows = Allocation.objects.filter(gpu__node=node, state__in=ON_NODE)
    return rows if gpu is None else rows.filter(gpu=gpu)


def _open_places(node: Node) -> int:
    return Occupancy.objects.filter(gpu__node=node, closed=None).count()


def _takes_work(node: Node, gpu: Gpu | None) -> bool:
    if node.state != Node.State.READY:
        return False
    return gpu is None or gpu.health == Gpu.Health.OK


def _note_read(note: str) -> str:
    text = note.strip().rstrip(".")
    if not text:
        raise invalid("note_needed", refusal_text("note_needed"), "note")
    return text_within(text, 120, "note")


def _where(gpu: Gpu) -> str:
    return f"GPU {gpu.index} of {gpu.node.name}"
