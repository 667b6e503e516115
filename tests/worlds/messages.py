"""Messages about later starts, by the announced ranges of bookings."""

from datetime import UTC, datetime

from allocation.rules.start_range import start_range
from solver import Waiting
from tests.worlds.life import Turn

MOST_PER_BOOKING = 0.25
"""Messages about later starts that a booking may have on average."""
ON_TIME = 60
"""So many seconds after the announced range are still on time."""


class Messages:
    """The range that was announced for each booking, and the messages about later starts."""

    def __init__(self) -> None:
        self.later: dict[str, int] = {}
        self._announced: dict[str, tuple[int, int]] = {}

    def read(self, turn: Turn) -> None:
        """Announces what a plan says to all who wait."""
        for wait in turn.plan.waits:
            if wait.places:
                self._announce(wait, turn.site.now)

    def _announce(self, wait: Waiting, now: int) -> None:
        first, last = self._announced.get(wait.booking, (wait.starts + 1, wait.starts))
        if first <= wait.starts <= last or first <= last < wait.starts <= last + ON_TIME:
            return
        if first <= last < wait.starts:
            self.later[wait.booking] = self.later.get(wait.booking, 0) + 1
        found = start_range(_moment(wait.starts), _moment(now), (), is_expected=wait.strength == "expected")
        self._announced[wait.booking] = (wait.starts, int(found.latest.timestamp()))


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
