"""Quotes over REST answer what the page answers: the cheapest, and a risk that nobody knows."""

import re
from decimal import Decimal

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Gpu, GpuModel, Node, Rack
from billing.rules import money_text
from tests.api.builders import Site, said
from tests.builders import a_gpu_class, a_quota
from tests.prices import price_book_publish
from tests.roles import as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("text", ["1 h100 2h cheapest", "cheapest 1 h100 2h", "1 gpu 2h cheapest"])
def test_the_cheapest_is_quoted_by_rest_as_on_the_page(site: Site, text: str) -> None:
    body = {"project": "folding", "request": text}
    options = said(site.researcher.post("quotes", body))["options"]
    prices = [Decimal(each["price"]) for each in options]
    asked = [Decimal(each["price"]) for each in options if each["kind"] == "as_asked"]
    assert asked == sorted(asked) == prices[: len(asked)], "what is less than asked comes after it"
    assert len(asked) > 1
    client = Client()
    client.force_login(site.people["researcher"])
    address = {"q": text, "project": "folding"}
    page = flat(client.get("/t/helix/book", address).content.decode())
    assert re.findall(r'class="p">([^<]+)<', page) == [money_text(each, "EUR") for each in prices]
    # What is booked is an option, not "the cheapest".
    refused = site.researcher.post("bookings", body)
    assert (refused.status_code, said(refused)["code"]) == (422, "cheapest_of_what")


def a_cheaper_class(site: Site) -> None:
    """A node with L40S, whose price is half of that of an H100 in both tiers."""
    # Requests have whole seconds, so a later fraction would be a price of the future.
    now = timezone.now().replace(microsecond=0)
    l40s = a_gpu_class("l40s", order=1)
    with as_system():
        model = GpuModel.objects.create(
            slug="l40s-48gb", product_name="NVIDIA L40S", gpu_class=l40s, memory_mb=46_068
        )
        node = Node.objects.create(name="gpu-b1-01", rack=Rack.objects.get(), state=Node.State.READY)
        rows = [
            Gpu(number=90 + n, node=node, index=n, uuid=f"GPU-9{n}", model=model, gpu_class=l40s)
            for n in range(4)
        ]
        Gpu.objects.bulk_create(rows)
        prices = {
            ("h100", "standard"): Decimal("4.80"),
            ("h100", "spot"): Decimal("1.68"),
            ("l40s", "standard"): Decimal("2.40"),
            ("l40s", "spot"): Decimal("0.84"),
        }
        price_book_publish(actor_id=None, valid_from=now, prices=prices, now=now)
    a_quota(site.tenant, l40s, guaranteed=4, limit=8)
    a_quota(site.tenant, l40s, project=site.project, guaranteed=2, limit=4)


@pytest.mark.parametrize(
    ("text", "tier", "expected"),
    [
        ("cheapest h100 2h", None, ("h100", "spot")),
        ("cheapest 1 h100 2h", "standard", ("h100", "standard")),
        ("cheapest 1 h100 standard 2h", None, ("h100", "standard")),
        ("cheapest 1 h100 or l40s 2h", "standard", ("l40s", "standard")),
        ("cheapest 1 h100 or l40s 2h", "spot", ("l40s", "spot")),
        ("cheapest 2 h100 2h", "standard", ("h100", "standard")),
        ("cheapest 1 gpu 2h", "standard", ("l40s", "standard")),
    ],
)
def test_the_cheapest_of_what_is_asked_comes_before_other_offers(
    site: Site, text: str, tier: str | None, expected: tuple[str, str]
) -> None:
    a_cheaper_class(site)
    body = {"project": "folding", "request": text, **({"tier": tier} if tier else {})}
    options = said(site.researcher.post("quotes", body))["options"]
    first = options[0]
    assert (first["gpu_class"], first["tier"]) == expected, options
    assert first["count"] == (2 if "2 h100" in text else 1)
    assert len({(each["gpu_class"], each["tier"]) for each in options}) > 1, "others are offered"


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
    assert "pause risk not known" in page
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
