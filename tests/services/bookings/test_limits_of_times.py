"""A booking that is longer than a limit at some times allows: the refusal names the limit, and offers the
longest booking that fits."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.cycle import cycle_run
from allocation.services.quotes.quotes import quote_make
from allocation.services.tiers.versions import VersionTerms, tier_version_set
from tenants.models import QuotaWindow
from tenants.platform.wall import tenant_tx
from tests.builders import a_tenant_admin, an_actor
from tests.builders_allocation import NOW, Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.plant import fresh

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
NIGHT = NOW.replace(hour=20, minute=0, second=0)
FRIDAY = NIGHT + ((4 - NIGHT.weekday()) % 7) * DAY
DAILY = {"first_hour": 8, "end_hour": 20}
WEEKEND = {"weekdays": [5, 6]}
DATED = {"first_day": (NIGHT + 3 * DAY).date(), "last_day": (NIGHT + 5 * DAY).date()}
SLACK = timedelta(minutes=5)
CASES: dict[str, tuple[dict[str, Any], AskDocument, timedelta]] = {
    "each day, from any start": (DAILY, an_ask(hours=20), 12 * HOUR),
    "each day, by a deadline": (DAILY, an_ask(hours=20, deadline=NIGHT + 30 * HOUR), 12 * HOUR),
    "each day, at a start": (DAILY, an_ask(hours=20, starts=NIGHT), 12 * HOUR),
    "week-ends": (WEEKEND, an_ask(hours=60, starts=FRIDAY), 4 * HOUR),
    "week-ends, from any start": (WEEKEND, an_ask(hours=24 * 6), 5 * DAY),
    "dates": (DATED, an_ask(hours=24 * 5, starts=NIGHT), 2 * DAY + 4 * HOUR),
}


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix", gpus=2)


def decided(lab: Lab, ask: AskDocument) -> Booking:
    with tenant_tx(lab.tenant_id):
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=NOW)
    with as_system():
        cycle_run(NOW)
    return fresh(booking)


def limited(lab: Lab, terms: dict[str, Any]) -> None:
    with as_system():
        QuotaWindow.objects.create(
            tenant=lab.tenant,
            project=lab.project,
            gpu_class_id="h100",
            limit_units=0,
            created=NOW,
            created_by_id=lab.actor.user_id,
            **terms,
        )


def shorter_of(booking: Booking) -> list[dict[str, Any]]:
    """The offers that are shorter than the booking, with their `length`."""
    offers = [
        each | {"length": datetime.fromisoformat(each["ends"]) - datetime.fromisoformat(each["starts"])}
        for each in booking.alternatives
    ]
    return [each for each in offers if each["length"].total_seconds() < booking.duration_seconds]


@pytest.mark.parametrize("case", CASES)
def test_the_longest_booking_that_the_limit_allows_is_offered(lab: Lab, case: str) -> None:
    terms, ask, allowed = CASES[case]
    limited(lab, terms)
    booking = decided(lab, ask)
    assert booking.state == "refused"
    codes = [each["code"] for each in booking.reasons]
    assert "project_quota" in codes
    assert codes[0] != "no_room_in_horizon"
    (offered,) = [each for each in shorter_of(booking) if each["profile"] is None]
    assert allowed - SLACK <= offered["length"] <= allowed
    starts = datetime.fromisoformat(offered["starts"])
    hours = offered["length"] / HOUR
    assert decided(lab, an_ask(offered["count"], hours=hours, starts=starts)).state == "scheduled"


def test_a_quote_names_the_limit(lab: Lab) -> None:
    limited(lab, DAILY)
    with tenant_tx(lab.tenant_id):
        request = a_booking_request(lab.project, an_ask(hours=20))
        quote = quote_make(actor=lab.actor, request=request, now=NOW)
    assert quote.options == ()
    assert quote.blocking is not None
    assert quote.blocking.startswith("A limit at some times: your project")


def test_nothing_shorter_than_its_tier_allows_is_offered(lab: Lab) -> None:
    limited(lab, DAILY)
    with tenant_tx(lab.tenant_id):
        admin = an_actor(a_tenant_admin(lab.project.tenant))
        tier_version_set(
            actor=admin, terms=VersionTerms(tier="standard", min_seconds=16 * 3600), now=NOW - HOUR
        )
    assert shorter_of(decided(lab, an_ask(hours=20))) == []
