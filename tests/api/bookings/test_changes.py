"""PATCH of a booking: its precondition, its answers, and bad input."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Booking, BookingChange
from allocation.queries.bookings.decided import bookings_decided
from allocation.rules.ask.words.document import time_text
from solver.reasons.reason import reason
from tenants.models import Quota
from tests.api.bookings.test_bookings import NOW, REASON, running
from tests.api.builders import Site, awaited, said
from tests.roles import as_system

pytestmark = pytest.mark.turn

BODY = {"request": "2 h100 2h tomorrow 10:00", "name": "first"}


@pytest.fixture
def path(site: Site) -> str:
    made: Any = site.researcher.post("bookings", {**BODY, "project": site.project.slug})
    assert made.status_code == 201, made.content
    assert made["ETag"] == '"1"'
    return f"bookings/{made.json()['id']}"


def shown(site: Site, path: str) -> Any:  # noqa: ANN401
    answer: Any = site.researcher.get(path)
    return answer.json()


def patched(site: Site, path: str, body: object, revision: str = "*") -> Any:  # noqa: ANN401
    return site.researcher.send("PATCH", path, body, headers={"if_match": revision})


def test_a_name_changes_at_once_under_a_new_revision(site: Site, path: str) -> None:
    answer = patched(site, path, {"name": "second"}, '"1"')
    assert (answer.status_code, answer["ETag"]) == (200, '"2"')
    assert answer.json()["name"] == "second"
    assert site.researcher.get(path)["ETag"] == '"2"'
    assert answer.json()["change"] is None


def test_a_change_needs_the_revision_that_was_seen(site: Site, path: str) -> None:
    missing: Any = site.researcher.send("PATCH", path, {"name": "x"})
    assert (missing.status_code, missing.json()["code"]) == (428, "revision_needed")
    assert patched(site, path, {"duration": "PT1H"}, '"1"').status_code == 200
    moved = patched(site, path, {"duration": "PT2H"}, '"1"')
    assert (moved.status_code, moved.json()["numbers"]) == (412, {"revision": 2})
    assert shown(site, path)["window"]["duration"] == "PT1H"
    # As a client sends it back that asked for a compressed answer.
    assert patched(site, path, {"name": "x"}, 'W/"2"').status_code == 200
    assert patched(site, path, {"name": "y"}, 'W/"2"').status_code == 412


def test_labels_and_reference_are_replaced_at_once(site: Site, path: str) -> None:
    assert patched(site, path, {"labels": {"run": "7", "a": "b"}}).status_code == 200
    answer = patched(site, path, {"labels": {"run": "8"}, "external_ref": "HELIX-12"})
    body = answer.json()
    assert (answer.status_code, body["labels"]) == (200, {"run": "8"})
    assert body["external_ref"] == "HELIX-12"
    found: Any = site.researcher.get("bookings?label=run=8&external_ref=HELIX-12")
    assert [each["id"] for each in found.json()["items"]] == [body["id"]]
    removed: Any = site.researcher.get("bookings?label=a=b")
    assert removed.json()["items"] == []
    same = patched(site, path, {"labels": {"run": "8"}})
    assert same["ETag"] == answer["ETag"]
    events: Any = site.researcher.get(f"{path}/events")
    assert "labels a=b, run=7 → run=8" in str(events.json())
    undo: Any = site.researcher.post(f"{path}/undo", {})
    assert undo.json()["code"] == "nothing_to_undo"


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"colour": "red"}, 400, "unknown_field", "colour"),
        ({"labels": {"Bad key": "x"}}, 422, "bad_label", "labels"),
        ({"labels": {str(n): "x" for n in range(33)}}, 422, "too_many_labels", "labels"),
        ({"external_ref": "javascript://x"}, 422, "bad_reference", "external_ref"),
        ({"count": 0}, 422, "count_out_of_bounds", "count"),
        ({"count": True}, 400, "wrong_type", "count"),
        ({"classes": []}, 400, "not_a_list", "classes"),
        ({"duration": "PT1S"}, 422, "duration_out_of_bounds", "duration"),
        ({"duration": "PT1H", "ends": "2027-01-01T00:00:00Z"}, 422, "request_twice", "ends"),
        ({"request": "2 h100 1h", "count": 2}, 422, "request_twice", "count"),
        ({"request": "purple elephants"}, 422, "not_understood", "request"),
        ({"starts": "2020-01-01T00:00:00Z"}, 422, "window_past", "request"),
        ({"tier": "gold"}, 422, "unknown_tier", "tier"),
        ({"pin": ["nowhere"]}, 422, "pin_elsewhere", "request"),
        ({"accept": {"cost_at_most": "1"}, "count": 3}, 409, "cost_above", "accept.cost_at_most"),
        ({"accept": {"strength": "iron"}}, 422, "unknown_choice", "accept.strength"),
        ({"name": "x" * 81}, 422, "too_long", "name"),
        ([1], 400, "malformed_json", None),
    ],
)
def test_bad_input_names_its_field_and_changes_nothing(
    site: Site, path: str, body: object, status: int, code: str, param: str | None
) -> None:
    before = shown(site, path)
    answer = patched(site, path, body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["param"] == param
    assert shown(site, path) == before


def test_waiting_answers_with_the_change_that_was_made_or_why_it_was_not(site: Site, path: str) -> None:
    with as_system():
        booking = Booking.objects.get()
        Booking.objects.filter(id=booking.id).update(state="scheduled")
    headers = {"if_match": "*", "prefer": "wait=5"}
    asked = site.researcher.send("PATCH", path, {"duration": "PT3H"}, headers=headers)
    assert (asked.status_code, said(asked)["change"]["state"]) == (202, "asked")
    with as_system():
        assert not bookings_decided({booking.id})
    made = BookingChange.objects.filter(booking=booking)
    with as_system():
        made.update(reasons=[REASON])
        assert bookings_decided({booking.id}), "it waits for room, as the cycle has said"
        made.update(state=BookingChange.State.KEPT, decided_at=timezone.now())
    kept = awaited(asked)
    assert (kept.status_code, said(kept)["code"]) == (409, "window_busy")
    assert said(kept)["numbers"]["booking"] == booking.label
    with as_system():
        made.update(state=BookingChange.State.CHANGED, reasons=[])
    answer = awaited(asked)
    assert (answer.status_code, answer["Preference-Applied"]) == (200, "wait=5")
    assert said(answer)["change"]["state"] == "changed"


def test_an_answer_that_waited_names_a_class_by_its_label(site: Site, path: str) -> None:
    with as_system():
        booking = Booking.objects.get()
        Booking.objects.filter(id=booking.id).update(state="scheduled")
    headers = {"if_match": "*", "prefer": "wait=5"}
    asked = site.researcher.send("PATCH", path, {"duration": "PT3H"}, headers=headers)
    why = reason("where_elsewhere", gpu_class="h100", scratch=9000)
    with as_system():
        BookingChange.objects.filter(booking=booking).update(
            state=BookingChange.State.KEPT,
            reasons=[{"rule": "R190", "code": why.code, "check": "policy", "numbers": dict(why.facts)}],
            decided_at=timezone.now(),
        )
    kept = awaited(asked)
    assert kept.status_code == 409
    assert "There are no H100 80 GB with" in kept.content.decode()


def test_a_patch_that_changes_nothing_does_not_answer_for_an_earlier_change(site: Site, path: str) -> None:
    with as_system():
        booking = Booking.objects.get()
        Booking.objects.filter(id=booking.id).update(state="scheduled")
    headers = {"if_match": "*", "prefer": "wait=5"}
    earlier = site.researcher.send("PATCH", path, {"count": 3}, headers=headers)
    with as_system():
        # In the same second, and by a clock that is ahead of the one of the next request.
        made, soon = BookingChange.objects.filter(booking=booking), timezone.now() + timedelta(minutes=1)
        made.update(state=BookingChange.State.KEPT, reasons=[REASON], decided_at=soon, asked_at=soon)
    nothing: list[dict[str, object]] = [{"count": 2}, {"name": "first"}, {"labels": {}}]
    for same in nothing:
        answer = awaited(site.researcher.send("PATCH", path, same, headers=headers))
        assert (answer.status_code, said(answer)["window"]["duration"]) == (200, "PT2H")
    assert awaited(earlier).status_code == 409


def test_the_same_key_changes_once(site: Site, path: str) -> None:
    headers = {"if_match": '"1"', "idempotency_key": "one"}
    first = site.researcher.send("PATCH", path, {"duration": "PT1H"}, headers=headers)
    again = site.researcher.send("PATCH", path, {"duration": "PT1H"}, headers=headers)
    assert (first.status_code, again.status_code) == (200, 200)
    assert (again.content, again["ETag"]) == (first.content, '"2"')


def test_another_tenants_booking_is_not_there(site: Site, path: str) -> None:
    answer = site.outsider.send("PATCH", path, {"name": "mine"}, headers={"if_match": "*"})
    assert answer.status_code == 404


def test_a_dry_run_says_price_start_and_place_and_writes_nothing(site: Site, path: str) -> None:
    before = shown(site, path)
    headers = {"if_match": '"1"', "prefer": "dry-run"}
    answer: Any = site.researcher.send("PATCH", path, {"duration": "PT1H"}, headers=headers)
    assert (answer.status_code, answer["Preference-Applied"]) == (200, "dry-run")
    quote = answer.json()
    assert (quote["strength"], quote["place_in_line"]) == ("weaker", "kept")
    assert Decimal(quote["price"]["difference"]) == -Decimal(before["price"]["held"]) / 2
    answer = site.researcher.send("PATCH", path, {"duration": "PT3H"}, headers=headers)
    quote = answer.json()
    assert (quote["strength"], quote["place_in_line"]) == ("stronger", "now")
    assert quote["start"]["starts"] == before["window"]["starts"]
    assert (quote["start"]["strength"], quote["blocking"]) == ("firm", None)
    assert shown(site, path) == before


def test_a_dry_run_of_a_cancellation_says_the_late_fee_and_ends_nothing(site: Site, path: str) -> None:
    with as_system():
        rows = Booking.objects.filter(tenant=site.tenant)
        row = rows.get()
        planned = {"planned_starts": row.not_before, "planned_class": "h100", "state": "scheduled"}
        ends = row.not_before + timedelta(seconds=row.duration_seconds)
        rows.update(**planned, planned_ends=ends, notice_seconds=30 * 86_400, late_share=50)
    answer: Any = site.researcher.post(f"{path}/cancel", prefer="dry-run")
    assert (answer.status_code, answer["Preference-Applied"]) == (200, "dry-run")
    half = row.hold_amount / 2
    said = {name: Decimal(answer.json()[name]) for name in ("charged", "late_fee", "returned")}
    assert said == {"charged": half, "late_fee": half, "returned": half}
    assert shown(site, path)["state"] == "scheduled"


def test_a_fixed_window_waits_for_any_earlier_start(site: Site, path: str) -> None:
    undecided = patched(site, path, {"sooner": True})
    assert (undecided.status_code, undecided.json()["code"]) == (409, "not_changeable")
    with as_system():
        row = Booking.objects.get(tenant=site.tenant)
        ends = row.not_before + timedelta(seconds=row.duration_seconds)
        planned = {"planned_starts": row.not_before, "planned_class": "h100", "state": "queued"}
        Booking.objects.filter(id=row.id).update(**planned, planned_ends=ends)
    for body, status, code in (
        ({"sooner": True, "count": 3}, 422, "sooner_alone"),
        ({"sooner": 1}, 400, "wrong_type"),
        ({"sooner": True, "not_before": row.not_before.isoformat()}, 422, "sooner_no_time"),
    ):
        refused = patched(site, path, body)
        assert (refused.status_code, refused.json()["code"]) == (status, code), refused.content
    answer = patched(site, path, {"sooner": True})
    change = answer.json()["change"]
    assert (answer.status_code, change["state"], change["sooner"]) == (202, "asked", True)
    assert change["keep_trying_until"] == change["start_by"]
    assert answer.json()["window"]["starts"] == row.not_before.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert site.researcher.send("DELETE", f"{path}/change").status_code == 200
    browser, base = Client(), f"/t/{site.tenant.slug}"
    browser.force_login(site.people["researcher"])
    here = f"{base}/bookings/{row.label}"
    assert "Wait for an earlier start" in browser.get(here).content.decode()
    page = browser.post(f"{here}/sooner", follow=True).content.decode()
    assert "It waits for an earlier start" in page
    assert "Wait for an earlier start" not in page
    assert "Any start from" in browser.get(f"{base}/offers").content.decode()


def test_an_undo_answers_as_a_change_does_and_only_once(site: Site, path: str) -> None:
    before = shown(site, path)
    refused: Any = site.researcher.post(f"{path}/undo", {})
    assert (refused.status_code, refused.json()["code"]) == (409, "nothing_to_undo")
    patched(site, path, {"duration": "PT1H", "name": "short"})
    answer: Any = site.researcher.post(f"{path}/undo", {})
    assert (answer.status_code, answer["ETag"]) == (200, '"3"')
    assert answer.json()["window"] == before["window"]
    assert (answer.json()["name"], answer.json()["price"]) == ("first", before["price"])
    again: Any = site.researcher.post(f"{path}/undo", {})
    assert (again.status_code, again.json()["code"]) == (409, "nothing_to_undo")
    bad: Any = site.researcher.post(f"{path}/undo", {"now": True})
    assert (bad.status_code, bad.json()["param"]) == (400, "now")
    outsider: Any = site.outsider.post(f"{path}/undo", {})
    assert outsider.status_code == 404


@pytest.mark.parametrize(
    ("value", "status", "code"),
    [
        (["unused"], 409, "give_back_early"),
        ([], 422, "too_short"),
        (["x" * 65], 422, "too_long"),
        ("unused", 400, "wrong_type"),
        ([7], 400, "wrong_type"),
    ],
)
def test_bad_gpus_to_give_back_are_refused(
    site: Site, path: str, value: object, status: int, code: str
) -> None:
    answer = patched(site, path, {"give_back": value})
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.content
    assert answer.json()["param"].startswith("give_back")


def test_what_a_refused_change_offers_is_a_change(site: Site, path: str) -> None:
    """Classes and tiers come in the fields of a PATCH, which renamed the booking after a tier before."""
    with as_system():
        Quota.objects.update(guaranteed_units=3 * 56_000, borrow_limit_units=0)
    refused = patched(site, path, {"count": 4})
    assert refused.status_code == 409, refused.content
    # What it has already is no change.
    assert patched(site, path, {"count": 5, "duration": "PT1H"}).json()["alternatives"]
    offered = refused.json()["alternatives"]
    assert offered
    for each in offered:
        assert not {"gpu_class", "ends", "name"} & each.keys()
        answer = site.researcher.send("PATCH", path, each, headers={"if_match": "*", "prefer": "dry-run"})
        assert answer.status_code == 200, (each, answer.content)


def test_a_running_booking_is_offered_the_end_that_its_tier_allows(site: Site) -> None:
    """The field of a PATCH is `ends`; the refusal named the `until` of an extension."""
    made: Any = site.researcher.post(
        "bookings", BODY | {"request": "1 h100 2h", "project": site.project.slug}
    )
    path = f"bookings/{made.json()['id']}"
    running(made.json()["id"])
    body = {"ends": (NOW + timedelta(days=80)).isoformat()}
    for headers in ({"if_match": "*", "prefer": "dry-run"}, {"if_match": "*"}):
        refused: Any = site.researcher.send("PATCH", path, body, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (422, "too_long"), refused.content
        (offered,) = refused.json()["alternatives"]
        assert offered.keys() == {"ends"}
        answer: Any = site.researcher.send(
            "PATCH", path, offered, headers={"if_match": "*", "prefer": "dry-run"}
        )
        assert (answer.status_code, datetime.fromisoformat(answer.json()["ends"])) == (
            200,
            datetime.fromisoformat(offered["ends"]),
        ), answer.content


def test_what_a_decided_change_offers_is_a_change(site: Site, path: str) -> None:
    """A window of a plan has fields that a PATCH lacks: it comes in its parts, or as the whole `ask`."""
    with as_system():
        Booking.objects.update(state="scheduled")
    at_once = site.researcher.send(
        "PATCH", path, {"count": 2, "duration": "PT3H"}, headers={"if_match": "*", "prefer": "wait=5"}
    )
    starts, ends = (NOW + timedelta(hours=hours) for hours in (3, 4))
    window = {"gpu_class": "h100", "profile": None, "count": 2, "share": None}
    times = {"starts": starts.isoformat(), "ends": ends.isoformat()}
    with as_system():
        BookingChange.objects.update(
            state="kept",
            decided_at=NOW,
            reasons=[REASON],
            alternatives=[window | times, window | times | {"profile": "1g.10gb"}],
        )
    refused = awaited(at_once)
    assert refused.status_code == 409, refused.content
    parts, whole = said(refused)["alternatives"]
    assert parts == {"starts": time_text(starts), "duration": 3_600}, "only what differs"
    assert (whole.keys(), whole["ask"]["profile"]) == ({"ask"}, "1g.10gb")
    for each in (parts, whole):
        answer = site.researcher.send("PATCH", path, each, headers={"if_match": "*", "prefer": "dry-run"})
        assert answer.status_code == 200, (each, answer.content)
