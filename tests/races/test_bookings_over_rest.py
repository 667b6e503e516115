"""Requests for bookings that reach the web at the same moment."""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Barrier

from django.db import connection
from django.db.models import Sum

from allocation.models import Booking
from billing.models import Account, Transfer
from billing.queries import ledger_check
from tests.api.builders import a_site, said
from tests.roles import as_system
from tests.servers.servers import Servers

WRITERS = 8
PRICE = Decimal("4.80")


def test_the_last_of_eight_requests_gets_the_refusal_and_the_figures(real_db: Servers) -> None:
    """Holds are sent with the commit, so a request learns of the others' only there."""
    site = a_site(budget=str(7 * PRICE))
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
    assert sorted(answer[:2] for answer in answers) == [(201, "")] * 7 + [(409, "budget_exceeded")]
    assert len({number for *_, number in answers}) == WRITERS
    with as_system():
        assert Booking.objects.count() == Transfer.objects.filter(kind="hold").count() == 7
        held = Account.objects.aggregate(held=Sum("pending"))["held"]
        assert held == 7 * PRICE
        assert ledger_check() == []
