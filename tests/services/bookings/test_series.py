"""Bookings that repeat: all dates in one transaction and one decision, or a part that is said."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.db import IntegrityError, transaction

from allocation.models import Booking, Gpu, Series
from allocation.queries.fleet.catalogue import ask_catalogue
from allocation.rules.ask import parse_ask
from allocation.rules.recurrence import recurrence_read
from allocation.rules.states import State
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.series import Repeat, series_cancel, series_request
from allocation.services.decide.cycle import cycle_run
from allocation.services.decide.invariants import invariants_check
from billing.queries import budget_figures
from tenants.models import AuditEntry, Tier
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.api.builders import row_counts
from tests.builders import a_tier
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, all_priced, an_ask
from tests.roles import as_system
from tests.servers.servers import Servers

DAY = timedelta(days=1)
BERLIN = "Europe/Berlin"
NINE = datetime(2026, 11, 18, 8, tzinfo=UTC)  # 09:00 in Berlin, the day after NOW


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix")


def asked(
    lab: Lab,
    rule: str = "FREQ=DAILY;COUNT=3",
    *,
    hours: float = 2,
    partial: bool = False,
    starts: datetime | None = NINE,
    series_id: UUID | None = None,
) -> Series:
    request = replace(
        a_booking_request(lab.project, an_ask(hours=hours, starts=starts)), zone="Europe/Berlin"
    )
    repeat = Repeat(recurrence_read(rule), partial)
    with tenant_tx(lab.tenant_id):
        return series_request(actor=lab.actor, request=request, repeat=repeat, now=NOW, series_id=series_id)


def bookings(series: Series) -> list[Booking]:
    with as_system():
        return list(Booking.objects.filter(series=series).order_by("starts"))


def cycled(now: datetime = NOW) -> None:
    with as_system():
        assert cycle_run(now).outcome in ("decided", "unchanged")


def left(lab: Lab) -> Decimal:
    with as_system():
        effect = budget_figures(project_id=lab.project.id, at=NOW)
    assert effect is not None
    return effect.left


def taken(lab: Lab, starts: datetime) -> Booking:
    """A fixed window that has its place."""
    with tenant_tx(lab.tenant_id):
        request = a_booking_request(lab.project, an_ask(hours=1, starts=starts))
        booking = booking_request(actor=lab.actor, request=request, now=NOW)
    cycled()
    return booking


def test_each_date_is_a_booking_with_its_own_money_and_all_are_decided_at_once(lab: Lab) -> None:
    before = left(lab)
    series = asked(lab)
    rows = bookings(series)
    assert [row.starts for row in rows] == [NINE, NINE + DAY, NINE + 2 * DAY]
    assert before - left(lab) == sum(row.hold_amount for row in rows) == Decimal("28.8")
    cycled()
    assert {row.state for row in bookings(series)} == {State.SCHEDULED}
    assert len({row.decision_id for row in bookings(series)}) == 1
    with as_system():
        assert invariants_check() == []
        assert AuditEntry.objects.filter(action="series.request").count() == 1


def test_one_date_that_is_taken_refuses_all_and_frees_all_the_money(lab: Lab) -> None:
    taken(lab, NINE + DAY)
    before = left(lab)
    series = asked(lab)
    cycled(NOW + timedelta(seconds=1))
    rows = bookings(series)
    assert {row.state for row in rows} == {State.REFUSED}
    assert [row.reasons[0]["code"] for row in rows] == [
        "series_conflict",
        "gpus_busy",
        "series_conflict",
    ]
    assert rows[0].reasons[0]["numbers"]["conflicts"] == 1
    assert left(lab) == before


def test_a_date_that_has_to_begin_anew_goes_its_own_way(lab: Lab) -> None:
    series = asked(lab)
    cycled()
    first, *others = bookings(series)
    with as_system():
        first.allocations.update(state="superseded")
        Booking.objects.filter(id=first.id).update(state=State.QUEUED, replacement_count=1)
        Gpu.objects.update(health=Gpu.Health.LOST)
    cycled(NINE + HOUR)
    assert {row.state for row in bookings(series)[1:]} == {State.SCHEDULED}
    with as_system():
        Gpu.objects.update(health=Gpu.Health.OK)
    cycled(NINE + HOUR + timedelta(minutes=1))
    again = bookings(series)[0]
    assert again.state in (State.SCHEDULED, State.STARTING)
    assert len(others) == 2


def test_a_partial_series_gets_what_it_can_and_says_what_not(lab: Lab) -> None:
    taken(lab, NINE + DAY)
    series = asked(lab, partial=True)
    cycled(NOW + timedelta(seconds=1))
    assert [row.state for row in bookings(series)] == [
        State.SCHEDULED,
        State.REFUSED,
        State.SCHEDULED,
    ]


def test_a_date_too_far_ahead_refuses_the_series_and_says_what_would_work(lab: Lab) -> None:
    before, money = row_counts(), left(lab)
    with pytest.raises(Refused) as refused:
        asked(lab, "FREQ=WEEKLY;COUNT=6")
    found = refused.value
    assert (found.code, found.rule) == ("advance_window", "R14")
    assert found.sentence.startswith("2 of 6 dates can't be booked. 16 Dec 09:00 CET:")
    assert [each["code"] for each in found.numbers["failed"]] == ["advance_window"] * 2
    assert found.alternatives[0]["times"] == 4
    assert found.alternatives[1] == {"partial": True}
    assert (row_counts(), left(lab)) == (before, money), "nothing was written"


def test_a_series_offers_only_what_suits_all_of_its_dates(lab: Lab) -> None:
    a_tier("far", priority=10)
    a_tier("longer", priority=20)
    with as_system():
        Tier.objects.filter(slug="far").update(max_duration_seconds=4 * 3600)
        Tier.objects.filter(slug="longer").update(max_duration_seconds=30 * 3600)
        Tier.objects.filter(slug="longer").update(advance_seconds=2 * 86_400)
        Tier.objects.filter(slug="standard").update(max_duration_seconds=3600)
    all_priced()
    with pytest.raises(Refused) as refused:
        asked(lab, "FREQ=WEEKLY;COUNT=3", hours=3)
    assert refused.value.code == "too_long"
    assert refused.value.alternatives == [
        {"duration": 3600},
        {"tier": "far", "name": "Far"},
    ], "the other tier allows the first date only"
    with pytest.raises(Refused) as refused:
        asked(lab, "FREQ=DAILY;UNTIL=20270301", starts=NINE + 90 * DAY, hours=1)
    assert refused.value.code == "advance_window"
    (offer, *_) = refused.value.alternatives
    assert offer["rrule"] == "FREQ=DAILY;COUNT=14", "until March there would be more dates"


@pytest.mark.parametrize(
    ("rule", "times"),
    [("FREQ=WEEKLY;COUNT=3", 3), ("FREQ=DAILY;COUNT=60", 22), ("FREQ=WEEKLY;COUNT=9", 4)],
)
def test_a_series_wholly_beyond_the_horizon_offers_an_earlier_one(lab: Lab, rule: str, times: int) -> None:
    with pytest.raises(Refused) as refused:
        asked(lab, rule, starts=NINE + 90 * DAY, hours=1)
    assert refused.value.code == "advance_window"
    (offer,) = refused.value.alternatives
    assert offer["times"] == times
    starts = datetime.fromisoformat(offer["starts"])
    assert (starts - NINE) % (7 * DAY) == (90 * DAY) % (7 * DAY), "on the same weekday"
    assert len(bookings(asked(lab, offer["rrule"], starts=starts, hours=1))) == times


def test_of_a_partial_series_dates_too_far_ahead_are_listed(lab: Lab) -> None:
    series = asked(lab, "FREQ=WEEKLY;COUNT=6", partial=True)
    assert len(bookings(series)) == 4
    with as_system():
        failed = Series.objects.get(id=series.id).failed
    assert [each["code"] for each in failed] == ["advance_window"] * 2


def test_money_for_only_some_dates_is_money_for_none(lab: Lab) -> None:
    poor = a_lab("poor", money="20", gpus=0)
    with pytest.raises(Refused) as refused:
        asked(poor)
    assert refused.value.code == "budget_exceeded"
    assert left(poor) == Decimal(20)
    assert len(bookings(asked(poor, partial=True))) == 2


def test_dates_keep_their_wall_clock_over_a_change_of_clocks(real_db: Servers) -> None:
    before = datetime(2026, 10, 23, 10, tzinfo=UTC)
    lab = a_lab("helix", now=before)
    request = replace(
        a_booking_request(lab.project, an_ask(starts=before.replace(day=24, hour=7))),
        zone="Europe/Berlin",
    )
    repeat = Repeat(recurrence_read("FREQ=DAILY;COUNT=3"))
    with tenant_tx(lab.tenant_id):
        series = series_request(actor=lab.actor, request=request, repeat=repeat, now=before)
    hours = [(row.starts.hour, row.duration_seconds) for row in bookings(series) if row.starts]
    assert hours == [(7, 7200), (8, 7200), (8, 7200)]


def around_the_change(lab: Lab, text: str, before: datetime) -> list[Booking]:
    """The bookings of a line that repeats, read as the pages and REST read it."""
    with tenant_tx(lab.tenant_id):
        parsed = parse_ask(text, catalogue=ask_catalogue(), now=before, zone=ZoneInfo(BERLIN))
        assert parsed.repeat is not None, parsed
        request = replace(a_booking_request(lab.project, parsed.document(first=True)), zone=BERLIN)
        repeat = Repeat(parsed.repeat, keeps_end=parsed.ends is not None)
        series = series_request(actor=lab.actor, request=request, repeat=repeat, now=before)
    return bookings(series)


@pytest.mark.parametrize(
    ("text", "first", "hours"),
    [
        ("1 h100 22-6 every day 3 times", "2026-10-24 12:00", [9, 8, 8]),
        ("1 h100 22-6 every day 3 times", "2026-10-23 12:00", [8, 9, 8]),
        ("1 h100 overnight every day 3 times", "2027-03-27 12:00", [11, 12, 12]),
        ("1 h100 22:00 to 6:00 every day 3 times", "2027-03-27 12:00", [7, 8, 8]),
        ("1 h100 8h at 22:00 every day 3 times", "2027-03-27 12:00", [8, 8, 8]),
    ],
)
def test_each_night_ends_at_the_time_that_was_said_and_costs_its_length(
    real_db: Servers, text: str, first: str, hours: list[int]
) -> None:
    before = datetime.fromisoformat(first).replace(tzinfo=UTC)
    lab = a_lab("helix", now=before)
    rows = around_the_change(lab, text, before)
    assert [row.duration_seconds / 3600 for row in rows] == hours
    per_hour = rows[1].hold_amount / hours[1]
    assert [row.hold_amount for row in rows] == [per_hour * each for each in hours]


def test_the_second_of_two_equal_times_is_the_first_start(real_db: Servers) -> None:
    before = datetime(2026, 10, 24, 10, tzinfo=UTC)
    lab = a_lab("helix", now=before)
    request = replace(
        a_booking_request(lab.project, an_ask(starts=before.replace(day=25, hour=1, minute=30))),
        zone=BERLIN,
    )
    repeat = Repeat(recurrence_read("FREQ=DAILY;COUNT=2"))
    with tenant_tx(lab.tenant_id):
        series = series_request(actor=lab.actor, request=request, repeat=repeat, now=before)
    starts = [f"{row.starts:%d %H:%M}" for row in bookings(series) if row.starts]
    assert starts == ["25 01:30", "26 01:30"]
    assert series.first == before.replace(day=25, hour=1, minute=30)


def test_the_end_of_a_calendar_program_is_kept_as_a_day(lab: Lab) -> None:
    series = asked(lab, "FREQ=DAILY;WKST=MO;UNTIL=20261120T075959Z")
    assert series.rule == "FREQ=DAILY;UNTIL=20261119"
    assert len(bookings(series)) == 2


@pytest.mark.parametrize(
    ("rule", "hours", "code"),
    [
        ("FREQ=DAILY;COUNT=3", 25, "series_overlap"),
        ("FREQ=DAILY;UNTIL=20261101", 2, "no_dates"),
        ("FREQ=DAILY;UNTIL=20280101", 2, "series_too_long"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(lab: Lab, rule: str, hours: float, code: str) -> None:
    with pytest.raises(Refused) as refused:
        asked(lab, rule, hours=hours)
    assert (refused.value.code, refused.value.param) == (code, "repeat")


@pytest.mark.parametrize(
    "rule", ["FREQ=DAILY;UNTIL=20280101", "FREQ=DAILY;UNTIL=20261101", "FREQ=WEEKLY;UNTIL=20361231"]
)
def test_a_rule_with_too_many_dates_or_none_is_offered_as_one_that_is_admitted(lab: Lab, rule: str) -> None:
    with pytest.raises(Refused) as refused:
        asked(lab, rule)
    (offer,) = refused.value.alternatives
    assert asked(lab, offer["rrule"]).rule == offer["rrule"]


def test_dates_that_overlap_are_offered_as_long_as_they_are_apart(lab: Lab) -> None:
    with pytest.raises(Refused) as refused:
        asked(lab, "FREQ=DAILY;COUNT=3", hours=25)
    (offer,) = refused.value.alternatives
    assert offer == {"duration": 24 * 3600}
    assert len(bookings(asked(lab, "FREQ=DAILY;COUNT=3", hours=24))) == 3


def test_dates_that_overlap_are_offered_as_the_money_of_all_of_them_allows(real_db: Servers) -> None:
    # Ten hours of one GPU, and three dates.
    poor = a_lab("poor", money="48", gpus=0)
    with pytest.raises(Refused) as refused:
        asked(poor, "FREQ=DAILY;COUNT=3", hours=25)
    assert refused.value.code == "series_overlap"
    (offer,) = refused.value.alternatives
    assert 0 < offer["duration"] <= 10 * 3600 // 3
    assert len(bookings(asked(poor, "FREQ=DAILY;COUNT=3", hours=offer["duration"] / 3600))) == 3


def test_fewer_dates_are_offered_as_the_money_of_all_of_them_allows(real_db: Servers) -> None:
    poor = a_lab("poor", money="48", gpus=0)
    with pytest.raises(Refused) as refused:
        asked(poor, "FREQ=DAILY;UNTIL=20280101")
    (offer,) = refused.value.alternatives
    assert len(bookings(asked(poor, offer["rrule"]))) == offer["times"] == 5


def test_a_refusal_of_a_series_says_all_times_in_the_zone_of_its_request(lab: Lab) -> None:
    request = replace(
        a_booking_request(lab.project, an_ask(hours=1, starts=NINE)), zone="America/New_York", tier="standard"
    )
    for repeat in (
        Repeat(recurrence_read("FREQ=DAILY;COUNT=40")),
        Repeat(recurrence_read("FREQ=DAILY;COUNT=300")),
    ):
        with tenant_tx(lab.tenant_id), pytest.raises(Refused) as refused:
            series_request(actor=lab.actor, request=request, repeat=repeat, now=NOW)
        assert refused.value.code == "advance_window"
        said = [refused.value.sentence, *(each["sentence"] for each in refused.value.numbers["failed"])]
        assert all(re.findall(r"\d\d:\d\d (\S+?)[:.]", each) for each in said)
        assert {zone for each in said for zone in re.findall(r"\d\d:\d\d (\w+)", each)} == {"EST"}


def test_a_series_needs_a_time_of_the_day(lab: Lab) -> None:
    with pytest.raises(Refused, match="series_needs_start"):
        asked(lab, starts=None)


def test_asked_twice_is_one_series(lab: Lab) -> None:
    key = UUID(int=7)
    assert asked(lab, series_id=key).id == asked(lab, series_id=key).id
    with as_system():
        assert Series.objects.count() == 1


def test_cancelling_the_series_cancels_what_has_not_started(lab: Lab) -> None:
    series = asked(lab)
    cycled()
    cycled(NINE)
    money = left(lab)
    with tenant_tx(lab.tenant_id):
        assert series_cancel(actor=lab.actor, series=series, now=NINE + HOUR) == 2
    assert [row.state for row in bookings(series)] == [
        State.STARTING,
        State.CANCELLED,
        State.CANCELLED,
    ]
    assert left(lab) - money == Decimal("19.2")


def test_a_series_stays_in_its_tenant(lab: Lab) -> None:
    series = asked(lab)
    other = a_lab("northlab", gpus=0)
    with tenant_tx(other.tenant_id):
        assert Series.objects.count() == 0
        mine: Any = booking_request(actor=other.actor, request=a_booking_request(other.project), now=NOW)
    with as_system(), pytest.raises(IntegrityError), transaction.atomic():
        Booking.objects.filter(id=mine.id).update(series=series)


def test_a_whole_series_can_have_no_failed_dates(lab: Lab) -> None:
    series = asked(lab)
    with as_system(), pytest.raises(IntegrityError), transaction.atomic():
        Series.objects.filter(id=series.id).update(failed=[{"starts": "x"}])
