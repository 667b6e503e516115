"""What agents say, turned into facts. Every message is verified, fenced and safe to see twice."""

import logging
from datetime import datetime
from uuid import UUID

from django.db import DataError, IntegrityError, transaction
from django.db.models import F

from allocation import wire
from allocation.models import Allocation, Booking, Gpu, Node, SolverState
from allocation.services.fleet import inventory_apply, key_confirm, node_key
from allocation.services.lifecycle import (
    STARTED,
    allocation_empty,
    allocation_failed,
    allocation_ready,
)
from allocation.services.telemetry import samples_store
from tenants.outbox import nudge

logger = logging.getLogger(__name__)

# A report tells of everything on its node, most of it known: only what is in one of these states
# learns something from a word, and only its booking is locked and looked at.
NEWS_FOR: dict[str, frozenset[str]] = {
    "ready": frozenset({Allocation.State.STARTING}),
    "empty": frozenset((*STARTED, Allocation.State.RELEASING)),
    "failed": frozenset(STARTED),
}


def message_apply(*, node_name: str, envelope: wire.Envelope, now: datetime) -> str:
    """Applies one message of a node's stream; returns what became of it.

    One of: applied, stale (an old sequence number or another epoch), refused (not signed by this
    node's key, or not readable), unknown_node. Nothing of a stale or refused one is believed.
    """
    node = Node.objects.filter(name=node_name).first()
    if node is None:
        return "unknown_node"
    try:
        valid = range(node.key_confirmed, node.key_version + 1)
        message = wire.open_report(envelope, {v: node_key(node, v) for v in valid})
    except wire.WireError as error:
        logger.warning("A message of %s was refused: %s", node_name, error)
        return "refused"
    try:
        with transaction.atomic():
            told = _message(node, message, now)
            if envelope.key_version > node.key_confirmed:
                key_confirm(node, envelope.key_version)
            return told
    except _Stale:
        return "stale"
    except (DataError, IntegrityError) as error:
        # A node that says what no row can hold must not stop the others from being heard.
        logger.warning("A message of %s can't be stored: %s", node_name, error)
        return "refused"


class _Stale(Exception):
    """The report is older than what is known; nothing of it is written."""


def _message(node: Node, message: wire.FromAgent, now: datetime) -> str:
    match message:
        case wire.Report():
            _report(node, message, now)
        case wire.Heartbeat():
            _seen(node, now)
        case wire.Telemetry():
            _seen(node, now)
            samples_store(node, message, now)
        case wire.Inventory():
            locked = Node.objects.select_for_update().get(id=node.id)
            inventory_apply(node=locked, inventory=message, now=now)
    return "applied"


def _seen(node: Node, now: datetime) -> None:
    Node.objects.filter(id=node.id).update(last_seen=now)


def _report(node: Node, report: wire.Report, now: datetime) -> None:
    """All of it or nothing, the number included: a reader that is killed reads it again."""
    epoch = SolverState.objects.values_list("epoch", flat=True).get(id=1)
    known = report.epoch == epoch or report.observed_generation < 0
    if not known or report.observed_generation > node.generation or report.seq <= node.report_seq:
        raise _Stale
    own = _own_allocations(node, report)
    # Bookings before nodes, and always in one order: so does everyone who locks both.
    bookings = Booking.objects.filter(allocations__id__in=own.values()).values("id")
    list(Booking.objects.select_for_update().filter(id__in=bookings).order_by("id"))
    for item in report.allocations:
        if item.id in own:
            _allocation(own[item.id], item, now)
    modes_changed = sum(
        Gpu.objects.filter(node=node, uuid=gpu.uuid).exclude(mode=gpu.mode).update(mode=gpu.mode)
        for gpu in report.gpus
    )
    if modes_changed:
        # The modes stand in the node's document: other words need another generation.
        Node.objects.filter(id=node.id).update(generation=F("generation") + 1)
    taken = Node.objects.filter(id=node.id, report_seq__lt=report.seq).update(
        report_seq=report.seq,
        observed_generation=report.observed_generation,
        last_seen=now,
    )
    if not taken:
        raise _Stale
    nudge("allocation.cycle")


def _own_allocations(node: Node, report: wire.Report) -> dict[str, UUID]:
    """Ids of the report that really lie on this node, an agent can't speak for another's, and to
    which its word is news."""
    said = {UUID(item.id): item.state for item in report.allocations if _is_uuid(item.id)}
    rows = Allocation.objects.filter(id__in=said, gpu__node=node).values_list("id", "state")
    return {
        identifier.hex: identifier
        for identifier, state in rows
        if state in NEWS_FOR.get(said[identifier], ())
    }


def _is_uuid(text: str) -> bool:
    return len(text) == 32 and all(letter in "0123456789abcdef" for letter in text)


def _allocation(identifier: UUID, item: wire.ReportedAllocation, now: datetime) -> None:
    match item.state:
        case "ready":
            allocation_ready(identifier, list(item.devices), now)
        case "empty":
            allocation_empty(identifier, now)
        case "failed":
            allocation_failed(identifier, item.error or "no reason given", now)
        case "preparing" | "ending":
            pass
