"""The mix of own, reserved and burst GPUs for a load: what it costs, and which one costs least. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from billing.rules import ledger_amount

Loads = NDArray[np.float64]
OWN, RESERVED, BURST = "own", "reserved", "burst"
KINDS = (OWN, RESERVED, BURST)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a GPU-hour; None where one is not known.

    Own and reserved GPUs cost in every hour, burst GPUs in the hours in which they are used.
    """

    own: Decimal | None
    reserved: Decimal | None
    burst: Decimal | None
    currency: str

    def of(self, kind: str) -> Decimal | None:
        """The price of a kind."""
        return {OWN: self.own, RESERVED: self.reserved, BURST: self.burst}[kind]

    def break_even(self, kind: str) -> Decimal | None:
        """Percent of the hours in which a GPU of a kind is used when burst costs as much; above 100 it never
        pays. None where a price is not known or burst costs nothing."""
        mine = self.of(kind)
        return None if mine is None or not self.burst else (100 * mine / self.burst).quantize(Decimal("0.1"))


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a mix. `gpus` of burst are the most at once; `used` and `paid` are GPU-hours, and `share` is
    percent of the load."""

    kind: str
    gpus: int
    used: Decimal
    share: Decimal
    paid: Decimal
    cost: Decimal | None


@dataclass(frozen=True, slots=True)
class Mix:
    """A number of own and of reserved GPUs; what exceeds them bursts."""

    name: str
    parts: tuple[Part, ...]

    @property
    def cost(self) -> Decimal | None:
        """The cost of all parts; None where a part with GPUs has no price."""
        costs = [part.cost for part in self.parts]
        return None if None in costs else sum((each for each in costs if each is not None), Decimal(0))

    def gpus(self, kind: str) -> int:
        """The GPUs of a kind."""
        return next(part.gpus for part in self.parts if part.kind == kind)


def mix_made(name: str, load: Loads, own: int, reserved: int, prices: Prices) -> Mix:
    """What so many own and reserved GPUs do for a load, which is GPUs by hour."""
    on_own = np.minimum(load, own)
    on_reserved = np.clip(load - own, 0, reserved)
    on_burst = np.clip(load - own - reserved, 0, None)
    most = int(np.ceil(on_burst.max())) if len(load) else 0
    used = [_hours(float(each.sum())) for each in (on_own, on_reserved, on_burst)]
    paid = [_hours(own * len(load)), _hours(reserved * len(load)), used[2]]
    parts = []
    for kind, gpus, hours, bought in zip(KINDS, (own, reserved, most), used, paid, strict=True):
        price = prices.of(kind) if gpus else Decimal(0)
        cost = None if price is None else ledger_amount(bought * price)
        share = (100 * hours / max(sum(used), Decimal("0.001"))).quantize(Decimal("0.1"))
        parts.append(Part(kind, gpus, hours, share, bought, cost))
    return Mix(name, tuple(parts))


def _hours(value: float) -> Decimal:
    return Decimal(str(round(value, 3)))


def hours_by_level(load: Loads) -> Sequence[float]:
    """For the first GPU, the second and so on: the hours in which the load needs it."""
    most = int(np.ceil(load.max())) if len(load) else 0
    return [float(np.clip(load - level, 0, 1).sum()) for level in range(most)]


def cheapest(load: Loads, own_most: int, prices: Prices) -> tuple[int, int] | None:
    """The own and reserved GPUs of the mix that costs least, with at most so many own ones; None where a
    price is not known. Of equal ones, own GPUs go before burst, and burst before reserved ones."""
    if prices.own is None or prices.reserved is None or prices.burst is None:
        return None
    by_level = [Decimal(str(round(each, 6))) for each in hours_by_level(load)]
    own_cost, reserved_cost = prices.own * len(load), prices.reserved * len(load)
    own = 0
    if own_cost <= reserved_cost:
        own = sum(own_cost <= prices.burst * used for used in by_level[:own_most])
    reserved = sum(reserved_cost < prices.burst * used for used in by_level[own:])
    return own, reserved
