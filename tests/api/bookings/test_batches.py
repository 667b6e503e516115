"""Batches: all of them or some, an answer for each item, once per key."""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.response import Response

from allocation.features.arrays.elements import arrays_advance
from allocation.models import Booking, Dependency
from billing.models import Account
from portal.web.serving.waiting import Waiter, answers_of
from tenants.platform.deferred import Deferred, DeferredResponse, Wait
from tests.api.builders import Site, said
from tests.builders_allocation import HOUR
from tests.roles import as_system

pytestmark = pytest.mark.turn


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


def test_a_batch_of_which_nothing_is_accepted_waits_for_nothing(site: Site) -> None:
    """It waited for a booking that does not exist, and ended the round of all who waited."""
    answer = sent(site, [item(site, "8 h100 1h")], "some", prefer="wait=10")
    assert not isinstance(answer, DeferredResponse)
    assert (answer.status_code, answer.json()["refused"]) == (201, 1)
    subject, tenant = uuid4(), site.tenant.id
    loop = asyncio.new_event_loop()
    waiter = Waiter(Deferred(Wait(tenant, subject, 1, _never), _never), loop.create_future(), is_due=True)
    assert answers_of({tenant: [waiter]}) == [(waiter, None)]
    loop.close()


def _never(*_: object) -> Response:
    raise AssertionError("nothing to conclude")


def test_a_batch_beyond_its_budget_books_what_fits_in_order_and_costs_few_statements(
    site: Site,
) -> None:
    long, short = item(site, "1 h100 70h"), item(site, "1 h100 1h")
    items: list[object] = [*[long] * 60, *[short] * 2]
    with CaptureQueriesContext(connection) as seen:
        rows = sent(site, items, "some").json()["items"]
    codes = [row["error"] and row["error"]["code"] for row in rows]
    booked = codes.index("budget_exceeded")
    assert 0 < booked < 30
    assert codes == [None] * booked + ["budget_exceeded"] * (60 - booked) + [None] * 2
    holds = [each for each in seen if each["sql"].startswith('INSERT INTO "billing_transfer"')]
    assert len(holds) < 30
    # It runs twice, as the budget refuses a part; reference data is read once for all items.
    assert len(seen) < 360


@pytest.mark.parametrize("items", [[], [1], [{}] * 1001, "x"])
def test_a_batch_that_is_none_is_refused(site: Site, items: object) -> None:
    answer: Any = site.researcher.post("bookings/batch", {"items": items})
    assert 400 <= answer.status_code < 500
    assert answer.json()["param"].startswith("items")


def after(*names: str, needs: str = "end") -> list[dict[str, str]]:
    return [{"booking": name, "needs": needs} for name in names]


def test_items_name_each_other_in_any_order(site: Site) -> None:
    there: Any = site.researcher.post("bookings", item(site))
    number = there.json()["number"]
    items: list[object] = [
        item(site, key="eval", depends_on=after("#train", number)),
        item(site, depends_on=after("#eval", "#train", needs="success")),
        item(site, key="train"),
    ]
    rows = sent(site, items).json()["items"]
    made = [row["booking"]["number"] for row in rows]
    listed: Any = site.researcher.get("bookings")
    one: Any = site.researcher.get(f"bookings/{made[1]}")
    parents = {row["number"]: row["depends_on"] for row in listed.json()["items"]}
    assert parents == {number: []} | {row["booking"]["number"]: row["booking"]["depends_on"] for row in rows}
    assert one.json()["depends_on"] == parents[made[1]]
    assert {each["state"] for row in parents.values() for each in row} == {"requested"}
    waits = {
        label: sorted((each["booking"], each["needs"]) for each in row) for label, row in parents.items()
    }
    assert waits[made[0]] == sorted([(made[2], "end"), (number, "end")])
    assert waits[made[1]] == sorted([(made[2], "success"), (made[0], "success")])
    assert waits[made[2]] == []
    with as_system():
        assert Booking.objects.filter(awaits_parents=True).count() == 2


@pytest.mark.parametrize(
    ("items", "codes"),
    [
        ([("a", "#b"), ("b", "#a"), ("", "")], ["depends_cycle", "depends_cycle", None]),
        ([("a", "#a")], ["depends_cycle"]),
        ([("a", "#none")], ["no_such_item"]),
        ([("a", ""), ("a", "#a")], [None, "name_twice"]),
        ([("a", "BK-999"), ("b", "#a"), ("c", "#b")], ["not_found", "parent_refused", "parent_refused"]),
        ([("x y", "")], ["wrong_type"]),
    ],
)
def test_items_that_cannot_wait_for_each_other_are_refused(
    site: Site, items: list[tuple[str, str]], codes: list[str | None]
) -> None:
    bodies: list[object] = []
    for key, ref in items:
        body = item(site)
        body |= {"key": key} if key else {}
        body |= {"depends_on": after(ref)} if ref else {}
        bodies.append(body)
    before = written()
    refused = sent(site, bodies)
    assert (refused.status_code, written()) == (409, before)
    some = sent(site, bodies, "some").json()["items"]
    assert [row["error"] and row["error"]["code"] for row in some] == codes


