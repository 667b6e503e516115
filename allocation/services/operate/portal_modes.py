"""Planned outages of the portal, and freezes of its decisions.

A planned outage first extends the leases of all nodes, so that work on leases survives it. Once the
agents have confirmed them, members' changes are refused and the portal may be stopped. During a
freeze nothing new starts, and nothing is paused or ended early; bookings still end on time.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.db import transaction

import wire
from allocation.models import Allocation, Node, PortalMode
from allocation.queries.fleet.portal_modes import mode_in_force
from allocation.rules.ask.words.numbers import length_of
from allocation.rules.nodes.leases import LONGEST_OUTAGE, MARGIN_SECONDS
from allocation.services.nodes.fleet import agent_supports
from allocation.services.nodes.leases import ON_LEASE
from allocation.services.record.site_events import mode_event
from allocation.words.fleet import fleet_text
from allocation.words.refusals import refusal_text
from tenants.audit import platform_record
from tenants.models import User
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid, text_within

logger = logging.getLogger(__name__)

SHORTEST_OUTAGE = timedelta(minutes=1)
LONGEST_FREEZE = timedelta(days=30)
OUTAGE, FREEZE = PortalMode.Kind.OUTAGE, PortalMode.Kind.FREEZE
WORDS = {OUTAGE.value: "planned outage", FREEZE.value: "freeze of decisions"}
# Heartbeats come every five seconds.
HEARTBEAT_WITHIN = timedelta(seconds=15)

LeaseState = Literal["confirmed", "waiting", "not_heard", "too_old", "cut_off"]


@dataclass(frozen=True, slots=True)
class NodeLease:
    """Whether the work of a node survives the planned outage. `holds_work`: it runs work on a
    lease."""

    node: str
    state: LeaseState
    holds_work: bool

    @property
    def means(self) -> str:
        """The state as a sentence."""
        return str(fleet_text(f"lease_{self.state}"))

    @property
    def is_safe(self) -> bool:
        """Whether the outage ends no work on the node."""
        return self.state == "confirmed" or not self.holds_work


def outage_begin(*, operator: User, length: timedelta, reason: str, now: datetime) -> PortalMode:
    """Announces an outage of the portal for `length` from now: each node's next heartbeat gets a
    lease until then. An outage that is already announced gets the new end.

    Raises:
        Refused: `outage_length`, `reason_needed`.
    """
    if not SHORTEST_OUTAGE <= length <= LONGEST_OUTAGE:
        raise invalid("outage_length", refusal_text("outage_length"), "for")
    return _begin(OUTAGE, operator, now + length, reason, now)


def outage_close(*, operator: User, now: datetime) -> PortalMode:
    """Refuses members' changes until the outage is over. Idempotent.

    Raises:
        Refused: `no_outage`.
    """
    with transaction.atomic():
        mode = _open_locked(OUTAGE, now)
        if mode.closed_at is None:
            before, mode.closed_at = _values(mode), now
            mode.save(update_fields=["closed_at"])
            _audit(mode, operator, "closed", now, before)
    return mode


def freeze_begin(
    *, operator: User, reason: str, now: datetime, length: timedelta | None = None
) -> PortalMode:
    """Freezes decisions for `length`, by default until an operator ends it.

    Raises:
        Refused: `freeze_length`, `reason_needed`.
    """
    if length is not None and not timedelta(0) < length <= LONGEST_FREEZE:
        raise invalid("freeze_length", refusal_text("freeze_length"), "for")
    return _begin(FREEZE, operator, now + length if length else None, reason, now)


def length_read(text: str) -> timedelta | None:
    """The duration in a text such as `20m` or `2h`; None for an empty one.

    Raises:
        Refused: `bad_duration`.
    """
    if not text.strip():
        return None
    seconds = length_of(text)
    if seconds is None or seconds > LONGEST_FREEZE.total_seconds():
        raise invalid("bad_duration", refusal_text("bad_duration"), "for")
    return timedelta(seconds=seconds)


def mode_end(*, kind: str, operator: User, now: datetime) -> PortalMode:
    """Ends a planned outage or a freeze now.

    Raises:
        Refused: `no_outage`, `no_freeze`.
    """
    with transaction.atomic():
        mode = _open_locked(PortalMode.Kind(kind), now)
        before, mode.ended_at = _values(mode), now
        mode.save(update_fields=["ended_at"])
        _audit(mode, operator, "ended", now, before)
    task_request("allocation.cycle")
    return mode


def leases_of_nodes(mode: PortalMode, now: datetime) -> list[NodeLease]:
    """The enrolled nodes by name, each with the state of its lease for the outage."""
    leased = set(Allocation.objects.filter(ON_LEASE).values_list("gpu__node_id", flat=True).distinct())
    nodes = Node.objects.filter(link_digest__isnull=False).order_by("name")
    return [NodeLease(n.name, _lease_state(n, mode, now), n.id in leased) for n in nodes]


def _lease_state(node: Node, mode: PortalMode, now: datetime) -> LeaseState:
    if node.partitioned:
        return "cut_off"
    if node.heartbeat_at is None or node.heartbeat_at < now - HEARTBEAT_WITHIN:
        return "not_heard"
    lasts = node.heartbeat_at + timedelta(seconds=node.reported_lease_seconds - MARGIN_SECONDS)
    if mode.until is not None and lasts >= mode.until:
        return "confirmed"
    return "waiting" if agent_supports(node, wire.LEASE_REPORTED_SINCE) else "too_old"


def _begin(
    kind: PortalMode.Kind, operator: User, until: datetime | None, reason: str, now: datetime
) -> PortalMode:
    reason = text_within(reason.strip(), 120, "reason")
    if not reason:
        raise invalid("reason_needed", refusal_text("mode_reason"), "reason")
    with transaction.atomic():
        # The lock on the open mode serialises concurrent calls.
        before = PortalMode.objects.select_for_update().filter(kind=kind, ended_at=None).first()
        if before is not None:
            before.ended_at = now if before.until is None else min(now, before.until)
            before.save(update_fields=["ended_at"])
        mode = PortalMode.objects.create(kind=kind, since=now, until=until, reason=reason, begun_by=operator)
        _audit(mode, operator, "begun", now, _values(before) if before else {})
    task_request("allocation.cycle")
    return mode


def _open_locked(kind: PortalMode.Kind, now: datetime) -> PortalMode:
    mode = mode_in_force(kind, now, locked=True)
    if mode is None:
        raise Refused(f"no_{kind}", refusal_text("no_mode", mode=WORDS[kind]))
    return mode


def _audit(mode: PortalMode, operator: User, what: str, now: datetime, before: dict[str, str | None]) -> None:
    platform_record(
        operator_id=operator.pk,
        action=f"{mode.kind}.{what}",
        target=("portal_mode", mode.id),
        now=now,
        before=before,
        after=_values(mode),
    )
    mode_event(what, mode, now)
    logger.warning("%s: %s %s (%s)", operator.username, WORDS[mode.kind], what, mode.reason)


def _values(mode: PortalMode) -> dict[str, str | None]:
    times = {"until": mode.until, "closed_at": mode.closed_at, "ended_at": mode.ended_at}
    return {
        "reason": mode.reason,
        **{name: at.isoformat() if at else None for name, at in times.items()},
    }
