"""Input that is wrong in every way we could think of: a clear 4xx each, and nothing written."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.builders import Api, Site, row_counts, said

NOW = datetime.now(UTC).replace(microsecond=0)


def at(**ahead: float) -> str:
    """A time from now, in RFC 3339."""
    return (NOW + timedelta(**ahead)).isoformat()


GOOD = {"project": "folding", "request": "1 h100 for 10m"}
MAINTENANCE = {"node": "gpu-a1-01", "starts": at(hours=1), "ends": at(hours=2), "reason": "fans"}
GOOD_ASK: dict[str, Any] = {"count": 1, "classes": ["h100"], "duration": "PT1H"}


def with_ask(**changed: object) -> dict[str, Any]:
    """A good booking but for these parts of its ask."""
    return {"project": "folding", "ask": {**GOOD_ASK, **changed}}


BOOKINGS: dict[str, tuple[object, int, str | None]] = {
    "nothing at all": ({}, 400, "missing_field"),
    "neither request nor ask": ({"project": "folding"}, 400, "missing_field"),
    "both request and ask": ({**GOOD, "ask": GOOD_ASK}, 400, "missing_field"),
    "an unknown field": ({**GOOD, "color": "red"}, 400, "unknown_field"),
    "a field only the portal sets": ({**GOOD, "state": "active"}, 400, "unknown_field"),
    "a tenant of one's own choice": ({**GOOD, "tenant": "northlab"}, 400, "unknown_field"),
    "an unknown field in the ask": (with_ask(priority=9), 400, "unknown_field"),
    "another tenant's project": ({**GOOD, "project": "climate"}, 422, "not_found"),
    "a project that is not there": ({**GOOD, "project": "nowhere"}, 422, "not_found"),
    "a project one is not in": ({**GOOD, "project": "hidden"}, 422, "not_found"),
    "a project that is a number": ({**GOOD, "project": 1}, 400, "wrong_type"),
    "a project that is null": ({**GOOD, "project": None}, 400, "wrong_type"),
    "a request that is no text": ({**GOOD, "request": ["1 h100"]}, 400, "wrong_type"),
    "an empty request": ({**GOOD, "request": ""}, 422, "empty"),
    "a request of 201 characters": ({**GOOD, "request": "h" * 201}, 422, "too_long"),
    "a request nobody understands": ({**GOOD, "request": "all of it"}, 422, "not_understood"),
    "a name with a NUL": ({**GOOD, "name": "a\x00b"}, 400, "bad_text"),
    "a name with a line break": ({**GOOD, "name": "a\r\nb"}, 400, "bad_text"),
    "a name of 81 characters": ({**GOOD, "name": "n" * 81}, 422, "too_long"),
    "a zone that is not there": ({**GOOD, "zone": "Mars/Olympus"}, 422, "bad_zone"),
    "a zone that climbs out": ({**GOOD, "zone": "../../etc/passwd"}, 422, "bad_zone"),
    "a count of zero": (with_ask(count=0), 422, "count_out_of_bounds"),
    "a count below zero": (with_ask(count=-1), 422, "count_out_of_bounds"),
    "a million GPUs": (with_ask(count=10**6), 422, "count_out_of_bounds"),
    "a count of 400 digits": (with_ask(count=10**400), 422, "count_out_of_bounds"),
    "a count that is half": (with_ask(count=1.5), 400, "not_a_whole_number"),
    "a count in quotes": (with_ask(count="2"), 400, "not_a_whole_number"),
    "a count that is true": (with_ask(count=True), 400, "not_a_whole_number"),
    "a duration of zero": (with_ask(duration=0), 422, "duration_out_of_bounds"),
    "a duration of a second": (with_ask(duration=1), 422, "duration_out_of_bounds"),
    "a duration below zero": (with_ask(duration=-3600), 422, "duration_out_of_bounds"),
    "ten years": (with_ask(duration="P520W"), 422, "duration_out_of_bounds"),
    "1e308 seconds": (with_ask(duration=1e308), 400, "not_a_whole_number"),
    "a duration in words": (with_ask(duration="long"), 400, "not_a_duration"),
    "no duration": ({"project": "folding", "ask": {"count": 1, "classes": ["h100"]}}, 400, "missing_field"),
    "a naive time": (with_ask(starts="2026-12-01T10:00:00"), 400, "not_a_time"),
    "a time of another age": (with_ask(starts="9999-12-31T23:59:59Z"), 422, "time_out_of_bounds"),
    "the first day of the calendar": (
        with_ask(starts="0001-01-01T00:00:00+14:00"),
        422,
        "time_out_of_bounds",
    ),
    "infinity as a time": (with_ask(starts="infinity"), 400, "not_a_time"),
    "a window in the past": (with_ask(starts=at(days=-1)), 422, "window_past"),
    "a window that began a minute ago": (with_ask(starts=at(minutes=-2)), 422, "window_past"),
    "a window beyond the advance window": (with_ask(starts=at(days=60)), 422, "advance_window"),
    "longer than the tier allows": (with_ask(duration="P8D"), 422, "too_long"),
    "a deadline before the start": (
        with_ask(not_before=at(hours=5), deadline=at(hours=2)),
        422,
        "deadline_unreachable",
    ),
    "a fixed and a flexible window": (
        with_ask(starts=at(hours=1), deadline=at(hours=9)),
        422,
        "window_twice",
    ),
    "an unknown class": (with_ask(classes=["z9000"]), 422, "unknown_class"),
    "a class with a NUL": (with_ask(classes=["h100\x00"]), 400, "bad_text"),
    "no class": (with_ask(classes=[]), 400, "not_a_list"),
    "a slice the class can't make": (with_ask(profile="5g.50gb"), 422, "impossible_profile"),
    "a slice of another GPU": (with_ask(profile="1g.5gb"), 422, "impossible_profile"),
    "a closeness that is none": (with_ask(together="universe"), 400, "not_a_choice"),
    "an unknown tier": ({**GOOD, "tier": "platinum"}, 422, "unknown_tier"),
    "more than the project's quota": (with_ask(count=5), 409, "project_quota"),
    "more than the budget": (with_ask(count=4, duration="P6D"), 409, "budget_exceeded"),
}


def test_every_bad_booking_is_refused_clearly(site: Site) -> None:
    before = row_counts()
    for case, (body, status, code) in BOOKINGS.items():
        response = site.researcher.post("bookings", body)
        problem = said(response)
        assert response.status_code == status, (case, problem)
        assert response["Content-Type"] == "application/problem+json", case
        if code is not None:
            assert problem["code"] == code, (case, problem)
        assert problem["status"] == status, case
        assert problem["detail"], case
        assert row_counts() == before, case


RAW: dict[str, tuple[bytes, int, str | None]] = {
    "half a body": (b'{"project": "folding"', 400, "malformed_json"),
    "a list": (b"[]", 400, "malformed_json"),
    "a bare text": (b'"folding"', 400, "malformed_json"),
    "trailing data": (b"{} {}", 400, "malformed_json"),
    "NaN": (b'{"amount": NaN}', 400, "malformed_json"),
    "Infinity": (b'{"amount": -Infinity}', 400, "malformed_json"),
    "Latin-1": (b'{"project": "f\xfclding"}', 400, "malformed_json"),
    "a byte order mark": (b"\xef\xbb\xbf{}", 400, "malformed_json"),
    "a field twice": (b'{"project": "a", "project": "b"}', 400, "repeated_field"),
    "a field twice, deep": (b'{"ask": {"count": 1, "count": 2}}', 400, "repeated_field"),
    "a lone surrogate": (b'{"name": "\\ud800"}', 400, "bad_text"),
    "a lone surrogate as a field": (b'{"\\ud800": 1}', 400, "bad_text"),
    "a hundred thousand levels": (b'{"a":' + b"[" * 100_000, 400, "too_deep"),
    "twenty levels": (b'{"a":' + b"[" * 20 + b"]" * 20 + b"}", 400, "too_deep"),
    "an exponent beyond measure": (b'{"a": 1e99999999999999999999}', 400, None),
    "a gigabyte of zeros": (b'{"amount": 1e999999999}', 400, "malformed_json"),
    "a gigabyte of zeros after the point": (b'{"amount": -1e-999999999}', 400, "malformed_json"),
    "no digit but zeros": (b'{"amount": 0e-999999999}', 400, "malformed_json"),
    "5,000 digits": (b'{"a": ' + b"9" * 5_000 + b"}", 400, "malformed_json"),
    "two mebibytes": (b'{"name": "' + b"n" * (2 * 1024 * 1024) + b'"}', 413, "body_too_large"),
}


@pytest.mark.parametrize("path", ["bookings", "quotes", "tokens", "budgets", "agents/enrol"])
def test_every_malformed_body_is_refused_clearly(site: Site, path: str) -> None:
    before = row_counts()
    for case, (body, status, code) in RAW.items():
        response = site.admin.post(path, body)
        assert response.status_code == status, (case, response.content)
        if code is not None:
            assert said(response)["code"] == code, case
    assert row_counts() == before


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-7",
        "multipart/form-data; boundary=x",
        "application/xml",
        "",
    ],
)
def test_only_json_in_utf_8_is_taken(site: Site, content_type: str) -> None:
    response = site.researcher.post("bookings", GOOD, content_type=content_type)
    assert (response.status_code, said(response)["code"]) == (415, "media_type")


def test_a_packed_body_is_not_unpacked(site: Site) -> None:
    response = site.researcher.post("bookings", b"\x1f\x8b", content_encoding="gzip")
    assert (response.status_code, said(response)["code"]) == (415, "media_type")


AMOUNTS: list[object] = [
    "NaN",
    "Infinity",
    "-Infinity",
    "-1",
    "-0",
    "1e3",
    "1E-7",
    "1e30",
    "1,000.00",
    "",
    " 1",
    "\uff11\uff10\uff10",
    "0x10",
    "1_000",
    "1000000000000000",
    "0.0000001",
    None,
    True,
    [],
    {},
    1e30,
    -5,
]


@pytest.mark.parametrize("amount", AMOUNTS, ids=str)
def test_an_amount_of_money_is_refused_clearly(site: Site, amount: object) -> None:
    before = row_counts()
    response = site.admin.put(f"budgets/{site.budget.id}", {"amount": amount})
    assert response.status_code in (400, 422), response.content
    assert said(response)["param"] == "amount"
    assert row_counts() == before


def test_an_amount_is_taken_as_text_and_as_an_exact_number(site: Site) -> None:
    for amount, kept in (("1500.10", "1500.100000"), (1500.1, "1500.100000"), (7, "7.000000")):
        response = site.admin.put(f"budgets/{site.budget.id}", {"amount": amount})
        assert (response.status_code, said(response)["amount"]) == (200, kept)


def test_whole_numbers_and_flags_are_not_guessed_from_text(site: Site) -> None:
    terms = {
        "name": "Gold",
        "priority": 9,
        "pausable": False,
        "grace_seconds": 60,
        "protected_seconds": 0,
        "max_duration_seconds": 3600,
        "advance_seconds": 86400,
    }
    assert site.operator.put("tiers/gold", terms).status_code == 200
    wrong: list[tuple[str, object]] = [
        ("priority", "9"),
        ("priority", 1.0),
        ("priority", True),
        ("pausable", "true"),
        ("pausable", 0),
        ("grace_seconds", -1),
        ("max_duration_seconds", 10**30),
    ]
    for name, value in wrong:
        response = site.operator.put("tiers/gold", {**terms, name: value})
        assert response.status_code in (400, 422), (name, value)
        assert said(response)["param"] == name


def test_what_a_role_may_not_do_is_refused_and_changes_nothing(site: Site) -> None:
    terms = {
        "name": "Gold",
        "priority": 9,
        "pausable": False,
        "grace_seconds": 60,
        "protected_seconds": 0,
        "max_duration_seconds": 3600,
        "advance_seconds": 86400,
    }
    quota = {"project": "folding", "gpu_class": "h100", "guaranteed_units": 0}
    prices = [{"gpu_class": "h100", "tier": "spot", "per_gpu_hour": "1"}]
    acts = [
        ("POST", "bookings", GOOD, [site.viewer]),
        ("PUT", f"budgets/{site.budget.id}", {"amount": "1"}, [site.researcher, site.lead]),
        ("PUT", "quotas", quota, [site.researcher, site.lead]),
        ("PUT", "tiers/gold", terms, [site.researcher, site.admin]),
        ("POST", "price-books", {"prices": prices}, [site.lead, site.admin]),
        ("POST", "price-books/drafts", {"prices": prices}, [site.lead, site.admin]),
        (
            "POST",
            "platform-budgets",
            {"starts": "2040-01-01", "ends": "2040-02-01", "amount": "1"},
            [site.lead, site.admin],
        ),
        ("GET", "platform-budgets", None, [site.lead, site.admin]),
        ("POST", "projects", {"slug": "new", "name": "New"}, [site.lead]),
        ("POST", "fleet/nodes/gpu-a1-01/drain", {"reason": "dust"}, [site.lead, site.admin]),
        ("POST", "fleet/enrolments", {"node": "n1", "rack": "r1"}, [site.lead, site.admin]),
        ("POST", "fleet/nodes/gpu-a1-01/fence", {"note": "off"}, [site.lead, site.admin]),
        ("GET", "fleet/nodes/gpu-a1-01/events", None, [site.lead, site.admin]),
        ("POST", f"fleet/gpus/{uuid4()}/return", {"note": "reset"}, [site.lead, site.admin]),
        ("PUT", f"fleet/gpus/{uuid4()}", {"mode_pinned": ""}, [site.lead, site.admin]),
        ("POST", "maintenance", MAINTENANCE, [site.researcher, site.admin]),
        ("POST", "maintenance/preview", MAINTENANCE, [site.researcher, site.admin]),
        ("POST", f"maintenance/{uuid4()}/end", None, [site.lead, site.admin]),
        (
            "PUT",
            "quotas",
            {"tenant": "helix", "gpu_class": "h100", "guaranteed_units": 0},
            [site.admin],
        ),
    ]
    before = row_counts()
    for method, path, body, callers in acts:
        for api in callers:
            response = api.send(method, path, body)
            assert (response.status_code, said(response)["code"]) == (403, "not_allowed"), path
    assert row_counts() == before


def test_an_agent_with_a_wrong_token_stays_outside(site: Site) -> None:
    before = row_counts()
    response = Api(None).post("agents/enrol", {"token": "gpup_enrol_x", "inventory": {}})
    assert response.status_code in (403, 422)
    assert row_counts() == before


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
FIELDS = (
    "project",
    "request",
    "ask",
    "tier",
    "name",
    "zone",
    "count",
    "classes",
    "duration",
    "amount",
    "starts",
    "ends",
    "until",
    "by",
    "username",
    "role",
    "days",
    "slug",
    "prices",
    "time_zone",
    "gpu_class",
    "guaranteed_units",
    "limit_units",
    "inventory",
    "token",
    "reason",
    "node",
    "rack",
)
ROUTES = (
    ("POST", "bookings"),
    ("POST", "quotes"),
    ("POST", "tokens"),
    ("POST", "budgets"),
    ("POST", "projects"),
    ("POST", "members"),
    ("POST", "price-books"),
    ("PUT", "quotas"),
    ("POST", "price-books/drafts"),
    ("PUT", "me"),
    ("PUT", "tiers/standard"),
    ("POST", "bookings/BK-1/extend"),
    ("POST", "agents/enrol"),
    ("POST", "fleet/enrolments"),
)


@pytest.mark.turn
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    route=st.sampled_from(ROUTES),
    body=st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=8), json_values, max_size=6)
    | json_values,
)
def test_no_body_whatever_is_a_server_error(site: Site, route: tuple[str, str], body: object) -> None:
    response = site.operator.send(*route, json.dumps(body).encode())
    assert response.status_code < 500
    if response.status_code >= 400:
        assert said(response)["code"]


@pytest.mark.turn
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ask=st.dictionaries(
        st.sampled_from(
            [
                "count",
                "classes",
                "profile",
                "together",
                "required",
                "duration",
                "starts",
                "not_before",
                "deadline",
            ]
        ),
        json_values,
        max_size=9,
    ),
    text=st.text(max_size=60),
)
def test_no_ask_whatever_is_a_server_error(site: Site, ask: dict[str, object], text: str) -> None:
    for body in ({"project": "folding", "ask": {**GOOD_ASK, **ask}}, {"project": "folding", "request": text}):
        response = site.researcher.post("quotes", json.dumps(body).encode())
        assert response.status_code < 500, response.content
