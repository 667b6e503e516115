"""The strip of the own week: which day has which booking, in the reader's zone. No database."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from allocation.models import Booking
from allocation.rules.states import State
from allocation.web.home import start_page as strip
from allocation.web.home.start_page import own_week
from tests.web.frame.test_navigation import an_actor

NOW = datetime(2026, 11, 29, 23, 30, tzinfo=UTC)


def a_booking(number: int, starts: datetime, hours: float, state: State = State.SCHEDULED) -> Booking:
    ends = starts + timedelta(hours=hours)
    return Booking(
        number=number, state=state, planned_starts=starts, planned_ends=ends, planned_strength="firm"
    )


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Booking]:
    rows: list[Booking] = []

    def found(*_: object, **__: object) -> list[Booking]:
        return rows

    monkeypatch.setattr(strip, "own_bookings_between", found)
    monkeypatch.setattr(strip, "zone_of", lambda _: ZoneInfo("Europe/Berlin"))
    return rows


def test_each_day_has_the_hours_of_its_bookings(shown: list[Booking]) -> None:
    assert own_week(an_actor("researcher"), NOW) == ()
    # 00:30 in Berlin: its day has begun there, and it runs until the next day.
    shown.append(a_booking(1, NOW - timedelta(hours=2), 36, State.ACTIVE))
    shown.extend(a_booking(each, NOW + timedelta(days=3, minutes=each), 1) for each in range(2, 7))
    week = own_week(an_actor("researcher"), NOW)
    assert [day.name for day in week[:2]] == ["Today", "Tue 1 Dec"]
    assert len(week) == 7
    first = [(each.words, each.is_running) for day in week[:3] for each in day.bookings]
    assert first == [("all day", True), ("until 10:30", True)]
    thursday = week[3]
    assert [each.words for each in thursday.bookings] == ["00:32 – 01:32", "00:33 – 01:33", "00:34 – 01:34"]
    assert (thursday.more, week[6].bookings) == (2, ())
