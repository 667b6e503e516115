"""Rebinding: planned bookings get other GPUs for the same time.

All of them leave the calendar before the first one enters it again, so two may swap their GPUs.
Nodes are not involved before a booking starts.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from allocation.models import Allocation, Booking, Decision, Gpu
from allocation.rules.states import State
from allocation.services.record.history import Event
from allocation.services.record.places import place_of_row
from allocation.services.runs.transition import booking_change
from allocation.services.snapshot.snapshot import instant
from allocation.solver import Move, Place
from allocation.words.events import event_text
from allocation.words.reasons import reason_data


def moved_rows_supersede(booking: Booking, move: Move) -> bool:
    """Takes a locked booking's rows off the calendar; returns False if they are not as planned."""
    rows = booking.allocations.filter(state__in=Allocation.LIVE, abandoned=False)
    window = (instant(move.starts), instant(move.ends))
    there = {
        place_of_row(row)
        for row in rows
        if row.state == Allocation.State.PLANNED and (row.period.lower, row.period.upper) == window
    }
    if booking.state != State.SCHEDULED or there != set(move.source) or len(rows) != len(there):
        return False
    rows.update(state=Allocation.State.SUPERSEDED)
    return True


def move_record(
    booking: Booking, move: Move, gpus: Mapping[str, Gpu], decision: Decision, now: datetime
) -> None:
    """Records the new GPUs in the booking and its history."""
    # GPUs that the booking keeps are not mentioned.
    stays = set(move.source) & set(move.places)
    was, becomes = (
        _where((place for place in places if place not in stays), gpus)
        for places in (move.source, move.places)
    )
    text = event_text("rebound" if was != becomes else "rebound_slots", source=was, target=becomes)
    event = Event(
        "moved",
        text,
        detail={"decision": decision.id, "rule": move.reasons[0].rule},
    )
    reasons = [reason_data(reason) for reason in move.reasons]
    booking_change(booking, event=event, now=now, decision=decision, reasons=reasons)


def _where(places: Iterable[Place], gpus: Mapping[str, Gpu]) -> str:
    by_node: dict[str, set[int]] = {}
    for place in places:
        gpu = gpus[place.gpu]
        by_node.setdefault(gpu.node.name, set()).add(gpu.index)
    named = [
        f"GPU {', '.join(map(str, sorted(indexes)))} of {node}"
        for node, indexes in sorted(by_node.items())
    ]
    return " and ".join(named) if len(named) < 3 else f"{len(named)} nodes"
