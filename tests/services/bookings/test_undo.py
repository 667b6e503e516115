"""Undo: a change is taken back for a minute, with the old rank and prices, if the place is free."""

from datetime import datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.db import IntegrityError

from allocation.models import Booking, BookingChange
from allocation.queries.bookings.money.statements import StatementOf, statement_lines
from allocation.services.bookings.change.undo import change_undo
from allocation.services.decide.invariants import invariants_check
from billing.models import Transfer
from billing.rules import Period
from billing.services import charge_add, charge_refund
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders_allocation import HOUR, NOW, Lab, a_lab, a_price_book, an_ask
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.bookings.test_changes import (
    SOON,
    change_of,
    fresh,
    held,
    patched,
    requested,
    turn,
    window,
    windows,
)

pytestmark = pytest.mark.turn

DAY = timedelta(days=1)
LATER = SOON + timedelta(seconds=30)


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix", gpus=8)


def undone(lab: Lab, booking: Booking, now: datetime = LATER) -> Booking:
    with tenant_tx(lab.tenant_id):
        change_undo(actor=lab.actor, booking=fresh(booking), now=now)
    return fresh(booking)


def refusal_of(lab: Lab, booking: Booking, now: datetime) -> str:
    with pytest.raises(Refused) as refused:
        undone(lab, booking, now)
    return refused.value.code


def terms(booking: Booking) -> list[object]:
    names = ("ask", "hold_amount", "price_lines", "price_per_hour", "ranked_at", "planned_starts")
    return [getattr(fresh(booking), name) for name in (*names, "planned_ends")]


def test_what_was_given_up_comes_back_with_its_rank_and_price(lab: Lab) -> None:
    """Although a GPU-hour costs more by now."""
    mine = requested(lab, window(4, 2, 6))
    turn(NOW)
    before = terms(mine)
    patched(lab, mine, count=2, duration=2 * 3600)
    turn(SOON)
    assert windows(mine) == [(2, 4)] * 2
    a_price_book(Decimal("6.00"), valid_from=SOON)
    undone(lab, mine)
    assert (change_of(mine).state, held(mine)) == ("asked", Decimal("19.20"))
    turn(LATER)
    after = fresh(mine)
    assert (windows(mine), terms(mine)) == ([(2, 6)] * 4, before)
    assert held(mine) == after.hold_amount == Decimal("76.80")
    assert after.revision == 3
    with as_system():
        said = [each.sentence for each in mine.events.filter(kind="changed").order_by("id")]
    assert said[-1] == "The last change was undone: number 2 → 4, length 2 h → 4 h."
    # What undid a change is not undone itself.
    assert refusal_of(lab, mine, LATER) == "nothing_to_undo"


def test_a_place_that_somebody_has_by_now_is_not_taken_from_them(lab: Lab) -> None:
    mine = requested(lab, window(4, 2, 6))
    turn(NOW)
    patched(lab, mine, count=2)
    turn(SOON)
    other = requested(lab, window(6, 2, 6), now=SOON)
    turn(SOON)
    undone(lab, mine)
    turn(LATER)
    change = change_of(mine)
    assert (change.state, change.reasons[0]["rule"]) == ("kept", "R88")
    assert len(change.reasons) > 1
    assert windows(mine) == [(2, 6)] * 2
    assert windows(other) == [(2, 6)] * 6
    assert held(mine) == fresh(mine).hold_amount == Decimal("38.40")


@pytest.mark.parametrize("decided", [True, False])
def test_what_was_added_goes_at_once(lab: Lab, decided: bool) -> None:  # noqa: FBT001
    mine = requested(lab, window(2, 2, 4))
    if decided:
        turn(NOW)
    before = terms(mine)[:5]
    patched(lab, mine, count=4, duration=3 * 3600)
    turn(SOON) if decided else None
    assert fresh(mine).ranked_at == SOON
    after = undone(lab, mine)
    assert (terms(mine)[:5], held(mine)) == (before, Decimal("19.20"))
    assert after.ranked_at is None
    turn(LATER)
    assert windows(mine) == [(2, 4)] * 2


