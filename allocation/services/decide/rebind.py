"""Rows that are written and have not begun get other places for the same time: late binding.

All that move leave first, then each comes in: so two may change places, and the database's
exclusion is never in the way. Nodes hear nothing of it: they are told of what starts.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from allocation.models import Allocation, Booking, Decision, Gpu
from allocation.rules.states import State
from allocation.services.decide.plan_diff import reason_data
from allocation.services.record.history import Event
from allocation.services.record.places import place_of_row
from allocation.services.runs.transition import booking_change
from allocation.services.snapshot.snapshot import instant
from allocation.solver import Move, Place


def moved_rows_supersede(booking: Booking, move: Move) -> bool:
    """Takes the locked booking's rows off the calendar; False: they are not what was planned."""
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
    """Writes into the booking, and into its history, where it lies now."""
    # Who keeps some of its places is told of the others.
    stays = set(move.source) & set(move.places)
    was, becomes = (
        _where((place for place in places if place not in stays), gpus)
        for places in (move.source, move.places)
    )
    where = f"from {was} to {becomes}" if was != becomes else f"to other slots of {was}"
    event = Event(
        "moved",
        f"Moved {where} before it starts, so that more fits. Its time stays the same.",
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
