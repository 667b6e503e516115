"""What each role reads, page by page."""

import re

import pytest
import redis
from django.db import connection
from django.test import Client
from pytest_django import Settings

from tests.api.builders import Api, Site, said
from tests.api.frame.test_schema import documented
from tests.builders_allocation import a_booking
from tests.roles import as_role

LISTS = [
    "projects",
    "projects/folding/members",
    "tiers",
    "quotas",
    "labs",
    "person-quotas",
    "quota-windows",
    "tokens",
    "budgets",
    "price-books",
    "gpu-classes",
    "bookings",
    "engines",
    "fleet/nodes",
    "fleet/gpus",
    "maintenance",
]


@pytest.mark.parametrize("path", LISTS)
def test_every_member_reads_every_list(site: Site, path: str) -> None:
    for api in (site.researcher, site.lead, site.viewer, site.admin):
        response = api.get(path)
        assert response.status_code == 200, response.content
        assert set(said(response)) == {"items", "next"}
        assert response["Cache-Control"] == "no-store"


def test_me_says_who_calls_and_with_which_roles(site: Site) -> None:
    me = said(site.researcher.get("me"))
    assert me["username"] == "mara"
    assert me["tenant"] == {"slug": "helix", "name": "Helix"}
    assert me["roles"] == [{"project": "folding", "role": "researcher"}]
    assert not me["is_operator"]
    assert said(site.operator.get("me"))["is_operator"]


def test_a_researcher_sees_only_projects_they_are_in(site: Site) -> None:
    assert [row["slug"] for row in said(site.researcher.get("projects"))["items"]] == ["folding"]
    assert len(said(site.admin.get("projects"))["items"]) == 2


def test_bookings_of_a_project_are_shown_to_those_who_are_in_it_alone(site: Site) -> None:
    made = a_booking(site.hidden, site.people["admin"].id, state="cancelled")
    hidden = f"bk_{made.id.hex}"
    assert said(site.researcher.get("bookings"))["items"] == []
    assert site.researcher.get(f"bookings/{hidden}").status_code == 404
    assert [row["id"] for row in said(site.admin.get("bookings"))["items"]] == [hidden]
    assert said(site.admin.get(f"bookings/{hidden}"))["id"] == hidden


def test_a_budget_says_what_is_spent_held_and_left_as_decimal_strings(site: Site) -> None:
    budget = said(site.researcher.get("budgets"))["items"][0]
    assert budget["project"] == "folding"
    assert (budget["amount"], budget["held"], budget["left"]) == (
        "1000.000000",
        "0.000000",
        "1000.000000",
    )
    assert said(site.researcher.get(f"budgets/{budget['id']}")) == budget


def test_classes_tell_profiles_in_units_and_prices_of_now(site: Site) -> None:
    h100 = said(site.viewer.get("gpu-classes"))["items"][0]
    assert h100["gpus"] == 8
    assert {row["profile"]: row["units"] for row in h100["profiles"]} == {
        "1g.10gb": 8_000,
        "2g.20gb": 16_000,
        "3g.40gb": 28_000,
        "7g.80gb": 56_000,
    }
    assert h100["prices"][1] == {"tier": "standard", "currency": "EUR", "per_gpu_hour": "4.8000"}


def test_availability_of_an_empty_fleet_is_all_of_it(site: Site) -> None:
    free = said(site.viewer.get("availability", gpu_class="h100"))
    assert [step["whole_gpus"] for step in free["free"]] == [8]
    assert len(free["gpus"]) == 8


def test_pages_follow_each_other_without_gap_or_repeat(site: Site) -> None:
    seen: list[int] = []
    query = {"limit": "3"}
    while True:
        page = said(site.viewer.get("fleet/gpus", **query))
        seen += [gpu["index"] for gpu in page["items"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    assert seen == list(range(8))


def test_a_cursor_of_one_list_does_not_open_another(site: Site) -> None:
    cursor = said(site.viewer.get("fleet/gpus", limit="1"))["next"]
    for stolen in (cursor, cursor[:-1], "x"):
        response = site.viewer.get("bookings", cursor=stolen)
        assert (response.status_code, said(response)["code"]) == (400, "bad_cursor")


@pytest.mark.parametrize("limit", ["0", "201", "1000000000", "-1", "x", "1.5"])
def test_a_page_has_1_to_200_rows(site: Site, limit: str) -> None:
    assert site.viewer.get("bookings", limit=limit).status_code in (400, 422)


def test_unknown_and_repeated_parameters_are_refused(site: Site) -> None:
    unknown = said(site.viewer.get("bookings", tenant="x"))
    assert unknown["code"] == "unknown_field"
    assert unknown["detail"].startswith("There is no field tenant here. The fields: array, ")
    wrong = said(site.viewer.get("bookings", state="over"))
    assert (wrong["code"], wrong["param"]) == ("unknown_choice", "state")
    assert wrong["detail"].startswith("Choose one of: ")
    assert "ended" in wrong["detail"]
    assert said(site.viewer.get("bookings?limit=1&limit=2"))["code"] == "repeated_param"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({}, "missing_field"),
        ({"gpu_class": "z9000"}, "not_found"),
        ({"gpu_class": "h100", "from": "2026-11-21T10:00:00"}, "naive_time"),
        ({"gpu_class": "h100", "from": "yesterday"}, "bad_time"),
        ({"gpu_class": "h100", "from": "9999-12-31T23:59:59Z"}, "out_of_range"),
        ({"gpu_class": "h100", "until": "2001-01-01T00:00:00Z"}, "end_before_start"),
        (
            {
                "gpu_class": "h100",
                "from": "2026-11-21T10:00:00Z",
                "until": "2036-11-21T10:00:00Z",
            },
            "span_too_long",
        ),
    ],
)
def test_availability_wants_a_clear_span_of_at_most_28_days(
    site: Site, query: dict[str, str], code: str
) -> None:
    response = site.viewer.get("availability", **query)
    assert 400 <= response.status_code < 500
    assert said(response)["code"] == code


