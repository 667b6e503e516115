"""What works instead of a request that is beyond bounds: those of any request, or several at once."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from allocation.rules.ask import AskDocument
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.remedy_lines import with_lines
from allocation.services.bookings.request_text import request_read
from allocation.services.decide.cycle import cycle_run
from allocation.services.quotes.quotes import quote_make
from billing.rules import Period, midnight
from billing.services import budget_set
from tenants.models import Quota, Tier
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_project, an_actor
from tests.builders_allocation import NOW, Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.bookings.test_remedies import DAY, lab, named, refused

__all__ = ["lab"]
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize("ask", [an_ask(600), an_ask(1, hours=24 * 91), an_ask(700, hours=24 * 300)])
def test_beyond_the_bounds_of_a_request_its_rules_say_what_works(lab: Lab, ask: AskDocument) -> None:
    """A quota and a tier allow less than any request may have: they are what is offered."""
    found = refused(lab, ask)
    assert found.code in ("tenant_quota", "too_long")
    (most,) = (each for each in found.alternatives if "tier" not in each)
    assert most.get("count", 8) == 8
    # Of many GPUs the money is short, too.
    assert most.get("duration", 7 * 86_400) <= 7 * 86_400


def test_no_quota_and_no_tier_allows_more_than_any_request_may_have(lab: Lab) -> None:
    with as_system():
        Quota.objects.update(guaranteed_units=2_000 * 56_000, borrow_limit_units=0)
    found = refused(lab, an_ask(600))
    assert (found.code, named(found, "count")) == ("count_out_of_bounds", [512])


@pytest.mark.parametrize("text", ["600 h100 1h", "1 h100 91d", "700 h100 100d"])
def test_a_line_beyond_its_bounds_is_for_the_rules(lab: Lab, text: str) -> None:
    with tenant_tx(lab.tenant_id):
        ask, _ = request_read(text, project=lab.project.slug, zone="UTC", now=NOW)
    assert (ask.count, ask.duration) != (512, 90 * 86_400)
    assert refused(lab, ask).alternatives


def test_where_two_are_not_enough_three_are_offered(real_db: Servers) -> None:
    """Too long, too far ahead and too many: what is offered is admitted."""
    lab = a_lab("helix", gpus=8)
    with as_system():
        Quota.objects.update(guaranteed_units=6 * 56_000, borrow_limit_units=0)
        Tier.objects.filter(slug="standard").update(max_duration_seconds=8 * 3600)
    found = refused(lab, an_ask(7, hours=9, starts=NOW + 100 * DAY))
    (offered,) = found.alternatives
    assert (offered["count"], offered["duration"]) == (6, 8 * 3600)
    assert offered["starts"] == (NOW + 28 * DAY).isoformat()


def test_of_a_window_that_a_budget_covers_in_part_the_covered_part_is_offered(real_db: Servers) -> None:
    lab, last = a_lab("helix", gpus=2), (NOW + 10 * DAY).date()
    project = a_project(lab.tenant)
    actor, period = an_actor(a_member(project)), Period(NOW.date(), last)
    with as_system():
        budget_set(actor_id=None, project=project, period=period, amount=Decimal(1000), now=NOW)
    starts = NOW + 8 * DAY
    request = a_booking_request(project, an_ask(1, hours=96, starts=starts))
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as refused:
        booking_request(actor=actor, request=request, now=NOW)
    assert refused.value.code == "no_budget"
    with tenant_tx(lab.tenant_id):
        quote = quote_make(actor=actor, request=request, now=NOW)
    assert (quote.options, quote.blocking, quote.is_full) == ((), refused.value.sentence, False)
    (offered,) = named(refused.value, "duration")
    assert timedelta(0) <= midnight(last) - starts - timedelta(seconds=offered) < timedelta(minutes=3)
    shorter = replace(request, ask=replace(request.ask, duration=offered))
    with tenant_tx(lab.tenant_id):
        assert quote_make(actor=actor, request=shorter, now=NOW).options
        booking_request(actor=actor, request=shorter, now=NOW)


@pytest.mark.parametrize(
    ("now", "date", "offered", "hours"),
    [
        ("2027-03-01", "2027-03-27", "2027-03-14T21:00:00+00:00", 8),
        ("2027-03-14", "2027-04-10", "2027-03-27T21:00:00+00:00", 7),
        ("2027-10-17", "2027-11-13", "2027-10-30T20:00:00+00:00", 9),
    ],
)
def test_an_offered_date_keeps_the_local_end_that_the_line_named(
    real_db: Servers, now: str, date: str, offered: str, hours: int
) -> None:
    at = datetime.fromisoformat(f"{now}T12:00:00+00:00")
    lab = a_lab("helix", now=at)
    with as_system():
        Tier.objects.filter(slug="standard").update(advance_seconds=14 * 86_400)
    with tenant_tx(lab.tenant_id):
        ask, _ = request_read(f"1 h100 {date} 22-6", project=lab.project.slug, zone="Europe/Berlin", now=at)
    found = refused(lab, ask, now=at)
    (each,) = (each for each in found.alternatives if "starts" in each)
    assert (each["starts"], each.get("duration", ask.duration)) == (offered, hours * 3600)
    (line,) = (each["request"] for each in with_lines(found, ask, BERLIN).alternatives if "starts" in each)
    assert line.endswith(" 06:00")
    with tenant_tx(lab.tenant_id):
        again, _ = request_read(line, project=lab.project.slug, zone="Europe/Berlin", now=at)
    assert (again.starts, again.duration) == (datetime.fromisoformat(offered), hours * 3600)


def test_a_quoted_other_night_lasts_until_the_local_end_that_the_line_named(real_db: Servers) -> None:
    now = datetime(2027, 10, 28, 12, tzinfo=UTC)
    lab, night = a_lab("helix", now=now, money="5000"), datetime(2027, 10, 29, 20, tzinfo=UTC)
    busy = a_booking_request(lab.project, an_ask(1, hours=24, starts=night))
    with tenant_tx(lab.tenant_id):
        booking_request(actor=lab.actor, request=busy, now=now)
    with as_system():
        cycle_run(now)
    with tenant_tx(lab.tenant_id):
        ask, _ = request_read(
            "1 h100 2027-10-29 22-6", project=lab.project.slug, zone="Europe/Berlin", now=now
        )
        asked = replace(a_booking_request(lab.project, ask), zone="Europe/Berlin")
        quote = quote_make(actor=lab.actor, request=asked, now=now)
    (later,) = (each for each in quote.options if each.kind == "later")
    assert later.starts == night + DAY
    assert later.ends == datetime(2027, 10, 31, 5, tzinfo=UTC)
    assert later.ask.duration == 9 * 3600
