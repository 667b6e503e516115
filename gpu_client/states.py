"""States of bookings, and the exit status of the command for each."""

from gpu_client.api import Document
from gpu_client.problems import DONE, REFUSED, WAITING

HAS_PLACE = frozenset({"scheduled", "starting", "active", "pausing", "ending", "ended"})
OVER = frozenset({"ended", "refused", "rejected", "expired", "cancelled", "failed"})
NOT_STARTED = frozenset({"requested", "awaiting_approval", "waitlisted", "offered", "queued", "scheduled"})
ALL = HAS_PLACE | OVER | NOT_STARTED | {"paused"}


def decided_status(booking: Document) -> int:
    """Returns 0 with GPUs, 3 when the booking was refused or failed, 4 while it waits."""
    if booking["state"] in HAS_PLACE:
        return DONE
    return REFUSED if booking["state"] in OVER else WAITING
