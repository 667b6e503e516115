"""A notice meets people who release and extend, and another notice, at the same instant."""

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from django.db import IntegrityError

from allocation.models import Booking, Gpu, Pause
from allocation.services.bookings.change.changes import booking_extend
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.decide.cycle import cycle_run
from allocation.services.decide.invariants import invariants_check
from allocation.services.plans import transactions
from allocation.services.plans.assignments import PlanStale
from allocation.services.runs import transition
from allocation.services.runs.pause_choices import booking_saved
from solver import Plan
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders_allocation import (
    HOUR,
    NOW,
    Lab,
    a_booking,
    a_booking_request,
    a_lab,
    an_allocation,
)
from tests.races.together import at_once
from tests.roles import as_system
from tests.servers.servers import DATABASE, Servers
from tests.services.pause_plans import GRACE, pause_plan, plan_written

pytestmark = pytest.mark.races
ROUNDS = 4
SOON = timedelta(seconds=10)


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix", gpus=ROUNDS, money="10000")


def running(lab: Lab, number: int = 0) -> Booking:
    booking = a_booking(lab.project, lab.actor.user_id, state="active", hours=4, held="19.20")
    with as_system():
        gpu = Gpu.objects.order_by("number")[number]
    an_allocation(booking, gpu, state="active", ends=NOW + 4 * HOUR)
    return booking


def notice_plan(lab: Lab, victim: Booking) -> Plan:
    """A plan that pauses it for a new booking."""
    with as_system():
        strong = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=NOW)
        return pause_plan(victim, strong, NOW + GRACE)


def tried(act: Callable[[], object]) -> str:
    """What came of it, in a word."""
    try:
        act()
    except PlanStale:
        return "stale"
    except Refused as refusal:
        return refusal.code
    return "done"


def test_a_notice_a_release_and_an_extension_at_once_leave_everything_whole(lab: Lab) -> None:
    outcomes = set()
    for number in range(ROUNDS):
        booking = running(lab, number)
        plan = notice_plan(lab, booking)

        def act(who: int, booking: Booking = booking, plan: Plan = plan) -> str:
            if who == 0:
                return tried(lambda: plan_written(plan, NOW))
            with tenant_tx(lab.tenant_id):
                if who == 1:
                    return tried(lambda: booking_release(actor=lab.actor, booking=booking, now=NOW))
                return tried(
                    lambda: booking_extend(actor=lab.actor, booking=booking, until=NOW + 5 * HOUR, now=NOW)
                )

        notice, release, _ = at_once(act, 3)
        with as_system():
            state = Booking.objects.get(id=booking.id).state
            pauses = Pause.objects.filter(booking=booking).count()
            assert (release, state) == ("done", "ending")
            assert pauses == (1 if notice == "done" else 0)
            assert invariants_check() == []
        outcomes.add(notice)
        with tenant_tx(lab.tenant_id):
            strong = Booking.objects.get(id=plan.pauses[0].beneficiary)
            booking_cancel(actor=lab.actor, booking=strong, now=NOW)
    assert outcomes <= {"done", "stale"}


def no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nobody asked whether the plan is still true, nor the table of steps."""

    monkeypatch.setattr(transactions, "parts_stale", lambda *_: {})
    monkeypatch.setattr(transition, "is_transition_allowed", lambda *_: True)


@pytest.mark.long
def test_of_eight_notices_for_one_booking_one_is_written(lab: Lab) -> None:
    booking = running(lab)
    written = [notice_plan(lab, booking) for _ in range(8)]
    said = at_once(lambda number: tried(lambda: plan_written(written[number], NOW)), 8)
    assert sorted(said) == ["done", *["stale"] * 7]
    with as_system():
        assert Pause.objects.count() == 1
        assert invariants_check() == []


def test_without_the_look_the_database_refuses_a_second_notice(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = running(lab)
    first, second = notice_plan(lab, booking), notice_plan(lab, booking)
    no_look(monkeypatch)
    plan_written(first, NOW)
    with pytest.raises(IntegrityError):
        plan_written(second, NOW)


def test_without_the_look_and_the_constraint_the_check_finds_two_receipts(
    lab: Lab, real_db: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = running(lab)
    first, second = notice_plan(lab, booking), notice_plan(lab, booking)
    no_look(monkeypatch)
    plan_written(first, NOW)
    with psycopg.connect(real_db.dsn("postgres", DATABASE)) as superuser:
        superuser.execute("DROP INDEX pause_one_open")
        superuser.execute("ALTER TABLE allocation_allocation DROP CONSTRAINT allocation_no_double_booking")
    plan_written(second, NOW)
    with as_system():
        assert "a pause without one open receipt" in {each.name for each in invariants_check()}


def test_without_the_look_the_database_refuses_to_pause_what_is_ending(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = running(lab)
    plan = notice_plan(lab, booking)
    with tenant_tx(lab.tenant_id):
        booking_release(actor=lab.actor, booking=booking, now=NOW)
    no_look(monkeypatch)
    with pytest.raises(IntegrityError, match="can not go from ending to pausing"):
        plan_written(plan, NOW)
    monkeypatch.undo()
    with as_system():
        cycle_run(NOW + timedelta(seconds=1))
        assert invariants_check() == []


@pytest.mark.long
def test_a_withdrawal_and_a_save_at_once_are_one_or_the_other(lab: Lab) -> None:
    for number in range(ROUNDS):
        booking = running(lab, number)
        plan_written(notice_plan(lab, booking), NOW)
        with as_system():
            (pause,) = Pause.objects.filter(booking=booking).select_related("cause__beneficiary")
            beneficiary = pause.cause.beneficiary
            assert beneficiary is not None
            booking_cancel(actor=lab.actor, booking=beneficiary, now=NOW)

        def act(who: int, booking: Booking = booking) -> str:
            if who == 0:
                return cycle_run(NOW + SOON).outcome
            with tenant_tx(lab.tenant_id):
                return tried(lambda: booking_saved(actor=lab.actor, booking=booking, now=NOW + SOON))

        _, saved = at_once(act, 2)
        with as_system():
            cycle_run(NOW + SOON)
            pause.refresh_from_db()
            state = Booking.objects.get(id=booking.id).state
            assert saved == "done"
            assert state == ("active" if pause.withdrawn else "pausing")
            assert (pause.acknowledged_at is None) == pause.withdrawn
            assert invariants_check() == []
