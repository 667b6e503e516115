"""Messages of agents, applied to the database. Each is verified, fenced and safe to repeat."""

import dataclasses
import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import get_args
from uuid import UUID

from django.conf import settings
from django.db import DataError, IntegrityError, transaction
from django.db.models import F

import wire
from allocation.models import Allocation, Booking, Node
from allocation.points import NODE_MESSAGES, START_REPORTS
from allocation.rules.nodes.fencing import (
    PortalState,
    follows_newer,
    is_ahead,
    is_change,
    is_proof,
    is_stale,
)
from allocation.services.inbox.heartbeats import Received, received_store
from allocation.services.nodes.fleet import agent_supports, key_confirm, node_key
from allocation.services.nodes.gpu_modes import modes_apply
from allocation.services.nodes.health import (
    errors_apply,
    missing_gpus_apply,
    unbooked_use_apply,
    withheld_apply,
)
from allocation.services.nodes.inventories import examination_apply, inventory_apply
from allocation.services.nodes.restores import epoch_now, restore_notify
from allocation.services.nodes.unbooked_use import enforcement_apply
from allocation.services.runs.end import (
    STARTED,
    allocation_empty,
    allocation_failed,
    allocation_saved,
)
from allocation.services.runs.interrupt import Interruption, run_interrupt
from allocation.services.runs.lost_runs import lease_expired, run_disputed
from allocation.services.runs.resume import allocation_suspended
from allocation.services.runs.start import allocations_ready
from allocation.words.events import event_text
from allocation.words.fleet import FleetText
from tenants.outbox import task_request
from tenants.platform.database.compiled import ANY_NODE, Compiled
from tenants.platform.database.look import ASKED_AT

logger = logging.getLogger(__name__)
# One of each name.
STEPS_MOST = len(get_args(wire.StepName))
_nodes_named = Compiled(lambda _, keys: Node.objects.filter(name__in=keys), keys="text")
_allocations_here = Compiled(
    lambda _, keys: Allocation.objects.filter(id__in=keys, gpu__node=ANY_NODE).only("id", "state", "saved_at")
)
_bookings_locked = Compiled(
    lambda _, keys: (
        Booking.objects.select_for_update()
        .filter(id__in=Booking.objects.filter(allocations__id__in=keys).values("id"))
        .order_by("id")
        .values_list("id")
    )
)


def message_apply(
    *, node_name: str, envelope: wire.Envelope, now: datetime, waited: timedelta = timedelta(0)
) -> str:
    """Applies one message of a node's stream, in which it `waited`; returns the outcome.

    One of: applied, stale (an old sequence number, or based on an old document), refused (not
    signed by this node's key, or not readable), unknown_node. Stale and refused messages change
    nothing; both are counted.
    """
    node = next(iter(_nodes_named(now, [node_name])), None)
    if node is None:
        return "unknown_node"
    try:
        valid = range(node.key_confirmed, node.key_version + 1)
        message = wire.open_report(envelope, {v: node_key(node, v) for v in valid})
        if isinstance(message, wire.Heartbeat | wire.Telemetry):
            return received_store([Received(node, message, envelope.key_version, waited)], now)[0]
        with transaction.atomic():
            _message(node, message, now)
            if envelope.key_version > node.key_confirmed:
                key_confirm(node, envelope.key_version)
    except _Stale as stale:
        return _dropped(node, stale)
    except (wire.WireError, DataError, IntegrityError) as error:
        # Values that no row can hold must not stop the messages of other nodes.
        logger.warning("A message of %s was refused: %s", node.name, error)
        Node.objects.filter(id=node.id).update(refused=F("refused") + 1)
        return "refused"
    return "applied"


class _Stale(Exception):
    """The message is not newer than what is known; nothing of it is written. `ahead` is a report
    on a document that the node has and the database lacks: the database was restored."""

    def __init__(self, ahead: wire.Report | None = None) -> None:
        super().__init__()
        self.ahead = ahead


