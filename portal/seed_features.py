"""One of each of the rarer things, so that their pages have something to show from the start.

All of it is asked for as people ask, by the same services: what is refused was not possible.
"""

from datetime import UTC, datetime, time, timedelta
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

from django.db import transaction

from allocation.models import Blackout, Booking, Series
from allocation.queries.catalogue import ask_catalogue
from allocation.rules.ask import Parsed, parse_ask
from allocation.services.blackouts import BlackoutWish, blackout_plan
from allocation.services.bookings import Wish, booking_request
from allocation.services.series import Repeat, series_request
from tenants.access import actor_in
from tenants.errors import Refused
from tenants.models import User

NAMESPACE = UUID("5b6f3a52-5f1b-5c4f-9a3c-1c7c1b0a6d4e")
ZONE = "Europe/Berlin"
TENANT = "helix"
# (sign-in name, project, tier, what they type, name): a share of a GPU, work by its kind, and one
# that borrows and is paused as soon as North Lab wants what it is guaranteed.
ASKS = (
    ("mara", "protein-folding", "standard", "0.25 l40s 3h", "label-check"),
    ("mara", "language-models", "spot", "1 h100 3h", "scaling-run"),
    ("tomas", "language-models", "standard", "1 a100 4h kind:training", "warm-up"),
)
SERIES = ("mara", "protein-folding", "standard", "1 l40s every mon,wed 9-11 4 times", "lab-course")
# Nothing that the days are filled with lies then.
MAINTENANCE = (2, time(3), timedelta(hours=2), "gpu-c1-01", "New fans")


def features_seed(now: datetime) -> int:
    """Makes what the day has not got yet; returns how many bookings are new."""
    day = f"{now.astimezone(UTC).date()}"
    _maintenance_seed(now)
    made = sum(_ask_seed(number, day, now) for number in range(len(ASKS)))
    return made + _series_seed(day[:7], now)


def _ask_seed(number: int, day: str, now: datetime) -> int:
    who, project, tier, text, name = ASKS[number]
    booking_id = uuid5(NAMESPACE, f"{day}/{number}")
    if Booking.objects.filter(id=booking_id).exists():
        return 0
    wish = Wish(project, tier, _said(text, now).document(), name, ZONE, text)
    try:
        with transaction.atomic():
            booking_request(
                actor=actor_in(User.objects.get(username=who).pk, TENANT),
                wish=wish,
                now=now,
                booking_id=booking_id,
            )
    except Refused:
        return 0
    return 1


def _series_seed(month: str, now: datetime) -> int:
    who, project, tier, text, name = SERIES
    series_id = uuid5(NAMESPACE, f"{month}/series")
    said = _said(text, now)
    if said.repeat is None or Series.objects.filter(id=series_id).exists():
        return 0
    wish = Wish(project, tier, said.document(first=True), name, ZONE, text)
    try:
        with transaction.atomic():
            series = series_request(
                actor=actor_in(User.objects.get(username=who).pk, TENANT),
                wish=wish,
                repeat=Repeat(said.repeat, is_partial=True),
                now=now,
                series_id=series_id,
            )
    except Refused:
        return 0
    return series.bookings.count()


def _maintenance_seed(now: datetime) -> None:
    days, at, length, node, reason = MAINTENANCE
    if Blackout.objects.filter(ends__gt=now).exists():
        return
    begins = datetime.combine(now.astimezone(UTC).date() + timedelta(days=days), at, UTC)
    wish = BlackoutWish(begins, begins + length, reason, node=node)
    blackout_plan(operator=User.objects.get(username="olaf"), wish=wish, now=now)


def _said(text: str, now: datetime) -> Parsed:
    return parse_ask(text, catalogue=ask_catalogue(), now=now, zone=ZoneInfo(ZONE))
