"""The two starts of a request for an approval: what an approval now would give, and what is held."""

from datetime import UTC, datetime, timedelta

from django.utils import timezone

from allocation.models import Booking
from allocation.rules.states import State
from allocation.services.approvals.effects import Effect
from allocation.web.approvals.cards import _start
from allocation.web.bookings.page_context import PageContext
from allocation.web.home.projects import _when

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
CTX = PageContext(NOW, UTC, "/t/helix/", {})


def asked(held: datetime | None, until: datetime | None) -> Booking:
    return Booking(
        state=State.AWAITING_APPROVAL,
        planned_starts=held,
        planned_ends=held and held + HOUR,
        place_until=until,
        ask={},
    )


def test_a_card_says_both_starts_where_they_differ() -> None:
    soon, late, until = NOW + 2 * HOUR, NOW + 6 * HOUR, NOW + HOUR
    said = [
        (Effect(soon), asked(soon, until), "If approved by today 13:00: starts today 14:00"),
        (
            Effect(soon),
            asked(late, until),
            "If approved now: starts today 14:00; a place today 18:00 is kept until today 13:00",
        ),
        (Effect(soon), asked(late, NOW), "If approved now: starts today 14:00; no place is kept for it"),
        (Effect(soon), asked(None, None), "If approved now: starts today 14:00; no place is kept for it"),
        (Effect(None), asked(late, until), "If approved now: no start can be planned yet"),
    ]
    for effect, booking, words in said:
        assert _start(effect, booking, CTX) == words
    assert _start(None, asked(late, until), CTX) == ""


def test_the_project_page_names_the_start_that_is_held_as_the_latest() -> None:
    held = datetime(2026, 12, 5, 18, tzinfo=UTC)
    with timezone.override(UTC):
        assert _when(asked(held, NOW), None, None, NOW) == "by Sat 5 Dec 18:00 if approved"
        assert _when(asked(None, None), None, None, NOW) == "not planned yet"
        assert _when(asked(None, None), datetime(2099, 1, 2, 3, tzinfo=UTC), None, NOW) == (
            "not before Fri 2 Jan 2099 03:00"
        )
