"""What repeats, over the API."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from allocation.models import Booking, Series
from portal.web import outage
from tests.api.builders import Site, row_counts, said
from tests.roles import as_system

LINE = {"project": "folding", "tier": "standard", "zone": "Europe/Berlin"}
DAILY = LINE | {"request": "1 h100 9-10 every day 3 times"}
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).replace(hour=9, minute=0, second=0)


def test_one_line_books_all_dates_and_names_each(site: Site) -> None:
    answer = site.researcher.post("series", DAILY)
    series = said(answer)
    assert answer.status_code == 201
    assert answer["Location"] == f"/api/v1/series/{series['id']}"
    assert (series["rrule"], series["words"]) == ("FREQ=DAILY;COUNT=3", "every day, 3 times")
    assert [each["state"] for each in series["dates"]] == ["requested"] * 3
    assert series["held"] == "14.400000"
    booking = said(site.researcher.get(f"bookings/{series['dates'][1]['number']}"))
    assert booking["series"] == series["id"]
    assert said(site.researcher.get("series"))["items"] == [series]


def test_a_rule_of_weekdays_of_months_is_kept_and_told_in_words(site: Site) -> None:
    ask = {"classes": ["h100"], "duration": "PT1H", "starts": TOMORROW.isoformat()[:19] + "Z"}
    rule = "FREQ=MONTHLY;BYDAY=2TU,-1FR;COUNT=2"
    series = said(site.researcher.post("series", LINE | {"ask": ask, "repeat": {"rrule": rule}}))
    assert (series["rrule"], series["words"]) == (
        rule,
        "every month on the 2nd Tue, last Fri, 2 times",
    )
    starts = [datetime.fromisoformat(each["starts"]) for each in series["dates"]]
    assert all(each.weekday() in (1, 4) for each in starts)


def test_a_rule_of_its_own_repeats_a_structured_ask(site: Site) -> None:
    ask = {"classes": ["h100"], "duration": "PT1H", "starts": TOMORROW.isoformat()[:19] + "Z"}
    body = LINE | {"ask": ask, "repeat": {"rrule": "FREQ=WEEKLY;COUNT=2"}}
    series = said(site.researcher.post("series", body))
    first, second = (datetime.fromisoformat(each["starts"]) for each in series["dates"])
    assert second - first == timedelta(days=7)


def test_a_key_makes_one_series_and_a_dry_run_none(site: Site) -> None:
    before = row_counts()
    tried = site.researcher.post("series", DAILY, prefer="dry-run")
    assert (tried.status_code, tried["Preference-Applied"]) == (200, "dry-run")
    assert len(said(tried)["dates"]) == 3
    assert row_counts() == before
    one, other = (site.researcher.post("series", DAILY, idempotency_key="k") for _ in "12")
    assert one.content == other.content
    with as_system():
        assert Series.objects.count() == 1
        assert Booking.objects.count() == 3


def test_a_booking_that_repeats_is_sent_to_series(site: Site) -> None:
    answer = site.researcher.post("bookings", DAILY)
    assert (answer.status_code, said(answer)["code"]) == (422, "repeats")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (LINE | {"request": "1 h100 at 9 for 1h"}, "missing_field"),
        (DAILY | {"repeat": {"rrule": "FREQ=DAILY;COUNT=2"}}, "missing_field"),
        (LINE | {"request": "1 h100 at 9 for 1h", "repeat": {"rrule": "FREQ=SECONDLY"}}, "not_a_rule"),
        (
            LINE | {"request": "1 h100 at 9 for 1h", "repeat": {"rrule": "FREQ=MONTHLY;BYDAY=6TU;COUNT=2"}},
            "not_a_rule",
        ),
        (
            LINE | {"request": "1 h100 at 9 for 1h", "repeat": {"rrule": "FREQ=DAILY;COUNT=999999"}},
            "series_too_long",
        ),
        (LINE | {"request": "1 h100 1h", "repeat": {"rrule": "FREQ=DAILY;COUNT=2"}}, "series_needs_start"),
        (
            LINE | {"request": "1 h100 at 9 for 25h", "repeat": {"rrule": "FREQ=DAILY;COUNT=2"}},
            "series_overlap",
        ),
        (DAILY | {"repeat": {"rule": "x"}}, "unknown_field"),
    ],
)
def test_what_does_not_repeat_sensibly_is_refused_and_writes_nothing(
    site: Site, body: dict[str, object], code: str
) -> None:
    before = row_counts()
    answer = site.researcher.post("series", body)
    assert answer.status_code in (400, 422), answer.content
    assert said(answer)["code"] == code
    assert row_counts() == before


def test_dates_too_far_ahead_are_listed_and_a_part_can_be_had(site: Site) -> None:
    body = LINE | {"request": "1 h100 9-10 every 2 weeks 4 times"}
    answer = site.researcher.post("series", body)
    problem = said(answer)
    assert (answer.status_code, problem["rule"]) == (422, "R14")
    assert problem["numbers"]["of"] == 4
    assert {each["code"] for each in problem["numbers"]["failed"]} == {"advance_window"}
    assert {"partial": True} in problem["alternatives"]
    series = said(site.researcher.post("series", body | {"partial": True}))
    assert len(series["failed"]) == len(problem["numbers"]["failed"])
    assert all(each["id"] is None for each in series["failed"])


def test_cancelling_takes_every_date_back(site: Site) -> None:
    series = said(site.researcher.post("series", DAILY))
    address = f"series/{series['id']}/cancel"
    assert site.viewer.post(address).status_code == 403
    cancelled = said(site.researcher.post(address))
    assert [each["state"] for each in cancelled["dates"]] == ["cancelled"] * 3
    assert cancelled["held"] == "0.000000"
    assert site.outsider.get(f"series/{series['id']}").status_code == 404


def test_more_dates_take_no_more_statements(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each date more is a row more in the same statements."""
    monkeypatch.setattr(outage, "LOOK_SECONDS", 0)
    seen: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:  # noqa: ANN401  as Django calls it
        seen.append(sql)
        return execute(sql, *rest)

    def statements(times: int) -> int:
        seen.clear()
        body = DAILY | {"request": f"1 h100 9-10 every day {times} times"}
        with connection.execute_wrapper(note):
            assert site.researcher.post("series", body).status_code == 201
        return len(seen)

    # The first makes an account, the second brings the reference data into memory.
    statements(2)
    statements(2)
    few = statements(3)
    assert few == statements(26) > 0


