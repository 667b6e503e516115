"""How likely a pause is: counted from bookings like it that are over, with a stated assumption.

Where nothing has been seen one pause in twenty is assumed; every booking that is over counts
beside that. With too few alike, less has to be alike, until there are enough to count.
"""

from collections.abc import Iterable
from dataclasses import dataclass

ASSUMED_PAUSED, ASSUMED_OF = 1, 20
ENOUGH = 20


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How many bookings of one kind are over, and how many of them had been paused."""

    tier: str
    gpu_class: str
    borrowed: bool
    quarter: int
    ended: int
    paused: int


@dataclass(frozen=True, slots=True)
class Risk:
    """A chance in thousandths, and what was counted for it: `paused` of `ended` that are
    `basis_words`.

    With `ended` 0 too few like it were seen, and the chance is the assumption alone.
    """

    thousandths: int
    paused: int
    ended: int
    basis_words: str

    @property
    def basis(self) -> str:
        """In words."""
        if not self.ended:
            return f"fewer than {ENOUGH} like it are over, so one pause in {ASSUMED_OF} is assumed"
        return f"{self.paused} of {self.ended} like it were paused ({self.basis_words})"


class PauseRecord:
    """What has become of the latest bookings."""

    def __init__(self, outcomes: Iterable[Outcomes]) -> None:
        self._outcomes = tuple(outcomes)

    def risk(self, tier: str, gpu_class: str, *, borrowed: bool, quarter: int) -> Risk:
        """The chance for a booking of a tier that can be paused; `quarter` of the day, UTC."""
        same = [row for row in self._outcomes if row.tier == tier and row.borrowed == borrowed]
        of_class = [row for row in same if row.gpu_class == gpu_class]
        of_hours = [row for row in of_class if row.quarter == quarter]
        what = "borrowed" if borrowed else "not borrowed"
        for rows, alike in (
            (of_hours, f"same tier, class and time of day, {what}"),
            (of_class, f"same tier and class, {what}"),
            (same, f"same tier, {what}"),
        ):
            ended, paused = (
                sum(getattr(row, name) for row in rows) for name in ("ended", "paused")
            )
            if ended >= ENOUGH:
                return Risk(_thousandths(paused, ended), paused, ended, alike)
        return Risk(_thousandths(0, 0), 0, 0, "")


def _thousandths(paused: int, ended: int) -> int:
    return 1000 * (paused + ASSUMED_PAUSED) // (ended + ASSUMED_OF)
