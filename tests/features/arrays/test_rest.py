"""Arrays over the API: one request for many runs, their elements, cancellation and results."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from allocation.models import Booking, BookingArray
from tests.api.builders import Site, row_counts, said
from tests.roles import as_system

LINE = {"project": "folding", "tier": "standard", "request": "1 h100 for 1h"}


def arrayed(site: Site, **more: object) -> Any:  # noqa: ANN401
    return site.researcher.post("bookings", LINE | {"name": "sweep"} | more)


def test_an_array_is_booked_read_and_cancelled_by_its_number(site: Site) -> None:
    answer = arrayed(site, array=20, parallel=4, hold="rolling", labels={"run": "a"})
    first = said(answer)
    assert (answer.status_code, first["number"], first["array_index"]) == (201, "BK-1[1]", 1)
    assert first["array"].startswith("ar_")
    array = said(site.researcher.get("arrays/BK-1"))
    assert array == said(site.researcher.get(f"arrays/{first['array']}"))
    assert (array["count"], array["parallel"], array["hold"]) == (20, 4, "rolling")
    assert array["counts"] == {
        "later": 16,
        "waiting": 4,
        "scheduled": 0,
        "running": 0,
        "paused": 0,
        "ended": 0,
        "failed": 0,
        "cancelled": 0,
    }
    one = said(site.researcher.get("bookings/BK-1[3]"))
    assert (one["number"], one["name"], one["labels"]) == ("BK-1[3]", "sweep", {"run": "a"})
    rows = said(site.researcher.get("bookings", array="BK-1", label="run=a"))["items"]
    assert {row["number"] for row in rows} == {f"BK-1[{n}]" for n in (1, 2, 3, 4)}

    part = said(site.researcher.post("arrays/BK-1/cancel", {"elements": "3, 10-20"}))
    assert (part["counts"]["cancelled"], part["counts"]["later"]) == (12, 4)
    over = said(site.researcher.post("arrays/BK-1/cancel", {}))
    assert (over["state"], over["outcome"], over["counts"]["cancelled"]) == (
        "ended",
        "cancelled",
        20,
    )
    assert over["held"] == "0.000000"


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"array": 0}, 422, "bad_array", "array"),
        ({"array": 10**6}, 422, "bad_array", "array"),
        ({"array": -1}, 422, None, "array"),
        ({"array": "5"}, 400, None, "array"),
        ({"array": True}, 400, None, "array"),
        ({"array": 5, "parallel": 0}, 422, "bad_parallel", "parallel"),
        ({"array": 5, "stop_after_failures": 0}, 422, None, "stop_after_failures"),
        ({"array": 5, "hold": "some"}, 422, None, "hold"),
        ({"parallel": 5}, 422, "no_array", "parallel"),
        ({"array": 5, "request": "1 h100 1h tomorrow at 9"}, 422, "array_fixed", "request"),
        ({"array": 10_000, "request": "1 h100 1d"}, 409, "budget_exceeded", None),
        ({"array": 5, "request": "2 h100 7d"}, 409, "budget_exceeded", None),
    ],
)
def test_a_bad_array_is_refused_clearly_with_nothing_written(
    site: Site, body: dict[str, object], status: int, code: str | None, param: str | None
) -> None:
    before = row_counts()
    answer = arrayed(site, **body)
    problem = answer.json()
    assert (answer.status_code, row_counts()) == (status, before), problem
    assert code is None or problem["code"] == code
    assert param is None or problem["param"] == param
    assert problem["detail"]


def test_elements_that_are_none_are_refused_and_the_array_is_no_booking(site: Site) -> None:
    arrayed(site, array=5)
    for elements in ("0", "6", "3-2", "1-6", "x", "1,,2", ""):
        answer: Any = site.researcher.post("arrays/BK-1/cancel", {"elements": elements})
        assert answer.status_code == 422, elements
    whole: Any = site.researcher.get("bookings/BK-1")
    assert (whole.status_code, whole.json()["code"]) == (422, "array_not_booking")
    for path in ("bookings/BK-1[6]", "bookings/BK-1[0]", "arrays/BK-2"):
        assert site.researcher.get(path).status_code == 404
    in_batch: Any = {"items": [LINE | {"array": 5}]}
    batch: Any = site.researcher.post("bookings/batch", in_batch)
    assert batch.json()["numbers"]["items"][0]["code"] == "unknown_field"


def test_one_key_makes_one_array(site: Site) -> None:
    body = LINE | {"array": 5}
    answers = [site.researcher.post("bookings", body, idempotency_key="sweep").content for _ in range(2)]
    assert answers[0] == answers[1]
    with as_system():
        assert (BookingArray.objects.count(), Booking.objects.count()) == (1, 5)


def test_an_array_can_be_said_in_the_request_and_quoted_for_all_its_runs(site: Site) -> None:
    line = {**LINE, "request": "array of 20: 1 h100 1h, 4 at once"}
    quote = said(site.researcher.post("quotes", line))
    one = said(site.researcher.post("quotes", LINE))
    assert one["array"] is None
    assert len(quote["options"]) == len(one["options"])
    assert (quote["array"]["count"], quote["array"]["parallel"]) == (20, 4)
    assert Decimal(quote["array"]["price"]) == 20 * Decimal(one["options"][0]["price"])
    assert quote["array"]["first_start"] == quote["options"][0]["starts"]
    first = datetime.fromisoformat(quote["array"]["first_start"])
    last = datetime.fromisoformat(quote["array"]["last_end"])
    # Starts to come stand on a grid of five minutes.
    assert timedelta(hours=5) <= last - first <= timedelta(hours=5, minutes=5)
    assert quote["array"]["runs_at_once"] == 4
    assert "4 runs at a time at most" in quote["options"][0]["notes"][0]
    dry: Any = site.researcher.post("bookings", {**LINE, "array": 20}, prefer="dry-run")
    assert dry.json()["array"]["price"] == quote["array"]["price"]
    for path in ("bookings", "quotes"):
        twice: Any = site.researcher.post(path, line | {"array": 21})
        assert twice.json()["code"] == "array_twice"
    fixed: Any = site.researcher.post("quotes", LINE | {"array": 2, "request": "1 h100 1h mon 9-10"})
    assert fixed.status_code == 422
    first = said(site.researcher.post("bookings", line))
    array = said(site.researcher.get(f"arrays/{first['array']}"))
    assert (array["count"], array["parallel"], array["held"]) == (20, 4, quote["array"]["most"])
    series: Any = site.researcher.post("series", line | {"repeat": {"rrule": "FREQ=DAILY;COUNT=2"}})
    assert series.status_code == 422
    patched: Any = site.researcher.post("bookings/batch", {"items": [line]})
    assert patched.json()["numbers"]["items"][0]["code"] == "is_array"
