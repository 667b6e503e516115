"""Rules of rented machines: paid periods, what a machine costs, and which offer is taken. Pure."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from billing.rules import ledger_amount

HOUR = Decimal(3600)
# A machine that is not needed any more is given back so long before its next paid period begins.
GIVE_BACK_BEFORE = timedelta(seconds=90)
# A machine is late after twice its lead time and this.
LATE_AFTER = timedelta(minutes=5)
MOST_GPUS = 64


@dataclass(frozen=True, slots=True)
class Offer:
    """A kind of machine of a provider. `price` is of the machine in an hour.

    It is paid for `least_seconds`, then for each begun `period_seconds`. `reserved_price` is what its
    provider asks in an hour if it is kept for months, which only the mix of GPUs reckons with.
    """

    provider: str
    name: str
    gpu_class: str
    gpus: int
    price: Decimal
    currency: str
    lead_seconds: int
    least_seconds: int
    period_seconds: int
    zone: str
    interruptible: bool
    size: str
    reserved_price: Decimal | None = None

    @property
    def lead(self) -> timedelta:
        """The usual time from the request to a machine that takes work."""
        return timedelta(seconds=self.lead_seconds)

    @property
    def per_gpu_hour(self) -> Decimal:
        """What a GPU of it costs in an hour."""
        return (self.price / self.gpus).quantize(Decimal("0.0001"))

    @property
    def reserved_per_gpu_hour(self) -> Decimal:
        """What a GPU of it costs in an hour if it is kept for months; without a price of its own as else."""
        price = self.price if self.reserved_price is None else self.reserved_price
        return (price / self.gpus).quantize(Decimal("0.0001"))

    def machines_for(self, gpus: int) -> int:
        """How many machines have so many GPUs."""
        return -(-gpus // self.gpus)

    def paid_seconds(self, seconds: float) -> int:
        """The seconds that are paid for a machine that is kept so long."""
        return paid_seconds(seconds, self.least_seconds, self.period_seconds)

    def cost(self, seconds: float) -> Decimal:
        """What one machine costs that is kept so long."""
        return cost_of(self.price, self.paid_seconds(seconds))


def paid_seconds(seconds: float, least: int, period: int) -> int:
    """The least time, and each begun period after it."""
    return least + max(0, math.ceil((seconds - least) / period)) * period


def cost_of(price: Decimal, seconds: int) -> Decimal:
    """The price of so many seconds."""
    return ledger_amount(price * seconds / HOUR)


def late_after(requested: datetime, lead_seconds: int) -> datetime:
    """When a machine that has not come is late."""
    return requested + 2 * timedelta(seconds=lead_seconds) + LATE_AFTER


def best_offer(
    offers: Iterable[Offer], gpu_class: str, gpus: int, seconds: float, *, per_machine: int = 1
) -> Offer | None:
    """The offer with the least cost for so many GPUs of a class; of equal ones the soonest.

    `per_machine`: a machine has at least so many GPUs, because GPUs of a booking share one.
    """
    fitting = [each for each in offers if each.gpu_class == gpu_class and each.gpus >= per_machine]
    return min(
        fitting,
        key=lambda each: (
            each.cost(seconds) * each.machines_for(gpus),
            each.lead_seconds,
            each.provider,
            each.name,
        ),
        default=None,
    )
