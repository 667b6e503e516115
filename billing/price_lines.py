"""Price lines: the stretches of a booking's time that have different prices. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from billing.rules import UNITS_PER_GPU, cost_of, ledger_amount


@dataclass(frozen=True, slots=True)
class PriceLine:
    """A stretch of a booking's time and its price per hour. Stretches are charged in order; what is
    beyond the last one has its price, too."""

    seconds: int
    per_hour: Decimal


def line_cost(lines: Sequence[PriceLine], seconds: int) -> Decimal:
    """The cost of the first `seconds` of a booking."""
    total, rest = Decimal(0), seconds
    for at, line in enumerate(lines):
        taken = rest if at == len(lines) - 1 else min(rest, line.seconds)
        total += cost_of(per_gpu_hour=line.per_hour, units=UNITS_PER_GPU, seconds=taken)
        rest -= taken
    return total


def line_seconds(lines: Sequence[PriceLine], amount: Decimal) -> int:
    """The seconds of a booking that cost this amount, in whole ones: the inverse of `line_cost`."""
    total = 0
    for at, line in enumerate(lines):
        cost = cost_of(per_gpu_hour=line.per_hour, units=UNITS_PER_GPU, seconds=line.seconds)
        if at < len(lines) - 1 and cost <= amount:
            total, amount = total + line.seconds, amount - cost
            continue
        return total + (round(amount * 3600 / line.per_hour) if line.per_hour else 0)
    return total


def lines_from(lines: Sequence[PriceLine], seconds: int) -> tuple[PriceLine, ...]:
    """The lines after the first `seconds`, which are charged already."""
    found: list[PriceLine] = []
    for at, line in enumerate(lines):
        gone = seconds if at == len(lines) - 1 else min(seconds, line.seconds)
        seconds -= gone
        if line.seconds > gone or at == len(lines) - 1:
            found.append(replace(line, seconds=max(0, line.seconds - gone)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Size:
    """What of a booking costs money: its length in seconds and its quota units."""

    seconds: int
    units: int


def lines_after(
    lines: Sequence[PriceLine], old: Size, new: Size, per_gpu_hour: Decimal
) -> tuple[PriceLine, ...]:
    """The lines of a booking after a change of its size: the old part keeps its price, what is
    added has the price `per_gpu_hour`."""

    def price(line: PriceLine) -> Decimal:
        if new.units <= old.units:
            return ledger_amount(line.per_hour * new.units / old.units)
        more = _per_hour(per_gpu_hour, new.units - old.units)
        return line.per_hour + more

    kept = [PriceLine(line.seconds, price(line)) for line in _cut(lines, min(old.seconds, new.seconds))]
    if new.seconds > old.seconds:
        added = new.seconds - old.seconds
        kept.append(PriceLine(added, _per_hour(per_gpu_hour, new.units)))
    return _joined(kept)


def lines_cut(
    lines: Sequence[PriceLine], spent: int, granted: int, will: int, was: int
) -> tuple[PriceLine, ...]:
    """The lines of a run that has `will` of its `was` units after `spent` of its `granted` seconds:
    what is spent keeps its price."""
    rest = _cut(lines_from(lines, spent), max(0, granted - spent)) or [lines[-1]]
    less = [PriceLine(line.seconds, ledger_amount(line.per_hour * will / was)) for line in rest]
    return _joined([*_cut(lines, spent), *less])


def lines_read(stored: Sequence[Mapping[str, Any]]) -> tuple[PriceLine, ...]:
    """The lines of a stored list."""
    return tuple(PriceLine(each["seconds"], Decimal(each["per_hour"])) for each in stored)


def lines_data(lines: Sequence[PriceLine]) -> list[dict[str, Any]]:
    """The lines as JSON; none for a single one, which the booking's price says."""
    if len(lines) < 2:
        return []
    return [{"seconds": each.seconds, "per_hour": str(each.per_hour)} for each in lines]


def _per_hour(per_gpu_hour: Decimal, units: int) -> Decimal:
    return cost_of(per_gpu_hour=per_gpu_hour, units=units, seconds=3600)


def _cut(lines: Sequence[PriceLine], seconds: int) -> list[PriceLine]:
    """The lines of the first `seconds`, the last one exactly as long as what is left for it."""
    found: list[PriceLine] = []
    for at, line in enumerate(lines):
        taken = seconds if at == len(lines) - 1 else min(seconds, line.seconds)
        seconds -= taken
        if taken:
            found.append(PriceLine(taken, line.per_hour))
    return found


def _joined(lines: Sequence[PriceLine]) -> tuple[PriceLine, ...]:
    """The lines, neighbours of one price as one."""
    found: list[PriceLine] = []
    for line in lines:
        is_same = found and found[-1].per_hour == line.per_hour
        earlier = found.pop().seconds if is_same else 0
        found.append(PriceLine(earlier + line.seconds, line.per_hour))
    return tuple(found)
