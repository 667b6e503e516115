"""What agents say, turned into facts. Every message is verified, fenced and safe to see twice."""

import dataclasses
import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import DataError, IntegrityError, transaction
from django.db.models import F

from allocation import wire
from allocation.models import Allocation, Booking, Node
from allocation.rules.nodes.clocks import clock_is_wrong
from allocation.rules.nodes.fencing import (
    PortalState,
    follows_newer,
    is_ahead,
    is_change,
    is_proof,
    is_stale,
)
from allocation.rules.nodes.leases import TTL_SECONDS, lease_seconds
from allocation.services.nodes.examinations import examination_apply
from allocation.services.nodes.fleet import agent_supports, key_confirm, node_key
from allocation.services.nodes.gpu_modes import modes_apply
from allocation.services.nodes.health import errors_apply, missing_gpus_apply, unbooked_use_apply
from allocation.services.nodes.inventories import inventory_apply
from allocation.services.nodes.leases import OUTAGE_UNTIL, lease_note, leases_grant
from allocation.services.nodes.restore_fence import epoch_now, restore_notify
from allocation.services.nodes.telemetry import samples_store
from allocation.services.nodes.unbooked_use import enforcement_apply
from allocation.services.runs.end import (
    STARTED,
    allocation_empty,
    allocation_failed,
    allocation_saved,
    allocation_suspended,
)
from allocation.services.runs.interrupt import Interruption, run_interrupt
from allocation.services.runs.lost_runs import lease_expired, run_disputed
from allocation.services.runs.start import allocations_ready
from tenants.outbox import task_request

logger = logging.getLogger(__name__)

_MOST_SKEW = 2_000_000_000


def message_apply(
    *, node_name: str, envelope: wire.Envelope, now: datetime, waited: timedelta = timedelta(0)
) -> str:
    """Applies one message of a node's stream, in which it `waited` for us; returns what became of
    it.

    One of: applied, stale (an old sequence number, or of a word that is not our newest), refused
    (not signed by this node's key, or not readable), unknown_node. Nothing of a stale or refused
    one is believed; both are counted.
    """
    node = Node.objects.filter(name=node_name).first()
    if node is None:
        return "unknown_node"
    try:
        valid = range(node.key_confirmed, node.key_version + 1)
        message = wire.open_report(envelope, {v: node_key(node, v) for v in valid})
    except wire.WireError as error:
        return _refused(node, error)
    try:
        with transaction.atomic():
            seconds = _message(node, message, now, waited)
            if envelope.key_version > node.key_confirmed:
                key_confirm(node, envelope.key_version)
    except _Stale as stale:
        return _dropped(node, stale)
    except (DataError, IntegrityError) as error:
        # A node that says what no row can hold must not stop the others from being heard.
        return _refused(node, error)
    if isinstance(message, wire.Heartbeat):
        leases_grant([(node, message.seq, envelope.key_version)], seconds)
    return "applied"


class _Stale(Exception):
    """The message is not newer than what is known; nothing of it is written. `ahead` is the epoch
    of a word of ours that its node has and we do not: this database was restored."""

    def __init__(self, ahead: int | None = None) -> None:
        super().__init__()
        self.ahead = ahead


def _refused(node: Node, error: Exception) -> str:
    logger.warning("A message of %s was refused: %s", node.name, error)
    Node.objects.filter(id=node.id).update(refused=F("refused") + 1)
    return "refused"


def _dropped(node: Node, stale: _Stale) -> str:
    news = {} if stale.ahead is None else {"ahead_epoch": stale.ahead}
    if news and node.ahead_epoch is None:
        restore_notify(node.name)
    Node.objects.filter(id=node.id).update(stale_dropped=F("stale_dropped") + 1, **news)
    return "stale"


def _message(node: Node, message: wire.FromAgent, now: datetime, waited: timedelta) -> int:
    """Returns how long the lease is that answers a heartbeat."""
    match message:
        case wire.Report():
            _report(node, message, now)
        case wire.Heartbeat():
            return _heartbeat(node, message, now, waited)
        case wire.Telemetry():
            _numbered(node, "telemetry_seq", message.seq, now)
            samples_store([(node.id, message)], now)
        case wire.Inventory():
            _numbered(node, "inventory_seq", message.seq, now)
            locked = Node.objects.select_for_update().get(id=node.id)
            inventory_apply(node=locked, inventory=message, now=now)
        case wire.Examination():
            locked = Node.objects.select_for_update().get(id=node.id)
            at = _moment(message.at, now)
            if not examination_apply(node=locked, examination=message, at=at, now=now):
                raise _Stale
    return TTL_SECONDS


def _numbered(node: Node, field: str, seq: int, now: datetime) -> None:
    """Takes a message that is newer than any of its kind before. Agents that are too old to number
    them are believed without."""
    if seq == 0 and not agent_supports(node, wire.LEASES_SINCE):
        Node.objects.filter(id=node.id).update(last_seen=now)
        return
    newer = Node.objects.filter(id=node.id, **{f"{field}__lt": seq})
    if not newer.update(**{field: seq, "last_seen": now}):
        raise _Stale


