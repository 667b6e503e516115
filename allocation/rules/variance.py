"""Why the spend of some days differs from what was expected: causes that add up to the difference.
Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from itertools import pairwise

ZERO = Decimal(0)
HALF_CENT = Decimal("0.005")
STEP = Decimal("0.000001")
CAUSES = ("plan", "volume", "class", "tier", "price", "fees", "corrections")
"""In the order of pages. `plan` is what the plan itself differs from usual spend."""

Cell = tuple[str, str]
"""A GPU class and a tier."""


@dataclass(frozen=True, slots=True)
class Metered:
    """Paid hours of whole GPUs, a slice by its size, and what was charged for them."""

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


def variance_parts(usual: Spend, actual: Spend, planned: Decimal | None = None) -> dict[str, Decimal]:
    """The causes of the difference between the actual spend and the planned one, or the usual one
    without a plan. They add up to it, to the last digit. What is less than half a cent is no cause:
    it is a part of the largest one.

    Hours change first, at the usual mean price; then the shares of the classes, at their usual
    prices; then those of the tiers in each class; and the rest is the price of an hour. A class or
    tier without usual spend has its actual price, so it is a cause by its share and not by price.
    """
    steps = variance_steps(usual, actual)
    return _without_crumbs(
        {
            "plan": ZERO if planned is None else usual.total - planned,
            **steps,
            "fees": actual.fees - usual.fees,
            "corrections": actual.corrections - usual.corrections,
        }
    )


def variance_steps(usual: Spend, actual: Spend) -> dict[str, Decimal]:
    """What hours, classes, tiers and prices change of the metered spend, one after the other."""
    with localcontext(prec=60):
        rounded = [_step(each) for each in _steps(usual, actual)]
    differences = [after - before for before, after in pairwise(rounded)]
    return dict(zip(("volume", "class", "tier", "price"), differences, strict=True))


def _without_crumbs(parts: dict[str, Decimal]) -> dict[str, Decimal]:
    """The parts, with those that no page could show in cents added to the largest."""
    largest = max(parts, key=lambda name: abs(parts[name]))
    for name, amount in parts.items():
        if name != largest and abs(amount) < HALF_CENT:
            parts[largest] += amount
            parts[name] = ZERO
    return parts


def mean_prices(usual: Spend, actual: Spend) -> tuple[Decimal, Decimal]:
    """What an hour of the actual use costs on average: at the usual prices, and as charged."""
    if not actual.hours:
        return ZERO, ZERO
    at_usual = sum(
        (each.hours * usual_price(usual, actual, cell) for cell, each in actual.cells.items()), ZERO
    )
    return at_usual / actual.hours, _sum(actual.cells.values()).amount / actual.hours


def mix_change(usual: Spend, actual: Spend, *, of_class: bool) -> tuple[Cell, Decimal, Decimal]:
    """The cell whose share of the hours explains most of what the mix of classes costs, or that of
    the tiers of one class (`of_class`); its usual and its actual share."""

    def share(spend: Spend, cell: Cell) -> Decimal:
        return usual_share(spend, cell, of_class=of_class)

    def price(cell: Cell) -> Decimal:
        if of_class:
            return usual_price(usual, actual, cell)
        return _price(_sum(_of_class(each, cell[0])) for each in (usual, actual))

    def mean(cell: Cell) -> Decimal:
        return _price(
            _sum(_of_class(each, cell[0]) if of_class else each.cells.values()) for each in (usual, actual)
        )

    parts = variance_steps(usual, actual)
    sign = 1 if parts["tier" if of_class else "class"] >= 0 else -1
    cells = sorted({**usual.cells, **actual.cells})
    cell = max(
        cells,
        key=lambda each: (
            sign
            * (share(actual, each) - share(usual, each))
            * (price(each) - mean(each))
            * (_sum(_of_class(actual, each[0])).hours if of_class else 1)
        ),
    )
    return cell, share(usual, cell), share(actual, cell)


def _of_class(spend: Spend, name: str) -> Iterable[Metered]:
    return (each for cell, each in spend.cells.items() if cell[0] == name)


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
