"""Times of pages: a local time that exists twice has its zone, another year is said."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from allocation.models import Maintenance
from allocation.web.fleet.maintenance import STAGES, MaintenanceRow
from allocation.web.parts.times import date_words, dated, moment_words, window_words
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.local_times import local_time_read

BERLIN = ZoneInfo("Europe/Berlin")
FIRST, SECOND = datetime(2027, 10, 31, 0, 30, tzinfo=UTC), datetime(2027, 10, 31, 1, 30, tzinfo=UTC)
NOW = datetime(2027, 10, 29, tzinfo=UTC)


def test_a_local_time_that_exists_twice_has_its_zone() -> None:
    assert window_words(FIRST, SECOND, BERLIN, NOW) == "Sun 31 Oct 02:30 CEST – 02:30 CET"
    assert date_words(FIRST, BERLIN).endswith(" 02:30 CEST")
    assert date_words(SECOND, BERLIN).endswith(" 02:30 CET")
    assert moment_words(datetime(2027, 10, 31, 2, 30, tzinfo=UTC), BERLIN, NOW) == "Sun 31 Oct 03:30"


def test_a_typed_time_that_exists_twice_is_the_first_one_and_one_that_is_skipped_is_refused() -> None:
    bad = invalid("bad_time", "Enter a time.", "starts")
    with timezone.override(BERLIN):
        assert local_time_read("2027-10-31T02:30", bad) == FIRST
        assert local_time_read("2027-10-31T02:30+01:00", bad) == SECOND
        for text, why in {
            "2027-03-28T02:30": "02:30 does not exist in Europe/Berlin",
            "soon": "Enter",
        }.items():
            with pytest.raises(Refused, match=why) as refused:
                local_time_read(text, bad)
            assert (refused.value.code, refused.value.param) == ("bad_time", "starts")


@pytest.mark.parametrize("value", [None, ""])
def test_no_time_is_empty(value: datetime | None) -> None:
    assert dated(value) == ""


def test_another_year_is_said() -> None:
    now = timezone.now()
    assert date_words(datetime(1999, 3, 31, 11, tzinfo=UTC), UTC) == "Wed 31 Mar 1999 11:00"
    assert str(now.year) not in date_words(now, UTC)


def test_a_cancelled_maintenance_ends_after_it_begins() -> None:
    planned = Maintenance(starts=FIRST, ends=SECOND, ended_at=NOW)
    assert MaintenanceRow(planned, *STAGES["called_off"], is_open=False).until == SECOND
    begun = Maintenance(starts=NOW, ends=SECOND, ended_at=FIRST)
    assert MaintenanceRow(begun, *STAGES["over"], is_open=False).until == FIRST
