"""Refusals of many bookings, of changes and of starts that are over offer what would work."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from django.db import transaction

from allocation.errors import AskError
from allocation.features.arrays.services import array_request
from allocation.models import Booking, Gpu
from allocation.rules.ask import AskDocument
from allocation.rules.recurrence import recurrence_read
from allocation.rules.states import State
from allocation.services.bookings.batches import Item, items_request
from allocation.services.bookings.change.changes import Patch, booking_extend, booking_patch
from allocation.services.bookings.checks.affordable import seconds_within
from allocation.services.bookings.checks.lengths import extension_check
from allocation.services.bookings.checks.remedies import request_of
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.requests import ArrayRequest
from allocation.services.bookings.series import Repeat, series_request
from allocation.services.tiers.versions import VersionTerms, tier_version_set
from billing.models import Guardrail
from billing.rules import BudgetOwner, BudgetTerms, Period
from billing.services import budget_put
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_tenant_admin, a_tier, an_actor
from tests.builders_allocation import (
    HOUR,
    NOW,
    Lab,
    a_booking,
    a_booking_request,
    a_budget,
    a_lab,
    all_priced,
    an_allocation,
    an_ask,
)
from tests.roles import as_system
from tests.servers.servers import Servers

DAY = timedelta(days=1)


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    found = a_lab("helix", gpus=4)
    all_priced()
    return found


def daily(times: int) -> Repeat:
    return Repeat(recurrence_read(f"FREQ=DAILY;COUNT={times}"))


def series(lab: Lab, ask: AskDocument, tier: str, times: int) -> None:
    request = a_booking_request(lab.project, ask, tier=tier)
    with tenant_tx(lab.tenant_id):
        series_request(actor=lab.actor, request=request, repeat=daily(times), now=NOW)


def series_refused(lab: Lab, ask: AskDocument, times: int) -> Refused:
    """The refusal of a series, of which each alternative for all dates is granted and undone."""
    with pytest.raises(Refused) as error:
        series(lab, ask, "standard", times)
    for each in error.value.alternatives:
        if "partial" not in each:
            with tenant_tx(lab.tenant_id):
                series(lab, request_of(each, ask), each.get("tier", "standard"), each.get("times", times))
                transaction.set_rollback(True)
    return error.value


def named(refusal: Refused, name: str) -> list[Any]:
    return [each[name] for each in refusal.alternatives if name in each]


def test_a_series_without_money_for_its_first_date_offers_dates_that_are_all_paid(lab: Lab) -> None:
    a_budget(lab.project, "9.59")
    found = series_refused(lab, an_ask(2, hours=3, starts=NOW + DAY), 2)
    assert found.code == "budget_exceeded"
    assert named(found, "duration"), found.alternatives
    assert named(found, "duration")[0] < 3600, "both dates together have 9.59"


def test_a_series_beyond_a_limit_of_the_person_offers_another_tier(lab: Lab) -> None:
    a_tier("spot", priority=10)
    all_priced()
    admin = an_actor(a_tenant_admin(lab.project.tenant))
    with tenant_tx(lab.tenant_id):
        terms = VersionTerms("standard", max_open_gpus=1)
        tier_version_set(actor=admin, terms=terms, now=NOW - HOUR)
    found = series_refused(lab, an_ask(2, starts=NOW + DAY), 2)
    assert (found.code, named(found, "tier")) == ("too_many_gpus", ["spot"])


def test_the_first_refusals_of_a_batch_offer_what_works_and_the_others_say_why(lab: Lab) -> None:
    a_budget(lab.project, "9.59")
    request = a_booking_request(lab.project, an_ask(2, hours=3))
    with tenant_tx(lab.tenant_id):
        answers = items_request(actor=lab.actor, items=[Item(request)] * 5, now=NOW)
        transaction.set_rollback(True)
    refused = [each for each in answers if isinstance(each, Refused)]
    assert [each.code for each in refused] == ["budget_exceeded"] * 5
    assert [bool(each.alternatives) for each in refused] == [True] * 3 + [False] * 2


def test_an_array_without_money_offers_fewer_runs_and_to_hold_as_it_goes(lab: Lab) -> None:
    a_budget(lab.project, "9.59")
    request = a_booking_request(lab.project, an_ask(1, hours=1))

    def asked(count: int, *, holds_all: bool = True) -> Booking:
        array = ArrayRequest(count, holds_all=holds_all)
        with tenant_tx(lab.tenant_id):
            return array_request(actor=lab.actor, request=request, array=array, now=NOW, key=uuid4())

    with pytest.raises(Refused) as error:
        asked(50)
    (most,) = named(error.value, "array")
    assert named(error.value, "hold") == ["rolling"]
    with pytest.raises(Refused):
        asked(most + 1)
    assert asked(most).array is not None


def test_money_of_an_array_counts_for_no_ladder_that_refuses_the_array_itself(lab: Lab) -> None:
    """A rung is reached by what others hold, and not by the array that is asked for."""
    budget = a_budget(lab.project, "100.00")
    with as_system():
        Guardrail.objects.create(
            tenant=lab.tenant, budget=budget, percent=80, measure="committed", action="no_bookings"
        )
    request = a_booking_request(lab.project, an_ask(1, hours=1))
    with tenant_tx(lab.tenant_id):
        found = array_request(actor=lab.actor, request=request, array=ArrayRequest(20), now=NOW, key=uuid4())
    assert found.array is not None, "20 runs of EUR 4.80 are 96 % of the budget, as one booking would be"


def running(lab: Lab) -> Booking:
    booking = a_booking(lab.project, lab.actor.user_id, state=State.ACTIVE)
    with as_system():
        an_allocation(booking, Gpu.objects.order_by("index")[0], state="active")
    return booking


@pytest.mark.parametrize("by_quote", [False, True])
def test_an_extension_without_money_offers_the_longest_that_is_paid(lab: Lab, *, by_quote: bool) -> None:
    booking = running(lab)
    a_budget(lab.project, "20.00")
    now = NOW + timedelta(minutes=30)
    with as_system():
        booking.refresh_from_db()
    assert booking.planned_ends is not None
    until = booking.planned_ends + 20 * HOUR
    extend = partial(booking_extend, actor=lab.actor, booking=booking, now=now)
    quote = partial(extension_check, lab.actor, booking, now=now)
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as error:
        (quote if by_quote else extend)(until=until)
    assert error.value.code == "budget_exceeded"
    (longest,) = map(datetime.fromisoformat, named(error.value, "until"))
    assert booking.planned_ends < longest < until
    with tenant_tx(lab.tenant_id):
        extend(until=longest)


def test_a_budget_that_ends_within_the_window_offers_a_length_that_it_pays(lab: Lab) -> None:
    """Only the days of one budget are short: a length in proportion still has all of these days."""
    owner = BudgetOwner(lab.tenant_id, lab.project.id, person_id=lab.actor.user_id)
    days = Period(NOW.date(), (NOW + timedelta(days=2)).date())
    with as_system():
        budget_put(actor_id=None, owner=owner, terms=BudgetTerms(days, Decimal(60), is_hard=True), now=NOW)
    request = a_booking_request(lab.project, an_ask(1, hours=120))
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as error:
        booking_request(actor=lab.actor, request=request, now=NOW)
    (seconds,) = named(error.value, "duration")
    with tenant_tx(lab.tenant_id):
        shorter = a_booking_request(lab.project, replace(request.ask, duration=seconds))
        booking_request(actor=lab.actor, request=shorter, now=NOW)


def test_a_change_without_money_offers_a_lesser_one(lab: Lab) -> None:
    budget = a_budget(lab.project, "30.00")
    assert budget is not None
    with tenant_tx(lab.tenant_id):
        request = a_booking_request(lab.project, an_ask(1, hours=2))
        booking = booking_request(actor=lab.actor, request=request, now=NOW)
    for ask in (an_ask(1, hours=60), an_ask(4, hours=3)):
        with tenant_tx(lab.tenant_id), pytest.raises(Refused) as error:
            booking_patch(actor=lab.actor, booking=booking, patch=Patch(ask=ask), revision=None, now=NOW)
        assert error.value.code == "budget_exceeded"
        assert error.value.alternatives
        for each in error.value.alternatives:
            patch = Patch(ask=request_of(each, ask), tier=each.get("tier"))
            with tenant_tx(lab.tenant_id):
                booking_patch(actor=lab.actor, booking=booking, patch=patch, revision=None, now=NOW)
                transaction.set_rollback(True)


def test_a_start_that_is_over_offers_one_that_is_near_and_the_next_at_its_time_of_day(lab: Lab) -> None:
    """Also across a change of clocks: NOW is in winter, and the start was in summer."""
    starts = datetime(NOW.year, 9, 1, 7, 0, tzinfo=UTC)
    ask = an_ask(starts=starts)
    request = replace(a_booking_request(lab.project, ask), zone="Europe/Berlin")
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as error:
        booking_request(actor=lab.actor, request=request, now=NOW)
    assert error.value.code == "window_past"
    near, next_day = map(datetime.fromisoformat, named(error.value, "starts"))
    assert NOW < near <= NOW + timedelta(minutes=5)
    assert NOW < next_day <= NOW + DAY
    assert next_day.astimezone(ZoneInfo("Europe/Berlin")).hour == 9
    for each in error.value.alternatives:
        with tenant_tx(lab.tenant_id):
            again = a_booking_request(lab.project, request_of(each, ask))
            booking_request(actor=lab.actor, request=again, now=NOW)
            transaction.set_rollback(True)


def test_a_share_of_several_gpus_offers_one(lab: Lab) -> None:
    with pytest.raises(AskError) as error:
        AskDocument.from_json({"classes": ["h100"], "duration": 3600, "count": 2, "share": 500})
    (instead,) = error.value.alternatives
    fields = {"classes": ["h100"], "duration": 3600, "share": 500} | instead
    assert AskDocument.from_json(fields).share == 500


def test_lengths_of_money_are_below_what_is_asked() -> None:
    assert list(seconds_within(7200, Decimal(5), Decimal(10)))[:3] == [3600, 3240, 1800]
    assert list(seconds_within(7200, Decimal(0), Decimal(10))) == []
    assert list(seconds_within(60, Decimal(1), Decimal(10))) == []


def test_a_series_that_is_too_large_and_reaches_too_far_offers_fewer_gpus_on_fewer_dates(lab: Lab) -> None:
    """Neither alone is enough: the tier books four weeks ahead."""
    found = series_refused(lab, an_ask(9, hours=0.25, starts=NOW + DAY), 40)
    assert found.code == "tenant_quota"
    (each,) = found.alternatives
    assert (each["count"], each["times"]) == (8, 28)
    assert each["rrule"] == "FREQ=DAILY;COUNT=28"
