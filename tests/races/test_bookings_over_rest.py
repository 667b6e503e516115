"""Requests for bookings that reach the web at the same moment."""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Barrier

from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from allocation.models import Booking
from allocation.rules.states import State
from billing.models import Account, Budget, Transfer
from billing.queries import ledger_check
from billing.services import Rung, ladder_set
from tests.api.builders import Site, a_site, said
from tests.roles import as_system
from tests.servers.servers import Servers

WRITERS = 8
PRICE = Decimal("4.80")


Answers = list[tuple[int, str, str]]


def booked_together(site: Site) -> Answers:
    """The answers to eight requests at once: their status, the code of a refusal, their number."""
    body = {"project": "folding", "ask": {"count": 1, "classes": ["h100"], "duration": 3600}}
    together = Barrier(WRITERS)

    def book(number: int) -> tuple[int, str, str]:
        answer = site.researcher.post("bookings", body, idempotency_key=f"key {number}")
        return answer.status_code, said(answer).get("code", ""), said(answer).get("number", "")

    def book_with_others(number: int) -> tuple[int, str, str]:
        try:
            connection.ensure_connection()
            together.wait(timeout=30)
            return book(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(WRITERS) as pool:
        answers = list(pool.map(book_with_others, range(WRITERS)))
    assert [book(number) for number in range(WRITERS)] == answers
    return sorted(answers)


def test_the_last_of_eight_requests_gets_the_refusal_and_the_figures(real_db: Servers) -> None:
    """Holds are sent with the commit, so a request learns of the others' only there."""
    answers = booked_together(a_site(budget=str(7 * PRICE)))
    assert [each[:2] for each in answers] == [(201, "")] * 7 + [(409, "budget_exceeded")]
    assert len({number for *_, number in answers}) == WRITERS
    with as_system():
        assert Booking.objects.count() == Transfer.objects.filter(kind="hold").count() == 7
        held = Account.objects.aggregate(held=Sum("pending"))["held"]
        assert held == 7 * PRICE
        assert ledger_check() == []


def test_of_eight_requests_those_after_a_rung_and_after_a_sum_are_told_apart(
    real_db: Servers,
) -> None:
    """No request reads what the others hold, or asked for today, while it keeps them waiting."""
    site = a_site(budget=str(12 * PRICE))
    with as_system():
        budget = Budget.objects.get(project__slug="folding")
        rungs = [Rung("committed", 50, "no_bookings")]
        ladder_set(actor_id=None, budget=budget, rungs=rungs, now=timezone.now())
    rule = {"name": "Dear", "min_cost": str(4 * PRICE), "steps": [{"role": "admin"}]}
    assert site.admin.post("approval-rules", rule).status_code == 201
    answers = booked_together(site)
    assert [each[:2] for each in answers] == [(201, "")] * 6 + [(409, "bookings_stopped")] * 2
    with as_system():
        assert Booking.objects.exclude(state=State.AWAITING_APPROVAL).count() == 3
        assert Account.objects.aggregate(held=Sum("pending"))["held"] == 6 * PRICE
