"""Log lines say what they are about, and nobody can forge one."""

import json
import logging

import pytest
from django.test import Client
from rest_framework.response import Response

from allocation.api.bookings import bookings
from allocation.api.bookings.bookings import booking_answer
from allocation.models import Booking
from portal.logs import JsonFormatter, LineFormatter
from portal.web.measured import REQUEST_ID
from tenants.access import Actor
from tenants.platform.log_ids import log_id, log_ids, log_ids_now
from tests.api.builders import Site, said


def line(formatter: logging.Formatter, message: str) -> str:
    record = logging.LogRecord("portal.x", logging.WARNING, "x.py", 1, message, None, None)
    return formatter.format(record)


def test_ids_are_in_lines_of_both_kinds_and_only_inside() -> None:
    with log_ids(request="r1"):
        log_id(user=7)
        with log_ids(task="t"):
            log_id(booking="BK-1")
            inner = json.loads(line(JsonFormatter(), "hello\nforged"))
        outer = line(LineFormatter("{levelname} {message}", style="{"), "hello\nforged")
    log_id(user=9)
    assert {name: inner[name] for name in ("message", "request", "user", "task", "booking")} == {
        "message": "hello\nforged",
        "request": "r1",
        "user": "7",
        "task": "t",
        "booking": "BK-1",
    }
    assert outer == "WARNING hello\\nforged request=r1 user=7"
    assert log_ids_now() == {}


@pytest.mark.django_db
def test_a_request_has_a_name_that_its_lines_and_its_answer_carry(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []

    def look(booking: Booking, actor: Actor) -> Response:
        seen.append(log_ids_now())
        return booking_answer(booking, actor)

    booking = said(site.researcher.post("bookings", {"project": "folding", "request": "1 h100 1h"}))
    monkeypatch.setattr(bookings, "booking_answer", look)
    answer = site.researcher.get(f"bookings/{booking['id']}")
    assert seen == [
        {
            "request": answer[REQUEST_ID],
            "user": str(site.actor().user_id),
            "booking": booking["number"],
        }
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("given", ["", "x", "a b c d e f g h", "\u00e9" * 9, "y" * 65])
def test_a_name_that_is_none_is_replaced(given: str) -> None:
    made = Client().get("/healthz", headers={REQUEST_ID: given})[REQUEST_ID]
    assert len(made) == 32
    kept = Client().get("/healthz", headers={REQUEST_ID: "proxy-000042.a"})[REQUEST_ID]
    assert kept == "proxy-000042.a"
