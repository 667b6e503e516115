"""The drawing of a budget: texts and widths."""

from dataclasses import dataclass
from decimal import Decimal

from billing.queries import BudgetFigures
from billing.rules import money_text, period_text

HUNDRED = Decimal(100)


@dataclass(frozen=True, slots=True)
class Meter:
    """A bar of three parts in percent; `label` is its text alternative."""

    spent: Decimal
    held: Decimal
    label: str
    now: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class BudgetBar:
    """For `billing/parts/budget_figures.html`: money as text, widths in percent of the amount.

    `extra` is what a booking would add; `extra_percent` ends at the bar's end.
    """

    period: str
    amount: str
    spent: str
    held: str
    left: str
    extra: str
    left_after: str
    spent_percent: Decimal
    held_percent: Decimal
    extra_percent: Decimal
    warn_percent: int
    is_warning: bool
    fits: bool

    @property
    def meter(self) -> Meter:
        """The bar itself."""
        label = (
            f"Budget for {self.period}: {self.spent} spent, {self.held} held, {self.left} left"
            f" of {self.amount}"
        )
        return Meter(self.spent_percent, self.held_percent, label, self.extra_percent)


def budget_bar(effect: BudgetFigures, extra: Decimal = Decimal(0)) -> BudgetBar:
    """Returns the budget's drawing now and with `extra` more held."""

    def text(amount: Decimal) -> str:
        return money_text(amount, effect.currency)

    spent = _percent(effect.spent, effect.amount)
    held = min(_percent(effect.held, effect.amount), HUNDRED - spent)
    return BudgetBar(
        period=period_text(effect.period),
        amount=text(effect.amount),
        spent=text(effect.spent),
        held=text(effect.held),
        left=text(effect.left),
        extra=text(extra),
        left_after=text(effect.left - extra),
        spent_percent=spent,
        held_percent=held,
        extra_percent=min(_percent(extra, effect.amount), HUNDRED - spent - held),
        warn_percent=effect.warn_percent,
        is_warning=effect.is_warning,
        fits=extra <= effect.left,
    )


def _percent(part: Decimal, whole: Decimal) -> Decimal:
    share = part * HUNDRED / whole if whole else Decimal(0)
    return min(HUNDRED, share).quantize(Decimal("0.01"))