def _dropped(node: Node, stale: _Stale) -> str:
    """Counts a stale message, and keeps that the node is ahead if it still is."""
    with transaction.atomic():
        locked = Node.objects.select_for_update(no_key=True).get(id=node.id)
        locked.stale_dropped += 1
        # The epoch may have been raised since the report was examined: it is read under the lock.
        if stale.ahead and follows_newer(stale.ahead, epoch_now(), locked.generation):
            if locked.ahead_epoch is None:
                restore_notify(node.name)
            locked.ahead_epoch = stale.ahead.epoch
        locked.save(update_fields=["stale_dropped", "ahead_epoch"])
    return "stale"


def _message(
    node: Node, message: wire.Report | wire.Inventory | wire.Examination | wire.Notebooks, now: datetime
) -> None:
    if isinstance(message, wire.Report):
        _report(node, message, now)
        return
    locked = Node.objects.select_for_update().get(id=node.id)
    if isinstance(message, wire.Inventory):
        # Agents that are too old to number their inventories are believed without.
        if message.seq or agent_supports(node, wire.LEASES_SINCE):
            if message.seq <= locked.inventory_seq:
                raise _Stale
            locked.inventory_seq = message.seq
        inventory_apply(node=locked, inventory=message, now=now)
    elif isinstance(message, wire.Notebooks):
        if not all(keep(locked, message, now) for keep in NODE_MESSAGES):
            raise _Stale
    elif not examination_apply(node=locked, examination=message, at=_moment(message.at, now), now=now):
        raise _Stale


def _report(node: Node, report: wire.Report, now: datetime) -> None:
    """Applies a report with its sequence number, all or nothing: a killed reader reads it again."""
    known = PortalState(epoch_now(), node.generation, node.report_seq)
    if is_stale(report, known):
        raise _Stale(ahead=report if is_ahead(report, known) else None)
    broken = errors_apply(node, report, now)
    own = _own_allocations(node, report, missing_gpus_apply(node, report, now))
    if own or broken:
        # Bookings are locked before nodes and in one order, as everywhere.
        _bookings_locked(now, [*own.values(), *broken])
        _broken_runs(broken, now)
    _devices_keep(node, report, now)
    ready = {own[item.id]: item.devices for item in report.allocations if _is_ready(item, own)}
    if ready:
        allocations_ready(ready, now)
        _steps_keep(report, own)
        _jobs_keep(report, own)
    enforcement_apply(node, report, now)
    for item in report.allocations:
        if item.id in own:
            unproven = item.state == "empty" and not is_proof(report, known)
            proven = dataclasses.replace(item, state="ending") if unproven else item
            _allocation(own[item.id], proven, now)
    modes_changed = modes_apply(node, report, now)
    ran_out = any(item.error == wire.LEASE_EXPIRED for item in report.allocations)
    follows = report.observed_generation == node.generation and not ran_out
    taken = Node.objects.filter(id=node.id, report_seq__lt=report.seq).update(
        report_seq=report.seq,
        observed_generation=report.observed_generation,
        last_seen=now,
        ahead_epoch=None,
        **({"partitioned": False} if follows else {}),
    )
    if not taken:
        raise _Stale
    trusted_again = node.ahead_epoch is not None or (node.partitioned and follows)
    if own or broken or modes_changed or trusted_again:
        # The unchanged reports that every node sends once a minute need no decision.
        task_request("allocation.cycle")


def _broken_runs(broken: Mapping[UUID, FleetText], now: datetime) -> None:
    """Starts bookings again whose run an error broke while the hardware stays in service."""
    if not broken:
        return
    rows = Allocation.objects.filter(id__in=broken).select_related("gpu__node").order_by("booking_id")
    for row in rows:
        gpu = row.gpu
        text = event_text("gpu_error", index=gpu.index, node=gpu.node.name, why=broken[row.id])
        run_interrupt(row.booking_id, Interruption("R62", text), now, gpu.node_id)


