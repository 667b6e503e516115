"""A waiting booking: the range of its start, and options that start earlier."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from allocation.models import Booking, BookingEvent
from allocation.queries.bookings.outcomes import booking_start_range, pause_record
from allocation.rules.start_range import StartRange
from allocation.rules.states import State
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.decide.cycle import cycle_run
from allocation.services.decide.invariants import invariants_check
from allocation.services.quotes.earlier import Change, earlier_options, earlier_take
from allocation.services.quotes.quotes import Quote, quote_make
from billing.queries import reference_totals
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_tenant_admin, a_tier, an_actor
from tests.builders_allocation import HOUR, NOW, Lab, a_booking, a_booking_request, a_lab, an_ask
from tests.prices import price_book_publish
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.bookings.test_approvals import COSTLY, ruled
from tests.services.plant import fresh

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)


@pytest.fixture
def busy(real_db: Servers) -> tuple[Lab, Booking]:
    """One H100, promised to a long booking first, and one that waits for it."""
    lab = a_lab("helix")
    a_tier("spot", pausable=True)
    with as_system():
        prices = {("h100", "standard"): Decimal(4), ("h100", "spot"): Decimal(1)}
        price_book_publish(actor_id=None, valid_from=NOW + HOUR, prices=prices, now=NOW)
    asked(lab, an_ask(hours=2, profile="3g.40gb"))
    cycled(NOW)
    waiting = asked(lab, an_ask(hours=1))
    cycled(NOW + MINUTE)
    return lab, fresh(waiting)


def asked(lab: Lab, ask: Any, tier: str = "standard") -> Booking:  # noqa: ANN401
    with tenant_tx(lab.tenant_id):
        return booking_request(
            actor=lab.actor, request=a_booking_request(lab.project, ask, tier=tier), now=NOW
        )


def cycled(now: datetime) -> None:
    with as_system():
        assert cycle_run(now).outcome in ("decided", "unchanged")


def changed(lab: Lab, booking: Booking, change: Change, now: datetime) -> Booking:
    with tenant_tx(lab.tenant_id):
        return earlier_take(actor=lab.actor, booking=booking, change=change, now=now)


def seen(lab: Lab, booking: Booking, now: datetime) -> Any:  # noqa: ANN401
    with tenant_tx(lab.tenant_id):
        booking = Booking.objects.select_related("project").get(id=booking.id)
        return earlier_options(actor=lab.actor, booking=booking, now=now)[0]


def test_a_waiting_booking_is_shown_what_would_start_before_its_promise(
    busy: tuple[Lab, Booking],
) -> None:
    lab, waiting = busy
    assert waiting.planned_starts is not None
    options = seen(lab, waiting, NOW + MINUTE)
    assert 1 <= len(options) <= 3
    assert all(option.starts < waiting.planned_starts for option in options)
    assert {option.profile: option.speed for option in options} == {
        "2g.20gb": 1000 * 2 // 7,
        "3g.40gb": 1000 * 3 // 7,
    }


def test_the_booking_changes_to_the_option_and_keeps_its_start_until_then(
    busy: tuple[Lab, Booking],
) -> None:
    lab, waiting = busy
    (option, *_) = seen(lab, waiting, NOW + MINUTE)
    asked_for = changed(lab, waiting, Change(option.tier, option.request, option.starts), NOW + 2 * MINUTE)
    assert (asked_for.id, asked_for.state) == (waiting.id, State.QUEUED)
    assert asked_for.planned_starts == waiting.planned_starts
    cycled(NOW + 2 * MINUTE)
    after = fresh(waiting)
    assert after.state in (State.SCHEDULED, State.STARTING)
    assert after.planned_starts is not None
    assert after.planned_starts <= option.starts + 2 * MINUTE
    assert (after.ranked_at, after.request_text) == (NOW + 2 * MINUTE, option.request)
    with as_system():
        held = reference_totals(tenant_id=lab.tenant_id, reference=after.id)[0]
        assert held == after.hold_amount == option.price
        assert Booking.objects.count() == 2
        assert invariants_check() == []


def test_the_prices_that_were_shown_count_although_they_rise(busy: tuple[Lab, Booking]) -> None:
    lab, waiting = busy
    shown = NOW + HOUR
    (option, *_) = seen(lab, waiting, shown)
    prices = dict.fromkeys([("h100", "standard"), ("h100", "spot")], Decimal(99))
    at = shown + timedelta(seconds=30)
    with as_system():
        price_book_publish(actor_id=None, valid_from=at, prices=prices, now=at)
    change = Change(option.tier, option.request, option.starts, shown)
    changed(lab, waiting, change, shown + MINUTE)
    with as_system():
        target = waiting.changes.get().target
    assert Decimal(target["hold_amount"]) == option.price


def test_an_option_that_needs_an_approval_waits_for_it_and_the_booking_stays(
    busy: tuple[Lab, Booking],
) -> None:
    lab, waiting = busy
    (option, *_) = seen(lab, waiting, NOW + MINUTE)
    ruled(an_actor(a_tenant_admin(lab.tenant)), replace(COSTLY, min_cost=option.price))
    change = Change(option.tier, option.request, option.starts)
    assert changed(lab, waiting, change, NOW + MINUTE).state == State.QUEUED
    with as_system():
        assert waiting.changes.get().state == "awaiting_approval"


def test_what_is_gone_changes_nothing_and_says_the_rule(busy: tuple[Lab, Booking]) -> None:
    lab, waiting = busy
    (option, *_) = seen(lab, waiting, NOW + MINUTE)
    asked(lab, an_ask(hours=1.5, profile="3g.40gb"))
    cycled(NOW + MINUTE)
    with pytest.raises(Refused) as refused:
        changed(lab, waiting, Change(option.tier, option.request, option.starts), NOW + 2 * MINUTE)
    assert (refused.value.code, refused.value.rule) == ("change_gone", "R71")
    assert fresh(waiting).state == State.QUEUED
    with as_system():
        assert Booking.objects.count() == 3


def test_only_what_waits_can_be_changed(busy: tuple[Lab, Booking]) -> None:
    lab, waiting = busy
    with tenant_tx(lab.tenant_id):
        booking_cancel(actor=lab.actor, booking=waiting, now=NOW + MINUTE)
    with pytest.raises(Refused, match="not_changeable"):
        changed(lab, waiting, Change("standard", "1 h100 1h", NOW), NOW + 2 * MINUTE)


def test_no_money_for_the_new_one_leaves_the_old_one_as_it_was(busy: tuple[Lab, Booking]) -> None:
    lab, waiting = busy
    (option, *_) = seen(lab, waiting, NOW + MINUTE)
    with as_system():
        lab.project.is_open = False
        lab.project.save(update_fields=["is_open"])
    with pytest.raises(Refused):
        changed(lab, waiting, Change(option.tier, option.request, option.starts), NOW + 2 * MINUTE)
    assert fresh(waiting).state == State.QUEUED


def test_the_first_promise_stays_as_it_was_made(busy: tuple[Lab, Booking]) -> None:
    _, waiting = busy
    assert waiting.first_planned_start == waiting.planned_starts == NOW + 2 * HOUR
    assert waiting.first_planned_at == NOW + MINUTE
    with as_system():
        first = Booking.objects.get(ask__profile="3g.40gb")
        booking_cancel(actor=_actor(busy), booking=first, now=NOW + 5 * MINUTE)
    cycled(NOW + 6 * MINUTE)
    moved = fresh(waiting)
    assert moved.planned_starts != NOW + 2 * HOUR
    assert moved.first_planned_start == NOW + 2 * HOUR


def _actor(busy: tuple[Lab, Booking]) -> Any:  # noqa: ANN401
    return busy[0].actor


def ran(lab: Lab, *, late: int, paused: bool = False, tier: str = "standard") -> None:
    """A booking that was promised an hour ahead, started `late` seconds after, and is over."""
    booking = a_booking(lab.project, lab.actor.user_id, state=State.ENDED)
    started = NOW + timedelta(seconds=late)
    with as_system():
        Booking.objects.filter(id=booking.id).update(
            tier=tier,
            first_planned_start=NOW,
            first_planned_at=NOW - HOUR,
            ready_at=started,
            ended_at=NOW + HOUR,
            planned_class="h100",
        )
        for kind in ["started", *(["paused"] if paused else []), "started"]:
            BookingEvent.objects.create(
                tenant_id=booking.tenant_id, booking=booking, at=started, kind=kind, state="ended"
            )
            started += HOUR


@pytest.mark.django_db
def test_the_range_is_learnt_from_what_started_in_the_same_tier(lab: Lab) -> None:
    waiting = a_booking(lab.project, lab.actor.user_id, state=State.QUEUED, starts=NOW + HOUR)
    waiting.planned_starts = NOW + HOUR
    for late in range(1_800, 5_600, 200):
        ran(lab, late=late)
    assumed = StartRange(NOW + HOUR, NOW + HOUR + 30 * MINUTE)
    with tenant_tx(lab.tenant_id):
        assert booking_start_range(waiting, NOW) == assumed, "19 are too few"
    ran(lab, late=5_600)
    learnt = StartRange(NOW + HOUR, NOW + HOUR + 80 * MINUTE, 20)
    with tenant_tx(lab.tenant_id):
        assert booking_start_range(waiting, NOW) == learnt
        waiting.announced_until = NOW + 3 * HOUR
        found = booking_start_range(waiting, NOW)
        assert found == replace(learnt, latest=NOW + 3 * HOUR), "what was announced"
        waiting.planned_strength = "guaranteed"
        assert booking_start_range(waiting, NOW) == StartRange(NOW + HOUR, NOW + HOUR)
    other = a_lab("north", gpus=0)
    waiting.planned_strength = waiting.announced_until = None
    with tenant_tx(other.tenant_id):
        found = booking_start_range(waiting, NOW)
    assert found == assumed, "how others fare is not learnt from"


@pytest.mark.django_db
def test_pauses_are_counted_once_a_booking_and_told_in_the_quote(lab: Lab) -> None:
    a_tier("spot", pausable=True)
    with as_system():
        prices = {("h100", "standard"): Decimal(4), ("h100", "spot"): Decimal(1)}
        price_book_publish(actor_id=None, valid_from=NOW + HOUR, prices=prices, now=NOW)
    for number in range(20):
        ran(lab, late=0, paused=number < 5, tier="spot")
    with tenant_tx(lab.tenant_id):
        risk = pause_record().risk("spot", "h100", borrowed=False, quarter=1)
        quote: Quote = quote_make(
            actor=lab.actor, request=a_booking_request(lab.project), now=NOW + HOUR + MINUTE
        )
    assert (risk.paused, risk.ended, risk.thousandths) == (5, 20, 150)
    by_tier = {option.tier: option for option in quote.options if option.kind == "as_asked"}
    assert (by_tier["standard"].pause_risk, by_tier["standard"].pause_basis) == (0, "")
    assert (by_tier["spot"].pause_risk or 0) > 0
    assert "similar bookings" in by_tier["spot"].pause_basis
