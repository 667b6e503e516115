"""The demo site: hardware, people, money, and two weeks of bookings around today."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.db import transaction

from portal.seed_bookings import Demo, day_seed, start_seed
from portal.seed_catalogue import catalogue_seed
from portal.seed_features import features_seed
from portal.seed_people import keys_write, people_seed

PAST_DAYS = 7
COMING_DAYS = 7


def seed(*, now: datetime, path: Path, url: str) -> int:
    """Makes what is missing and returns how many bookings are new.

    Each day is filled once, however often this runs; a start on a later day fills the days that
    have come since and lets some bookings begin. Must run as the database's owner, who sees
    every tenant.
    """
    now = now.replace(microsecond=0)
    with transaction.atomic():
        # Quotas of people point at classes.
        catalogue_seed(now)
        people_seed(now)
        today = now.astimezone(UTC).date()
        # What begins now goes first: the days leave it the room.
        demo = Demo.read(now)
        made = start_seed(demo)
        made += sum(
            day_seed(demo, today + timedelta(days=offset))
            for offset in range(-PAST_DAYS, COMING_DAYS)
        )
        made += features_seed(now)
    keys_write(path, url, now)
    return made