def clock_skew_read(node: Node, heartbeat: wire.Heartbeat, arrived: datetime) -> tuple[int, bool]:
    """By how many seconds the node's clock is ahead, as a column holds it, and whether that is
    wrong. `arrived` is when the heartbeat was sent by our clock: we may read it much later."""
    skew = heartbeat.sent_at - int(arrived.timestamp())
    wrong = clock_is_wrong(skew=skew, before=node.clock_skew_seconds, was_wrong=node.clock_wrong)
    return max(-_MOST_SKEW, min(skew, _MOST_SKEW)), wrong


def clock_notify(node_name: str, skew: int, *, wrong: bool) -> None:
    """Says that a clock has become wrong or right: whoever decides places nothing on a node whose
    clock is wrong."""
    logger.warning("The clock of %s is %s: %d s", node_name, "wrong" if wrong else "right", skew)
    task_request("allocation.cycle")


def _heartbeat(node: Node, heartbeat: wire.Heartbeat, now: datetime, waited: timedelta) -> int:
    skew, wrong = clock_skew_read(node, heartbeat, now - waited)
    gone_on = follows_newer(heartbeat, epoch_now(), node.generation)
    taken = Node.objects.filter(id=node.id, heartbeat_seq__lt=heartbeat.seq).update(
        heartbeat_seq=heartbeat.seq,
        heartbeat_at=now - waited,
        last_seen=now,
        clock_skew_seconds=skew,
        clock_wrong=wrong,
        **({"ahead_epoch": heartbeat.epoch} if gone_on else {}),
    )
    if not taken:
        raise _Stale
    if gone_on and node.ahead_epoch is None:
        restore_notify(node.name)
    if wrong != node.clock_wrong:
        clock_notify(node.name, skew, wrong=wrong)
    # Locked by the update.
    noted = Node.objects.annotate(outage_until=OUTAGE_UNTIL).get(id=node.id)
    seconds = lease_seconds(noted.outage_until, now)
    lease_note(noted, heartbeat, seconds)
    noted.save(update_fields=["lease_said", "long_lease", "long_lease_seq"])
    return seconds


def _report(node: Node, report: wire.Report, now: datetime) -> None:
    """All of it or nothing, the number included: a reader that is killed reads it again."""
    known = PortalState(epoch_now(), node.generation, node.report_seq)
    if is_stale(report, known):
        raise _Stale(ahead=report.epoch if is_ahead(report, known) else None)
    broken = errors_apply(node, report, now)
    own = _own_allocations(node, report, missing_gpus_apply(node, report, now))
    if own or broken:
        # Bookings before nodes, and always in one order: so does everyone who locks both.
        bookings = Booking.objects.filter(allocations__id__in=[*own.values(), *broken]).values("id")
        locked = Booking.objects.select_for_update().filter(id__in=bookings).order_by("id")
        list(locked.values_list("id"))
        _broken_runs(broken, now)
    unbooked_use_apply(node, report, now)
    ready = {own[item.id]: item.devices for item in report.allocations if _is_ready(item, own)}
    if ready:
        allocations_ready(ready, now)
    enforcement_apply(node, report, now)
    for item in report.allocations:
        if item.id in own:
            unproven = item.state == "empty" and not is_proof(report, known)
            said = dataclasses.replace(item, state="ending") if unproven else item
            _allocation(own[item.id], said, now)
    modes_changed = modes_apply(node, report, now)
    ran_out = any(item.error == wire.LEASE_EXPIRED for item in report.allocations)
    hears = report.observed_generation == node.generation and not ran_out
    taken = Node.objects.filter(id=node.id, report_seq__lt=report.seq).update(
        report_seq=report.seq,
        observed_generation=report.observed_generation,
        last_seen=now,
        ahead_epoch=None,
        **({"cut_off": False} if hears else {}),
    )
    if not taken:
        raise _Stale
    trusted_again = node.ahead_epoch is not None or (node.cut_off and hears)
    if own or broken or modes_changed or trusted_again:
        # A node that says the same again, as each does once a minute, asks for no decision.
        task_request("allocation.cycle")


def _broken_runs(broken: Mapping[UUID, str], now: datetime) -> None:
    """Errors that broke single runs: those bookings start again, the hardware serves on."""
    rows = (
        Allocation.objects.filter(id__in=broken).select_related("gpu__node").order_by("booking_id")
    )
    for row in rows:
        where = f"GPU {row.gpu.index} of {row.gpu.node.name}"
        because = Interruption("R62", f"{where} had an error. {broken[row.id]}.")
        run_interrupt(row.booking_id, because, now, row.gpu.node_id)


def _own_allocations(node: Node, report: wire.Report, excused: set[str]) -> dict[str, UUID]:
    """Ids of the report that really lie on this node, an agent can't speak for another's, and to
    which its word is news. What is `excused` failed with its hardware."""
    said = {
        UUID(item.id): item
        for item in report.allocations
        if _is_uuid(item.id) and not (item.state == "failed" and item.id in excused)
    }
    if not said:
        return {}
    rows = Allocation.objects.filter(id__in=said, gpu__node=node)
    return {
        row.id.hex: row.id
        for row in rows.only("id", "state", "saved_at")
        if is_change(said[row.id].state, row.state) or _is_saved_news(row, said[row.id])
    }


def _is_ready(item: wire.ReportedAllocation, own: Mapping[str, UUID]) -> bool:
    return item.state == "ready" and item.id in own


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
    """A time of the node's clock, which may say anything."""
    return datetime.fromtimestamp(max(0, min(seconds, int(now.timestamp()))), UTC)
