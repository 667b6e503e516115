"""Reads price books: versions of all prices."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from billing.models import Price, PriceBook
from billing.rates import NO_PEAKS, PeakHours, Rate
from billing.rules import cost_of
from tenants.platform.errors import Refused


@dataclass(frozen=True, slots=True)
class CurrentPrice:
    """A price of one GPU for an hour, with the version of its price book."""

    version: int
    currency: str
    per_gpu_hour: Decimal
    peak_per_gpu_hour: Decimal
    hours: PeakHours = NO_PEAKS

    def rate(self, units: int) -> Rate:
        """What a booking of so many units costs for an hour."""
        plain, peak = (
            cost_of(per_gpu_hour=price, units=units, seconds=3600)
            for price in (self.per_gpu_hour, self.peak_per_gpu_hour)
        )
        return Rate(plain, peak, self.hours)


def price_book_at(now: datetime) -> PriceBook | None:
    """The price book in force at `now`."""
    return PriceBook.objects.filter(valid_from__lte=now).order_by("-valid_from").first()


def price_book_after(now: datetime) -> PriceBook | None:
    """The next price book that is published and not in force yet."""
    return PriceBook.objects.filter(valid_from__gt=now).order_by("valid_from").first()


def prices_of(book: PriceBook) -> dict[tuple[str, str], Decimal]:
    """The prices of a book per GPU and hour, by (class, tier)."""
    rows = Price.objects.filter(book=book).values_list("gpu_class_id", "tier_id", "per_gpu_hour")
    return {(gpu_class, tier): price for gpu_class, tier, price in rows}


def peak_prices_of(book: PriceBook) -> dict[tuple[str, str], Decimal]:
    """The peak prices of a book per GPU and hour, by (class, tier), where there are any."""
    rows = Price.objects.filter(book=book, peak_per_gpu_hour__isnull=False)
    keys = rows.values_list("gpu_class_id", "tier_id", "peak_per_gpu_hour")
    return {(gpu_class, tier): price for gpu_class, tier, price in keys if price is not None}


def current_prices(now: datetime) -> dict[tuple[str, str], CurrentPrice]:
    """The prices in force, by (class, tier). Empty if none was ever published."""
    return PriceShelf.read(now).on(now)


@dataclass(frozen=True, slots=True)
class PriceShelf:
    """The price book in force at a time and the later ones that were published by then."""

    at: datetime
    books: tuple[tuple[datetime, dict[tuple[str, str], CurrentPrice]], ...]

    @classmethod
    def read(cls, at: datetime) -> "PriceShelf":
        """The books that are known at `at`."""
        in_force = PriceBook.objects.filter(valid_from__lte=at).order_by("-valid_from")
        known = PriceBook.objects.filter(
            Q(valid_from__lte=at) | Q(published_at__lte=at),
            valid_from__gte=Coalesce(Subquery(in_force.values("valid_from")[:1]), at),
        )
        books: dict[int, tuple[datetime, dict[tuple[str, str], CurrentPrice]]] = {
            book.version: (book.valid_from, {}) for book in known.order_by("valid_from")
        }
        for row in Price.objects.filter(book__in=list(books)).select_related("book"):
            books[row.book_id][1][row.gpu_class_id, row.tier_id] = _current(row.book, row)
        return cls(at, tuple(books.values()))

    def on(self, day: datetime) -> dict[tuple[str, str], CurrentPrice]:
        """The prices that count for a booking from `day` on, by (class, tier)."""
        in_force = [prices for since, prices in self.books if since <= max(day, self.at)]
        return in_force[-1] if in_force else {}

    def price(self, gpu_class: str, tier: str, day: datetime) -> CurrentPrice:
        """The price for a class in a tier.

        Raises:
            Refused: `no_price`.
        """
        found = self.on(day).get((gpu_class, tier))
        if found is None:
            raise _no_price(gpu_class, tier)
        return found


def price_at(*, version: int, gpu_class: str, tier: str) -> CurrentPrice:
    """The price in one version of the price book, in force or not.

    Raises:
        Refused: `no_price`.
    """
    return _price(Price.objects.filter(book=version), gpu_class, tier)


def _price(prices: QuerySet[Price], gpu_class: str, tier: str) -> CurrentPrice:
    for row in prices.filter(gpu_class=gpu_class, tier=tier).select_related("book"):
        return _current(row.book, row)
    raise _no_price(gpu_class, tier)


def _current(book: PriceBook, row: Price) -> CurrentPrice:
    peak = row.per_gpu_hour if row.peak_per_gpu_hour is None else row.peak_per_gpu_hour
    return CurrentPrice(book.version, book.currency, row.per_gpu_hour, peak, book.hours)


def _no_price(gpu_class: str, tier: str) -> Refused:
    return Refused(
        "no_price",
        f"{gpu_class} has no price in the tier {tier} now. The operator publishes prices.",
        rule="R32",
        owner="operator",
        numbers={"gpu_class": gpu_class, "tier": tier},
    )
