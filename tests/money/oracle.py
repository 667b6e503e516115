"""What a booking owes, counted minute by minute. Knows nothing of the product's arithmetic.

**Nobody gets GPU time for less than its price**: of the minutes in which the portal's record says
that a booking had its devices, each is paid but for

- the grace of a pause for somebody else's claim,
- what failing hardware took: the minutes since the last save, and the grace that was no use,
- minutes since the last save before a pause for somebody else's claim, at most `cap` of them in the
  whole life of the booking; who then gives the booking up pays them after all, except as far as
  minutes that he paid have come after them.

A minute in peak hours is paid at their price. Nobody pays more than was held, and a no-show pays a
share of the time left besides.
"""

from dataclasses import dataclass, field

PAID, GRACE, BROKEN = "paid", "grace", "broken"


@dataclass
class Oracle:
    """One booking's life. Times are whole minutes."""

    cap: int
    is_fixed: bool
    minutes: list[str] = field(default_factory=list)
    """Every minute that was had, in order."""
    credits: list[tuple[int, int]] = field(default_factory=list)
    """After how many minutes had, how many of them are not charged."""
    run: list[str] = field(default_factory=list)
    peaks: list[bool] = field(default_factory=list)
    """Which minutes of the run are in peak hours."""
    owed_peak: int = 0
    saved: int = 0
    noticed: int | None = None
    own: bool = False
    owed_again: int = 0

    def begin(self) -> None:
        """Devices are handed over."""
        self.run, self.saved, self.noticed, self.own = [], 0, None, False
        self.peaks = []

    def minute(self, *, is_peak: bool = False) -> None:
        """One more minute with the devices."""
        self.peaks.append(is_peak)
        is_free = self.noticed is not None and not self.own
        self.run.append(GRACE if is_free else PAID)

    def save(self) -> None:
        """All that was done is safe; in the grace it only says that nothing is lost."""
        self.saved = len(self.run)

    def notified(self, *, own: bool) -> None:
        """The notice of a pause."""
        self.noticed, self.own = len(self.run), own

    def untold(self) -> None:
        """The notice is taken back: the minutes since count like any."""
        self.noticed = None
        self.run = [PAID] * len(self.run)

    def paused(self) -> int:
        """The run is over by its pause; returns the minutes that are credited."""
        assert self.noticed is not None
        lost = max(0, self.noticed - self.saved)
        used_up = sum(count for _, count in self.credits)
        credit = 0 if self.own else min(lost, self.cap - used_up)
        self.over(credit)
        return credit

    def broke(self, *, is_pausing: bool = False) -> int:
        """Hardware failed; returns the minutes that are not charged."""
        until = self.noticed if is_pausing and self.noticed is not None else len(self.run)
        kept = min(self.saved, until)
        self.run = [PAID] * kept + [BROKEN] * (until - kept) + [GRACE] * (len(self.run) - until)
        self.over()
        return until - kept

    def over(self, credit: int = 0) -> None:
        """The run's minutes are counted; `credit` of those that would be paid are not."""
        paid = self.run.count(PAID) - credit
        self.minutes += self.run
        self.owed_peak += sum(
            is_peak
            for minute, is_peak in zip(self.run, self.peaks, strict=True)
            if minute == PAID and is_peak
        )
        # The credited minutes are those just before the notice.
        noticed = self.noticed or 0
        self.owed_peak -= sum(self.peaks[noticed - credit : noticed]) if credit else 0
        self.owed_again = max(0, self.owed_again - paid) + credit
        if credit:
            self.credits.append((len(self.minutes), credit))
        self.run, self.peaks = [], []

    def cut(self, remaining: int) -> None:
        """In a fixed window no more can be done again than there is time for."""
        if self.is_fixed:
            self.owed_again = min(self.owed_again, remaining)

    def owes(self, *, given_up: int = 0, fee: int = 0) -> int:
        """Minutes to pay when its owner gives up so many minutes, or a no-show a `fee` of them."""
        paid = self.minutes.count(PAID) - sum(count for _, count in self.credits)
        return paid + min(self.owed_again, given_up) + fee

    def least(self) -> int:
        """What nobody gets below, whatever happened: see the module."""
        free = self.minutes.count(GRACE) + self.minutes.count(BROKEN)
        return len(self.minutes) - free - min(self.cap, sum(count for _, count in self.credits))
