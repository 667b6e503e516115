"""Reads price books: versions of all prices."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal, localcontext
from typing import Self

from django.db.models import Subquery
from django.db.models.functions import Coalesce

from billing.models import Price, PriceBook
from billing.rates import NO_PEAKS, PeakHours, Rate
from billing.rules import UNITS_PER_GPU, cost_of
from billing.words import refusal_text
from tenants.platform.errors import Refused
from tenants.platform.reference import by_version
from tenants.platform.text import FIRST_CURRENCY


@dataclass(frozen=True, slots=True)
class CurrentPrice:
    """A price of one GPU for an hour, with the version of its price book."""

    version: int
    currency: str
    per_gpu_hour: Decimal
    peak_per_gpu_hour: Decimal
    hours: PeakHours = NO_PEAKS
    slices: Mapping[str, tuple[Decimal, Decimal]] = field(default_factory=dict)
    """The price of one slice for an hour, and that in peak hours, by profile."""
    setup: Decimal = Decimal(0)
    """What the first start of a booking costs."""

    def of(self, profile: str | None, count: int, units: int) -> Self:
        """The price for `count` slices of a profile, which have so many units together: per GPU,
        so that their units cost what the slices do. Itself where the profile has no price."""
        own = self.slices.get(profile or "")
        if own is None:
            return self
        # As many digits as `cost_of` has, so that an hour costs exactly the price of the slices.
        with localcontext(prec=60):
            plain, peak = (price * count * UNITS_PER_GPU / units for price in own)
        return replace(self, per_gpu_hour=plain, peak_per_gpu_hour=peak)

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


@by_version
def currency_latest() -> str:
    """Returns the currency of the site: the first price book decides it, and later ones have it, too."""
    latest = PriceBook.objects.order_by("-version").values_list("currency", flat=True)
    return latest.first() or FIRST_CURRENCY


def prices_of(book: PriceBook) -> dict[tuple[str, str], Decimal]:
    """The prices of a book per GPU and hour, by (class, tier)."""
    rows = Price.objects.filter(book=book, profile="").values_list("gpu_class_id", "tier_id", "per_gpu_hour")
    return {(gpu_class, tier): price for gpu_class, tier, price in rows}


def peak_prices_of(book: PriceBook) -> dict[tuple[str, str], Decimal]:
    """The peak prices of a book per GPU and hour, by (class, tier), where there are any."""
    rows = Price.objects.filter(book=book, profile="", peak_per_gpu_hour__isnull=False)
    keys = rows.values_list("gpu_class_id", "tier_id", "peak_per_gpu_hour")
    return {(gpu_class, tier): price for gpu_class, tier, price in keys if price is not None}


def current_prices(now: datetime) -> Mapping[tuple[str, str], CurrentPrice]:
    """The prices in force, by (class, tier). Empty if none was ever published."""
    return PriceShelf.read(now).on(now)


@dataclass(frozen=True, slots=True)
class _Book:
    """A price book: since when it is in force and known, and its prices by (class, tier)."""

    since: datetime
    published: datetime | None
    prices: Mapping[tuple[str, str], CurrentPrice]

    def is_known(self, at: datetime) -> bool:
        """Whether it counted, or was published, by then."""
        return self.since <= at or (self.published is not None and self.published <= at)


@by_version
def _books_read(day: date) -> tuple[_Book, ...]:
    """The book in force when the day begins, and all later ones, by the time from which they
    count."""
    midnight = datetime.combine(day, time(), UTC)
    in_force = PriceBook.objects.filter(valid_from__lte=midnight).order_by("-valid_from")
    rows = PriceBook.objects.filter(
        valid_from__gte=Coalesce(Subquery(in_force.values("valid_from")[:1]), midnight)
    )
    prices: dict[int, dict[tuple[str, str], CurrentPrice]] = {}
    books = list(rows.order_by("valid_from"))
    slices: dict[tuple[int, str, str], dict[str, tuple[Decimal, Decimal]]] = defaultdict(dict)
    # Those of slices come first.
    for row in Price.objects.filter(book__in=books).select_related("book").order_by("-profile"):
        mine = slices[row.book_id, row.gpu_class_id, row.tier_id]
        if row.profile:
            mine[row.profile] = _plain_and_peak(row)
            continue
        current = _current(row.book, row, mine)
        prices.setdefault(row.book_id, {})[row.gpu_class_id, row.tier_id] = current
    return tuple(_Book(book.valid_from, book.published_at, prices.get(book.version, {})) for book in books)


@dataclass(frozen=True, slots=True)
class PriceShelf:
    """The price book in force at a time and the later ones that were published by then."""

    at: datetime
    books: tuple[tuple[datetime, Mapping[tuple[str, str], CurrentPrice]], ...]

    @classmethod
    def read(cls, at: datetime) -> "PriceShelf":
        """The books that are known at `at`."""
        books = [book for book in _books_read(at.astimezone(UTC).date()) if book.is_known(at)]
        in_force = [book.since for book in books if book.since <= at]
        oldest = max(in_force, default=at)
        return cls(at, tuple((book.since, book.prices) for book in books if book.since >= oldest))

    def on(self, day: datetime) -> Mapping[tuple[str, str], CurrentPrice]:
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
    rows = Price.objects.filter(book=version, gpu_class=gpu_class, tier=tier)
    slices: dict[str, tuple[Decimal, Decimal]] = {}
    for row in rows.select_related("book").order_by("-profile"):
        if not row.profile:
            return _current(row.book, row, slices)
        slices[row.profile] = _plain_and_peak(row)
    raise _no_price(gpu_class, tier)


def _current(book: PriceBook, row: Price, slices: Mapping[str, tuple[Decimal, Decimal]]) -> CurrentPrice:
    plain, peak = _plain_and_peak(row)
    setup = book.setups.get(row.tier_id, Decimal(0))
    return CurrentPrice(book.version, book.currency, plain, peak, book.hours, slices, setup)


def _plain_and_peak(row: Price) -> tuple[Decimal, Decimal]:
    peak = row.per_gpu_hour if row.peak_per_gpu_hour is None else row.peak_per_gpu_hour
    return row.per_gpu_hour, peak


def _no_price(gpu_class: str, tier: str) -> Refused:
    return Refused(
        "no_price",
        refusal_text("no_price", gpu_class=gpu_class, tier=tier),
        rule="R32",
        owner="operator",
        numbers={"gpu_class": gpu_class, "tier": tier},
    )
