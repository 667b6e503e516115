"""The past of a site as its rows tell it: changes, arrays, caps, exceptions, prices, and repeated work."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from allocation.features.policy_lab.history import history_read, history_with
from allocation.features.policy_lab.past_rules import LEAST, NO_PRICES, prices_read, repeated_read, rules_read
from allocation.features.policy_lab.plays.past import Past
from allocation.features.policy_lab.plays.rules_in_time import Rules
from allocation.models import Booking, BookingArray, BookingChange, Gpu, Override, Pause, PauseCause
from allocation.rules.states import State
from allocation.services.policy.scenario_sites import scenario_snapshot
from allocation.services.policy.scenarios import NOTHING, scenario_read
from allocation.services.record.terms import Terms, terms_of
from allocation.services.snapshot.limits_in_time import GPU_HOUR, CapRule, caps_at
from allocation.services.snapshot.snapshot import seconds
from billing.models import PriceBook
from solver import UNITS_PER_GPU, Snapshot
from tenants.models import Quota, QuotaWindow, Tier
from tests.api.builders import Site, a_site
from tests.builders_allocation import NOW, a_booking, an_allocation
from tests.features.policy_lab.test_play import a_site as a_played_site
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SINCE = NOW - 7 * DAY


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


def asked(site: Site, at: datetime, state: State = State.ENDED, **facts: object) -> Booking:
    """A flexible booking of four hours that was asked for at an instant."""
    booking = a_booking(site.project, site.people["researcher"].pk, state=state, starts=at, now=at)
    with as_owner():
        rows = Booking.objects.filter(id=booking.id)
        rows.update(submitted=at, starts=None, not_before=at, duration_seconds=4 * 3_600, **facts)
        return rows.get()


def change(booking: Booking, at: datetime, strength: str, **to: object) -> Terms:
    """A change that was made; what the booking is now is what it asks for."""
    with as_owner():
        row = Booking.objects.get(id=booking.id)
        before, after = terms_of(row), replace(terms_of(row), **to)  # type: ignore[arg-type]
        BookingChange.objects.create(
            id=uuid4(),
            tenant_id=row.tenant_id,
            booking=row,
            strength=strength,
            state="changed",
            base_revision=row.revision,
            target=after.to_json(),
            before=before.to_json(),
            asked_by_id=row.owner_id,
            asked_at=at,
            decided_at=at,
        )
        Booking.objects.filter(id=booking.id).update(**after.facts(), ranked_at=at)
    return after


def read(site: Site) -> dict[str, Past]:
    with as_system():
        history, _ = history_read(SINCE, NOW)
    return {each.request.booking: each for each in history.past}


def test_a_changed_booking_is_played_as_it_was_asked_for_and_changed_at_its_time(site: Site) -> None:
    at = NOW - 3 * DAY
    booking = asked(site, at, ended_at=at + 9 * HOUR)
    ask = {**booking.ask, "count": 1}
    with as_owner():
        Booking.objects.filter(id=booking.id).update(ask={**booking.ask, "count": 2})
    change(booking, at + HOUR, "weaker", ask=ask)
    change(booking, at + 2 * HOUR, "stronger", duration_seconds=8 * 3_600)
    with as_system():
        gpu = Gpu.objects.order_by("number")[0]
    an_allocation(booking, gpu, starts=at + HOUR, ends=at + 9 * HOUR, state="ended")
    past = read(site)[str(booking.id)]
    assert (past.request.ask.count, past.request.duration) == (2, 4 * 3_600)
    assert past.request.submitted == seconds(at)
    less, longer = past.changes
    assert (less.at, less.request.ask.count) == (seconds(at + HOUR), 1)
    assert less.request.submitted == seconds(at), "who asks for less keeps the place in the queue"
    assert (longer.at, longer.request.duration) == (seconds(at + 2 * HOUR), 8 * 3_600)
    assert longer.request.submitted == longer.at
    assert past.really == 8 * 3_600


def test_changes_before_the_past_are_in_the_request_and_those_of_words_in_none(site: Site) -> None:
    booking = asked(site, SINCE - DAY, State.QUEUED)
    change(booking, SINCE - HOUR, "stronger", duration_seconds=7 * 3_600)
    change(booking, SINCE + HOUR, "word", name="Other")
    past = read(site)[str(booking.id)]
    assert (past.request.duration, past.changes) == (7 * 3_600, ())
    assert past.request.submitted == seconds(SINCE)


def test_elements_of_an_array_are_of_it_and_those_to_come_are_added(site: Site) -> None:
    at = NOW - 2 * DAY
    first = asked(site, at + HOUR, State.QUEUED)
    with as_owner():
        array = BookingArray.objects.create(
            tenant_id=first.tenant_id,
            number=first.number,
            project_id=first.project_id,
            owner_id=first.owner_id,
            terms=replace(terms_of(first), not_before=at).to_json(),
            submitted=at,
            count=6,
            parallel=2,
            next_index=3,
            cancelled=[[4, 5]],
        )
        Booking.objects.filter(id=first.id).update(array=array, array_index=1)
    found = [each for each in read(site).values() if each.array]
    assert len(found) == 3, "one that was booked, and elements 3 and 6"
    assert {(each.array, each.parallel) for each in found} == {(str(array.id), 2)}
    assert {each.request.submitted for each in found} == {seconds(at)}
    with as_owner():
        BookingArray.objects.filter(id=array.id).update(outcome="cancelled")
    assert len([each for each in read(site).values() if each.array]) == 1


def rules(site: Site, scenario: Mapping[str, Any] | None = None, **headroom: int) -> Rules:
    with as_system():
        wanted = scenario_read(scenario) if scenario else NOTHING
        return rules_read(SINCE, NOW, wanted, headroom)


def test_caps_are_those_of_the_quotas_or_of_the_scenario(site: Site) -> None:
    with as_owner():
        Quota.objects.filter(tenant=site.project.tenant, project=None).update(cap_gpu_hours=50)
    slug = site.project.tenant.slug
    row = {"tenant": slug, "gpu_class": "h100", "cap_gpu_hours": 9, "cap_days": 7}
    (cap,) = rules(site).caps
    assert (cap.gpu_hours, cap.days) == (50, None)
    (own,) = rules(site, {"quotas": [row]}).caps
    assert (own.owner, own.gpu_hours, own.days) == (str(site.project.tenant_id), 9, 7)
    with as_owner():
        assert Quota.objects.filter(cap_gpu_hours=9).count() == 0, "nothing is stored"


def test_exceptions_count_from_when_they_were_granted_until_they_were_ended(site: Site) -> None:
    with as_owner():
        facts: dict[str, Any] = {
            "tenant": site.project.tenant,
            "kind": "quota",
            "gpu_class_id": "h100",
            "amount": 2 * UNITS_PER_GPU,
            "decider": "operator",
            "asked": SINCE - DAY,
            "starts": SINCE,
            "decided_by": site.people["operator"],
        }
        Override.objects.create(**facts, state="granted", decided=SINCE + DAY, until=NOW + DAY)
        ended = {"decided": SINCE, "ended": SINCE + 2 * DAY, "until": NOW}
        Override.objects.create(**facts, state="ended", **ended)
        Override.objects.create(**facts, state="declined", decided=SINCE, until=NOW)
        early = facts | {"starts": SINCE - 2 * DAY}
        Override.objects.create(**early, state="granted", decided=SINCE - DAY, until=SINCE)
    found = {(each.known, each.gone) for each in rules(site).exceptions}
    assert found == {
        (seconds(SINCE + DAY), None),
        (seconds(SINCE), seconds(SINCE + 2 * DAY)),
    }


def test_limits_at_some_times_are_steps_over_the_whole_past(site: Site) -> None:
    with as_owner():
        QuotaWindow.objects.create(
            tenant=site.project.tenant,
            project=site.project,
            gpu_class_id="h100",
            limit_units=UNITS_PER_GPU,
            first_hour=8,
            end_hour=20,
            created=SINCE,
            created_by=site.people["admin"],
        )
    steps = [each for each in rules(site).steps if each.units < 0]
    assert min(each.starts for each in steps) <= seconds(SINCE) + 86_400
    assert max(each.starts for each in steps) > seconds(NOW + 100 * DAY)


def test_a_shadow_decides_with_the_caps_and_limits_of_its_scenario(site: Site) -> None:
    tenant = site.project.tenant
    with as_owner():
        Quota.objects.filter(tenant=tenant, project=None).update(cap_gpu_hours=50)
    with as_system():
        stored: Snapshot = replace(a_played_site(tenants=(str(tenant.pk), "b")), now=seconds(NOW))
        rule = CapRule(str(tenant.pk), "h100", 50, None, carries=False)
        stored = replace(stored, caps=caps_at((rule,), (), NOW))
        row = {"tenant": tenant.slug, "gpu_class": "h100"}
        same = scenario_snapshot(stored, scenario_read({"tiers": {"spot": {"grace_seconds": 77}}}))
        found = scenario_snapshot(stored, scenario_read({"quotas": [row | {"cap_gpu_hours": 5}]}))
    assert same.caps == stored.caps
    assert {each.most for each in found.caps} == {5 * GPU_HOUR}
    assert len(found.caps) == len(stored.caps)


def test_prices_are_those_of_the_book_with_those_of_the_scenario(site: Site) -> None:
    wanted = {
        "prices": [{"gpu_class": "h100", "tier": "standard", "per_gpu_hour": "2", "peak_per_gpu_hour": "3"}],
        "peak_hours": {"hours": "Mon-Fri 8-20", "zone": "UTC"},
    }
    with as_system():
        at = PriceBook.objects.latest("version").valid_from
        usual = prices_read(at, NOTHING, a_played_site())
        found = prices_read(at, scenario_read(wanted), a_played_site())
        assert prices_read(at - DAY, NOTHING, a_played_site()) == NO_PRICES
    plain, peak = usual.rate(("h100", "standard", ""))
    assert plain == peak == int(Decimal("4.80") * 1_000_000)
    assert found.rate(("h100", "standard", "")) == (2_000_000, 3_000_000)
    assert found.hours.weekly == tuple((day, 8, 20) for day in range(5))


def test_repeated_work_is_what_past_pauses_lost_by_tier_or_by_method(site: Site) -> None:
    with as_owner():
        Tier.objects.filter(slug="spot").update(pausable=True, pause_method="stop")
    for number in range(LEAST):
        paused(site, "spot", "stop", 600 * number)
    with as_system():
        found = {each.tier: each for each in repeated_read(NOW, NOTHING)}
        other = scenario_read({"tiers": {"spot": {"pause_method": "suspend"}}})
        suspended = {each.tier: each for each in repeated_read(NOW, other)}
    assert (found["spot"].seconds, found["spot"].pauses, found["spot"].of) == (1_200, LEAST, "tier")
    assert (suspended["spot"].seconds, suspended["spot"].of) == (0, "nothing")
    assert all(each.of in ("tier", "method", "nothing") for each in found.values())


def paused(site: Site, tier: str, method: str, lost: int) -> None:
    at = NOW - 5 * DAY
    booking = asked(site, at, tier_id=tier, ended_at=at + 4 * HOUR)
    with as_owner():
        Pause.objects.create(
            tenant_id=booking.tenant_id,
            booking=booking,
            number=1,
            cause=PauseCause.objects.create(beneficiary=None),
            may_wait=False,
            policy_version=1,
            rule="R1",
            sentence="",
            method=method,
            notified_at=at + HOUR,
            deadline=at + HOUR,
            grace_seconds=0,
            emptied_at=at + 2 * HOUR,
            ready_at=at,
            ends_before=at + 4 * HOUR,
            lost_seconds=lost,
            ended_at=at + 4 * HOUR,
        )


def test_a_scenario_changes_all_that_a_changed_booking_asks_for(site: Site) -> None:
    at = NOW - 3 * DAY
    booking = asked(site, at, State.QUEUED)
    change(booking, at + HOUR, "stronger", duration_seconds=9 * 3_600)
    with as_system():
        history, _ = history_read(SINCE, NOW)
        wanted = scenario_read({"tiers": {booking.tier_id: {"priority": 3}}})
        found = history_with(history, wanted)
    (past,) = (each for each in found.past if each.request.booking == str(booking.id))
    assert [each.priority for each in past.requests] == [3, 3]
    assert [each.duration for each in past.requests] == [4 * 3_600, 9 * 3_600]
