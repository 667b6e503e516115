"""The charged time of a booking in whole seconds, from the portal's own records only. Pure.

A run is charged from the hand-over of its devices until the portal orders their release. These are
not charged: the grace period of a pause for another organisation's booking, work that such a pause
makes necessary again (the credit), and time lost to failed hardware. A node's clock never shortens
a run. See docs/decisions/0033.
"""

from dataclasses import dataclass
from datetime import datetime

NO_SHOW_MIN_SECONDS = 600
"""The shortest absence that counts as a no-show."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run on its devices since `ready`. `noticed`: time of a pause's notice; `own`: the preemptor
    belongs to the same owner or organisation; `saved`: the last save; `broken`: the hardware failed
    after the notice."""

    ready: datetime
    noticed: datetime | None = None
    own: bool = False
    saved: datetime | None = None
    broken: bool = False

    def seconds(self, until: datetime) -> int:
        """The charged seconds of a run that ends at `until`, before any credit."""
        if self.noticed is not None and (self.broken or not self.own):
            until = min(until, self.noticed)
        if self.broken:
            until = min(until, self.saved or self.ready)
        return _between(self.ready, until)


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """The totals of earlier runs. `uncharged`: used seconds that are charged at the end; `redo`:
    credited seconds of work not yet repeated; `credited`: all credited seconds."""

    uncharged: int = 0
    redo: int = 0
    credited: int = 0


@dataclass(frozen=True, slots=True)
class PauseBill:
    """The bill of a run that a pause ended, in seconds."""

    lost: int
    credit: int
    charged: int
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
    period is not charged.
    """
    noticed = run.noticed
    if noticed is None:
        raise ValueError("a run without a notice is not billed as a pause")
    saved = max(run.ready, min(run.saved or run.ready, noticed))
    lost = _between(saved, noticed)
    if run.broken:
        used, credit, out = before.uncharged + _between(run.ready, noticed), lost, noticed
    else:
        used = before.uncharged + run.seconds(out)
        credit = 0 if run.own else min(lost, max(0, cap - before.credited))
    charged = used - credit
    left = _between(out, ends)
    remaining = left if is_fixed else left + credit
    counted = 0 if run.broken else credit
    redo = max(0, before.redo - charged) + counted
    redo = min(redo, remaining) if is_fixed else redo
    return PauseBill(lost, credit, charged, remaining, redo, before.credited + counted)


def end_seconds(run: int, before: EarlierRuns, rest: int) -> int:
    """The seconds charged when a booking ends. `run` are the charged seconds of its last run.

    `rest` is the remaining time that the owner gives up. Credited work that could have been
    repeated in it is charged: a credit pays for repeated work, once.
    """
    used = before.uncharged + run
    return max(used, min(before.redo, used + rest))


def no_show_after(length: int, limit: int) -> int:
    """The seconds of absence after which a booking is a no-show: `limit`, but at most a quarter of
    the booking's length, and at least ten minutes."""
    return max(NO_SHOW_MIN_SECONDS, min(limit, length // 4))


def no_show_fee(rest: int, share_percent: int) -> int:
    """The charged seconds of a no-show's remaining time, which is too short-term for others."""
    return max(0, rest) * share_percent // 100


def _between(since: datetime, until: datetime) -> int:
    return max(0, int((until - since).total_seconds()))