def patched(site: Site, series: str, scope: str, body: object, tag: str = "*") -> Any:  # noqa: ANN401
    path = f"series/{series}?scope={scope}"
    return site.researcher.send("PATCH", path, body, headers={"if_match": tag})


def test_a_series_changes_with_the_tag_that_was_seen(site: Site) -> None:
    series = said(site.researcher.post("series", DAILY))
    seen: Any = site.researcher.get(f"series/{series['id']}")
    second = series["dates"][1]["number"]
    body = {"date": second, "duration": "PT30M", "name": "short"}
    answer = patched(site, series["id"], "following", body, seen["ETag"])
    assert answer.status_code == 200
    new = answer.json()
    assert [each["outcome"] for each in new["changes"]] == ["changed"] * 2
    assert (new["id"] != series["id"], new["name"], new["rrule"]) == (
        True,
        "short",
        "FREQ=DAILY;COUNT=2",
    )
    old = said(site.researcher.get(f"series/{series['id']}"))
    assert len(old["dates"]) == 1
    again = patched(site, series["id"], "all", {"duration": "PT40M"}, seen["ETag"])
    assert (again.status_code, again.json()["code"]) == (412, "revision_moved")
    path = f"series/{series['id']}?scope=all"
    missing: Any = site.researcher.send("PATCH", path, {"name": "x"})
    assert (missing.status_code, missing.json()["code"]) == (428, "revision_needed")


@pytest.mark.parametrize(
    ("scope", "body", "status", "code", "param"),
    [
        ("some", {"name": "x"}, 422, "unknown_choice", "scope"),
        ("all", {"colour": "red"}, 400, "unknown_field", "colour"),
        ("all", {"count": 0}, 422, "count_out_of_bounds", "count"),
        ("all", {"at": "25:00"}, 400, "wrong_type", "at"),
        ("following", {"name": "x"}, 422, "date_needed", "date"),
        ("following", {"name": "x", "date": "BK-999"}, 404, "not_found", None),
        ("all", {"duration": "P2D"}, 422, "series_overlap", "duration"),
        ("all", [1], 400, "malformed_json", None),
    ],
)
def test_bad_changes_of_a_series_name_their_field_and_change_nothing(
    site: Site, scope: str, body: object, status: int, code: str, param: str | None
) -> None:
    series = said(site.researcher.post("series", DAILY))
    before = said(site.researcher.get(f"series/{series['id']}"))
    answer = patched(site, series["id"], scope, body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.content
    assert answer.json().get("param") == param
    assert said(site.researcher.get(f"series/{series['id']}")) == before
    path = f"series/{series['id']}?scope=all"
    outsider: Any = site.outsider.send("PATCH", path, {"name": "x"}, headers={"if_match": "*"})
    assert outsider.status_code == 404


def test_a_change_of_a_foreign_series_is_like_one_of_none(site: Site) -> None:
    made = said(site.researcher.post("series", LINE | {"request": "1 h100 1h at 9 every day 2 times"}))
    seen = {"if-match": '"1"'}
    answers = [
        site.outsider.send("PATCH", f"series/{each}?scope=all", {"name": "x"}, headers=seen)
        for each in (made["id"], "sr_" + "0" * 32)
    ]
    assert [each.status_code for each in answers] == [404, 404]
    assert answers[0].content == answers[1].content
