"""The price that a quote showed holds for five minutes, whatever is published meanwhile."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from allocation.services.bookings.price_lock import price_lock, price_lock_read
from billing.models import PriceBook
from tenants.platform.errors import Refused
from tests.api.builders import Site, said
from tests.prices import price_add, price_book_add
from tests.roles import as_system

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
LINE = {"project": "folding", "tier": "standard", "request": "1 h100 for 1h"}


def dearer_since(moment: datetime) -> None:
    """As the clock does when a published version comes into force between quote and click."""
    with as_system():
        now = PriceBook.objects.get()
        later = price_book_add(version=2, valid_from=moment, currency=now.currency)
        for price in now.prices.all():
            price_add(
                book=later,
                gpu_class=price.gpu_class,
                tier=price.tier,
                per_gpu_hour=price.per_gpu_hour * 2,
            )


def test_a_booking_with_its_quote_pays_the_price_that_was_shown(site: Site) -> None:
    now = datetime.now(UTC)
    quote = said(site.researcher.post("quotes", LINE))
    shown = Decimal(quote["options"][0]["price"])
    assert abs(price_lock_read(quote["quote"], datetime.now(UTC)) - now) < timedelta(seconds=10)
    dearer_since(now - timedelta(seconds=20))
    lock = price_lock(now - timedelta(seconds=40))
    kept = said(site.researcher.post("bookings", LINE | {"quote": lock}))
    new = said(site.researcher.post("bookings", LINE))
    assert Decimal(kept["price"]["held"]) == shown
    assert Decimal(new["price"]["held"]) == 2 * shown


@pytest.mark.parametrize("quote", ["", "nonsense", "MTc2:abc:def"])
def test_a_quote_that_was_not_given_here_books_nothing(site: Site, quote: str) -> None:
    answer = site.researcher.post("bookings", LINE | {"quote": quote})
    assert answer.status_code in (409, 422)
    assert said(answer)["code"] in ("quote_expired", "empty")


def test_a_lock_holds_for_five_minutes_and_not_longer() -> None:
    lock = price_lock(NOW)
    assert price_lock_read(lock, NOW + timedelta(minutes=5)) == NOW
    with pytest.raises(Refused, match="quote_expired"):
        price_lock_read(lock, NOW + timedelta(minutes=5, seconds=1))


def test_a_lock_from_the_future_or_changed_by_one_letter_is_worthless() -> None:
    lock = price_lock(NOW)
    with pytest.raises(Refused, match="quote_expired"):
        price_lock_read(lock, NOW - timedelta(minutes=1))
    with pytest.raises(Refused, match="quote_expired"):
        price_lock_read(lock[:-1] + ("a" if lock[-1] != "a" else "b"), NOW)
