"""Changes that wait for room: open until there is some, with the booking as it was meanwhile."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from allocation.models import Booking, BookingEvent
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.change.sooner import Sooner
from allocation.services.bookings.checks.terms import target_of
from allocation.services.bookings.release import booking_cancel
from allocation.services.decide.cycle import is_anything_due
from allocation.services.decide.invariants import invariants_check
from allocation.services.decide.replay import decision_replay
from allocation.services.quotes.changes import change_quote
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_tier
from tests.builders_allocation import HOUR, NOW, Lab, a_lab, an_ask
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.bookings.test_changes import (
    LATER,
    SOON,
    change_of,
    fresh,
    held,
    requested,
    turn,
    window,
    windows,
)

pytestmark = pytest.mark.turn


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix", gpus=8)


def asked(lab: Lab, booking: Booking, *, now: datetime = SOON, **parts: object) -> Booking:
    seen = fresh(booking)
    patch = Patch(ask=replace(target_of(seen).ask, **parts), waits=True)  # type: ignore[arg-type]
    with tenant_tx(lab.tenant_id):
        return booking_patch(actor=lab.actor, booking=seen, patch=patch, revision=seen.revision, now=now)


def kinds(booking: Booking) -> list[str]:
    with as_system():
        return list(BookingEvent.objects.filter(booking=booking).values_list("kind", flat=True))


def test_a_change_waits_for_room_and_is_made_in_the_turn_after_it_frees(lab: Lab) -> None:
    mine = requested(lab, window(4, 2, 4))
    other = requested(lab, window(8, 4, 5))
    turn(NOW)
    asked(lab, mine, duration=3 * 3600)
    turn(SOON)
    change = change_of(mine)
    assert (change.state, change.is_waiting) == ("asked", True)
    assert change.keep_trying_until == NOW + 2 * HOUR
    assert (windows(mine), fresh(mine).revision) == ([(2, 4)] * 4, 1)
    assert held(mine) == fresh(mine).hold_amount
    assert kinds(mine)[-1] == "change_waits"
    with as_system():
        assert not is_anything_due(LATER)
        assert change.decision is not None
        assert decision_replay(change.decision).is_equal
    turn(LATER)
    assert (change_of(mine).decision_id, kinds(mine)[-1]) == (change.decision_id, "change_waits")

    with tenant_tx(lab.tenant_id):
        booking_cancel(actor=lab.actor, booking=other, now=LATER)
    turn(LATER)
    change = change_of(mine)
    assert (change.state, change.reasons, windows(mine)) == ("changed", [], [(2, 5)] * 4)
    assert kinds(mine).count("change_waits") == 1


@pytest.mark.long
def test_a_change_stops_waiting_at_its_last_start_and_gives_its_money_back(lab: Lab) -> None:
    mine = requested(lab, window(8, 20, 22))
    requested(lab, window(8, 4, 5))
    turn(NOW)
    asked(lab, mine, starts=NOW + 4 * HOUR, duration=3 * 3600)
    turn(SOON)
    assert change_of(mine).delta_held > 0
    turn(NOW + 4 * HOUR)
    change = change_of(mine)
    assert (change.state, change.reasons[0]["rule"]) == ("kept", "R88")
    assert windows(mine) == [(20, 22)] * 8
    with as_system():
        assert not is_anything_due(NOW + 5 * HOUR - HOUR / 2)


@pytest.mark.long
def test_a_later_end_waits_for_room_until_ten_minutes_before_the_end(lab: Lab) -> None:
    mine = requested(lab, an_ask(8, hours=2))
    other = requested(lab, window(8, 2, 3))
    turn(NOW)
    turn(SOON)
    assert fresh(mine).state == "starting"
    asked(lab, mine, duration=3 * 3600)
    turn(SOON)
    change = change_of(mine)
    last = NOW + 2 * HOUR - timedelta(minutes=10)
    assert (change.state, change.is_waiting, change.keep_trying_until) == ("asked", True, last)
    assert (windows(mine), kinds(mine)[-1]) == ([(0, 2)] * 8, "change_waits")
    with as_system():
        assert not is_anything_due(LATER)
        assert is_anything_due(last)
    with tenant_tx(lab.tenant_id):
        booking_cancel(actor=lab.actor, booking=other, now=LATER)
    turn(LATER)
    assert (change_of(mine).state, windows(mine)) == ("changed", [(0, 3)] * 8)
    assert kinds(mine).count("change_waits") == 1
    requested(lab, window(8, 3, 4), now=LATER)
    turn(LATER + timedelta(seconds=1))
    asked(lab, mine, now=LATER, duration=4 * 3600)
    turn(LATER + timedelta(seconds=2))
    turn(last + HOUR)
    assert (change_of(mine).state, fresh(mine).extension_until) == ("kept", None)
    with pytest.raises(Refused) as refused:
        asked(lab, mine, now=last + HOUR, duration=4 * 3600)
    assert refused.value.code == "wait_too_late"


def sooner(lab: Lab, booking: Booking, since: datetime, now: datetime = SOON) -> None:
    with tenant_tx(lab.tenant_id):
        patch = Patch(sooner=Sooner(since))
        booking_patch(actor=lab.actor, booking=booking, patch=patch, revision=None, now=now)


def test_a_fixed_window_takes_any_earlier_start_as_soon_as_there_is_room(lab: Lab) -> None:
    mine = requested(lab, window(8, 8, 10))
    first, second = requested(lab, window(8, 1, 4)), requested(lab, window(8, 4, 8))
    turn(NOW)
    before = held(mine)
    sooner(lab, mine, NOW + HOUR)
    turn(SOON)
    change = change_of(mine)
    assert (change.is_sooner, change.is_waiting, change.delta_held) == (True, True, Decimal(0))
    assert change.keep_trying_until == NOW + 8 * HOUR - timedelta(minutes=5)
    assert (windows(mine), held(mine)) == ([(8, 10)] * 8, before)
    with tenant_tx(lab.tenant_id):
        booking_cancel(actor=lab.actor, booking=second, now=LATER)
    turn(LATER)
    change, got = change_of(mine), fresh(mine)
    assert (change.state, windows(mine)) == ("changed", [(4, 6)] * 8)
    assert (got.starts, got.planned_strength, got.hold_amount) == (NOW + 4 * HOUR, "firm", before)
    assert (got.deadline, target_of(got).ask.starts) == (None, NOW + 4 * HOUR)
    with as_system():
        assert change.decision is not None
        assert decision_replay(change.decision).is_equal
        assert invariants_check() == []
    # It was one request: a later gap is not taken without a new one.
    with tenant_tx(lab.tenant_id):
        booking_cancel(actor=lab.actor, booking=first, now=LATER)
    turn(LATER + timedelta(seconds=1))
    assert windows(mine) == [(4, 6)] * 8


def test_who_cannot_be_earlier_is_told_why(lab: Lab) -> None:
    fixed, flexible = requested(lab, window(8, 2, 3)), requested(lab, an_ask(8, hours=1))
    turn(NOW)
    for booking, since, code in (
        (flexible, NOW, "not_changeable"),
        (fixed, NOW + 2 * HOUR, "sooner_no_time"),
    ):
        with pytest.raises(Refused) as refused:
            sooner(lab, booking, since)
        assert refused.value.code == code
    waits = requested(lab, an_ask(8, hours=3), now=SOON)
    turn(LATER)
    with pytest.raises(Refused) as refused:
        sooner(lab, waits, NOW, LATER)
    assert refused.value.code == "sooner_flexible"


def test_a_quote_names_whom_a_change_delays_in_its_organisation(lab: Lab) -> None:
    mine = requested(lab, window(8, 0, 2))
    behind = requested(lab, an_ask(8, hours=1))
    low = a_tier("low", priority=10)
    with as_system():
        Booking.objects.filter(id=behind.id).update(tier=low)
    fixed = requested(lab, window(8, 8, 10))
    turn(NOW)
    turn(SOON)
    assert fresh(behind).planned_starts == NOW + 2 * HOUR

    def delayed(booking: Booking, **parts: object) -> object:
        seen = fresh(booking)
        patch = Patch(ask=replace(target_of(seen).ask, **parts))  # type: ignore[arg-type]
        with tenant_tx(lab.tenant_id):
            quote = change_quote(actor=lab.actor, booking=seen, patch=patch, revision=None, now=LATER)
        return [(each.label, each.by) for each in quote.delays or ()]

    assert delayed(mine, duration=3 * 3600) == [(behind.label, HOUR)]
    assert delayed(fixed, starts=NOW + 2 * HOUR, duration=3600) == [(behind.label, HOUR)]
    assert delayed(fixed, starts=NOW + 9 * HOUR) == []
    assert change_of(fixed) is None, "a quote writes nothing"
