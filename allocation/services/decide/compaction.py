"""Compaction: proposals to move running bookings, and the orders of operators."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from allocation.models import Booking, CompactionOrder, Gpu, PolicyVersion
from allocation.rules.ask.line.text import duration_text
from allocation.services.gc_paused import gc_paused
from allocation.services.policy.policies import policy_of
from allocation.services.record.refusals import refusal
from allocation.services.snapshot.compaction_orders import order_document
from allocation.services.snapshot.snapshot import snapshot_read
from allocation.words.refusals import refusal_text
from solver import Place, solve
from solver.cycle.compaction import Proposal, propose
from tenants.audit import audit_record, platform_record
from tenants.models import User
from tenants.outbox import task_request


@dataclass(frozen=True, slots=True)
class Move:
    """A running booking that would be paused and resumed elsewhere."""

    booking: Booking
    source: str
    target: str
    lost: str


@dataclass(frozen=True, slots=True)
class Compaction:
    """A proposal: `booking` could start after `notice`, `sooner` than planned.

    `lost` is the GPU time that has to be repeated; `proven`: no cheaper way exists on the GPUs that
    were searched. `key` identifies the proposal as long as its moves are the same.
    """

    key: str
    booking: Booking
    places: tuple[str, ...]
    notice: str
    sooner: str
    moves: tuple[Move, ...]
    lost: str
    proven: bool


def compaction_proposals(now: datetime) -> tuple[Compaction, ...]:
    """Returns the proposals, the best first; solves the whole fleet once.

    Inside `operator_tx`, because they name bookings of every tenant.
    """
    return _compactions(_proposals(now))


def compaction_order(*, operator: User, key: str, now: datetime) -> CompactionOrder:
    """Orders a proposal that still holds; the next decision carries it out, or says why not.

    Inside `operator_tx`. Each tenant whose booking moves or starts gets an audit entry.

    Raises:
        Refused: `order_stale`.
    """
    proposal = next((each for each in _proposals(now) if _key(each) == key), None)
    if proposal is None:
        raise refusal("order_stale", refusal_text("order_stale"), "conflict")
    order, is_new = CompactionOrder.objects.get_or_create(
        beneficiary_id=UUID(proposal.beneficiary),
        decided_at=None,
        defaults={
            "document": order_document(proposal),
            "created": now,
            "created_by": operator,
        },
    )
    if not is_new:
        # Two operators ordered it at once.
        return order
    moved = [move.booking for move in proposal.moves]
    after = {"for": order.beneficiary.label, "moves": len(moved), "document": order.document}
    platform_record(operator.id, "compaction.ordered", ("compaction_order", order.id), now, after=after)
    for booking in Booking.objects.filter(id__in=[proposal.beneficiary, *moved]).order_by("id"):
        audit_record(
            tenant_id=booking.tenant_id,
            actor_id=operator.id,
            action="compaction.order",
            target=("booking", booking.id),
            now=now,
            detail={"label": booking.label, "order": str(order.id)},
        )
    task_request("allocation.cycle")
    return order


def _key(proposal: Proposal) -> str:
    """Returns a key that is the same for the same moves, whatever their present cost."""
    document = json.dumps([proposal.beneficiary, order_document(proposal)], sort_keys=True)
    return hashlib.sha256(document.encode()).hexdigest()[:16]


def _proposals(now: datetime) -> tuple[Proposal, ...]:
    snapshot = snapshot_read(now)
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    with gc_paused():
        plan = solve(snapshot, policy)
        return propose(snapshot, plan, policy)


def _compactions(found: Sequence[Proposal]) -> tuple[Compaction, ...]:
    wanted = {each.beneficiary for each in found}
    wanted |= {move.booking for each in found for move in each.moves}
    rows = Booking.objects.filter(id__in=wanted).select_related("tenant", "tier")
    bookings = {str(row.id): row for row in rows}
    gpus = {str(gpu.id): gpu for gpu in Gpu.objects.select_related("node")}

    def spot(place: Place) -> str:
        gpu = gpus[place.gpu]
        shape = f", {place.profile} at slot {place.start}" if place.profile else ""
        return f"{gpu.node.name} GPU {gpu.index}{shape}"

    return tuple(
        Compaction(
            key=_key(each),
            booking=bookings[each.beneficiary],
            places=tuple(spot(place) for place in each.places),
            notice=duration_text(each.notice),
            sooner=duration_text(each.sooner),
            moves=tuple(
                Move(
                    bookings[move.booking],
                    spot(move.source),
                    spot(move.target),
                    duration_text(move.cost),
                )
                for move in each.moves
            ),
            lost=duration_text(each.cost),
            proven=each.proven,
        )
        for each in found
    )