@pytest.mark.long
def test_a_start_that_was_planned_comes_back_or_nothing_does(lab: Lab) -> None:
    """A booking that waited for its turn has its old rank and start again, but nobody has a later
    one for it."""
    requested(lab, an_ask(8, hours=2))
    turn(NOW)
    mine = requested(lab, an_ask(4, hours=4))
    turn(NOW)
    before = terms(mine)
    assert fresh(mine).planned_starts == NOW + 2 * HOUR
    patched(lab, mine, count=2)
    turn(SOON)
    undone(lab, mine)
    turn(LATER)
    assert terms(mine) == before
    patched(lab, mine, now=LATER, count=2)
    turn(LATER)
    other = requested(lab, window(6, 2, 5), now=LATER)
    turn(LATER)
    undone(lab, mine, LATER + timedelta(seconds=1))
    turn(LATER + timedelta(seconds=1))
    assert (change_of(mine).state, fresh(other).state) == ("kept", "scheduled")
    assert fresh(mine).planned_starts == NOW + 2 * HOUR
    assert windows(other) == [(2, 5)] * 6


def test_the_end_of_a_run_is_undone_both_ways(lab: Lab) -> None:
    mine = requested(lab, an_ask(2, hours=4))
    turn(NOW)
    assert fresh(mine).state == "starting"
    patched(lab, mine, duration=2 * 3600)
    undone(lab, mine, SOON)
    turn(SOON)
    assert (windows(mine), held(mine)) == ([(0, 4)] * 2, Decimal("38.40"))
    patched(lab, mine, now=SOON, duration=6 * 3600)
    turn(SOON)
    assert windows(mine) == [(0, 6)] * 2
    undone(lab, mine)
    turn(LATER)
    assert (windows(mine), held(mine)) == ([(0, 4)] * 2, Decimal("38.40"))


def test_what_giving_up_late_costs_is_given_back_with_the_gpus(lab: Lab) -> None:
    mine = requested(lab, window(4, 2, 4))
    turn(NOW)
    with as_system():
        Booking.objects.filter(id=mine.id).update(notice_seconds=7 * 3600, late_share=50)
    patched(lab, mine, count=2)
    assert fresh(mine).late_fees == Decimal("9.60")
    undone(lab, mine)
    assert fresh(mine).late_refunded == 0
    turn(LATER)
    after = fresh(mine)
    assert (windows(mine), after.late_fees) == ([(2, 4)] * 4, Decimal("9.60"))
    assert (after.hold_amount, held(mine)) == (Decimal("48.00"), Decimal("38.40"))
    assert after.late_refunded == Decimal("9.60")
    with as_system():
        assert invariants_check() == []
        of = StatementOf(mine.tenant_id, Period(NOW.date().replace(day=1), NOW.date() + 9 * DAY))
        lines = [(each.kind, each.fee_name, each.amount) for each in statement_lines(of)]
        line = Transfer.objects.get(kind="reverse", reference=mine.id)
    fee = Decimal("9.60")
    assert lines == [("settle", "Late cancellation", fee), ("reverse", "Late cancellation", -fee)]
    # Nobody gives it back twice, also if something else was charged.
    with as_system():
        charge_add(tenant_id=lab.tenant_id, reference=mine.id, amount=fee, note="more", now=LATER)
    with as_system(), pytest.raises(Refused, match="more than was charged"):
        charge_refund(
            tenant_id=lab.tenant_id,
            reference=mine.id,
            amount=Decimal("0.01"),
            note="again",
            now=LATER,
            fee="late_share",
        )
    line.pk, line.amount = uuid4(), Decimal("0.01")
    with as_system(), pytest.raises(IntegrityError, match="refund of more than the fee"):
        line.save(force_insert=True)


def test_what_giving_up_late_costs_stays_charged_if_others_have_the_gpus(lab: Lab) -> None:
    mine = requested(lab, window(8, 2, 4))
    turn(NOW)
    with as_system():
        Booking.objects.filter(id=mine.id).update(notice_seconds=7 * 3600, late_share=50)
    patched(lab, mine, count=2)
    requested(lab, window(6, 2, 4), now=SOON)
    turn(SOON)
    undone(lab, mine)
    turn(LATER)
    after = fresh(mine)
    assert (change_of(mine).state, after.late_refunded) == ("kept", Decimal(0))
    assert after.late_fees > 0


def test_an_undo_has_a_minute_and_one_change_behind_it(lab: Lab) -> None:
    mine = requested(lab, window(4, 2, 4))
    turn(NOW)
    assert refusal_of(lab, mine, NOW) == "nothing_to_undo"
    patched(lab, mine, count=3)
    assert refusal_of(lab, mine, SOON + timedelta(seconds=60)) == "undo_late"
    undone(lab, mine, SOON + timedelta(seconds=59))
    again = change_of(mine)
    again.pk, again.state, again.decided_at = uuid4(), BookingChange.State.CHANGED, LATER
    with as_system(), pytest.raises(IntegrityError, match="change_undone_once"):
        again.save(force_insert=True)