def _own_allocations(node: Node, report: wire.Report, excused: set[str]) -> dict[str, UUID]:
    """Allocations of the report that are on this node and for which it is news. `excused` ones
    failed with their hardware."""
    reported = {
        UUID(item.id): item
        for item in report.allocations
        if _is_uuid(item.id) and not (item.state == "failed" and item.id in excused)
    }
    if not reported:
        return {}
    return {
        row.id.hex: row.id
        for row in _allocations_here(ASKED_AT, reported, {ANY_NODE: node.id})
        if is_change(reported[row.id].state, row.state) or _is_saved_news(row, reported[row.id])
    }


def _is_ready(item: wire.ReportedAllocation, own: Mapping[str, UUID]) -> bool:
    return item.state == "ready" and item.id in own


def _devices_keep(node: Node, report: wire.Report, now: datetime) -> None:
    """Keeps what a node says of its devices besides their runs, and of the data of starts."""
    unbooked_use_apply(node, report, now)
    withheld_apply(node, report)
    said = [each for each in report.allocations if _has_begun(each) or each.state == "failed"]
    for keep in START_REPORTS if said else ():
        keep(node, said, now)


def _has_begun(item: wire.ReportedAllocation) -> bool:
    return bool(item.staging) or item.script is not None or _has_fetched(item)


def _has_fetched(item: wire.ReportedAllocation) -> bool:
    return any(step.name == "stage" for step in item.steps)


def _steps_keep(report: wire.Report, own: Mapping[str, UUID]) -> None:
    """Keeps what agents did until devices were ready, if traces will tell of it or data was fetched."""
    for item in report.allocations:
        is_kept = settings.TRACES_URL or _has_fetched(item)
        if is_kept and item.steps and _is_ready(item, own):
            steps = [[each.name, each.began, each.took] for each in item.steps[:STEPS_MOST]]
            Allocation.objects.filter(id=own[item.id]).update(agent_steps=steps)


def _jobs_keep(report: wire.Report, own: Mapping[str, UUID]) -> None:
    """Keeps the numbers of the jobs by which the node's engine holds devices, and where they run."""
    for item in report.allocations:
        if item.job is not None and _is_ready(item, own):
            Allocation.objects.filter(id=own[item.id]).update(job=item.job, host=item.host)


def _is_saved_news(row: Allocation, item: wire.ReportedAllocation) -> bool:
    if item.saved is None or row.state not in STARTED:
        return False
    return row.saved_at is None or row.saved_at.timestamp() < item.saved


def _is_uuid(text: str) -> bool:
    return len(text) == 32 and all(letter in "0123456789abcdef" for letter in text)


def _allocation(identifier: UUID, item: wire.ReportedAllocation, now: datetime) -> None:
    if item.saved is not None:
        allocation_saved(identifier, _moment(item.saved, now), now)
    if item.state == "empty":
        if item.suspended:
            allocation_suspended(identifier)
        run_disputed(identifier, "the device is empty", now)
        allocation_empty(identifier, now)
    if item.state == "failed":
        _failed(identifier, item, now)


def _failed(identifier: UUID, item: wire.ReportedAllocation, now: datetime) -> None:
    if item.error == wire.LEASE_EXPIRED and _is_leased(identifier):
        lease_expired(identifier, since=_moment(item.since, now), now=now)
        return
    error = item.error or "no reason given"
    if not run_disputed(identifier, error[:100], now):
        allocation_failed(identifier, error, now)


def _is_leased(identifier: UUID) -> bool:
    return Allocation.objects.filter(id=identifier, leased=True).exists()


def _moment(seconds: int, now: datetime) -> datetime:
    """A time by the node's clock, limited to the past."""
    return datetime.fromtimestamp(max(0, min(seconds, int(now.timestamp()))), UTC)
