"""Booking over the API: asking, waiting for the decision, and every act."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from django.test import Client, RequestFactory
from psycopg.types.range import TimestamptzRange
from rest_framework.request import Request

from allocation.api.bookings import requests
from allocation.api.bookings.decisions import WAIT_MAX, preferences_of
from allocation.api.bookings.requests import zone_check
from allocation.models import Allocation, Booking, Gpu
from tenants.models import Project
from tenants.platform.deferred import DeferredResponse
from tests.api.builders import Site, awaited, row_counts, said
from tests.builders import a_member, a_project
from tests.roles import as_system

NOW = datetime.now(UTC).replace(microsecond=0)
LINE = {"project": "folding", "tier": "standard", "request": "1 h100 for 10m"}
REASON = {
    "rule": "R18",
    "code": "window_busy",
    "check": "together",
    "sentence": "All H100 are taken from 10:00 to 12:00.",
    "numbers": {"asked": 1, "free": 0},
    "frees_at": "2026-12-01T12:00:00Z",
}


def decide(**values: object) -> None:
    """The cycle decides everything that waits for a decision."""
    with as_system():
        Booking.objects.filter(state="requested").update(**values)


def running(reference: str) -> None:
    """Puts the booking on the first GPU, where it has been for five minutes."""
    starts, ends = NOW - timedelta(minutes=5), NOW + timedelta(hours=1)
    with as_system():
        row = Booking.objects.get(id=UUID(reference.removeprefix("bk_")))
        Booking.objects.filter(id=row.id).update(
            state="scheduled", planned_starts=starts, planned_ends=ends, planned_class="h100"
        )
        Booking.objects.filter(id=row.id).update(state="starting")
        Booking.objects.filter(id=row.id).update(state="active", ready_at=starts)
        gpu = Gpu.objects.get(number=0)
        Allocation.objects.create(
            tenant_id=row.tenant_id,
            project_id=row.project_id,
            booking=row,
            gpu=gpu,
            gpu_number=gpu.number,
            model_id=gpu.model_id,
            mode="whole",
            start=0,
            size=8,
            units=56_000,
            period=TimestamptzRange(starts, ends),
            state="active",
            devices=[gpu.uuid],
        )


def test_one_line_books_and_comes_back_structured(site: Site) -> None:
    response = site.researcher.post("bookings", LINE)
    booking = said(response)
    assert response.status_code == 201
    assert response["Location"] == f"/api/v1/bookings/{booking['id']}"
    assert booking["id"].startswith("bk_")
    assert booking["number"] == "BK-1"
    assert booking["state"] == "requested"
    assert (booking["ask"]["count"], booking["ask"]["classes"]) == (1, ["h100"])
    assert booking["window"]["duration"] == "PT10M"
    assert booking["price"]["currency"] == "EUR"
    assert booking["price"]["held"] == "0.800000"
    assert booking["allocations"] == []
    assert booking["waiting"]["expected_start"] is None


def test_the_structured_ask_that_came_back_books_the_same(site: Site) -> None:
    first = said(site.researcher.post("bookings", LINE))
    again = site.researcher.post("bookings", {"project": "folding", "ask": first["ask"]})
    assert again.status_code == 201, again.content
    assert said(again)["ask"] == first["ask"]


def test_a_booking_is_found_by_id_and_by_number(site: Site) -> None:
    made = said(site.researcher.post("bookings", LINE))
    for reference in (made["id"], "BK-1", "bk-1"):
        assert said(site.lead.get(f"bookings/{reference}")) == made


def test_dry_run_says_what_would_happen_and_writes_nothing(site: Site) -> None:
    before = row_counts()
    response = site.researcher.post("bookings", LINE, prefer="dry-run")
    assert response.status_code == 200, response.content
    assert response["Preference-Applied"] == "dry-run"
    quote = said(response)
    assert quote["ask"]["classes"] == ["h100"]
    assert (quote["options"][0]["tier"], quote["options"][0]["price"]) == ("standard", "0.800000")
    assert {option["tier"] for option in quote["options"]} == {"standard", "spot"}
    assert Decimal(quote["budget"]["left"]) == Decimal(1000)
    assert row_counts() == before


def test_a_quote_writes_nothing_and_its_first_option_books(site: Site) -> None:
    before = row_counts()
    response = site.researcher.post("quotes", LINE)
    assert response.status_code == 200, response.content
    assert row_counts() == before
    option = said(response)["options"][0]
    made = site.researcher.post(
        "bookings", {"project": "folding", "tier": option["tier"], "request": option["request"]}
    )
    assert (made.status_code, said(made)["price"]["held"]) == (201, option["price"])


def test_the_longest_wait_is_shorter_than_what_proxies_allow() -> None:
    sent = RequestFactory().post("/", headers={"Prefer": "wait=9999, dry-run"})
    preferences = preferences_of(Request(sent))
    assert (preferences.wait, preferences.dry_run) == (WAIT_MAX, True)
    assert WAIT_MAX < 60


def test_a_line_and_a_field_that_name_different_tiers_are_refused(site: Site) -> None:
    response = site.researcher.post("bookings", LINE | {"request": "1 h100 for 10m spot"})
    problem = said(response)
    assert (response.status_code, problem["code"], problem["param"]) == (422, "tier_twice", "tier")


@pytest.mark.parametrize("path", ["quotes", "bookings", "bookings/batch", "series", "waitlist"])
def test_a_line_and_the_field_that_name_different_projects_are_refused(site: Site, path: str) -> None:
    with as_system():
        second = a_project(site.tenant, "models")
        Project.objects.filter(id=second.id).update(name="Language models")
        Project.objects.filter(id=site.project.id).update(name="Protein folding")
        a_member(second, user=site.people["researcher"])
    often = " every day 9-10 for 3 days" if path == "series" else " 10m"

    def sent(named: str) -> Any:  # noqa: ANN401 (the client's)
        body: dict[str, Any] = LINE | {"request": f"1 h100{often} for {named}"}
        if path == "waitlist":
            start = NOW + timedelta(days=3)
            ends = start + timedelta(hours=1)
            body["windows"] = [{"since": start.isoformat(), "until": ends.isoformat()}]
        answer = site.researcher.post(path, {"items": [body]} if path == "bookings/batch" else body)
        return answer, said(answer)

    for named in ("language models", "models", "project models"):
        answer, problem = sent(named)
        found = problem["numbers"]["items"][0] if path == "bookings/batch" else problem
        assert (found["code"], found["param"]) == ("project_twice", "project"), (named, problem)
        assert "models" in found["detail"]
    for named in ("protein folding", "folding", "project folding"):
        answer, done = sent(named)
        assert answer.status_code < 300, (named, done)
    _, mistyped = sent("modles")
    assert "models" not in str(mistyped.get("alternatives")), "the field names another one"
    _, unknown = sent("hidden")
    assert "not_understood" in str(unknown)


def test_waiting_answers_with_the_decision(site: Site) -> None:
    at_once = site.researcher.post("bookings", LINE, prefer="wait=5")
    assert said(at_once)["state"] == "requested"
    decide(state="queued", planned_starts=NOW + timedelta(hours=2), reasons=[REASON])
    response = awaited(at_once, is_due=False)
    booking = said(response)
    assert (response.status_code, booking["state"]) == (201, "queued")
    assert response["Location"] == f"/api/v1/bookings/{booking['id']}"
    assert response["Preference-Applied"] == "wait=5"
    assert booking["waiting"]["reasons"][0]["rule"] == "R18"
    assert booking["waiting"]["expected_start"] is not None


def test_a_refusal_while_waiting_is_a_problem_with_alternatives(site: Site) -> None:
    other = {"gpu_class": "h100", "count": 1, "starts": "2026-12-01T12:00:00+00:00"}
    at_once = site.researcher.post("bookings", LINE, prefer="wait=5", idempotency_key="k")
    joined = site.researcher.post("bookings", LINE, prefer="wait=5", idempotency_key="k")
    assert (joined["Idempotency-Replayed"], said(joined)) == ("true", said(at_once))
    decide(state="refused", reasons=[REASON], alternatives=[other])
    answer, same = awaited(at_once), awaited(joined)
    replay = site.researcher.post("bookings", LINE, prefer="wait=5", idempotency_key="k")
    assert (replay["Idempotency-Replayed"], replay.content) == ("true", answer.content)
    for response in (answer, same, replay):
        problem = said(response)
        assert (response.status_code, problem["code"]) == (409, "window_busy")
        assert (problem["rule"], problem["owner"]) == ("R18", "others")
        (offered,) = problem["alternatives"]
        assert {name: offered[name] for name in other} == other
        assert offered["request"] == "1 h100 10m at 2026-12-01 13:00 standard"
        assert (offered["ask"]["starts"], offered["ask"]["duration"]) == ("2026-12-01T12:00:00Z", 600)
        assert problem["numbers"]["booking"] == "BK-1"
        assert problem["frees_at"] == "2026-12-01T12:00:00Z"
        assert "Location" not in response


def test_waiting_ends_without_a_decision(site: Site) -> None:
    at_once = site.researcher.post("bookings", LINE, prefer="wait=9999")
    response = awaited(at_once)
    assert (response.status_code, said(response)["state"]) == (201, "requested")
    assert response["Preference-Applied"] == "wait=50"


def test_who_was_not_made_to_wait_is_not_told_so(site: Site) -> None:
    response = awaited(site.researcher.post("bookings", LINE, prefer="wait=5"), applied=False)
    assert (response.status_code, said(response)["state"]) == (201, "requested")
    assert "Preference-Applied" not in response


def test_reading_a_booking_waits_for_its_decision_once(site: Site) -> None:
    made = said(site.researcher.post("bookings", LINE))
    asked = site.researcher.send("GET", "bookings/BK-1", headers={"prefer": "wait=5"})
    assert said(asked) == made
    decide(state="queued", planned_starts=NOW + timedelta(hours=2))
    response = awaited(asked, is_due=False)
    assert (response.status_code, said(response)["state"]) == (200, "queued")
    assert response["Preference-Applied"] == "wait=5"
    decided = site.researcher.send("GET", "bookings/BK-1", headers={"prefer": "wait=5"})
    assert (said(decided)["state"], "Preference-Applied" in decided) == ("queued", False)
    assert not isinstance(decided, DeferredResponse)


def test_cancelling_frees_the_money_and_twice_is_once(site: Site) -> None:
    site.researcher.post("bookings", LINE)
    first = site.researcher.post("bookings/BK-1/cancel")
    assert (first.status_code, said(first)["state"]) == (200, "cancelled")
    assert site.researcher.post("bookings/BK-1/cancel").content == first.content
    assert said(site.lead.get(f"budgets/{site.budget.id}"))["held"] == "0.000000"


def test_only_the_owner_and_leads_change_a_booking(site: Site) -> None:
    site.lead.post("bookings", LINE)
    before = row_counts()
    for act in ("cancel", "release", "check-in"):
        response = site.researcher.post(f"bookings/BK-1/{act}")
        assert (response.status_code, said(response)["code"]) == (403, "not_allowed")
    assert row_counts() == before


def test_releasing_before_the_start_is_refused_and_says_what_works(site: Site) -> None:
    site.researcher.post("bookings", LINE)
    response = site.researcher.post("bookings/BK-1/release")
    assert (response.status_code, said(response)["code"]) == (409, "not_started")
    assert "Cancel" in said(response)["detail"]


def test_a_running_booking_tells_its_devices_and_takes_every_act(site: Site) -> None:
    made = said(site.researcher.post("bookings", {**LINE, "request": "1 h100 1h"}))
    running(made["id"])
    booking = said(site.researcher.get("bookings/BK-1"))
    assert booking["waiting"] is None
    (allocation,) = booking["allocations"]
    assert (allocation["node"], allocation["gpu_index"], allocation["profile"]) == (
        "gpu-a1-01",
        0,
        None,
    )
    assert allocation["devices"] == ["GPU-0"]

    here = site.researcher.post("bookings/BK-1/check-in")
    assert said(here)["checked_in_at"] is not None
    longer = site.researcher.post("bookings/BK-1/extend", {"by": "PT2H"})
    assert longer.status_code == 200, longer.content
    until = datetime.fromisoformat(said(longer)["extension_until"])
    assert until == datetime.fromisoformat(booking["window"]["planned_ends"]) + timedelta(hours=2)
    again = said(site.researcher.post("bookings/BK-1/extend", {"by": 3600}))
    assert datetime.fromisoformat(again["extension_until"]) == until - timedelta(hours=1)
    released = site.researcher.post("bookings/BK-1/release")
    assert (released.status_code, said(released)["state"]) == (200, "ending")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "missing_field"),
        ({"by": "PT1H", "until": "2026-12-01T10:00:00Z"}, 400, "missing_field"),
        ({"by": "1h"}, 400, "bad_duration"),
        ({"by": "PT0S"}, 422, "out_of_range"),
        ({"by": 0}, 422, "out_of_range"),
        ({"by": 3600.5}, 400, "bad_duration"),
        ({"by": True}, 400, "bad_duration"),
        ({"by": 10**30}, 400, "bad_duration"),
        ({"by": "P9999D"}, 422, "too_long"),
        ({"until": "2026-12-01T10:00:00"}, 400, "naive_time"),
        ({"until": "2001-12-01T10:00:00Z"}, 422, "end_not_later"),
        ({"until": "2099-12-01T10:00:00Z"}, 422, "too_long"),
        ({"until": "2099-13-01T10:00:00Z"}, 400, "bad_time"),
    ],
)
def test_an_extension_is_refused_clearly(site: Site, body: dict[str, object], status: int, code: str) -> None:
    running(said(site.researcher.post("bookings", LINE))["id"])
    before = row_counts()
    response = site.researcher.post("bookings/BK-1/extend", body)
    assert (response.status_code, said(response)["code"]) == (status, code)
    assert row_counts() == before


def test_history_tells_what_happened_in_order(site: Site) -> None:
    site.researcher.post("bookings", LINE)
    site.researcher.post("bookings/BK-1/cancel")
    events = said(site.viewer.get("bookings/BK-1/events"))["items"]
    assert [event["kind"] for event in events] == ["requested", "cancelled"]
    assert events[0]["actor"] == "mara"
    first = said(site.viewer.get("bookings/BK-1/events", limit="1"))
    rest = said(site.viewer.get("bookings/BK-1/events", cursor=first["next"]))
    assert first["items"] + rest["items"] == events


def test_why_has_six_checks_with_the_decisions_evidence(site: Site) -> None:
    site.researcher.post("bookings", LINE)
    decide(state="queued", reasons=[REASON])
    why = said(site.viewer.get("bookings/BK-1/why"))
    assert [check["check"] for check in why["checks"]] == [
        "together",
        "line",
        "quota",
        "budget",
        "policy",
        "hardware",
    ]
    assert [check["passed"] for check in why["checks"]] == [False, True, True, True, True, True]
    assert why["checks"][0]["reasons"] == [REASON]


def test_a_booking_that_never_starts_has_no_expected_start(site: Site) -> None:
    site.researcher.post("bookings", LINE)
    decide(state="queued", planned_starts=NOW + timedelta(hours=2))
    assert said(site.viewer.get("bookings/BK-1/why"))["expected_start"] is not None
    site.researcher.post("bookings/BK-1/cancel")
    assert said(site.viewer.get("bookings/BK-1/why"))["expected_start"] is None


def test_why_says_where_a_booking_was_moved_to_make_room_and_fails_no_check(site: Site) -> None:
    site.researcher.post("bookings", LINE)
    moved = {**REASON, "rule": "R73", "code": "laid_anew", "check": "together"}
    decide(state="scheduled", reasons=[moved])
    why = said(site.viewer.get("bookings/BK-1/why"))
    assert [check["passed"] for check in why["checks"]] == [True] * 6
    assert why["checks"][0]["reasons"] == [moved]


def test_lists_filter_by_state_project_and_owner_and_page_without_gaps(site: Site) -> None:
    for api in (site.researcher, site.lead, site.researcher):
        api.post("bookings", LINE)
    site.researcher.post("bookings/BK-3/cancel")

    def numbers(**query: str) -> list[str]:
        return sorted(row["number"] for row in said(site.viewer.get("bookings", **query))["items"])

    assert numbers() == ["BK-1", "BK-2", "BK-3"]
    assert numbers(state="cancelled") == ["BK-3"]
    assert numbers(project="folding", state="requested") == ["BK-1", "BK-2"]
    mine = said(site.lead.get("bookings", owner="me"))["items"]
    assert [row["number"] for row in mine] == ["BK-2"]
    first = said(site.viewer.get("bookings", limit="2"))
    second = said(site.viewer.get("bookings", limit="2", cursor=first["next"]))
    seen = [row["number"] for row in first["items"] + second["items"]]
    assert sorted(seen) == ["BK-1", "BK-2", "BK-3"]
    assert second["next"] is None


def test_own_time_is_marked_and_others_time_is_only_busy(site: Site) -> None:
    running(said(site.researcher.post("bookings", LINE))["id"])
    mine = said(site.viewer.get("availability", gpu_class="h100"))
    theirs = said(site.outsider.get("availability", gpu_class="h100"))
    assert mine["gpus"][0]["busy"][0]["mine"] is True
    assert theirs["gpus"][0]["busy"][0]["mine"] is False
    assert [step["whole_gpus"] for step in theirs["free"]] == [7, 8]
    assert b"BK-" not in site.outsider.get("availability", gpu_class="h100").content


def test_what_starts_sooner_is_told_and_taken_in_one_call(site: Site) -> None:
    waiting = said(site.researcher.post("bookings", LINE | {"request": "1 h100 for 1h"}))
    promised = NOW + timedelta(hours=5)
    with as_system():
        Booking.objects.filter(id=UUID(waiting["id"].removeprefix("bk_"))).update(
            state="queued", planned_starts=promised, planned_ends=promised + timedelta(hours=1)
        )
    earlier = said(site.researcher.get(f"bookings/{waiting['number']}/earlier-options"))
    assert datetime.fromisoformat(earlier["planned_start"]) == promised
    option = earlier["options"][0]
    body = {name: option[name] for name in ("tier", "request")}
    body |= {"accept": {"start_by": option["starts"]}}
    address, headers = f"bookings/{waiting['number']}", {"if_match": "*"}
    answer = site.researcher.send("PATCH", address, body, headers=headers)
    assert answer.status_code == 202
    assert said(answer)["change"]["differences"]
    assert said(site.researcher.get(address))["state"] == "queued"
    assert site.viewer.send("PATCH", address, body, headers=headers).status_code == 403
    assert site.researcher.post(f"{address}/change", {}).status_code == 405


def test_why_tells_the_range_of_the_start_or_that_there_is_none_yet(site: Site) -> None:
    booking = said(site.researcher.post("bookings", LINE))
    assert said(site.researcher.get(f"bookings/{booking['number']}/why"))["expected_range"] is None


def test_the_time_zones_are_read_once_and_not_for_each_request() -> None:
    zone_check("UTC")
    with patch.object(requests, "available_timezones", side_effect=AssertionError):
        zone_check("Europe/Berlin")


def test_sentences_name_a_class_by_its_label_and_fields_by_its_slug(site: Site) -> None:
    site.researcher.post("bookings", LINE)
    busy = {"left": 0, "asked": 2, "level": "any", "gpu_class": "h100"}
    quota = {"used": 112_000, "asked": 112_000, "limit": 112_000, "owner": "x", "gpu_class": "h100"}
    reasons = [
        {"rule": "R5", "code": "gpus_busy", "check": "together", "numbers": busy, "frees_at": None},
        {"rule": "R8", "code": "tenant_quota", "check": "quota", "numbers": quota, "frees_at": None},
    ]
    decide(state="queued", reasons=reasons)
    client = Client()
    client.force_login(site.people["researcher"])
    sentences = [
        *_sentences(said(site.viewer.get("bookings/BK-1/why"))),
        *_sentences(said(site.viewer.get("bookings/BK-1"))),
        *_sentences(said(site.viewer.get("bookings/BK-1/events"))),
        *_sentences(said(site.researcher.post("bookings", {**LINE, "request": "99 h100 1h"}))),
        *re.findall(r'<span class="sub">([^<]*)', client.get("/t/helix/bookings/BK-1").content.decode()),
    ]
    named = [each for each in sentences if "H100 80 GB" in each]
    assert len(named) >= 6, sentences
    assert not [each for each in sentences if re.search(r"\bh100\b", each)]
    assert said(site.viewer.get("bookings/BK-1/why"))["checks"][0]["reasons"][0]["numbers"] == busy


def _sentences(value: object) -> Iterator[str]:
    """All sentences of an answer, wherever they are."""
    if isinstance(value, dict):
        yield from (str(value[name]) for name in ("sentence", "detail") if name in value)
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _sentences(each)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"ask": {"classes": ["h100"], "count": 600_000, "duration": 3600}}, "count_out_of_bounds"),
        ({"ask": {"classes": ["h100"], "count": 0, "duration": 3600}}, "count_out_of_bounds"),
        ({"ask": {"classes": ["h100"], "count": 1, "duration": 30}}, "duration_out_of_bounds"),
        ({"ask": {"classes": ["h100"], "count": 1, "duration": "P400D"}}, "duration_out_of_bounds"),
        ({"ask": {"classes": ["h100"], "count": 1, "duration": "P100D"}}, "too_long"),
        ({"request": "600000 h100 1h"}, "count_out_of_bounds"),
        ({"request": "1 h100 100 days"}, "too_long"),
        ({"request": "1 h100 30s"}, "not_understood"),
        ({"request": "1 h100 1h", "array": 20_000}, "bad_array"),
        ({"request": "array of 20000: 1 h100 1h"}, "bad_array"),
        ({"request": "1 h100 1h", "array": 5, "parallel": 2_000}, "bad_parallel"),
    ],
    ids=str,
)
def test_a_refusal_of_a_bound_offers_what_the_bound_admits(
    site: Site, sent: dict[str, Any], code: str
) -> None:
    body = {"project": "folding", "tier": "standard", **sent}
    found = said(site.researcher.post("bookings", body))
    assert found["code"] == code
    offer = found["alternatives"][0]
    if "request" in offer:
        offer = {"request": offer["request"]}
    again = {**body, "ask": {**body["ask"], **offer}} if "ask" in body else {**body, **offer}
    response = site.researcher.post("bookings", again)
    is_tried = code == "too_long"
    assert response.status_code == 201 or (not is_tried and said(response)["code"] != code)
