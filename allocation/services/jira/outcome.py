"""What came of a message of Jira."""

from dataclasses import dataclass

from allocation.models import Booking


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a message, and the comment for its issue, if any."""

    state: str
    answer: str
    booking: Booking | None = None
    comment: str = ""
