"""Why running work gives way to a stronger claim: what its owner and the claim are told."""

from allocation.solver.model.plan import Reason
from allocation.solver.reasons.explain import reason

_PAUSED_BY = {
    "taken_back": "A stronger claim takes back what was borrowed.",
    "higher_tier": "A booking of a higher tier in your organisation needs the room.",
    "fairer_share": "A stronger claim needs the room: your organisation borrows more than it.",
}


def makes_room(pauses: int, starts: int) -> Reason:
    """Why a start is where running work is."""
    bookings = "1 paused booking has" if pauses == 1 else f"{pauses} paused bookings have"
    return reason("makes_room", f"It starts when {bookings} made room.", starts, pauses=pauses)


def pause_reason(code: str, tier: str, lost: int) -> Reason:
    """Why a running booking is paused, by which rule; `tier` is that of the stronger claim.

    `lost` are GPU-seconds since its last save.
    """
    minutes = -(-lost // 60)
    sentence = (
        f"{_PAUSED_BY[code]} What is paused for it loses the least: here {minutes:,} "
        f"GPU-minute{'s' if minutes != 1 else ''} since the last save."
    )
    return reason(code, sentence, tier=tier, lost=lost)
