"""Quotes over REST answer what the page answers: the cheapest, and a risk that nobody knows."""

import re
from decimal import Decimal

import pytest
from django.test import Client

from billing.rules import money_text
from tests.api.builders import Site, said
from tests.web.flat import flat

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("text", ["1 h100 2h cheapest", "cheapest 1 h100 2h", "1 gpu 2h cheapest"])
def test_the_cheapest_is_quoted_by_rest_as_on_the_page(site: Site, text: str) -> None:
    body = {"project": "folding", "tier": "standard", "request": text}
    options = said(site.researcher.post("quotes", body))["options"]
    prices = [Decimal(each["price"]) for each in options]
    assert prices == sorted(prices)
    assert len(prices) > 1
    client = Client()
    client.force_login(site.people["researcher"])
    address = {"q": text, "project": "folding", "tier": "standard"}
    page = flat(client.get("/t/helix/book", address).content.decode())
    assert re.findall(r'class="p">([^<]+)<', page) == [money_text(each, "EUR") for each in prices]
    # What is booked is an option, not "the cheapest".
    refused = site.researcher.post("bookings", body)
    assert (refused.status_code, said(refused)["code"]) == (422, "cheapest_of_what")


def test_a_risk_that_nobody_knows_is_no_number(site: Site) -> None:
    body = {"project": "folding", "tier": "spot", "request": "1 h100 2h"}
    options = said(site.researcher.post("quotes", body))["options"]
    by_tier = {each["tier"]: (each["pause_risk"], each["pause_basis"]) for each in options}
    assert by_tier["spot"] == (None, "too few past bookings to tell")
    assert by_tier.get("standard", (0, "")) == (0, "")
    client = Client()
    client.force_login(site.people["researcher"])
    address = {"q": "1 h100 2h", "project": "folding", "tier": "spot"}
    page = flat(client.get("/t/helix/book", address).content.decode())
    assert "pause risk unknown" in page
    assert "assuming" not in page


@pytest.mark.parametrize(
    "line",
    [
        "1 h100 3h by yesterday",
        "1 h100 every day 9-10 until yesterday",
        "1 h100 every day 9-10 from 6 feb until 1 feb",
        "1 h100 every 15th 9-10 until june",
        "1 h100 every mon,wed,fri 9-10 x 6",
        "1 h100 6h tomorow",
        "1 h10 3h",
    ],
)
def test_each_corrected_line_is_a_request_that_is_understood(site: Site, line: str) -> None:
    answer = site.researcher.post("quotes", {"project": site.project.slug, "request": line})
    assert answer.status_code == 422
    for each in said(answer)["alternatives"]:
        again = site.researcher.post("quotes", {"project": site.project.slug, **each})
        code = said(again).get("code", "")
        assert code not in ("not_understood", "window_past", "ends_first", "no_end", "said_twice"), each
