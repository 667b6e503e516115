"""Operators' orders to move running work, as stored and as the solver reads them."""

from datetime import datetime
from typing import Any

from allocation.models import CompactionOrder, Decision
from allocation.services.record.places import place_data, place_of
from allocation.words.reasons import sentence
from solver import Order, OrderAnswer, Relocation
from solver.cycle.compaction import Proposal


def orders_read() -> tuple[Order, ...]:
    """Unanswered orders as input of the solver."""
    return tuple(_order_of(row) for row in CompactionOrder.objects.filter(decided_at=None).order_by("id"))


def order_answer(carried: OrderAnswer, decision: Decision, now: datetime) -> bool:
    """Stores the decision's answer; False if the order has one already."""
    declined = " ".join(map(sentence, carried.reasons))[:300]
    waiting = CompactionOrder.objects.filter(id=carried.order, decided_at=None)
    return bool(waiting.update(decided_at=now, decision=decision, declined=declined))


def order_document(proposal: Proposal) -> dict[str, Any]:
    """The parts of a proposal that an order stores: GPUs and moves, without times."""
    return {
        "gpu_class": proposal.gpu_class,
        "places": [place_data(place) for place in proposal.places],
        "moves": [
            {
                "booking": move.booking,
                "source": place_data(move.source),
                "target": place_data(move.target),
            }
            for move in proposal.moves
        ],
    }


def _order_of(row: CompactionOrder) -> Order:
    document = row.document
    return Order(
        id=str(row.id),
        beneficiary=str(row.beneficiary_id),
        gpu_class=document["gpu_class"],
        places=tuple(place_of(place) for place in document["places"]),
        moves=tuple(
            Relocation(move["booking"], place_of(move["source"]), place_of(move["target"]))
            for move in document["moves"]
        ),
    )
