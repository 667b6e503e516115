"""Why running work gives way: what its owner and the owner of the claim read."""

from allocation.reasons.reason import Reason, reason


def makes_room(pauses: int, starts: int) -> Reason:
    """Why a start is where running work is."""
    return reason("makes_room", starts, pauses=pauses)


def pause_reason(code: str, tier: str, lost: int) -> Reason:
    """Why a running booking is paused, by which rule; `tier` is that of the claim.

    `lost` are GPU-seconds since its last save.
    """
    return reason(code, tier=tier, lost=lost)
