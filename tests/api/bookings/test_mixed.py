"""Bookings of several GPU classes over the API, and on the panel."""

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from allocation.models import Gpu, GpuModel, Node
from tests.api.builders import Site, said
from tests.builders import a_gpu_class, a_quota
from tests.prices import price_book_publish
from tests.roles import as_system
from tests.web.flat import flat

if TYPE_CHECKING:
    from django.test import Client

GROUPS = [{"gpu_class": "h100", "count": 2}, {"gpu_class": "l40s", "count": 3}]
ASK = {"groups": GROUPS, "duration": "PT2H"}


@pytest.fixture
def mixed(site: Site) -> Site:
    """The site with four L40S on its node, and a price for them."""
    l40s = a_gpu_class("l40s", label="L40S 48 GB")
    # Requests have whole seconds, so a later fraction would be a price of the future.
    now = timezone.now().replace(microsecond=0)
    with as_system():
        model = GpuModel.objects.create(
            slug="l40s", product_name="NVIDIA L40S", gpu_class=l40s, memory_mb=46_068
        )
        node = Node.objects.get()
        Gpu.objects.bulk_create(
            Gpu(
                number=100 + index,
                node=node,
                index=100 + index,
                uuid=f"GPU-L{index}",
                model=model,
                gpu_class=l40s,
            )
            for index in range(4)
        )
        each = {"h100": Decimal("4.80"), "l40s": Decimal("1.00")}
        prices = {(name, tier): each[name] for name in each for tier in ("standard", "spot")}
        price_book_publish(actor_id=None, valid_from=now, prices=prices, now=now)
    a_quota(site.project.tenant, l40s, guaranteed=4)
    return site


def _client(site: Site) -> "Client":
    from django.test import Client  # noqa: PLC0415 (settings are not there on import)

    client = Client()
    client.force_login(site.people["researcher"])
    return client


def test_it_is_quoted_booked_and_changed_as_one(mixed: Site) -> None:
    api, where = mixed.researcher, {"project": mixed.project.slug}
    quote = said(api.post("quotes", {**where, "ask": ASK}))
    assert "options" in quote, quote
    option = quote["options"][0]
    assert (option["price"], option["request"]) == ("25.200000", "2 h100 + 3 l40s 2h")
    assert [(each["gpu_class"], each["price"]) for each in option["groups"]] == [
        ("h100", "19.200000"),
        ("l40s", "6.000000"),
    ]
    line = api.post("bookings", {**where, "request": f"{option['request']} tomorrow 10:00"})
    booking: Any = said(line)
    assert line.status_code == 201, booking
    assert (booking["price"]["held"], len(booking["ask"]["groups"])) == ("25.200000", 2)
    path = f"bookings/{booking['id']}"

    def patched(body: dict[str, object]) -> Any:  # noqa: ANN401
        return api.send("PATCH", path, body, headers={"if_match": "*"})

    assert patched({"name": "both", "labels": {"a": "b"}}).status_code == 200
    shorter = patched({"duration": "PT1H"})
    assert (shorter.status_code, shorter.json()["price"]["held"]) == (200, "12.600000")
    refused = patched({"count": 1})
    assert (refused.status_code, refused.json()["code"]) == (422, "groups_twice")
    fewer = [GROUPS[0], {"gpu_class": "l40s", "count": 1}]
    changed = patched({"ask": {**booking["ask"], "groups": fewer, "duration": 3600}})
    assert changed.status_code in (200, 202), changed.content
    assert said(api.get(path))["name"] == "both"
    spot = said(api.post("quotes", {**where, "ask": ASK, "tier": "spot"}))["options"][0]
    assert any("nobody is paused for it" in note for note in spot["notes"]), spot["notes"]
    assert api.post("bookings", {**where, "request": "1 h100 + 1 l40s 2h, spot"}).status_code == 201
    items = [{"key": "one", "ask": ASK, **where}, {"key": "two", "request": "1 h100 1h", **where}]
    batch = api.post("bookings/batch", {"items": items})
    assert batch.status_code in (200, 201), batch.content


def test_an_array_has_several_groups_in_each_run(mixed: Site) -> None:
    """Both classes have room for two of its runs at a time, whatever it asks for."""
    api, where = mixed.researcher, {"project": mixed.project.slug}
    small = [{"gpu_class": "h100", "count": 1}, {"gpu_class": "l40s", "count": 2}]
    ask = {"groups": small, "duration": "PT1H"}
    answer = api.post("bookings", {**where, "ask": ask, "array": 4, "parallel": 3})
    first = said(answer)
    assert (answer.status_code, first["number"]) == (201, "BK-1[1]")
    rows = said(api.get("bookings", array="BK-1"))["items"]
    assert [len(row["ask"]["groups"]) for row in rows] == [2, 2, 2]
    assert said(api.get("arrays/BK-1"))["count"] == 4
    page = _client(mixed).get(f"/t/{mixed.project.tenant.slug}/arrays/BK-1")
    assert page.status_code == 200
    assert "1 × H100 80 GB + 2 × L40S 48 GB" in flat(page.content.decode())
    rest = said(api.post("arrays/BK-1/cancel", {"elements": "3-4"}))
    assert rest["counts"]["cancelled"] == 2, rest


def test_what_is_not_possible_is_refused_clearly(mixed: Site) -> None:
    bodies: list[tuple[dict[str, object], str, str]] = [
        ({"ask": {**ASK, "groups": GROUPS[:1]}}, "not_a_list", "ask.groups"),
        ({"ask": {**ASK, "groups": "2"}}, "not_a_list", "ask.groups"),
        ({"ask": {**ASK, "pin": ["gpu-a1-01"]}}, "not_in_groups", "ask.pin"),
    ]
    for body, code, param in bodies:
        answer = mixed.researcher.post("bookings", {"project": mixed.project.slug, **body})
        problem = said(answer)
        assert answer.status_code in (400, 422)
        assert (problem["code"], problem["param"]) == (code, param)


def test_the_panel_adds_a_group_and_shows_a_price_for_each(mixed: Site) -> None:
    client = _client(mixed)
    at = f"/t/{mixed.project.tenant.slug}/book"
    fields = {"by": "fields", "count": "2", "classes": "h100", "length": "2h", "groups": "3 l40s"}
    page = flat(client.get(at, fields).content.decode())
    assert 'value="2 h100 + 3 l40s 2h"' in page
    assert "2 × H100 80 GB + 3 × L40S 48 GB" in page
    assert "€25.20" in page
    assert "3 × L40S 48 GB: €6.00, €3.00/h" in page
    assert 'name="groups" value="3 l40s"' in page
    wrong = flat(client.get(at, {**fields, "q": "x", "groups": "many"}).content.decode())
    assert "Write each group as a number and a GPU class" in wrong
    array = {"q": "array of 4: 1 h100 + 2 l40s 1h"}
    page = flat(client.get(at, array).content.decode())
    assert "1 × H100 80 GB + 2 × L40S 48 GB" in page
    assert "4 runs" in page
