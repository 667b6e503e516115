"""What stands in a turn's queue: whose start is a guess, who has none, what everybody asks for."""

from collections.abc import Iterator
from dataclasses import replace

from solver import Request, Waiting
from solver.reasons.catalogue import UNPROVEN
from tests.worlds.life import Turn


def is_unproven(request: Request) -> bool:
    """Whether its start is a guess, which nobody is shown."""
    return request.planned is not None and request.planned.strength is None


def is_proven(wait: Waiting) -> bool:
    """Whether the plan proves its start; else its places may be those that it has lost."""
    is_guess = any(reason.code in UNPROVEN for reason in wait.reasons[:1])
    at_risk = any(reason.code == "deadline_at_risk" for reason in wait.reasons)
    return bool(wait.places) and not (is_guess or at_risk)


def without_start(turn: Turn) -> Iterator[str]:
    """Bookings whose start nothing proves: they stand in the queue like those that are new, and
    whoever is behind them may be later when they get one (section 6 of the claims page)."""
    for wait in turn.plan.waits:
        if any(reason.code == "deadline_at_risk" for reason in wait.reasons):
            yield wait.booking


def requests_after(turn: Turn) -> Iterator[Request]:
    """What everybody asks for, after the changes that were granted."""
    granted = {each.booking for each in turn.plan.changes if each.granted}
    yield from (row for row in turn.site.requests if row.booking not in granted)
    for each in turn.site.changes:
        if each.booking in granted:
            yield replace(each.target, booking=each.booking)
