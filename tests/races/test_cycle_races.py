"""Cycles, people and readers at the same bookings at the same time."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from allocation.models import Allocation, Booking, BookingEvent, Decision, Gpu, SolverState
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.decide import cycle, leading
from allocation.services.decide.cycle import CycleResult, cycle_run
from allocation.services.decide.invariants import invariants_check
from allocation.services.runs.end import allocation_empty
from billing.models import Transfer
from solver import Plan
from tenants.platform.wall import tenant_tx
from tests.builders_allocation import (
    HOUR,
    NOW,
    Lab,
    a_booking,
    a_booking_request,
    a_lab,
    an_allocation,
    an_ask,
)
from tests.races.together import apart, at_once
from tests.roles import as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.races
NOTHING = Plan((), (), (), ())


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix", gpus=2)


def requested(lab: Lab) -> Booking:
    with as_system():
        return booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=NOW)


def fresh(booking: Booking) -> Booking:
    with as_system():
        return Booking.objects.get(id=booking.id)


class Held:
    """Stands before a function of the cycle and keeps its first caller there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.arrived, self.go = Event(), Event()
        self.really: Callable[..., Any] = getattr(cycle, name)
        monkeypatch.setattr(cycle, name, self)

    def __call__(self, *args: object, **named: object) -> object:
        if not self.arrived.is_set():
            self.arrived.set()
            assert self.go.wait(30)
        return self.really(*args, **named)


def held_cycle(held: Held, meanwhile: Callable[[], object]) -> CycleResult:
    """The result of a cycle that stood still while `meanwhile` ran."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: apart(lambda: cycle_run(NOW)))
        try:
            assert held.arrived.wait(30)
            with as_system():
                meanwhile()
        finally:
            held.go.set()
        return running.result(timeout=30)


def test_of_two_cycles_one_is_busy(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    booking = requested(lab)
    second: list[CycleResult] = []
    held = Held(monkeypatch, "solve")
    first = held_cycle(held, lambda: second.append(cycle_run(NOW)))
    assert (first.outcome, second[0].outcome) == ("decided", "busy")
    assert fresh(booking).state == "starting"
    with as_system():
        assert Decision.objects.count() == 1
        assert cycle_run(NOW).outcome == "unchanged", "the lock was not given back"


@pytest.mark.parametrize("is_overtaken", [True, False])
def test_a_cycle_that_was_overtaken_in_its_sleep_writes_nothing(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    is_overtaken: bool,  # noqa: FBT001 (a case of the table)
) -> None:
    """Its lock is gone, as after a lost session: only the term of the other stops it."""
    booking = requested(lab)
    held = Held(monkeypatch, "solve")

    def another_leads() -> None:
        if not is_overtaken:
            return
        monkeypatch.setattr(leading, "CYCLE_LOCK", leading.CYCLE_LOCK + 1)
        really, held.really = held.really, lambda *_, **__: NOTHING
        assert cycle_run(NOW).outcome == "unchanged"
        held.really = really

    result = held_cycle(held, another_leads)
    with as_system():
        assert Decision.objects.count() == (0 if is_overtaken else 1)
    assert result.outcome == ("stale" if is_overtaken else "decided")
    assert fresh(booking).state == ("requested" if is_overtaken else "starting")


def test_no_two_cycles_share_a_term(lab: Lab) -> None:
    terms = [term for term, _ in at_once(lambda _: cycle._lead(), 8)]
    assert sorted(terms) == list(range(1, 9))
    with as_system():
        assert SolverState.objects.get().leader_term == 8


def test_a_booking_cancelled_while_its_plan_was_made_gets_no_place(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking, other = requested(lab), requested(lab)
    held = Held(monkeypatch, "plan_apply")
    result = held_cycle(held, lambda: booking_cancel(actor=lab.actor, booking=booking, now=NOW))
    # The other one was decided by the same plan, which nobody made again.
    assert result.outcome == "decided"
    with as_system():
        assert Decision.objects.get().withheld == [["answer", str(booking.id), "left"]]
    assert (fresh(booking).state, fresh(other).state) == ("cancelled", "starting")
    with as_system():
        assert not Allocation.objects.filter(booking=booking).exists()
        assert Decision.objects.count() == 1
        assert invariants_check() == []


def test_a_booking_cancelled_while_its_move_was_planned_is_not_moved(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        an_allocation(
            a_booking(lab.project, lab.actor.user_id, state="scheduled", starts=NOW + HOUR),
            gpu,
            profile="3g.40gb",
            starts=NOW + HOUR,
        )
        for gpu in gpus_of_fleet()
    ]
    ask = an_ask(starts=NOW + HOUR)
    with as_system():
        new = booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=NOW)
    held = Held(monkeypatch, "plan_apply")

    def cancelled() -> None:
        for row in rows:
            booking_cancel(actor=lab.actor, booking=row.booking, now=NOW)

    # The first plan moves one of them and is not written; the second look finds room without.
    assert held_cycle(held, cancelled).outcome == "decided"
    assert fresh(new).state == "scheduled"
    with as_system():
        states = Allocation.objects.filter(id__in=[row.id for row in rows]).values_list("state")
        assert set(states) == {("superseded",)}
        assert Allocation.objects.count() == len(rows) + 1
        assert not BookingEvent.objects.filter(kind="moved").exists()
        assert invariants_check() == []


def gpus_of_fleet() -> list[Gpu]:
    with as_system():
        return list(Gpu.objects.order_by("index"))


def test_cancellations_and_cycles_together_leave_everything_whole(lab: Lab) -> None:
    bookings = [requested(lab) for _ in range(6)]

    def act(number: int) -> str:
        if number < len(bookings):
            with tenant_tx(lab.tenant_id):
                booking_cancel(actor=lab.actor, booking=bookings[number], now=NOW)
            return "cancelled"
        return cycle_run(NOW).outcome

    at_once(act, len(bookings) + 2)
    with as_system():
        assert invariants_check() == []
        cycle_run(NOW)
        assert invariants_check() == []
        states = set(Booking.objects.values_list("state", flat=True))
    assert states <= {"cancelled", "ending"}


def test_eight_releases_and_eight_proofs_charge_once(lab: Lab) -> None:
    booking = a_booking(lab.project, lab.actor.user_id, state="active")
    with as_system():
        row = an_allocation(booking, Gpu.objects.earliest("number"), state="active")

    def release(_: int) -> str:
        with tenant_tx(lab.tenant_id):
            return str(booking_release(actor=lab.actor, booking=booking, now=NOW + HOUR).state)

    assert at_once(release, 8) == ["ending"] * 8
    with as_system():
        cycle_run(NOW + HOUR)
    at_once(lambda _: allocation_empty(row.id, NOW + HOUR), 8)
    booking = fresh(booking)
    assert (booking.state, str(booking.charged)) == ("ended", "4.800000")
    with as_system():
        assert Transfer.objects.filter(reference=booking.id, kind="settle").count() == 1
        notified = BookingEvent.objects.filter(booking=booking).values_list("kind", flat=True)
        assert list(notified) == ["ending", "ended"]
        assert invariants_check() == []
