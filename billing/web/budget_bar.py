"""The drawing of a budget: texts and widths."""

from dataclasses import dataclass
from decimal import Decimal

from billing.queries import BudgetFigures
from billing.rules import money_text, period_text

HUNDRED = Decimal(100)


@dataclass(frozen=True, slots=True)
class Meter:
    """A bar of three parts in percent; `now` is what a new booking would add. `label` is its text
    alternative."""

    spent: Decimal
    held: Decimal
    label: str
    now: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class BudgetBar:
    """A budget for `billing/parts/budget_figures.html`: money as text, widths in percent of the
    amount."""

    period: str
    amount: str
    spent: str
    held: str
    left: str
    spent_percent: Decimal
    held_percent: Decimal
    warn_percent: int
    is_warning: bool

    @property
    def meter(self) -> Meter:
        """The bar itself."""
        label = (
            f"Budget for {self.period}: {self.spent} spent, {self.held} held, {self.left} left"
            f" of {self.amount}"
        )
        return Meter(self.spent_percent, self.held_percent, label)


def budget_bar(effect: BudgetFigures) -> BudgetBar:
    """Returns the drawing of the budget."""

    shown = effect.in_cents

    def text(amount: Decimal) -> str:
        return money_text(amount, effect.currency)

    spent = _percent(effect.spent, effect.amount)
    held = min(_percent(effect.held, effect.amount), HUNDRED - spent)
    return BudgetBar(
        period=period_text(effect.period),
        amount=text(shown.amount),
        spent=text(shown.spent),
        held=text(shown.held),
        left=text(shown.left),
        spent_percent=spent,
        held_percent=held,
        warn_percent=effect.warn_percent,
        is_warning=effect.is_warning,
    )


def _percent(part: Decimal, whole: Decimal) -> Decimal:
    share = part * HUNDRED / whole if whole else Decimal(0)
    return min(HUNDRED, share).quantize(Decimal("0.01"))
