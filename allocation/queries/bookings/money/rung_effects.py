"""What a rung of a budget's ladder would stop, by its action."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from allocation.queries.bookings.restrained import restrained_now
from billing.models import Budget, Guardrail
from billing.queries import BudgetFigures, open_holds, would_have_stopped

Action = Guardrail.Action
OF_NEW_BOOKINGS = (Action.NO_BOOKINGS, Action.APPROVAL)


@dataclass(frozen=True, slots=True)
class RungEffect:
    """What a rung would do: numbers that its action does not touch are 0.

    `stopped` and `amount` are of bookings of the period that it would have refused, or asked an
    approval for, so far. The others count bookings of now.
    """

    share: Decimal
    acts: bool
    stopped: int = 0
    amount: Decimal = Decimal(0)
    first: datetime | None = None
    kept: int = 0
    held: Decimal = Decimal(0)
    paused: int = 0
    runs_on: int = 0
    gives_up: int = 0
    moved: int = 0


def rung_effect(
    budget: Budget, figures: BudgetFigures, rung: tuple[str, int, str], now: datetime
) -> RungEffect:
    """The effect of a rung (measure, percent, action) if it acted now."""
    measure, percent, action = rung
    share = figures.share_of(measure)
    acts = share >= percent
    if action in OF_NEW_BOOKINGS:
        stopped = would_have_stopped(budget, measure, percent)
        return RungEffect(share, acts, stopped.bookings, stopped.amount, stopped.first)
    if action == Action.NOTIFY:
        return RungEffect(share, acts)
    found = restrained_now(budget, now)
    if action == Action.NO_BORROWING:
        return RungEffect(share, acts, gives_up=found.borrowing)
    if action == Action.CHEAPER:
        return RungEffect(share, acts, moved=found.choosing)
    held = open_holds(budget).amount
    if action == Action.DRAIN:
        return RungEffect(share, acts, kept=found.waiting, held=held)
    return RungEffect(
        share, acts, kept=found.waiting, held=held, paused=found.pausable,
        runs_on=found.running - found.pausable,
    )  # fmt: skip