def test_a_batch_that_waits_answers_with_its_bookings_as_they_are(site: Site) -> None:
    items: list[object] = [item(site), {"project": site.project.slug, "request": "purple"}]
    for bodies, accepted in ((items, 1), (items[1:], 0)):
        body = {"items": bodies, "mode": "some"}
        answer: Any = site.researcher.post("bookings/batch", body, prefer="wait=1")
        assert (answer.status_code, answer.json()["accepted"]) == (201, accepted)
        booked = [row["booking"] for row in answer.json()["items"] if row["booking"]]
        assert [each["state"] for each in booked] == ["requested"] * accepted


def test_a_reference_alone_is_a_parent_whose_end_is_awaited(site: Site) -> None:
    answer: Any = site.researcher.post("bookings", item(site))
    number = answer.json()["number"]
    child: Any = site.researcher.post("bookings", item(site, depends_on=[number]))
    assert child.status_code == 201
    with as_system():
        made = Dependency.objects.select_related("booking", "parent").get()
    assert made.booking.label == child.json()["number"]
    assert (made.parent.label, made.needs) == (number, "end")
    unknown: Any = site.researcher.post("bookings", item(site, depends_on=["BK-999"]))
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")


def test_an_array_waits_for_others_with_its_first_element(site: Site) -> None:
    answer: Any = site.researcher.post("bookings", item(site))
    parent = answer.json()
    body = item(site, array=5, parallel=3, depends_on=after(parent["number"]))
    answer = site.researcher.post("bookings", body)
    with as_system():
        (first,) = Booking.objects.exclude(number=int(parent["number"].removeprefix("BK-")))
        assert first.awaits_parents
        arrays_advance(timezone.now())
        assert Booking.objects.count() == 2
        Booking.objects.filter(id=first.id).update(awaits_parents=False)
        arrays_advance(timezone.now())
        assert Booking.objects.count() == 4
    assert answer.json()["number"] == first.label


def test_a_booking_that_waits_has_an_estimated_start_and_a_quote_after_its_parents(
    site: Site,
) -> None:
    numbers = [said(site.researcher.post("bookings", item(site)))["number"] for _ in range(2)]
    body = item(site, depends_on=numbers)
    child = said(site.researcher.post("bookings", body))
    behind = said(site.researcher.post("bookings", item(site, depends_on=[child["number"]])))
    assert child["waiting"]["estimated_start"] is None
    assert said(site.researcher.post("quotes", body))["after"] is None
    ends = timezone.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=5)
    with as_system():
        parents = Booking.objects.filter(number__in=[int(each[3:]) for each in numbers])
        parents.update(state="queued", planned_starts=ends - HOUR, planned_ends=ends)
        parents.filter(number=int(numbers[0][3:])).update(planned_ends=ends - HOUR)
    starts = {child["number"]: ends, behind["number"]: ends + HOUR}
    listed = said(site.researcher.get("bookings"))["items"]
    found = {row["number"]: row["waiting"]["estimated_start"] for row in listed}
    assert {label: found[label] and datetime.fromisoformat(found[label]) for label in found} == {
        **dict.fromkeys(numbers),
        **starts,
    }
    for label, start in starts.items():
        for path in (f"bookings/{label}", f"bookings/{label}/why"):
            seen = said(site.researcher.get(path))
            seen = seen.get("waiting", seen)
            assert datetime.fromisoformat(seen["estimated_start"]) == start
    dry: Any = site.researcher.post("bookings", body, prefer="dry-run")
    for quote in (said(site.researcher.post("quotes", body)), dry.json()):
        option = quote["options"][0]
        assert datetime.fromisoformat(quote["after"]) == ends
        assert datetime.fromisoformat(option["starts"]) == ends
        assert (option["strength"], option["notes"][0][:11]) == ("expected", "an estimate")
        assert datetime.fromisoformat(option["latest"]) > ends
    free = said(site.researcher.post("quotes", item(site)))["options"][0]
    assert datetime.fromisoformat(free["starts"]) < ends
    # The text of an option books it without a bound of its own.
    assert option["request"] == free["request"]
    fixed: Any = site.researcher.post("quotes", item(site, "1 h100 1h mon 9-10", depends_on=numbers))
    assert fixed.json()["code"] == "depends_fixed"
