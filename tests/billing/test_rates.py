"""Peak hours: counted by the clock of their zone, on days with any number of hours."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from zoneinfo import ZoneInfo

import pytest

from billing.peak_text import peak_hours_read, peak_hours_text
from billing.rates import PeakHours, Rate, Spell, peak_hours
from tenants.platform.errors import Refused

MINUTE = timedelta(minutes=1)
# The nights in which the clocks of each zone change, and a week in one that never does.
NIGHTS = [
    ("Europe/Berlin", datetime(2026, 3, 28, 20, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 24, 20, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 10, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 10, tzinfo=UTC)),
    ("Asia/Kathmandu", datetime(2026, 11, 22, tzinfo=UTC)),
]


@pytest.mark.parametrize(("zone", "night"), NIGHTS)
def test_peak_minutes_are_those_that_a_clock_shows(zone: str, night: datetime) -> None:
    random, clock = Random(zone), ZoneInfo(zone)  # noqa: S311 (not a secret)
    for _ in range(6):
        hours = {(day, hour) for day in range(7) for hour in range(24) if random.random() < 0.4}
        peaks = peak_hours(zone, [(day, hour, hour + 1) for day, hour in hours])
        since = night + random.randrange(600) * MINUTE
        length = random.randrange(1, 1200)
        local = [(since + n * MINUTE).astimezone(clock) for n in range(length)]
        shown = sum((each.weekday(), each.hour) in hours for each in local)
        until = since + length * MINUTE
        assert peaks.spell(since, until) == Spell(60 * length, 60 * shown)
        parts = peaks.parts(since, until)
        assert sum((ends - begins for begins, ends, is_peak in parts if is_peak), timedelta()) == (
            60 * shown * timedelta(seconds=1)
        )
        assert (parts[0][0], parts[-1][1]) == (since, until)


def test_no_start_costs_more_than_the_most() -> None:
    random = Random(3)  # noqa: S311 (not a secret)
    monday = datetime(2026, 11, 2, tzinfo=UTC)
    for _ in range(40):
        entries = [
            (random.randrange(7), begins, random.randrange(begins + 1, 25))
            for begins in [random.randrange(24) for _ in range(4)]
        ]
        rate = Rate(Decimal(2), Decimal(3), peak_hours("UTC", entries))
        seconds = random.choice((600, 7 * 3600, 30 * 3600, 8 * 86400))
        length = timedelta(seconds=seconds)
        starts = [monday + n * timedelta(hours=1) for n in range(168)]
        starts += [start - timedelta(seconds=seconds % 3600) for start in starts]
        costs = [rate.cost(rate.between(start, start + length)) for start in starts]
        assert max(costs) == rate.most(seconds)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Mon-Fri 8-20", "Mon-Fri 8-20"),
        ("sat 10:00 - 14:00; mon-fri 8-20", "Mon-Fri 8-20, Sat 10-14"),
        ("Fri-Mon 22-24", "Mon 22-24, Fri-Sun 22-24"),
        ("Mon 8-12, Mon 10-14", "Mon 8-14"),
    ],
)
def test_peak_hours_are_read_as_people_write_them(text: str, kept: str) -> None:
    hours = peak_hours_read(text, "Europe/Berlin")
    assert peak_hours_text(hours) == kept
    assert peak_hours_read(kept, "Europe/Berlin") == hours


@pytest.mark.parametrize(
    ("text", "zone", "code"),
    [
        ("Mon-Fri 20-8", "UTC", "bad_peak_hours"),
        ("Mon-Fri 8-25", "UTC", "bad_peak_hours"),
        ("daily 8-20", "UTC", "bad_peak_hours"),
        ("Mon 8-20,", "UTC", "bad_peak_hours"),
        ("Mon \uff18-20", "UTC", "bad_peak_hours"),
        ("Mon 8-20", "Mars/Olympus", "bad_zone"),
        ("Mon 8-20", "../etc/passwd", "bad_zone"),
        ("Mon 8-20", "Europe", "bad_zone"),
        ("Mon 8-20", "", "bad_zone"),
    ],
)
def test_what_is_no_peak_hour_is_refused(text: str, zone: str, code: str) -> None:
    with pytest.raises(Refused) as refusal:
        peak_hours_read(text, zone)
    assert refusal.value.code == code
    assert peak_hours_read(" ", zone) == PeakHours()
