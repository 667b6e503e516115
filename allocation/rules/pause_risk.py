"""The probability of a pause, estimated from similar past bookings.

The estimate starts from an assumed rate of one pause in twenty, to which past bookings are added.
If there are too few similar bookings, the criteria are relaxed until there are enough. With too few
of any, the risk is unknown: an assumption alone is no estimate.
"""

from collections.abc import Iterable
from dataclasses import dataclass

ASSUMED_PAUSED, ASSUMED_OF = 1, 20
ENOUGH = 20


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The number of past bookings of one kind, and how many of them were paused."""

    tier: str
    gpu_class: str
    borrowed: bool
    quarter: int
    ended: int
    paused: int


@dataclass(frozen=True, slots=True)
class Risk:
    """A probability in thousandths, from `paused` of `ended` similar bookings (`basis_words`).

    With `ended` 0 there were too few similar bookings: `thousandths` is None, unknown.
    """

    thousandths: int | None
    paused: int
    ended: int
    basis_words: str

    @property
    def weighed(self) -> int:
        """The risk, or else what is assumed, to compare options by; no page shows it."""
        return _thousandths(0, 0) if self.thousandths is None else self.thousandths

    @property
    def basis(self) -> str:
        """The bookings behind the estimate, to which it adds ASSUMED_PAUSED of ASSUMED_OF."""
        if not self.ended:
            return "too few past bookings to tell"
        return f"{self.paused} of {self.ended} similar bookings were paused: {self.basis_words}"


class PauseRecord:
    """The outcomes of the latest bookings."""

    def __init__(self, outcomes: Iterable[Outcomes]) -> None:
        self._outcomes = tuple(outcomes)

    def risk(self, tier: str, gpu_class: str, *, borrowed: bool, quarter: int) -> Risk:
        """The risk for a booking in a tier that can be paused. `quarter` is of the day, in UTC."""
        same = [row for row in self._outcomes if row.tier == tier and row.borrowed == borrowed]
        of_class = [row for row in same if row.gpu_class == gpu_class]
        of_hours = [row for row in of_class if row.quarter == quarter]
        what = "borrowed" if borrowed else "not borrowed"
        for rows, alike in (
            (of_hours, f"same tier, class and time of day, {what}"),
            (of_class, f"same tier and class, {what}"),
            (same, f"same tier, {what}"),
        ):
            ended, paused = (sum(getattr(row, name) for row in rows) for name in ("ended", "paused"))
            if ended >= ENOUGH:
                return Risk(_thousandths(paused, ended), paused, ended, alike)
        return Risk(None, 0, 0, "")


def _thousandths(paused: int, ended: int) -> int:
    return 1000 * (paused + ASSUMED_PAUSED) // (ended + ASSUMED_OF)
