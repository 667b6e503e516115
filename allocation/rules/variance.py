"""Why the spend of some days differs from what was expected: causes that add up to the difference.
Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from itertools import pairwise

ZERO = Decimal(0)
STEP = Decimal("0.000001")
CAUSES = ("plan", "volume", "class", "tier", "price", "fees", "corrections")
"""In the order of pages. `plan` is what the plan itself differs from usual spend."""

Cell = tuple[str, str]
"""A GPU class and a tier."""


@dataclass(frozen=True, slots=True)
class Metered:
    """Paid GPU-hours, and what was charged for them."""

    hours: Decimal
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Spend:
    """The charges of some days, by what was charged for."""

    cells: Mapping[Cell, Metered] = field(default_factory=dict)
    fees: Decimal = ZERO
    corrections: Decimal = ZERO

    @property
    def hours(self) -> Decimal:
        """The paid GPU-hours."""
        return sum((each.hours for each in self.cells.values()), ZERO)

    @property
    def total(self) -> Decimal:
        """All charges, with corrections."""
        metered = sum((each.amount for each in self.cells.values()), ZERO)
        return metered + self.fees + self.corrections

    def scaled(self, number: Decimal | int, of: Decimal | int) -> "Spend":
        """The spend of `number` days if this is that of `of` days, in the ledger's six places."""
        cells = {
            cell: Metered(_step(each.hours * number / of), _step(each.amount * number / of))
            for cell, each in self.cells.items()
        }
        fees, corrections = (_step(each * number / of) for each in (self.fees, self.corrections))
        return Spend(cells, fees, corrections)


def variance_parts(
    usual: Spend, actual: Spend, planned: Decimal | None = None
) -> dict[str, Decimal]:
    """The causes of the difference between the actual spend and the planned one, or the usual one
    without a plan. They add up to it, to the last digit.

    Hours change first, at the usual mean price; then the shares of the classes, at their usual
    prices; then those of the tiers in each class; and the rest is the price of an hour. A class or
    tier without usual spend has its actual price, so it is a cause by its share and not by price.
    """
    with localcontext(prec=60):
        steps = _steps(usual, actual)
    rounded = [_step(each) for each in steps]
    volume, classes, tiers, price = (after - before for before, after in pairwise(rounded))
    return {
        "plan": ZERO if planned is None else usual.total - planned,
        "volume": volume,
        "class": classes,
        "tier": tiers,
        "price": price,
        "fees": actual.fees - usual.fees,
        "corrections": actual.corrections - usual.corrections,
    }


def usual_price(usual: Spend, actual: Spend, cell: Cell) -> Decimal:
    """The usual price of a GPU-hour of the cell; the actual one if it has none."""
    return _price((usual.cells.get(cell), actual.cells.get(cell)))


def usual_share(spend: Spend, cell: Cell, *, of_class: bool) -> Decimal:
    """The cell's share of the hours of its class, or the share of its class of all hours."""
    mine = [each.hours for (name, _), each in spend.cells.items() if name == cell[0]]
    whole = sum(mine, ZERO)
    if of_class:
        one = spend.cells.get(cell)
        return one.hours / whole if one and whole else ZERO
    return whole / spend.hours if spend.hours else ZERO


def _steps(usual: Spend, actual: Spend) -> list[Decimal]:
    """The metered spend, changed from usual to actual one cause after the other."""
    before = sum((each.amount for each in usual.cells.values()), ZERO)
    after = sum((each.amount for each in actual.cells.values()), ZERO)
    mean = _price((_sum(usual.cells.values()), _sum(actual.cells.values())))
    by_class, by_tier = ZERO, ZERO
    for name in {cell[0] for cell in actual.cells}:
        own = {cell: each for cell, each in actual.cells.items() if cell[0] == name}
        was = _sum(each for cell, each in usual.cells.items() if cell[0] == name)
        now = _sum(own.values())
        by_class += now.hours * _price((was, now))
        by_tier += (
            sum((each.hours * usual_price(usual, actual, cell) for cell, each in own.items()), ZERO)
            if was.hours
            else now.hours * _price((was, now))
        )
    return [before, actual.hours * mean, by_class, by_tier, after]


def _price(places: Iterable[Metered | None]) -> Decimal:
    """The price of an hour in the first place that has hours; zero without any."""
    return next((each.amount / each.hours for each in places if each and each.hours), ZERO)


def _sum(rows: Iterable[Metered]) -> Metered:
    hours = amount = ZERO
    for each in rows:
        hours, amount = hours + each.hours, amount + each.amount
    return Metered(hours, amount)


def _step(amount: Decimal) -> Decimal:
    with localcontext(prec=60):
        return amount.quantize(STEP, rounding=ROUND_HALF_EVEN)
