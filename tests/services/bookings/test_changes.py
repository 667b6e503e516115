"""Changes of a booking: what it has is exchanged as a whole, or stays as it is."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from allocation.models import Allocation, Approval, Booking, BookingChange, Gpu
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.change.withdrawal import change_withdraw
from allocation.services.bookings.change_rows import Accept
from allocation.services.bookings.checks.terms import target_of
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.decide.cycle import cycle_run
from allocation.services.decide.invariants import invariants_check
from allocation.services.record.history import event_add
from allocation.services.runs.late_shares import late_fee
from allocation.words.events import event_text
from billing.models import Transfer
from billing.queries import reference_totals
from tenants.access import Actor
from tenants.models import Role, Tier
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_tenant_admin, an_actor
from tests.builders_allocation import (
    HOUR,
    NOW,
    Lab,
    a_booking,
    a_booking_request,
    a_lab,
    a_price_book,
    an_ask,
)
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.bookings.test_approvals import asked as asked_of
from tests.services.bookings.test_approvals import decided, ruled

pytestmark = pytest.mark.turn

SOON = NOW + timedelta(minutes=1)
LATER = NOW + timedelta(minutes=2)


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix", gpus=8)


def requested(lab: Lab, ask: AskDocument, *, now: datetime = NOW) -> Booking:
    with tenant_tx(lab.tenant_id):
        return booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=now)


def turn(now: datetime) -> None:
    """A turn of the solver, after which every invariant holds."""
    with as_system():
        cycle_run(now)
        assert invariants_check() == []


def fresh(booking: Booking) -> Booking:
    with as_system():
        return Booking.objects.select_related("tier", "project", "owner").get(id=booking.id)


def patched(
    lab: Lab,
    booking: Booking,
    *,
    now: datetime = SOON,
    accept: Accept | None = None,
    **parts: Any,  # noqa: ANN401  fields of a request
) -> Booking:
    """The booking after a PATCH of parts of its request, with the revision that was seen."""
    seen = fresh(booking)
    ask = replace(target_of(seen).ask, **parts) if parts else None
    patch = Patch(ask=ask, accept=accept or Accept())
    with tenant_tx(lab.tenant_id):
        booking_patch(actor=lab.actor, booking=seen, patch=patch, revision=seen.revision, now=now)
    return fresh(booking)


def change_of(booking: Booking) -> BookingChange:
    with as_system():
        return BookingChange.objects.filter(booking=booking).order_by("asked_at", "id").last()  # type: ignore[return-value]  # there is one


def held(booking: Booking) -> Decimal:
    with as_system():
        return reference_totals(tenant_id=booking.tenant_id, reference=booking.id)[0]


def windows(booking: Booking) -> list[tuple[int, int]]:
    """The hours of its live rows on the calendar, in seconds after NOW."""
    with as_system():
        rows = booking.allocations.filter(state__in=Allocation.LIVE).order_by("gpu_number")
        return [(int((r.period.lower - NOW) / HOUR), int((r.period.upper - NOW) / HOUR)) for r in rows]


def window(count: int, first: int, last: int) -> AskDocument:
    """A fixed window, in hours after NOW."""
    return an_ask(count, starts=NOW + first * HOUR, hours=last - first)


def test_a_firm_window_in_the_way_leaves_everything_as_it_was(lab: Lab) -> None:
    """The first worked example: kept with R88, and the same rows, money and place in line."""
    mine = requested(lab, window(4, 2, 4))
    requested(lab, window(8, 4, 5))
    turn(NOW)
    before, rows = fresh(mine), windows(mine)
    asked = patched(lab, mine, duration=3 * 3600)
    assert (asked.state, asked.revision, change_of(mine).state) == ("scheduled", 1, "asked")
    assert held(mine) == before.hold_amount == Decimal("38.40")
    turn(SOON)
    after, change = fresh(mine), change_of(mine)
    assert (change.state, change.reasons[0]["rule"]) == ("kept", "R88")
    assert windows(mine) == rows == [(2, 4)] * 4
    same = ("revision", "hold_amount", "price_lines", "ranked_at", "planned_starts", "ask")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert held(mine) == Decimal("38.40")
    with as_system():
        assert reference_totals(tenant_id=mine.tenant_id, reference=change.id)[0] == 0


def test_a_change_is_one_exchange_of_rows_terms_and_money(lab: Lab) -> None:
    mine = requested(lab, window(4, 2, 4))
    turn(NOW)
    patched(lab, mine, count=6, starts=NOW + 3 * HOUR, duration=3 * 3600)
    turn(SOON)
    after = fresh(mine)
    assert (after.state, after.revision, after.ranked_at) == ("scheduled", 2, SOON)
    assert windows(mine) == [(3, 6)] * 6
    assert after.hold_amount == held(mine) == Decimal("86.40")
    assert change_of(mine).state == "changed"
    with as_system():
        event = mine.events.filter(kind="changed").get()
    assert event.detail["differences"]["count"] == [4, 6]
    assert event.sentence == "The change was made: number 4 → 6, start, length 2 h → 3 h."


def test_what_is_added_has_the_price_of_today_and_is_charged_last(lab: Lab) -> None:
    """The second worked example, with 4.80 and 6.00 a GPU-hour."""
    mine = requested(lab, window(2, 1, 5))
    turn(NOW)
    a_price_book(Decimal("6.00"), valid_from=NOW + timedelta(seconds=30))
    patched(lab, mine, duration=6 * 3600)
    turn(SOON)
    after = fresh(mine)
    assert after.hold_amount == held(mine) == Decimal("38.40") + Decimal("24.00")
    assert [line["per_hour"] for line in after.price_lines] == ["9.600000", "12.000000"]
    shorter = patched(lab, mine, now=LATER, duration=5 * 3600)
    assert shorter.hold_amount == held(mine) == Decimal("38.40") + Decimal("12.00")
    turn(LATER)
    assert windows(mine) == [(1, 6)] * 2


@pytest.mark.parametrize("state", [State.REQUESTED, State.SCHEDULED])
def test_a_weaker_change_takes_effect_at_once_and_keeps_its_place(lab: Lab, state: State) -> None:
    mine = requested(lab, window(4, 2, 6))
    if state == State.SCHEDULED:
        turn(NOW)
    after = patched(lab, mine, count=2, duration=2 * 3600)
    assert (after.state, after.revision, after.ranked_at) == (state, 2, None)
    assert after.hold_amount == held(mine) == Decimal("19.20")
    turn(SOON)
    assert windows(mine) == [(2, 4)] * 2
    # What was given up is free for others.
    other = requested(lab, window(8, 4, 6), now=SOON)
    turn(LATER)
    assert fresh(other).state == "scheduled"


def test_a_running_booking_ends_earlier_or_asks_for_a_later_end(lab: Lab) -> None:
    mine = requested(lab, an_ask(2, hours=4))
    turn(NOW)
    assert fresh(mine).state == "starting"
    shorter = patched(lab, mine, duration=2 * 3600)
    assert shorter.planned_ends == NOW + 2 * HOUR
    assert shorter.hold_amount == held(mine) == Decimal("19.20")
    turn(SOON)
    assert windows(mine) == [(0, 2)] * 2
    patched(lab, mine, now=SOON, duration=3 * 3600)
    turn(LATER)
    longer = fresh(mine)
    assert (longer.planned_ends, longer.extension_until) == (NOW + 3 * HOUR, None)
    assert longer.hold_amount == held(mine) == Decimal("28.80")
    with pytest.raises(Refused) as refused:
        patched(lab, mine, now=LATER, count=3)
    assert (refused.value.code, refused.value.param) == ("running_fixed", "count")
    with (
        tenant_tx(lab.tenant_id),
        pytest.raises(Refused, match="Book the rest of its time, 2 h 58 min, in spot") as kept,
    ):
        booking_patch(actor=lab.actor, booking=mine, patch=Patch(tier="spot"), revision=None, now=LATER)
    assert (kept.value.code, kept.value.param) == ("tier_begun", "tier")
    patched(lab, mine, now=LATER, duration=4 * 3600)
    replaced = patched(lab, mine, now=LATER, duration=3 * 3600 - 60)
    assert (replaced.extension_until, fresh(mine).extension_until) == (None, None)


def test_a_later_change_replaces_an_open_one_and_a_withdrawn_one_changes_nothing(lab: Lab) -> None:
    mine = requested(lab, window(2, 2, 4))
    turn(NOW)
    patched(lab, mine, count=4)
    first = change_of(mine)
    patched(lab, mine, now=LATER, count=3)
    with as_system():
        states = dict(BookingChange.objects.values_list("state", "delta_held"))
        assert reference_totals(tenant_id=mine.tenant_id, reference=first.id)[0] == 0
    assert states == {"replaced": Decimal("19.20"), "asked": Decimal("9.60")}
    with tenant_tx(lab.tenant_id):
        change_withdraw(actor=lab.actor, booking=fresh(mine), now=LATER)
    turn(LATER)
    assert (windows(mine), fresh(mine).revision) == ([(2, 4)] * 2, 1)


def test_nothing_is_written_on_a_moved_revision_or_without_money(lab: Lab) -> None:
    mine = requested(lab, window(4, 2, 4))
    turn(NOW)
    old = fresh(mine)
    patched(lab, mine, duration=3600)
    patch = Patch(name="late")
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as refused:
        booking_patch(actor=lab.actor, booking=old, patch=patch, revision=1, now=SOON)
    assert refused.value.code == "revision_moved"
    with pytest.raises(Refused) as refused:
        patched(lab, mine, now=LATER, count=8, duration=50 * 3600)
    assert refused.value.code == "budget_exceeded"
    assert fresh(mine).revision == 2
    assert change_of(mine).state == "changed"


def test_a_change_of_what_is_cancelled_gives_its_money_back(lab: Lab) -> None:
    mine = requested(lab, window(4, 2, 4))
    turn(NOW)
    patched(lab, mine, count=8)
    with tenant_tx(lab.tenant_id):
        booking_cancel(actor=lab.actor, booking=fresh(mine), now=SOON)
    turn(SOON)
    change = change_of(mine)
    assert change.state == "withdrawn"
    with as_system():
        assert reference_totals(tenant_id=mine.tenant_id, reference=change.id)[0] == 0
        assert Gpu.objects.count() == 8


def test_a_request_that_is_not_decided_yet_is_replaced_and_ranks_anew(lab: Lab) -> None:
    mine = requested(lab, window(4, 2, 4))
    after = patched(lab, mine, count=6)
    assert (after.state, after.revision, after.ranked_at) == ("requested", 2, SOON)
    assert after.hold_amount == held(mine) == Decimal("57.60")
    turn(LATER)
    assert windows(mine) == [(2, 4)] * 6


def test_a_waiting_booking_keeps_its_start_unless_a_later_one_is_accepted(lab: Lab) -> None:
    """The third worked example."""
    requested(lab, an_ask(6, hours=10))
    running = requested(lab, an_ask(2, hours=2))
    turn(NOW)
    a, b, c = (requested(lab, an_ask(1, hours=4), now=NOW + timedelta(seconds=n)) for n in (1, 2, 3))
    turn(SOON)
    starts = [fresh(each).planned_starts for each in (a, b, c)]
    assert fresh(running).state == "starting"
    two = NOW + 2 * HOUR
    assert starts == [two, two, two + 4 * HOUR]
    patched(lab, a, now=SOON, count=2)
    turn(LATER)
    assert (change_of(a).state, fresh(a).planned_starts) == ("kept", two)
    bound = Accept(start_by=NOW + 13 * HOUR, strength="expected")
    patched(lab, a, now=LATER, accept=bound, count=2)
    turn(LATER + timedelta(seconds=1))
    turn(LATER + timedelta(seconds=2))
    assert change_of(a).state == "changed"
    starts = [fresh(each).planned_starts for each in (a, b, c)]
    assert starts == [two + 4 * HOUR, two, two]


@pytest.fixture
def lead(lab: Lab) -> Actor:
    """A lead, who approves everything of 100 or more."""
    ruled(an_actor(a_tenant_admin(lab.tenant)))
    return an_actor(a_member(lab.project, Role.LEAD))


@pytest.mark.parametrize(
    ("verdict", "state", "rule", "hours"),
    [("approve", "changed", "", 7), ("decline", "kept", "R104", 2), ("expire", "kept", "R92", 2)],
)
def test_a_change_that_needs_an_approval_waits_for_it_and_the_booking_stays(
    lab: Lab, lead: Actor, verdict: str, state: str, rule: str, hours: int
) -> None:
    mine = requested(lab, window(4, 3, 5))
    turn(NOW)
    waits = patched(lab, mine, duration=7 * 3600)
    change = change_of(mine)
    assert (waits.state, waits.revision, change.state) == ("scheduled", 1, "awaiting_approval")
    turn(SOON)
    assert windows(mine) == [(3, 5)] * 4
    with as_system():
        assert reference_totals(tenant_id=mine.tenant_id, reference=change.id)[0] == 96
    if verdict == "expire":
        turn(asked_of(mine).decide_by)
    else:
        decided(lead, asked_of(mine), "approve" if verdict == "approve" else "decline", now=SOON)
        turn(LATER)
    after, change = fresh(mine), change_of(mine)
    assert (after.state, change.state) == ("scheduled", state)
    assert [each["rule"] for each in change.reasons] == ([rule] if rule else [])
    assert windows(mine) == [(3, 3 + hours)] * 4
    assert held(mine) == after.hold_amount == Decimal("19.20") * hours
    assert bool(after.approved_hash) is (verdict == "approve")
    with as_system():
        assert reference_totals(tenant_id=mine.tenant_id, reference=change.id)[0] == 0


def test_a_booking_starts_while_more_of_it_is_not_approved_and_ends_later_then(lab: Lab, lead: Actor) -> None:
    """The eleventh worked example."""
    mine = requested(lab, window(4, 0, 4))
    turn(NOW)
    patched(lab, mine, now=NOW, duration=8 * 3600)
    turn(NOW)
    assert fresh(mine).state == "starting"
    with as_system():
        until = change_of(mine).until
    assert until == NOW + 8 * HOUR
    decided(lead, asked_of(mine), now=SOON)
    turn(LATER)
    assert windows(mine) == [(0, 8)] * 4
    assert change_of(mine).state == "changed"


def test_withdrawn_replaced_and_cancelled_changes_ask_nobody_any_more(lab: Lab, lead: Actor) -> None:
    mine = requested(lab, window(4, 2, 4))
    turn(NOW)
    patched(lab, mine, duration=7 * 3600)
    first = asked_of(mine)
    patched(lab, mine, now=LATER, duration=8 * 3600)
    with pytest.raises(Refused) as refused:
        decided(lead, first, now=LATER)
    assert refused.value.code == "approval_over"
    second = asked_of(mine)
    with tenant_tx(lab.tenant_id):
        change_withdraw(actor=lab.actor, booking=fresh(mine), now=LATER)
    patched(lab, mine, now=LATER + HOUR / 9, duration=7 * 3600)
    with tenant_tx(lab.tenant_id):
        booking_cancel(actor=lab.actor, booking=fresh(mine), now=LATER + HOUR / 8)
    turn(LATER + HOUR / 8)
    with as_system():
        assert not Approval.objects.filter(booking=mine, state="open").exists()
        assert Approval.objects.get(id=second.id).state == "withdrawn"
    assert held(mine) == 0


def test_what_waits_for_its_approval_is_asked_for_anew_when_it_changes(lab: Lab, lead: Actor) -> None:
    mine = requested(lab, window(4, 2, 9))
    first, kept_until = asked_of(mine), fresh(mine).place_until
    patched(lab, mine, duration=8 * 3600)
    again = asked_of(mine)
    assert (fresh(mine).state, fresh(mine).revision) == ("awaiting_approval", 2)
    assert (again.digest != first.digest, fresh(mine).place_until) == (True, kept_until)
    assert held(mine) == Decimal("153.60")
    with pytest.raises(Refused) as refused:
        decided(lead, first, now=SOON)
    assert refused.value.code == "approval_over"
    decided(lead, again, now=SOON)
    turn(LATER)
    assert windows(mine) == [(2, 10)] * 4


def test_the_database_makes_no_change_behind_its_approvers(lab: Lab, lead: Actor) -> None:
    mine = requested(lab, window(4, 2, 4))
    turn(NOW)
    patched(lab, mine, duration=7 * 3600)
    rows = BookingChange.objects.filter(id=change_of(mine).id)
    with as_system(), pytest.raises(IntegrityError, match="is not approved"):
        rows.update(state="asked")
    with as_system(), pytest.raises(IntegrityError, match="exactly one open request"):
        committed(lambda: rows.update(state="withdrawn", decided_at=SOON))


def committed(write: Callable[[], object]) -> None:
    """A write with the rules that the database checks at the end of a transaction."""
    with transaction.atomic(), connection.cursor() as cursor:
        write()
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def late(lab: Lab) -> None:
    """Cancelling less than two hours before costs half of the price."""
    with as_system():
        Tier.objects.filter(slug="standard").update(notice_seconds=7200, late_share=50)


def fees(booking: Booking) -> list[tuple[str, Decimal]]:
    """The charges of a booking and what each is for, as the ledger has them."""
    with as_system():
        rows = Transfer.objects.filter(reference=booking.id, kind="settle").order_by("at", "fee")
        return list(rows.values_list("fee", "amount"))


def test_a_window_that_shrinks_late_costs_a_share_of_what_it_gives_up(lab: Lab) -> None:
    """The fourth worked example, at 4.80 a GPU-hour."""
    late(lab)
    mine = requested(lab, window(8, 1, 5))
    turn(NOW)
    after = patched(lab, mine, now=NOW, count=2, duration=2 * 3600)
    # Six GPUs for the hour until the notice ends.
    assert fees(mine) == [("late_share", Decimal("14.40"))]
    assert (held(mine), after.settled) == (Decimal("19.20"), Decimal("14.40"))
    assert after.hold_amount == Decimal("33.60")
    turn(SOON)
    assert windows(mine) == [(1, 3)] * 2


@pytest.mark.parametrize("act", ["move", "cancel"])
def test_a_window_that_is_moved_or_cancelled_late_pays_once(lab: Lab, act: str) -> None:
    """The fifth worked example: cancelled after the move, it pays no more."""
    late(lab)
    mine = requested(lab, window(4, 1, 3))
    turn(NOW)
    half = NOW + HOUR / 2
    if act == "move":
        patched(lab, mine, now=half, starts=NOW + 49 * HOUR)
        assert fees(mine) == []
        turn(half)
        assert windows(mine) == [(49, 51)] * 4
        assert held(mine) == Decimal("38.40")
    with tenant_tx(lab.tenant_id):
        booking_cancel(actor=lab.actor, booking=fresh(mine), now=half)
    turn(half)
    assert fees(mine) == [("late_share", Decimal("14.40"))]
    assert (held(mine), fresh(mine).charged) == (Decimal(0), Decimal("14.40"))


def test_a_late_change_that_is_kept_costs_nothing(lab: Lab) -> None:
    late(lab)
    mine = requested(lab, window(4, 1, 3))
    requested(lab, window(8, 4, 6))
    turn(NOW)
    patched(lab, mine, starts=NOW + 4 * HOUR)
    turn(SOON)
    assert (change_of(mine).state, fees(mine), held(mine)) == ("kept", [], Decimal("38.40"))


def test_a_run_that_nobody_used_pays_as_if_it_was_cancelled_late(lab: Lab) -> None:
    mine = a_booking(lab.project, lab.actor.user_id, state=State.ACTIVE)
    rows = Booking.objects.filter(id=mine.id)
    with as_system():
        rows.update(notice_seconds=3600, late_share=50)
        # An hour of two is given up late, half an hour after the start.
        assert late_fee(fresh(mine), None, NOW + HOUR / 2) == mine.price_per_hour / 2
        rows.update(checked_in_at=NOW)
        assert late_fee(fresh(mine), None, NOW + HOUR / 2) == 0
        # A check-in by hand is no use yet when the run is released at once; a process is.
        rows.update(ready_at=NOW)
        assert late_fee(fresh(mine), None, SOON) == mine.price_per_hour / 2
        event_add(fresh(mine), kind="checked_in", sentence=event_text("process_seen"), now=SOON)
        assert late_fee(fresh(mine), None, SOON) == 0
