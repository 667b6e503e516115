"""When reports are due."""

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from allocation.features.reports.days import Cadence, report_after, report_latest

BERLIN, AUCKLAND, HAWAII = (
    ZoneInfo(name) for name in ("Europe/Berlin", "Pacific/Auckland", "Pacific/Honolulu")
)
NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cadence", "zone", "starts", "due"),
    [
        ("weekly", BERLIN, date(2026, 11, 23), datetime(2026, 11, 30, 7, tzinfo=UTC)),
        ("monthly", BERLIN, date(2026, 11, 1), datetime(2026, 12, 1, 7, tzinfo=UTC)),
        # 08:00 on the first is still November by UTC; the next morning is the first after it.
        ("monthly", AUCKLAND, date(2026, 11, 1), datetime(2026, 12, 1, 19, tzinfo=UTC)),
        ("monthly", HAWAII, date(2026, 11, 1), datetime(2026, 12, 1, 18, tzinfo=UTC)),
    ],
)
def test_a_report_is_due_in_the_morning_after_its_days(
    cadence: Cadence, zone: ZoneInfo, starts: date, due: datetime
) -> None:
    found = report_after(cadence, NOON, zone, time(8))
    assert (found.starts, found.due) == (starts, due)
    assert found.due.astimezone(zone).time() == time(8)


@pytest.mark.parametrize("zone", [BERLIN, AUCKLAND, HAWAII])
@pytest.mark.parametrize("cadence", ["weekly", "monthly"])
def test_over_a_year_each_period_has_one_report_after_its_end(cadence: Cadence, zone: ZoneInfo) -> None:
    now, seen = datetime(2026, 1, 1, tzinfo=UTC), []
    while now.year < 2028:
        following = report_after(cadence, now, zone, time(2, 30))
        assert following.due > now
        assert following.due >= datetime.combine(following.ends, time(), UTC)
        assert following.due <= datetime.combine(following.ends, time(), UTC) + timedelta(days=1.1)
        latest = report_latest(cadence, following.due, zone, time(2, 30))
        assert latest == following
        seen.append((following.starts, following.ends))
        now = following.due
    assert all(one[1] == other[0] for one, other in pairwise(seen))
