"""Prices of tests, as the owner of the database makes them: no worker publishes any."""

from typing import Any

from billing.models import Price, PriceBook
from billing.services import prices as services
from tests.roles import as_owner


def price_book_publish(**terms: Any) -> PriceBook:  # noqa: ANN401 (those of the service)
    """Publishes a price book as the service does."""
    with as_owner():
        return services.price_book_publish(**terms)


def price_add(**values: Any) -> Price:  # noqa: ANN401 (columns)
    """Adds a price to a book that is published."""
    with as_owner():
        return Price.objects.create(**values)


def price_book_add(**values: Any) -> PriceBook:  # noqa: ANN401 (columns)
    """Adds an empty book."""
    with as_owner():
        return PriceBook.objects.create(**values)
