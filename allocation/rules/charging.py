"""What a booking is charged for, in whole seconds, by the portal's own record alone. Pure.

A run is charged from when its devices were handed over until the portal told them to be cleared.
Not charged are: the grace of a pause for somebody else's claim, work that such a pause has to have
done again (the credit), and what failing hardware took. Nothing that a node says of its own clock
shortens a run. See docs/decisions/0033.
"""

from dataclasses import dataclass
from datetime import datetime

NO_SHOW_MIN_SECONDS = 600
"""Nobody is a no-show sooner than after ten minutes."""


@dataclass(frozen=True, slots=True)
class Run:
    """One stay on the devices, from `ready`. `noticed`: told to pause; `own`: for a claim of its
    own owner or organisation. `saved` is the last save; `broken`: its hardware failed after the
    notice."""

    ready: datetime
    noticed: datetime | None = None
    own: bool = False
    saved: datetime | None = None
    broken: bool = False

    def seconds(self, until: datetime) -> int:
        """Seconds that are charged of the run when it ends at `until`, before any credit."""
        if self.noticed is not None and (self.broken or not self.own):
            until = min(until, self.noticed)
        if self.broken:
            until = min(until, self.saved or self.ready)
        return _between(self.ready, until)


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """What earlier runs left. `uncharged`: seconds that were had and are charged at the end;
    `redo`: credited seconds not done again yet; `credited`: all seconds credited so far."""

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
    """Bills a run that was told to pause and left its devices at `out`, instead of at `ends`.

    The credit is work since the last save, at most `cap` over all pauses of the booking; none for a
    claim of its own people. A flexible booking gets the credited time back at its end, a fixed
    window can't. Failed hardware is credited whole, and its grace comes back.
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
    """Seconds charged when a booking ends with `run` charged seconds of its last run, or none.

    `rest` is the time that its owner gives up. Credited work that could have been done again in it
    is charged then: a credit is for work that is done again, and is used up once.
    """
    used = before.uncharged + run
    return max(used, min(before.redo, used + rest))


def no_show_after(length: int, limit: int) -> int:
    """Seconds without presence after which a booking of this length is a no-show: `limit`, at most
    a quarter of the length, at least ten minutes."""
    return max(NO_SHOW_MIN_SECONDS, min(limit, length // 4))


def no_show_fee(rest: int, share_percent: int) -> int:
    """Seconds charged of the time that nobody else could plan for."""
    return max(0, rest) * share_percent // 100


def _between(since: datetime, until: datetime) -> int:
    return max(0, int((until - since).total_seconds()))
