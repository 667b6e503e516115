"""The charged time of a booking in whole seconds, from the portal's own records only. Pure.

A run is charged from the hand-over of its devices until the portal orders their release. These are
not charged: the grace period of a pause for another organisation's booking, work that such a pause
makes necessary again (the credit), and time lost to failed hardware. A node's clock never shortens
a run. See docs/decisions/prices-and-charges.md.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise

from billing.rates import NO_PEAKS, PeakHours, Spell

NO_SHOW_MIN_SECONDS = 600
"""The shortest absence that counts as a no-show."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run on its devices since `ready`. `noticed`: time of a pause's notice; `own`: the preemptor
    belongs to the same owner or organisation; `saved`: the last save; `broken`: the hardware failed
    after the notice; `peaks`: the peak hours of its price."""

    ready: datetime
    noticed: datetime | None = None
    own: bool = False
    saved: datetime | None = None
    broken: bool = False
    peaks: PeakHours = NO_PEAKS

    def time(self, until: datetime) -> Spell:
        """The charged time of a run that ends at `until`, before any credit."""
        if self.noticed is not None and (self.broken or not self.own):
            until = min(until, self.noticed)
        if self.broken:
            until = min(until, self.saved or self.ready)
        return self.peaks.spell(self.ready, until)


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """The totals of earlier runs. `uncharged`: used time that is charged at the end; `redo`:
    credited seconds of work not yet repeated; `credited`: all credited seconds."""

    uncharged: Spell = field(default_factory=Spell)
    redo: int = 0
    credited: int = 0


@dataclass(frozen=True, slots=True)
class PauseBill:
    """The bill of a run that a pause ended, in seconds."""

    lost: int
    credit: Spell
    charged: Spell
    remaining: int
    redo: int
    credited: int


def pause_bill(
    run: Run, *, out: datetime, ends: datetime, before: EarlierRuns, cap: int, is_fixed: bool
) -> PauseBill:
    """Bills a run that a pause ended at `out` instead of `ends`.

    The credit is the work since the last save, at most `cap` over all pauses of the booking, and 0
    if the preemptor is the booking's own. A flexible booking gets the credited time back at its
    end; a fixed window does not. After a hardware failure all lost work is credited and the grace
    period is not charged. The credited time is the last before the notice.
    """
    noticed = run.noticed
    if noticed is None:
        raise ValueError("a run without a notice is not billed as a pause")
    saved = max(run.ready, min(run.saved or run.ready, noticed))
    lost = _between(saved, noticed)
    if run.broken:
        used, free, out = run.peaks.spell(run.ready, noticed), lost, noticed
    else:
        used, free = run.time(out), 0 if run.own else min(lost, max(0, cap - before.credited))
    credit = run.peaks.spell(noticed - timedelta(seconds=free), noticed)
    charged = before.uncharged + used - credit
    left = _between(out, ends)
    remaining = left if is_fixed else left + free
    counted = 0 if run.broken else free
    redo = max(0, before.redo - charged.seconds) + counted
    redo = min(redo, remaining) if is_fixed else redo
    return PauseBill(lost, credit, charged, remaining, redo, before.credited + counted)


def end_time(run: Spell, before: EarlierRuns, rest: int) -> Spell:
    """The time charged when a booking ends. `run` is the charged time of its last run.

    `rest` are the remaining seconds that the owner gives up. A credit pays for work that is
    repeated later. Credited work that could have been repeated in the rest, and was not, is charged
    now, as time outside of peak hours.
    """
    used = before.uncharged + run
    return used + Spell(max(0, min(before.redo, used.seconds + rest) - used.seconds))


def no_show_after(length: int, limit: int) -> int:
    """The seconds of absence after which a booking is a no-show: `limit`, but at most a quarter of
    the booking's length, and at least ten minutes."""
    return max(NO_SHOW_MIN_SECONDS, min(limit, length // 4))


def no_show_fee(rest: int, share_percent: int) -> int:
    """The charged seconds of a no-show's remaining time: others could not plan for it."""
    return max(0, rest) * share_percent // 100


@dataclass(frozen=True, slots=True)
class Granted:
    """GPUs that a booking has in [starts, ends); `kind` says which can stand for each other."""

    starts: datetime
    ends: datetime
    count: int
    kind: str = ""


def given_up(
    old: Granted, new: Granted | None, since: datetime, until: datetime
) -> list[tuple[datetime, datetime, Fraction]]:
    """Returns what a change from `old` to `new` gives up in [since, until).

    Each row is a stretch of time and the fraction of the old GPUs that are given up in it. Without
    `new`, or if it is of another kind, everything is given up.
    """
    kept = new if new is not None and new.kind == old.kind else None
    first, last = max(old.starts, since), min(old.ends, until)
    marks = {first, last}
    if kept is not None:
        marks |= {min(max(each, first), last) for each in (kept.starts, kept.ends)}
    found = []
    for begins, ends in pairwise(sorted(marks)):
        is_kept = kept is not None and kept.starts <= begins and ends <= kept.ends
        lost = old.count - (kept.count if kept is not None and is_kept else 0)
        if first < last and lost > 0:
            found.append((begins, ends, Fraction(lost, old.count)))
    return found


def _between(since: datetime, until: datetime) -> int:
    return max(0, int((until - since).total_seconds()))
