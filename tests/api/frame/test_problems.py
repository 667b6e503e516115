"""Failures below the API become answers that programs can act on."""

from collections.abc import Iterator

import psycopg
import pytest
from django.conf import settings
from django.db import DataError, IntegrityError, InterfaceError, OperationalError, connection
from django.test import Client

from allocation.api.bookings import bookings
from portal.api.errors import STATUS_BY_CODE
from solver.reasons.catalogue import RULES
from tests.api.builders import Site, a_site, said
from tests.servers.servers import Servers

LINE = {"project": "folding", "request": "1 h100 for 10m"}


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (OperationalError("canceling statement due to lock timeout"), 503, "busy"),
        (InterfaceError("connection already closed"), 503, "busy"),
        (IntegrityError('violates constraint "allocation_no_double_booking"'), 409, "conflict"),
        (DataError("value out of range for type bigint"), 422, "bad_value"),
    ],
)
def test_faults_of_the_database_are_answered_without_its_words(
    site: Site, monkeypatch: pytest.MonkeyPatch, fault: Exception, status: int, code: str
) -> None:
    def fail(*_: object) -> None:
        raise fault

    monkeypatch.setattr(bookings, "booking_create", fail)
    response = site.researcher.post("bookings", LINE, idempotency_key="k1")
    assert (response.status_code, said(response)["code"]) == (status, code)
    assert str(fault).encode() not in response.content
    assert response.has_header("Retry-After") == (status == 503)
    monkeypatch.undo()
    assert site.researcher.post("bookings", LINE, idempotency_key="k1").status_code == 201


@pytest.fixture
def locked_counter(real_db: Servers) -> Iterator[Site]:
    """Somebody holds the row that every new booking of the tenant counts on."""
    site = a_site()
    with psycopg.connect(real_db.owner_dsn) as owner:
        owner.execute("SELECT 1 FROM tenants_tenant FOR UPDATE")
        yield site


@pytest.mark.races
def test_a_lock_that_is_held_too_long_is_answered_as_busy(locked_counter: Site) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '200ms'")
    response = locked_counter.researcher.post("bookings", LINE)
    assert (response.status_code, said(response)["code"]) == (503, "busy")
    assert response["Retry-After"] == "1"


@pytest.fixture
def locked_sessions(real_db: Servers) -> Iterator[Site]:
    """Holds locks on the tables that identify the caller."""
    site = a_site()
    with psycopg.connect(real_db.owner_dsn) as owner:
        owner.execute("LOCK TABLE tenants_session, tenants_apitoken IN ACCESS EXCLUSIVE MODE")
        yield site


@pytest.mark.turn
@pytest.mark.races
@pytest.mark.parametrize("setting", ["lock_timeout", "statement_timeout"])
def test_what_the_database_ends_before_anybody_is_known_is_busy_and_not_broken(
    locked_sessions: Site, setting: str
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET {setting} = '200ms'")
    response = locked_sessions.researcher.get("bookings")
    assert (response.status_code, said(response)["code"]) == (503, "busy")
    browser = Client(raise_request_exception=False)
    browser.cookies[settings.SESSION_COOKIE_NAME] = "a" * 32
    for path in ("/", "/account", "/ops/fleet"):
        page = browser.get(path)
        assert (page.status_code, page["Retry-After"]) == (503, "5")


@pytest.mark.races
@pytest.mark.parametrize(
    ("role", "statement", "lock", "idle"),
    [
        ("portal_web", "10s", "5s", "1min"),
        ("portal_operators", "30s", "5s", "2min"),
        ("portal_system", "1min", "20s", "5min"),
        ("portal_owner", "0", "1min", "0"),
    ],
)
def test_each_role_has_its_patience(
    real_db: Servers, role: str, statement: str, lock: str, idle: str
) -> None:
    with psycopg.connect(real_db.dsn(role)) as connected:
        shown = [
            connected.execute(f"SHOW {name}").fetchone()
            for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        ]
    assert shown == [(statement,), (lock,), (idle,)]


def test_no_rule_of_the_catalogue_is_taken_for_malformed_input() -> None:
    assert not {rule.code for rule in RULES} & set(STATUS_BY_CODE)
