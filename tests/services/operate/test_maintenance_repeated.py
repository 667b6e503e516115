"""Repeated maintenance: the same local time, every date checked before it is saved."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db import IntegrityError

from allocation.models import GpuEvent, Maintenance
from allocation.rules.recurrence import recurrence_read
from allocation.rules.states import State
from allocation.services.operate.maintenance.plan import MaintenanceTerms, maintenance_end
from tenants.models import User
from tenants.platform.errors import Refused
from tenants.platform.wall import operator_tx
from tests.builders import an_operator
from tests.builders_allocation import HOUR, NOW, Lab, a_lab
from tests.roles import as_system
from tests.services.operate.test_maintenance import (
    a_blackout,
    asked,
    nothing_is_broken,
    plan,
    preview,
    said,
    starts,
)
from tests.services.plant import Plant, fresh, rows_of

DAY = timedelta(days=1)
BERLIN = "Europe/Berlin"


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


@pytest.fixture
def operator(plant: Plant) -> User:
    return an_operator()


def repeated(begins: datetime, rule: str, *, hours: float = 2, zone: str = BERLIN) -> MaintenanceTerms:
    return replace(a_blackout(begins, hours), repeat=recurrence_read(rule), zone=zone)


def dates() -> list[Maintenance]:
    with as_system():
        return list(Maintenance.objects.order_by("starts"))


def test_the_clock_time_stays_the_same_when_clocks_change(plant: Plant, operator: User) -> None:
    """Clocks go forward in Berlin on 28 March 2027."""
    begins = datetime(2027, 3, 16, 5, tzinfo=UTC)
    plan(operator, repeated(begins, "FREQ=WEEKLY;COUNT=3"))
    first, second, third = dates()
    assert [each.starts for each in (first, second, third)] == [
        begins,
        begins + 7 * DAY,
        begins + 14 * DAY - HOUR,
    ]
    assert {each.ends - each.starts for each in dates()} == {2 * HOUR}
    assert {each.drain_by - each.starts for each in dates()} == {timedelta(0)}
    assert len({each.series for each in dates()}) == 1
    assert {each.rule for each in dates()} == {"FREQ=WEEKLY;COUNT=3"}
    with as_system():
        (line,) = GpuEvent.objects.all()
    assert line.sentence.endswith("New fans, every week, 3 times.")


def test_each_night_ends_and_drains_at_the_local_time_that_was_said(plant: Plant, operator: User) -> None:
    """Clocks go forward in Berlin in the first night."""
    begins = datetime(2027, 3, 27, 21, tzinfo=UTC)
    terms = replace(repeated(begins, "FREQ=DAILY;COUNT=3", hours=7), drain_by=begins + 5 * HOUR)
    plan(operator, terms)
    local = [(each.starts, each.drain_by, each.ends) for each in dates()]
    shown = [[f"{at.astimezone(ZoneInfo(BERLIN)):%d %H:%M}" for at in each] for each in local]
    assert shown == [
        ["27 22:00", "28 04:00", "28 06:00"],
        ["28 22:00", "29 04:00", "29 06:00"],
        ["29 22:00", "30 04:00", "30 06:00"],
    ]


def test_the_second_of_two_equal_times_is_the_first_start(plant: Plant, operator: User) -> None:
    begins = datetime(2027, 10, 31, 1, 30, tzinfo=UTC)
    plan(operator, repeated(begins, "FREQ=DAILY;COUNT=2"))
    assert [each.starts for each in dates()] == [begins, begins + DAY]
    assert [each.ends for each in dates()] == [begins + 2 * HOUR, begins + DAY + 2 * HOUR]


@pytest.mark.turn
def test_every_date_is_kept_free_and_looked_ahead_at(plant: Plant, lab: Lab, operator: User) -> None:
    tomorrow = asked(plant, lab, 2, starts=NOW + DAY + 3 * HOUR)
    terms = repeated(NOW + 2 * HOUR, "FREQ=DAILY;COUNT=3", zone="UTC")
    assert preview(operator, replace(terms, repeat=None)).moved == ()
    (moved,) = preview(operator, terms).moved
    assert (moved.label, moved.after) == (tomorrow.label, None)
    assert dates() == []
    plan(operator, terms)
    plant.round()
    assert fresh(tomorrow).state == State.REFUSED
    flexible = asked(plant, lab, 2, hours=22, not_before=NOW + 4 * HOUR)
    # Between two dates there are 22 hours.
    assert starts(flexible) == NOW + 4 * HOUR
    longer = starts(asked(plant, lab, 2, hours=23, not_before=NOW + 4 * HOUR))
    assert longer is not None
    assert longer >= NOW + 2 * DAY + 4 * HOUR
    nothing_is_broken()


@pytest.mark.turn
def test_owners_of_what_runs_into_more_than_one_date_are_told_once(
    plant: Plant, lab: Lab, operator: User
) -> None:
    booking = asked(plant, lab, 1, hours=30)
    plan(operator, repeated(NOW + 4 * HOUR, "FREQ=DAILY;COUNT=2", zone="UTC"))
    assert said(booking).count("leave_by") == 1
    plant.later(4 * HOUR)
    assert "broken_off" in said(booking)
    assert {row.state for row in rows_of(booking)} >= {"ended"}
    nothing_is_broken()


def test_one_date_is_called_off_or_all_that_follow(plant: Plant, operator: User) -> None:
    plan(operator, repeated(NOW + HOUR, "FREQ=DAILY;COUNT=4"))
    _, second, _, _ = dates()
    with operator_tx():
        maintenance_end(operator=operator, maintenance=second, now=NOW)
    assert [each.ended_at for each in dates()] == [None, NOW, None, None]
    first = dates()[0]
    later = NOW + timedelta(minutes=1)
    with operator_tx():
        maintenance_end(operator=operator, maintenance=first, now=later, following=True)
    assert [each.ended_at for each in dates()] == [later, NOW, later, later]


@pytest.mark.parametrize(
    ("rule", "hours", "code"),
    [
        ("FREQ=DAILY;COUNT=61", 2, "series_too_long"),
        ("FREQ=DAILY;COUNT=2", 25, "series_overlap"),
        ("FREQ=MONTHLY;COUNT=14", 2, "advance_window"),
        ("FREQ=DAILY;UNTIL=20260101", 2, "no_dates"),
    ],
)
def test_what_can_not_repeat_so_is_refused_and_nothing_is_saved(
    plant: Plant, operator: User, rule: str, hours: float, code: str
) -> None:
    with pytest.raises(Refused) as refused:
        plan(operator, repeated(NOW + HOUR, rule, hours=hours))
    assert refused.value.code == code
    assert dates() == []


def test_the_database_wants_a_rule_for_what_repeats(plant: Plant, operator: User) -> None:
    saved = plan(operator, repeated(NOW + HOUR, "FREQ=DAILY;COUNT=2"))
    with as_system(), pytest.raises(IntegrityError, match="maintenance_repeats_by_a_rule"):
        Maintenance.objects.filter(id=saved.id).update(rule="")
    with as_system(), pytest.raises(IntegrityError, match="maintenance_once_a_date"):
        Maintenance.objects.exclude(id=saved.id).update(starts=saved.starts)
