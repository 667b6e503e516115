"""Price books: versions of all prices. Everybody can read them, operators publish."""

from collections.abc import Iterable
from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.models import PriceBook
from billing.services import price_book_publish
from tenants.api.base import ApiView, list_response
from tenants.platform.errors import invalid, missing
from tenants.platform.fields import Instant, Money, Strict, Text
from tenants.platform.pagination import PageQuery, page_of
from tenants.platform.schema import described, page
from tenants.platform.wall import operator_tx


class PriceOut(Strict):
    """The price of one whole GPU for an hour; slices cost their part of it."""

    gpu_class = Text(max_length=40)
    tier = Text(max_length=40)
    per_gpu_hour = Money(max_digits=10, decimal_places=4)


class PriceBookOut(serializers.Serializer[Any]):
    """A version of all prices, in force until the date of the next one."""

    version = serializers.IntegerField()
    valid_from = serializers.DateTimeField()
    currency = serializers.CharField()
    note = serializers.CharField()
    prices = PriceOut(many=True)


class PriceBookNew(Strict):
    """A new version: one price for every class in every tier."""

    valid_from = Instant(required=False, help_text="From now on, when left out.")
    note = Text(required=False, allow_blank=True, max_length=200, default="")
    prices = PriceOut(many=True, allow_empty=False)


class PriceBooks(ApiView):
    """All versions, the latest first."""

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
            return list_response((_shown(book) for book in books), next_cursor)

    @described(
        "create_price_book",
        "Publish a version of all prices (operators)",
        answer=PriceBookOut,
        status=201,
        request=PriceBookNew,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Publishes a version."""
        sent = self.sent(PriceBookNew)

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                book = price_book_publish(
                    actor_id=self.actor.user_id,
                    valid_from=sent.get("valid_from", self.now),
                    prices=_by_class_and_tier(sent["prices"]),
                    note=sent["note"],
                    now=self.now,
                )
                return Response(_shown(book), status=201)

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
            return Response(_shown(book))


def _by_class_and_tier(prices: Iterable[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {}
    for price in prices:
        key = price["gpu_class"], price["tier"]
        if key in found:
            raise invalid("price_repeated", f"{key[0]} in {key[1]} has two prices.", "prices")
        found[key] = price["per_gpu_hour"]
    return found


def _shown(book: PriceBook) -> dict[str, Any]:
    prices = sorted(book.prices.all(), key=lambda price: (price.gpu_class_id, price.tier_id))
    shown = PriceBookOut(
        {
            "version": book.version,
            "valid_from": book.valid_from,
            "currency": book.currency,
            "note": book.note,
            "prices": [
                {
                    "gpu_class": price.gpu_class_id,
                    "tier": price.tier_id,
                    "per_gpu_hour": price.per_gpu_hour,
                }
                for price in prices
            ],
        }
    )
    return dict(shown.data)
