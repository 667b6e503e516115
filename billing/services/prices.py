"""Writes price books: versions of all prices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal

from django.db import IntegrityError, transaction

from billing.models import Account, Price, PriceBook
from billing.peak_text import peak_hours_text
from billing.price_books import currency_latest, peak_prices_of, prices_of
from billing.rates import NO_PEAKS, PeakHours
from billing.words import refusal_text
from tenants.audit import audit_everywhere
from tenants.models import GpuClass, Tier
from tenants.platform.errors import Refused, invalid, text_within
from tenants.platform.text import CURRENCIES, FIRST_CURRENCY, currency_sentence

MAX_ADVANCE = timedelta(days=3653)
MOST = 1_000_000


Prices = Mapping[tuple[str, str], Decimal]


@dataclass(frozen=True, slots=True)
class Peaks:
    """The peak hours of a price book, and the prices of a GPU in them by (class, tier).

    What has no peak price costs the same at all times.
    """

    hours: PeakHours = NO_PEAKS
    prices: Prices = field(default_factory=dict)


SlicePrices = Mapping[tuple[str, str, str], tuple[Decimal, Decimal | None]]
"""The price of one slice for an hour, and that in peak hours (None: the same), by (class, tier,
profile). A profile that is not here costs by its units."""
NO_SLICES: SlicePrices = {}


NO_PEAK_PRICES = Peaks()
SetupFees = Mapping[str, Decimal]
"""What the first start of a booking costs, by tier. A tier that is not here has no such fee."""
NO_FEES: SetupFees = {}


def price_book_publish(  # noqa: PLR0913 (a version has exactly these facts)
    *,
    actor_id: int | None,
    valid_from: datetime,
    prices: Prices,
    peaks: Peaks = NO_PEAK_PRICES,
    slices: SlicePrices = NO_SLICES,
    setup: SetupFees = NO_FEES,
    note: str = "",
    currency: str = "",
    now: datetime,
) -> PriceBook:
    """Adds a version of all prices, by (class, tier), in force from `valid_from` on.

    Existing bookings keep their price. The first version decides the currency of the site. Writes to
    the platform's log and to every tenant's.

    Raises:
        Refused: `price_book_past`, `price_book_far`, `price_book_overlaps`, `price_missing`,
            `bad_amount`, `bad_peak_hours`, `bad_currency`, `price_book_raced`.
    """
    latest = price_book_check(
        valid_from=valid_from, prices=prices, peaks=peaks, slices=slices, setup=setup, now=now
    )
    book = PriceBook(
        version=latest.version + 1 if latest else 1,
        valid_from=valid_from,
        currency=_currency_checked(currency),
        note=text_within(note, 200, "note"),
        published_at=now,
        peak_zone=peaks.hours.zone,
        peak_weekly=[list(each) for each in peaks.hours.weekly],
        setup_fees={tier: f"{fee:.4f}" for tier, fee in sorted(setup.items()) if fee},
    )
    _version_insert(book)
    _prices_create(book, prices, peaks, slices)
    kept = prices_kept(prices, peaks, slices, setup)
    audit_everywhere(
        actor_id=actor_id,
        action="prices.published",
        target=("price_book", book.version),
        now=now,
        detail={
            "before": _kept_of(latest) if latest else {},
            "after": kept | {"valid_from": valid_from.isoformat(), "note": book.note},
        },
    )
    return book


def _currency_checked(currency: str) -> str:
    """The currency of a new version: that of the site, which its first version may choose."""
    latest = PriceBook.objects.order_by("-version").first()
    account = Account.objects.exclude(currency=currency or currency_latest()).first()
    kept = latest.currency if latest else account.currency if account else ""
    if kept and currency not in ("", kept):
        raise invalid("bad_currency", currency_sentence(kept), "currency")
    if currency and currency not in CURRENCIES:
        choices = ", ".join(CURRENCIES)
        raise invalid("bad_currency", refusal_text("currency_unknown", choices=choices), "currency")
    return currency or kept or FIRST_CURRENCY


def _version_insert(book: PriceBook) -> None:
    """Inserts the version unless another took its number at the same moment."""
    try:
        with transaction.atomic():
            book.save(force_insert=True)
    except IntegrityError as error:
        raise Refused(
            "price_book_raced",
            refusal_text("price_book_raced", version=book.version),
        ) from error


def _prices_create(book: PriceBook, prices: Prices, peaks: Peaks, slices: SlicePrices) -> None:
    Price.objects.bulk_create(
        Price(
            book=book,
            gpu_class_id=gpu_class,
            tier_id=tier,
            per_gpu_hour=price,
            peak_per_gpu_hour=peaks.prices.get((gpu_class, tier)),
        )
        for (gpu_class, tier), price in sorted(prices.items())
    )
    Price.objects.bulk_create(
        Price(
            book=book,
            gpu_class_id=gpu_class,
            tier_id=tier,
            profile=profile,
            per_gpu_hour=price,
            peak_per_gpu_hour=peak,
        )
        for (gpu_class, tier, profile), (price, peak) in sorted(slices.items())
    )


def _kept_of(book: PriceBook) -> dict[str, str]:
    """The prices of a version as the log keeps them."""
    peaks = Peaks(book.hours, peak_prices_of(book))
    return prices_kept(prices_of(book), peaks, slices_of(book), book.setups)


def price_book_check(
    *,
    valid_from: datetime,
    prices: Prices,
    peaks: Peaks = NO_PEAK_PRICES,
    slices: SlicePrices = NO_SLICES,
    setup: SetupFees = NO_FEES,
    now: datetime,
) -> PriceBook | None:
    """Validates a new version; returns the latest one. Raises as `price_book_publish`."""
    latest = PriceBook.objects.order_by("-version").first()
    _dates_checked(latest, valid_from, now)
    _prices_checked(prices)
    _peaks_checked(prices, peaks)
    _slices_checked(prices, peaks, slices)
    _setup_checked(prices, setup)
    return latest


def prices_kept(prices: Prices, peaks: Peaks, slices: SlicePrices, setup: SetupFees) -> dict[str, str]:
    """Prices by class and tier, for the log."""
    kept = {}
    for (gpu_class, tier), price in sorted(prices.items()):
        kept[f"{gpu_class} {tier}"] = f"{price:.4f}"
        if (peak := peaks.prices.get((gpu_class, tier))) is not None:
            kept[f"{gpu_class} {tier} in peak hours"] = f"{peak:.4f}"
    for (gpu_class, tier, profile), (price, peak) in sorted(slices.items()):
        kept[f"{gpu_class} {tier} {profile}"] = f"{price:.4f}"
        if peak is not None:
            kept[f"{gpu_class} {tier} {profile} in peak hours"] = f"{peak:.4f}"
    for tier, fee in sorted(setup.items()):
        kept[f"set-up in {tier}"] = f"{fee:.4f}"
    if peaks.hours.weekly:
        kept["peak hours"] = f"{peak_hours_text(peaks.hours)} ({peaks.hours.zone})"
    return kept


def slices_of(book: PriceBook | None) -> SlicePrices:
    """The prices of slices of a book."""
    rows = Price.objects.filter(book=book).exclude(profile="")
    return {
        (row.gpu_class_id, row.tier_id, row.profile): (row.per_gpu_hour, row.peak_per_gpu_hour)
        for row in rows
    }


def slices_kept() -> SlicePrices:
    """The prices of slices of the latest version."""
    return slices_of(PriceBook.objects.order_by("-version").first())


def peaks_kept() -> Peaks:
    """The peak hours and peak prices of the latest version."""
    latest = PriceBook.objects.order_by("-version").first()
    return Peaks(latest.hours, peak_prices_of(latest)) if latest else NO_PEAK_PRICES


def only_new_check(
    prices: Prices,
    peaks: Peaks = NO_PEAK_PRICES,
    slices: SlicePrices = NO_SLICES,
    setup: SetupFees = NO_FEES,
) -> None:
    """Raises Refused `draft_needed` if they change what the latest version says: that is written as
    a draft, which another operator publishes."""
    latest = PriceBook.objects.order_by("-version").first()
    if latest is None and slices:
        raise invalid("draft_needed", refusal_text("draft_for_slices"), "prices")
    if latest is None:
        return
    if any(setup.get(tier, 0) != fee for tier, fee in latest.setups.items()):
        raise invalid("draft_needed", refusal_text("draft_for_setup"), "setup_fees")
    old_peaks = peak_prices_of(latest)
    for key, price in sorted(prices_of(latest).items()):
        if prices.get(key) != price or peaks.prices.get(key) != old_peaks.get(key):
            raise invalid(
                "draft_needed",
                refusal_text("draft_for_price", gpu_class=key[0], tier=key[1]),
                price_param(*key),
            )
    if slices != slices_of(latest):
        raise invalid("draft_needed", refusal_text("draft_for_changed_slices"), "prices")
    if peaks.hours.weekly != latest.hours.weekly:
        raise invalid("draft_needed", refusal_text("draft_for_peaks"), "peak_hours")


def _dates_checked(latest: PriceBook | None, valid_from: datetime, now: datetime) -> None:
    if valid_from < now:
        raise invalid(
            "price_book_past",
            refusal_text("price_book_past"),
            "valid_from",
        )
    if valid_from > now + MAX_ADVANCE:
        raise invalid("price_book_far", refusal_text("price_book_far"), "valid_from")
    if latest is not None and valid_from <= latest.valid_from:
        raise invalid(
            "price_book_overlaps",
            refusal_text(
                "price_book_overlaps",
                version=latest.version,
                date=_day(latest.valid_from.date()),
                valid_from=f"{latest.valid_from:%H:%M}",
            ),
            "valid_from",
        )


def _prices_checked(prices: Prices) -> None:
    classes = set(GpuClass.objects.values_list("slug", flat=True))
    tiers = set(Tier.objects.values_list("slug", flat=True))
    wanted = {(gpu_class, tier) for gpu_class in classes for tier in tiers}
    for gpu_class, tier in sorted(wanted ^ prices.keys()):
        raise invalid(
            "price_missing",
            refusal_text("price_missing", gpu_class=gpu_class, tier=tier),
            price_param(gpu_class, tier),
        )
    for (gpu_class, tier), price in sorted(prices.items()):
        if not price.is_finite() or not 0 <= price < MOST:
            raise invalid(
                "bad_amount",
                refusal_text("bad_price"),
                price_param(gpu_class, tier),
            )


def _peaks_checked(prices: Prices, peaks: Peaks) -> None:
    if peaks.prices and not peaks.hours.weekly:
        raise invalid("bad_peak_hours", refusal_text("bad_peak_hours"), "peak_hours")
    for (gpu_class, tier), peak in sorted(peaks.prices.items()):
        price = prices.get((gpu_class, tier))
        if price is None or not peak.is_finite() or not price <= peak < MOST:
            raise invalid(
                "bad_amount",
                refusal_text("bad_peak_price"),
                price_param(gpu_class, tier, is_peak=True),
            )


def _slices_checked(prices: Prices, peaks: Peaks, slices: SlicePrices) -> None:
    for (gpu_class, tier, profile), (price, peak) in sorted(slices.items()):
        if (gpu_class, tier) not in prices or not profile:
            raise invalid(
                "price_missing",
                refusal_text("slice_price_unknown", gpu_class=gpu_class, tier=tier),
                "prices",
            )
        if not price.is_finite() or not 0 <= price < MOST:
            raise invalid(
                "bad_amount",
                refusal_text("bad_price"),
                price_param(gpu_class, tier, profile=profile),
            )
        param = price_param(gpu_class, tier, profile=profile, is_peak=True)
        if peak is not None and not (peak.is_finite() and price <= peak < MOST):
            raise invalid("bad_amount", refusal_text("bad_slice_peak"), param)
        if peak is not None and not peaks.hours.weekly:
            raise invalid("bad_peak_hours", refusal_text("bad_peak_hours"), param)


def _setup_checked(prices: Prices, setup: SetupFees) -> None:
    tiers = {tier for _, tier in prices}
    for tier, fee in sorted(setup.items()):
        if tier not in tiers:
            raise invalid("price_missing", refusal_text("setup_tier_unknown", tier=tier), setup_param(tier))
        if not fee.is_finite() or not 0 <= fee < MOST:
            raise invalid("bad_amount", refusal_text("bad_setup_fee"), setup_param(tier))


def setup_param(tier: str) -> str:
    """The name of a set-up fee's form field, also in refusals."""
    return f"setup-{tier}"


def price_param(gpu_class: str, tier: str, *, profile: str = "", is_peak: bool = False) -> str:
    """The name of a price's form field, also in refusals."""
    name = f"{'peak' if is_peak else 'price'}-{gpu_class}-{tier}"
    return f"{name}-{profile}" if profile else name


def _day(day: date) -> str:
    return f"{day.day} {day:%b %Y}"
