"""Bookings that arrive together are written in one transaction, as each would be alone."""

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest
from django.db import IntegrityError, connection, transaction
from django.http import HttpResponse

from allocation.api.bookings import bookings
from billing.models import Transfer
from portal.api.problems import as_problem
from tenants.api.gathered import GatheredResponse, Intake, intakes_write, requests_gathered
from tenants.platform.deferred import DeferredResponse
from tenants.services import booking_numbers
from tests.api.builders import Site, awaited, row_counts, said
from tests.roles import as_system

GOOD = {"project": "folding", "request": "1 h100 for 10m"}
# Reading a text takes statements of its own.
ASK = {"project": "folding", "ask": {"count": 1, "classes": ["h100"], "duration": 600}}
UNKNOWN = {**GOOD, "tier": "gold"}
MANY = {**GOOD, "array": 2}
# What two bookings of the same request differ in.
OWN = ("id", "number", "booking_id", "reference", "object_id", "key", "submitted", "at", "created")
TABLES = (
    "allocation_booking",
    "allocation_bookingevent",
    "tenants_outboxmessage",
    "tenants_auditentry",
    "tenants_idempotencykey",
    "billing_transfer",
)


@pytest.fixture(autouse=True)
def used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A web process has taken numbers in advance, and the first booking has made the account."""
    assert site.researcher.post("bookings", GOOD).status_code == 201
    monkeypatch.setitem(booking_numbers._taken, site.tenant.id, deque(range(100, 200)))


def intakes(site: Site, *bodies: dict[str, Any]) -> list[Intake]:
    """The requests, each with a key of its own, as the server gets them."""
    with requests_gathered():
        answers = [
            site.researcher.post("bookings", body, idempotency_key=f"k{number}")
            for number, body in enumerate(bodies)
        ]
    assert all(isinstance(answer, GatheredResponse) for answer in answers)
    return [cast(GatheredResponse, answer).intake for answer in answers]


def together(wanted: Sequence[Intake]) -> list[Any]:
    """Writes them in one transaction."""
    with transaction.atomic():
        return intakes_write(wanted)


def last_rows(table: str, count: int) -> list[dict[str, Any]]:
    """The newest rows, without what each booking has for itself."""
    with as_system(), connection.cursor() as cursor:
        cursor.execute(f"SELECT to_jsonb(t) FROM {table} t ORDER BY ctid DESC LIMIT {count}")  # noqa: S608
        rows = [json.loads(row) for (row,) in cursor.fetchall()]
    return [_common(row) for row in rows]


def _common(row: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in row.items() if name not in OWN}
    if "payload" in kept:
        kept["payload"] = sorted(kept["payload"])
    if "answer" in kept:
        kept["answer"] = [*sorted(kept["answer"]), sorted(kept["answer"]["headers"])]
    kept.pop("detail", None)
    for name in ("not_before", "day", "body_sha256"):
        kept.pop(name, None)
    return kept


def test_bookings_written_together_leave_the_rows_of_single_ones(site: Site) -> None:
    wanted = intakes(site, *[GOOD] * 3)
    counts = [row_counts()]
    alone = [site.researcher.post("bookings", GOOD, idempotency_key=f"a{n}") for n in range(3)]
    rows = [last_rows(table, 3) for table in TABLES]
    counts.append(row_counts())
    answers = together(wanted)
    counts.append(row_counts())
    assert [last_rows(table, 3) for table in TABLES] == rows
    assert len({answer.data["number"] for answer in answers}) == 3
    for single, answer in zip(alone, answers, strict=True):
        assert said(single).keys() == answer.data.keys()
    added = [{t: after[t] - before[t] for t in after} for before, after in pairwise(counts)]
    assert added[0] == added[1]
    replays = [site.researcher.post("bookings", GOOD, idempotency_key=f"k{n}") for n in range(3)]
    assert [said(each)["number"] for each in replays] == [a.data["number"] for a in answers]
    assert {each["Idempotency-Replayed"] for each in replays} == {"true"}


def test_those_that_need_a_transaction_of_their_own_leave_the_others_written(site: Site) -> None:
    taken = site.researcher.post("bookings", GOOD, idempotency_key="k4")
    wanted = intakes(site, GOOD, UNKNOWN, MANY, GOOD, GOOD, GOOD, GOOD)
    # Two with one key: neither knows which came first.
    wanted[6] = replace(wanted[6], keyed=wanted[5].keyed)
    before = row_counts()
    answers = together(wanted)
    assert [answer is not None for answer in answers] == [True, False, False, True] + [False] * 3
    after = row_counts()
    assert after["allocation_booking"] == before["allocation_booking"] + 2
    assert after["allocation_bookingarray"] == before["allocation_bookingarray"]
    assert after["tenants_idempotencykey"] == before["tenants_idempotencykey"] + 2
    assert site.researcher.post("bookings", UNKNOWN, idempotency_key="k1").status_code == 422
    assert site.researcher.post("bookings", MANY, idempotency_key="k2").status_code == 201
    again = site.researcher.post("bookings", GOOD, idempotency_key="k4")
    assert again.content == taken.content


def test_if_the_budget_is_short_nothing_is_written_and_each_is_answered_alone(site: Site) -> None:
    # 4.80 an hour for 160 hours: one fits, two don't.
    long = {"project": "folding", "request": "1 h100 for 160h"}
    wanted = intakes(site, long, long)
    before = row_counts()
    with pytest.raises(IntegrityError):
        together(wanted)
    assert row_counts() == before
    answers = [site.researcher.post("bookings", long, idempotency_key=f"k{n}") for n in range(2)]
    assert [each.status_code for each in answers] == [201, 409]
    assert said(answers[1])["code"] == "budget_exceeded"


def test_many_take_the_statements_of_one(site: Site) -> None:
    """One statement for each table. The money is held last, with the commit."""
    first, *wanted = intakes(site, *[ASK] * 6)
    seen: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:  # noqa: ANN401  as Django calls it
        seen.append(sql)
        return execute(sql, *rest)

    # Reference data is in memory from then on.
    together([first])
    with connection.execute_wrapper(note):
        assert None not in together(wanted)
    asked = [
        sql
        for sql in seen
        if not sql.startswith(("SAVEPOINT", "RELEASE", "SELECT set_config", "SELECT current_"))
    ]
    assert len(asked) <= 8, "\n".join(asked)
    assert 'INTO "billing_transfer"' in asked[-1]
    with as_system():
        assert Transfer.objects.filter(kind="hold").count() == 7


def test_events_are_of_the_request_that_they_come_from(site: Site) -> None:
    wanted = intakes(site, GOOD, GOOD)
    together([replace(each, ids={"trace": f"t{n}"}) for n, each in enumerate(wanted)])
    with as_system(), connection.cursor() as cursor:
        cursor.execute("SELECT detail ->> 'trace' FROM allocation_bookingevent ORDER BY id")
        assert cursor.fetchall() == [(None,), ("t0",), ("t1",)]


def test_who_waits_for_the_decision_gets_it_after_the_batch(site: Site) -> None:
    with requests_gathered():
        early = site.researcher.post("bookings", GOOD, prefer="wait=5")
    assert isinstance(early, GatheredResponse)
    noted: list[int] = []
    early.when_answered(lambda answer: noted.append(answer.status_code))
    [written] = together([early.intake])
    present = early.completed(early.intake.answered(written))
    assert isinstance(present, DeferredResponse)
    assert present["X-Request-Id"] == early["X-Request-Id"]
    assert noted == [201]
    final = awaited(cast(HttpResponse, present))
    assert (final.status_code, final["Preference-Applied"]) == (201, "wait=5")


def test_a_fault_is_answered_with_500_and_leaves_the_key_free(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with requests_gathered():
        early = site.researcher.post("bookings", GOOD, idempotency_key="k")
    assert isinstance(early, GatheredResponse)
    with monkeypatch.context() as patch:
        patch.setattr(bookings, "booking_create", broken)
        with pytest.raises(ZeroDivisionError):
            together([early.intake])
        answer = as_problem(early.intake.alone())
    assert (answer.status_code, said(cast(HttpResponse, answer))["code"]) == (500, "broken")
    assert site.researcher.post("bookings", GOOD, idempotency_key="k").status_code == 201
