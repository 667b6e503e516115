"""Price books: versions of all prices. Everybody can read them, operators publish."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.models import PriceBook
from billing.peak_text import peak_hours_read, peak_hours_text
from billing.services import DraftTerms, Peaks, only_new_check, price_book_publish
from billing.words import refusal_text
from tenants.api.base import ApiView, list_response
from tenants.platform.errors import invalid, missing
from tenants.platform.rest.fields import Instant, Money, Strict, Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area


class PriceOut(Strict):
    """The price of one whole GPU for an hour, or of one slice. Slices whose profile has no price
    of its own cost their part of a GPU."""

    gpu_class = Text(max_length=40)
    tier = Text(max_length=40)
    profile = Text(
        max_length=40,
        required=False,
        allow_blank=True,
        default="",
        help_text="Of the slices of which one costs this. Empty: a whole GPU.",
    )
    per_gpu_hour = Money(max_digits=10, decimal_places=4)
    peak_per_gpu_hour = Money(
        max_digits=10,
        decimal_places=4,
        required=False,
        allow_null=True,
        default=None,
        help_text="In peak hours. Null or left out: the same at all times.",
    )


class PeakHoursOut(Strict):
    """Hours of the week with peak prices, by the clocks of `zone`."""

    zone = Text(max_length=64, help_text="Such as `Europe/Berlin`.")
    weekly = Text(max_length=400, allow_blank=True, help_text="`Mon-Fri 8-20, Sat 10-14`.")


class SetupFeeOut(Strict):
    """What the first start of a booking in a tier costs, besides its time."""

    tier = Text(max_length=40)
    amount = Money(max_digits=10, decimal_places=4)


class PriceBookOut(serializers.Serializer[Any]):
    """A version of all prices, in force until the date of the next one."""

    version = serializers.IntegerField()
    valid_from = serializers.DateTimeField()
    currency = serializers.CharField()
    note = serializers.CharField()
    peak_hours = PeakHoursOut(allow_null=True, help_text="Null: prices are the same at all times.")
    prices = PriceOut(many=True)
    setup_fees = SetupFeeOut(many=True, help_text="Tiers that are not named have none.")


class PriceBookNew(Strict):
    """A new version: one price for every class in every tier."""

    valid_from = Instant(required=False, help_text="From now on, when left out.")
    note = Text(required=False, allow_blank=True, max_length=200, default="")
    peak_hours = PeakHoursOut(required=False, allow_null=True, default=None)
    prices = PriceOut(many=True, allow_empty=False)
    setup_fees = SetupFeeOut(many=True, required=False, default=list)


class FirstPrices(PriceBookNew):
    """A new version, which is perhaps the first one."""

    currency = Text(
        required=False,
        max_length=3,
        default="",
        allow_blank=True,
        help_text="The first price book decides the currency of the site, such as `CHF`; without it EUR.",
    )


class PriceBooks(ApiView):
    """All versions, the latest first."""

    area = Area.MONEY
    queries = {"GET": PageQuery}

    @described(
        "list_price_books",
        "Price books, the latest first",
        answer=page(PriceBookOut),
        query=PageQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists versions with their prices, the latest first."""
        with self.tx():
            books, next_cursor = page_of(
                PriceBook.objects.prefetch_related("prices"),
                keys=("-version",),
                query=self.query,
                scope="price-books",
            )
            return list_response((book_shown(book) for book in books), next_cursor)

    @described(
        "create_price_book",
        "Publish the first prices, or those of what is new (operators)",
        answer=PriceBookOut,
        status=201,
        request=FirstPrices,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Publishes a version that changes no price. A change of prices is written as a draft,
        which another operator publishes: `POST /price-books/drafts`."""
        sent = self.sent(FirstPrices)
        terms = draft_terms(sent)

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                only_new_check(terms.prices, terms.peaks, terms.slices, terms.setup)
                book = price_book_publish(
                    actor_id=self.actor.user_id,
                    valid_from=terms.valid_from or self.now,
                    prices=terms.prices,
                    peaks=terms.peaks,
                    slices=terms.slices,
                    setup=terms.setup,
                    note=terms.note,
                    currency=sent["currency"],
                    now=self.now,
                )
                return Response(book_shown(book), status=201)

        return self.once(work)


class PriceBookOne(ApiView):
    """One version."""

    @described("get_price_book", "One price book", answer=PriceBookOut)
    def get(self, request: Request, version: int) -> Response:
        """Describes the version."""
        with self.tx():
            book = PriceBook.objects.filter(version=version).first()
            if book is None:
                raise missing("price book")
            return Response(book_shown(book))


def draft_terms(sent: Mapping[str, Any]) -> DraftTerms:
    """The terms of a sent `PriceBookNew`."""
    slices = {}
    for price in sent["prices"]:
        if price["profile"]:
            key = price["gpu_class"], price["tier"], price["profile"]
            if key in slices:
                raise invalid(
                    "price_repeated",
                    refusal_text("price_repeated", gpu_class=key[2], tier=key[1]),
                    "prices",
                )
            slices[key] = price["per_gpu_hour"], price["peak_per_gpu_hour"]
    return DraftTerms(
        prices=_by_class_and_tier(sent["prices"], "per_gpu_hour"),
        peaks=_peaks(sent),
        slices=slices,
        setup={each["tier"]: each["amount"] for each in sent["setup_fees"]},
        valid_from=sent.get("valid_from"),
        note=sent["note"],
    )


def _peaks(sent: Mapping[str, Any]) -> Peaks:
    hours = sent["peak_hours"] or {"zone": "UTC", "weekly": ""}
    prices = _by_class_and_tier(sent["prices"], "peak_per_gpu_hour")
    return Peaks(
        peak_hours_read(hours["weekly"], hours["zone"]),
        {key: price for key, price in prices.items() if price is not None},
    )


def _by_class_and_tier(prices: Iterable[Mapping[str, Any]], name: str) -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {}
    for price in prices:
        key = price["gpu_class"], price["tier"]
        if price["profile"]:
            continue
        if key in found:
            raise invalid(
                "price_repeated",
                refusal_text("price_repeated", gpu_class=key[0], tier=key[1]),
                "prices",
            )
        found[key] = price[name]
    return found


def book_shown(book: PriceBook) -> dict[str, Any]:
    """A price book as `PriceBookOut`."""
    prices = sorted(book.prices.all(), key=lambda price: (price.gpu_class_id, price.tier_id))
    head = {"version": book.version, "valid_from": book.valid_from, "currency": book.currency}
    content = content_shown(DraftTerms.of_rows(prices, book.hours, book.setups))
    return dict(PriceBookOut({**head, "note": book.note, **content}).data)


def content_shown(terms: DraftTerms) -> dict[str, Any]:
    """The fields `peak_hours` and `prices` of a price book or a draft."""
    hours = terms.peaks.hours
    return {
        "peak_hours": {"zone": hours.zone, "weekly": peak_hours_text(hours)} if hours.weekly else None,
        "setup_fees": [{"tier": tier, "amount": fee} for tier, fee in sorted(terms.setup.items()) if fee],
        "prices": [
            {
                "gpu_class": gpu_class,
                "tier": tier,
                "profile": "",
                "per_gpu_hour": price,
                "peak_per_gpu_hour": terms.peaks.prices.get((gpu_class, tier)),
            }
            for (gpu_class, tier), price in sorted(terms.prices.items())
        ]
        + [
            {
                "gpu_class": gpu_class,
                "tier": tier,
                "profile": profile,
                "per_gpu_hour": price,
                "peak_per_gpu_hour": peak,
            }
            for (gpu_class, tier, profile), (price, peak) in sorted(terms.slices.items())
        ],
    }
