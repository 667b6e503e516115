"""Batches: all of them or some, an answer for each item, once per key."""

from typing import Any

import pytest

from allocation.models import Booking
from billing.models import Account
from tests.api.builders import Site
from tests.roles import as_system


def sent(site: Site, items: list[object], mode: str = "all", **headers: str) -> Any:  # noqa: ANN401
    return site.researcher.post("bookings/batch", {"items": items, "mode": mode}, **headers)


def item(site: Site, text: str = "1 h100 1h", **more: object) -> dict[str, object]:
    return {"project": site.project.slug, "request": text, **more}


def written() -> tuple[int, object]:
    with as_system():
        held = Account.objects.filter(kind="budget").values_list("pending", flat=True)
        return Booking.objects.count(), sum(held)


def test_a_batch_is_booked_in_order_and_once_for_its_key(site: Site) -> None:
    items: list[object] = [item(site, name=f"run {n}") for n in range(30)]
    answer = sent(site, items, idempotency_key="batch")
    assert (answer.status_code, answer.json()["accepted"]) == (201, 30), answer.content
    rows = answer.json()["items"]
    numbers = [int(row["booking"]["number"].removeprefix("BK-")) for row in rows]
    assert numbers == sorted(numbers)
    assert [row["booking"]["name"] for row in rows] == [f"run {n}" for n in range(30)]
    again = sent(site, items, idempotency_key="batch")
    assert (again.content, written()[0]) == (answer.content, 30)


def test_one_bad_item_refuses_all_or_only_itself(site: Site) -> None:
    bad: list[object] = [
        {"project": site.project.slug, "request": "purple"},
        {"project": "hidden", "request": "1 h100 1h"},
        {"project": site.project.slug, "request": "1 h100 1h", "colour": "red"},
        item(site, "8 h100 1h"),
    ]
    items = [item(site), *bad, item(site)]
    before = written()
    refused = sent(site, items)
    assert (refused.status_code, refused.json()["code"]) == (409, "batch_refused")
    assert [each["index"] for each in refused.json()["numbers"]["items"]] == [1, 2, 3, 4]
    assert written() == before
    some = sent(site, items, "some").json()
    assert (some["accepted"], some["refused"]) == (2, 4)
    codes = [row["error"] and row["error"]["code"] for row in some["items"]]
    assert codes == [None, "not_understood", "not_found", "unknown_field", "project_quota", None]
    assert written()[0] == 2


@pytest.mark.parametrize("items", [[], [1], [{}] * 1001, "x"])
def test_a_batch_that_is_none_is_refused(site: Site, items: object) -> None:
    answer: Any = site.researcher.post("bookings/batch", {"items": items})
    assert 400 <= answer.status_code < 500
    assert answer.json()["param"].startswith("items")
