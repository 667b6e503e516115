"""The same POST sent twice works once and answers the same."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any, TypeVar

import psycopg
import pytest
from django.db import connection
from django.http import HttpResponse

from allocation.api.bookings import bookings as bookings_api
from allocation.models import Booking
from allocation.services.bookings.creation import booking_create
from tenants.api import base
from tenants.api.idempotency import KeyedRequest, booking_id
from tenants.models import ApiToken, IdempotencyKey
from tenants.platform.errors import Refused
from tests.api.builders import Site, a_site, row_counts, said
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until

GOOD = {"project": "folding", "request": "1 h100 for 10m"}
Answer = TypeVar("Answer")


def count(model: type[Booking] | type[ApiToken] | type[IdempotencyKey]) -> int:
    """Rows of all tenants."""
    with as_system():
        return model._default_manager.count()


def at_once(times: int, act: Callable[[], Answer]) -> list[Answer]:
    """`act` by so many threads in the same moment, each with its own connection."""
    barrier = Barrier(times)

    def one(_: int) -> Answer:
        try:
            barrier.wait(timeout=20)
            return act()
        finally:
            connection.close()

    with ThreadPoolExecutor(times) as threads:
        return list(threads.map(one, range(times)))


def test_a_repeated_post_gets_the_same_bytes_marked_as_a_replay(site: Site) -> None:
    first = site.researcher.post("bookings", GOOD, idempotency_key="k1")
    again = site.researcher.post("bookings", GOOD, idempotency_key="k1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.content == first.content
    assert again["Location"] == first["Location"]
    assert "Idempotency-Replayed" not in first
    assert again["Idempotency-Replayed"] == "true"
    assert count(Booking) == 1


def test_without_a_key_two_posts_are_two_bookings(site: Site) -> None:
    for _ in range(2):
        assert site.researcher.post("bookings", GOOD).status_code == 201
    assert count(Booking) == 2


def test_a_key_is_for_one_request_only(site: Site) -> None:
    site.researcher.post("bookings", GOOD, idempotency_key="k1")
    for path, body in (("bookings", {**GOOD, "name": "other"}), ("quotes", GOOD)):
        response = site.researcher.post(path, body, idempotency_key="k1")
        assert (response.status_code, said(response)["code"]) == (422, "idempotency_key_reused")
    assert count(Booking) == 1


def test_the_same_key_of_another_person_is_another_key(site: Site) -> None:
    site.researcher.post("bookings", GOOD, idempotency_key="k1")
    response = site.lead.post("bookings", GOOD, idempotency_key="k1")
    assert response.status_code == 201
    assert "Idempotency-Replayed" not in response
    assert count(Booking) == 2


@pytest.mark.parametrize("key", ["", "k" * 256, "schl\u00fcssel", "a\tb"])
def test_a_key_has_1_to_255_printable_characters(site: Site, key: str) -> None:
    before = row_counts()
    response = site.researcher.post("bookings", GOOD, idempotency_key=key)
    assert (response.status_code, said(response)["code"]) == (400, "bad_idempotency_key")
    assert row_counts() == before


def test_a_refusal_by_rule_is_kept_and_replayed(site: Site) -> None:
    body = {"project": "folding", "request": "4 h100 6d"}
    first = site.researcher.post("bookings", body, idempotency_key="k1")
    again = site.researcher.post("bookings", body, idempotency_key="k1")
    assert (first.status_code, said(first)["code"]) == (409, "budget_exceeded")
    assert again.content == first.content
    assert again["Content-Type"] == "application/problem+json"
    assert again["Idempotency-Replayed"] == "true"


def test_what_a_role_may_not_do_today_may_be_tried_again(site: Site) -> None:
    for _ in range(2):
        response = site.viewer.post("bookings", GOOD, idempotency_key="k1")
        assert response.status_code == 403
        assert "Idempotency-Replayed" not in response
    assert count(IdempotencyKey) == 0


def test_a_replayed_token_is_not_shown_again_and_never_stored(site: Site) -> None:
    body = {"name": "ci"}
    first = said(site.researcher.post("tokens", body, idempotency_key="k1"))
    again = said(site.researcher.post("tokens", body, idempotency_key="k1"))
    assert first["token"].startswith("gpup_pat_")
    assert again == {**first, "token": None}
    with as_system():
        assert first["token"] not in str(list(IdempotencyKey.objects.values_list("answer")))


@pytest.mark.races
def test_a_second_sender_waits_for_the_first_and_gets_its_answer(
    real_db: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = a_site()
    is_working, may_end = Event(), Event()

    def slow(*args: Any) -> Booking:  # noqa: ANN401 (as the function it wraps)
        is_working.set()
        assert may_end.wait(timeout=20)
        return booking_create(*args)

    monkeypatch.setattr(bookings_api, "booking_create", slow)

    def post(_: int) -> HttpResponse:
        try:
            return site.researcher.post("bookings", GOOD, idempotency_key="k1")
        finally:
            connection.close()

    with (
        ThreadPoolExecutor(2) as threads,
        psycopg.connect(real_db.admin_dsn, autocommit=True) as admin,
    ):
        first = threads.submit(post, 1)
        assert is_working.wait(timeout=20)
        second = threads.submit(post, 2)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_until(lambda: admin.execute(waiting).fetchone() == (1,), seconds=20)
        may_end.set()
        answers = [first.result(timeout=20), second.result(timeout=20)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[1]["Idempotency-Replayed"] == "true"
    assert answers[0].content == answers[1].content
    assert count(Booking) == 1


@pytest.mark.parametrize("died", [Refused("busy", "Ask again."), RuntimeError("killed")], ids=str)
def test_a_request_that_dies_leaves_no_key_and_the_next_works_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch, died: Exception
) -> None:
    """Also where the portal was only busy: its answer says to ask again."""

    def die(*_: object, **__: object) -> None:
        raise died

    monkeypatch.setattr(base, "answer_store", die)
    if isinstance(died, Refused):
        busy = site.researcher.post("bookings", GOOD, idempotency_key="k1")
        assert (busy.status_code, busy["Retry-After"]) == (503, "1")
    else:
        with pytest.raises(RuntimeError):
            site.researcher.post("bookings", GOOD, idempotency_key="k1")
    monkeypatch.undo()
    assert (count(Booking), count(IdempotencyKey)) == (0, 0)
    again = site.researcher.post("bookings", GOOD, idempotency_key="k1")
    expected = booking_id(site.actor(), KeyedRequest("k1", "POST", "/api/v1/bookings", b""))
    assert expected is not None
    assert (again.status_code, said(again)["id"]) == (201, f"bk_{expected.hex}")
    assert "Idempotency-Replayed" not in again


@pytest.mark.turn
@pytest.mark.races
def test_twenty_equal_posts_in_one_moment_are_one_booking(real_db: Servers) -> None:
    site = a_site()

    def post() -> HttpResponse:
        return site.researcher.post("bookings", GOOD, idempotency_key="k1")

    answers = at_once(20, post)
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert sum("Idempotency-Replayed" not in answer for answer in answers) == 1
    assert count(Booking) == 1


@pytest.mark.turn
@pytest.mark.races
def test_without_the_unique_index_the_same_key_works_more_than_once(real_db: Servers) -> None:
    site = a_site()
    with psycopg.connect(real_db.owner_dsn, autocommit=True) as owner:
        owner.execute(
            "ALTER TABLE tenants_idempotencykey DROP CONSTRAINT idempotency_once,"
            " ADD CONSTRAINT idempotency_once UNIQUE (tenant_id, user_id, key, id)"
        )
    before = count(ApiToken)
    rounds = 6
    for number in range(rounds):
        at_once(
            8,
            lambda key=f"k{number}": site.researcher.post(  # type: ignore[misc] # bound per round
                "tokens", {"name": "ci"}, idempotency_key=key
            ),
        )
    assert count(ApiToken) - before > rounds
