"""The same POST sent twice works once and answers the same."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import TypeVar

import psycopg
import pytest
from django.db import connection
from django.http import HttpResponse
from django.utils import timezone

from allocation.models import Booking
from tenants.api import base
from tenants.api.idempotency import Asked, Claim, booking_id, claim, free, working
from tenants.errors import Refused
from tenants.models import ApiToken, IdempotencyKey
from tests.api.builders import Site, a_site, row_counts, said
from tests.roles import as_system
from tests.servers.servers import Servers

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
    wish = {"project": "folding", "request": "4 h100 6d"}
    first = site.researcher.post("bookings", wish, idempotency_key="k1")
    again = site.researcher.post("bookings", wish, idempotency_key="k1")
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


def test_while_the_first_request_works_the_second_is_told_to_wait(site: Site) -> None:
    now = timezone.now()
    site.researcher.post("bookings", GOOD, idempotency_key="k1")
    with as_system():
        IdempotencyKey.objects.update(
            status=None, answer=None, locked_until=now + timedelta(seconds=30)
        )
    response = site.researcher.post("bookings", GOOD, idempotency_key="k1")
    assert (response.status_code, said(response)["code"]) == (409, "in_flight")
    assert response["Retry-After"] == "1"


def test_a_key_whose_worker_died_is_taken_over_with_the_same_booking_id(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    monkeypatch.setattr(base, "keep", die)
    monkeypatch.setattr(base, "free", lambda *_: None)
    with pytest.raises(RuntimeError):
        site.researcher.post("bookings", GOOD, idempotency_key="k1")
    monkeypatch.undo()
    held = site.researcher.post("bookings", GOOD, idempotency_key="k1")
    assert said(held)["code"] == "in_flight"
    with as_system():
        IdempotencyKey.objects.update(locked_until=timezone.now() - timedelta(seconds=1))
    taken = site.researcher.post("bookings", GOOD, idempotency_key="k1")
    expected = booking_id(site.actor(), Asked("k1", "POST", "/api/v1/bookings", b""))
    assert expected is not None
    assert (taken.status_code, said(taken)["id"]) == (201, f"bk_{expected.hex}")
    assert count(Booking) == 1


def test_whoever_lost_the_claim_does_not_work(site: Site) -> None:
    actor = site.actor()
    asked = Asked("k1", "POST", "/api/v1/bookings", b"d" * 32)
    now = timezone.now().replace(microsecond=0)
    slow = claim(actor=actor, asked=asked, now=now)
    assert isinstance(slow, Claim)
    with pytest.raises(Refused, match="in_flight"):
        claim(actor=actor, asked=asked, now=now + timedelta(seconds=59))
    heir = claim(actor=actor, asked=asked, now=now + timedelta(seconds=61))
    assert isinstance(heir, Claim)
    assert heir.id == slow.id
    with pytest.raises(Refused, match="in_flight"), working(actor, slow):
        pytest.fail("the claim was lost")
    free(actor, slow)
    with working(actor, heir):
        assert count(IdempotencyKey) == 1


def test_a_crash_while_the_answer_is_stored_leaves_neither_booking_nor_key(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = row_counts()

    def crash(*_: object, **__: object) -> None:
        raise RuntimeError("the disk is on fire")

    monkeypatch.setattr(base, "keep", crash)
    with pytest.raises(RuntimeError):
        site.researcher.post("bookings", GOOD, idempotency_key="k1")
    assert row_counts() == before
    monkeypatch.undo()
    assert site.researcher.post("bookings", GOOD, idempotency_key="k1").status_code == 201


@pytest.mark.races
def test_twenty_equal_posts_in_one_moment_are_one_booking(real_db: Servers) -> None:
    site = a_site()

    def post() -> HttpResponse:
        return site.researcher.post("bookings", GOOD, idempotency_key="k1")

    answers = at_once(20, post)
    made = {answer.content for answer in answers if answer.status_code == 201}
    others = {said(answer)["code"] for answer in answers if answer.status_code != 201}
    assert len(made) == 1
    assert others <= {"in_flight"}
    assert count(Booking) == 1
    assert post().content in made


@pytest.mark.races
def test_without_the_unique_index_the_same_key_works_more_than_once(real_db: Servers) -> None:
    site = a_site()
    with psycopg.connect(real_db.owner_dsn, autocommit=True) as owner:
        owner.execute("ALTER TABLE tenants_idempotencykey DROP CONSTRAINT idempotency_once")
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
