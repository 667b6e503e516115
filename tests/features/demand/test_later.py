"""A quote names a later start of the coming day that costs less, if no wait is expected then."""

from datetime import UTC, timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.demand.models import DemandForecast
from billing.rates import peak_hours
from billing.services.prices import Peaks
from tests.api.builders import Site, said
from tests.prices import price_book_publish
from tests.roles import as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db
AHEAD = 336


def a_cheap_hour(wanted: float) -> int:
    """Makes all hours peak but one, twelve hours from now, and a forecast; returns the hour in UTC."""
    now = timezone.now().astimezone(UTC)
    cheap = (now.hour + 12) % 24
    spans = [
        (day, first, end) for day in range(7) for first, end in ((0, cheap), (cheap + 1, 24)) if first < end
    ]
    with as_system():
        price_book_publish(
            actor_id=None,
            valid_from=now - timedelta(seconds=30),
            prices={("h100", "standard"): Decimal("4.80"), ("h100", "spot"): Decimal("1.68")},
            peaks=Peaks(peak_hours("UTC", spans), {("h100", "standard"): Decimal("9.60")}),
            now=now - timedelta(seconds=30),
        )
        at = now.replace(minute=0, second=0, microsecond=0)
        DemandForecast.objects.create(
            gpu_class_id="h100",
            kind="wanted",
            at=at,
            low=[0.0] * AHEAD,
            middle=[wanted] * AHEAD,
            high=[8.0] * AHEAD,
            hits={},
        )
    return cheap


def asked(site: Site, request: str) -> list[dict[str, object]]:
    """The advice of a quote about a later start."""
    found = said(
        site.researcher.post("quotes", {"project": "folding", "request": request, "tier": "standard"})
    )
    return [each for each in found["advice"] if each["code"] == "later"]


def test_a_later_start_is_offered_with_what_it_saves_and_can_be_taken(site: Site, client: Client) -> None:
    """Two GPUs for an hour cost 19.20 at peak and 9.60 else; the offer's own quote says so."""
    cheap = a_cheap_hour(wanted=3.0)
    (advice,) = asked(site, "2 h100 1h")
    assert "€9.60 less" in str(advice["sentence"])
    assert ":00 costs" in str(advice["sentence"])
    assert advice["labels"] == {"advice": "later"}
    taken = {"project": "folding", "request": advice["request"], "tier": "standard"}
    option = said(site.researcher.post("quotes", taken))["options"][0]
    assert Decimal(option["price"]) == Decimal("9.60")
    assert f"T{cheap:02}:00:00" in option["starts"]
    client.force_login(site.people["researcher"])
    page = client.get("/t/helix/book?q=2+h100+1h&project=folding")
    assert "€9.60 less" in flat(page.content.decode())


@pytest.mark.parametrize(
    "request_text", ["2 h100 1h at 23:00 tomorrow", "1 h100 1g.10gb 1h", "2 h100 24h", "9 h100 1h"]
)
def test_what_cannot_move_or_saves_little_gets_no_advice(site: Site, request_text: str) -> None:
    """A fixed window, a slice, a whole day of which one hour is cheap, and more GPUs than there are."""
    a_cheap_hour(wanted=3.0)
    answer = site.researcher.post(
        "quotes", {"project": "folding", "request": request_text, "tier": "standard"}
    )
    assert all(each["code"] != "later" for each in said(answer).get("advice", []))


def test_no_advice_where_a_wait_is_expected(site: Site) -> None:
    """Seven of eight GPUs are wanted all day: two are not free."""
    a_cheap_hour(wanted=7.0)
    assert asked(site, "2 h100 1h") == []
    assert len(asked(site, "1 h100 1h")) == 1