def test_nobody_reads_without_a_token_that_works(site: Site) -> None:
    for token in (None, "", "gpup_pat_x", "gpup_pat_" + "0" * 38, "\xff"):
        response = Api(token).get("me")
        assert response.status_code == 401
        assert response["WWW-Authenticate"].startswith("Bearer")
        assert response["Content-Type"] == "application/problem+json"


def test_a_session_cookie_is_no_token(site: Site) -> None:
    client = Client()
    client.force_login(site.people["admin"])
    assert client.get("/api/v1/me").status_code == 401


def test_a_revoked_token_stops_with_the_next_request(site: Site) -> None:
    token = said(site.researcher.get("me"))["token_id"]
    assert site.researcher.delete(f"tokens/{token}").status_code == 200
    assert site.researcher.get("me").status_code == 401


@pytest.mark.parametrize("method", ["PATCH", "TRACE", "OPTIONS", "DELETE", "BREW"])
def test_other_methods_are_refused_as_a_problem(site: Site, method: str) -> None:
    response = site.admin.send(method, "bookings")
    assert (response.status_code, said(response)["code"]) == (405, "method_not_allowed")
    assert "GET" in response["Allow"]


@pytest.mark.parametrize("path", ["", "nothing", "bookings/", "bookings/1", "bookings/%00", "me/x"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_addresses_that_are_not_there_answer_as_a_problem(site: Site, path: str, method: str) -> None:
    response = site.admin.send(method, path)
    assert (response.status_code, said(response)["code"]) == (404, "not_found")


@pytest.mark.django_db
def test_probes_answer_without_a_token() -> None:
    assert Client().get("/healthz").json() == {"status": "ok"}
    ready = Client().get("/readyz")
    assert ready.status_code == 200
    stores = {"database", "redis", "agents_redis", "migrations"}
    assert set(ready.json()) == {"status", *stores, "programs", "decisions", "messages"}
    assert set(ready.json().values()) == {"ok"}


@pytest.mark.django_db
def test_a_database_that_lacks_a_migration_is_not_ready_and_one_with_more_is() -> None:
    with as_role("portal_owner"), connection.cursor() as cursor:
        cursor.execute("INSERT INTO django_migrations (app, name, applied) VALUES ('portal', '0099', now())")
    assert Client().get("/readyz").status_code == 200
    with as_role("portal_owner"), connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM django_migrations WHERE id ="
            " (SELECT max(id) FROM django_migrations WHERE app = 'billing')"
        )
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["migrations"]) == (503, "1 not applied")
    assert answer.json()["status"] == "not ready"


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["redis", "agents_redis"])
def test_a_store_that_answers_and_takes_no_write_degrades_the_portal(
    settings: Settings, site: Site, name: str
) -> None:
    url = settings.CACHE_REDIS_URL if name == "redis" else settings.AGENTS_REDIS_URL
    with redis.Redis.from_url(url) as server:
        limit = server.config_get("maxmemory")["maxmemory"]
        server.config_set("maxmemory", "1")
        try:
            assert server.ping()
            answer = Client().get("/readyz")
            booking = site.researcher.post("bookings", {"project": "folding", "request": "1 h100 for 10m"})
        finally:
            server.config_set("maxmemory", limit)
    assert (answer.status_code, answer.json()[name]) == (200, "no write")
    assert answer.json()["status"] == "degraded"
    assert booking.status_code == 201
    assert Client().get("/readyz").json()["status"] == "ok"


@pytest.mark.django_db
def test_a_database_that_only_reads_is_not_ready() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["database"]) == (503, "no write")


def test_no_number_of_a_query_is_read_in_another_script(site: Site) -> None:
    """`int` reads full-width digits and underscores, so every number parameter is tried."""
    tried, wide = 0, "\N{FULLWIDTH DIGIT ONE}"
    for path, methods in documented()["paths"].items():
        for each in methods.get("get", {}).get("parameters", ()):
            kind = each["schema"].get("type")
            if each["in"] != "query" or kind not in ("integer", "number"):
                continue
            address = re.sub(r"{[a-z_]+}", "1", path.removeprefix("/api/v1/"))
            for value in (wide, "\N{ARABIC-INDIC DIGIT ONE}", "1_0", "+1", " 1", f"{wide}.{wide}"):
                answer = site.operator.get(address, **{each["name"]: value})
                assert answer.status_code in (400, 403, 404), (path, each["name"], value)
                if answer.status_code == 400:
                    assert said(answer)["code"] == "wrong_type", (path, said(answer))
                    assert said(answer)["param"] == each["name"]
                    tried += 1
    assert tried > 100
