"""What people do while a plan is made costs nobody else their answer."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from threading import Event

import pytest
from django.db import IntegrityError, connection

from allocation.models import Booking, Decision, EventCounter, Gpu, SolverState
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.decide import cycle
from allocation.services.decide.cycle import cycle_run
from allocation.services.decide.invariants import invariants_check
from allocation.services.decide.replay import decision_replay
from allocation.services.plans import assignments
from allocation.services.plans.plan_diff import Changes, changes_of
from solver import Assign, Plan
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
from tests.races.together import apart
from tests.roles import as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.races
Act = Callable[[Plan], None]


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix", gpus=4)


@pytest.fixture
def neighbour(lab: Lab) -> Lab:
    return a_lab("orbit")


def requested(lab: Lab, **ask: object) -> Booking:
    with as_system():
        request = a_booking_request(lab.project, an_ask(**ask))  # type: ignore[arg-type]  # as it has them
        return booking_request(actor=lab.actor, request=request, now=NOW)


def state_of(booking: Booking) -> str:
    with as_system():
        return str(Booking.objects.get(id=booking.id).state)


def between(monkeypatch: pytest.MonkeyPatch, act: Act) -> None:
    """`act` comes after each look, before its plan is written."""

    def acted(plan: Plan, now: datetime) -> Changes:
        found = changes_of(plan, now)
        if not connection.in_atomic_block:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(lambda: apart(lambda: act(plan))).result(timeout=30)
        return found

    monkeypatch.setattr(cycle, "changes_of", acted)


def counted() -> Counter[str]:
    with as_system():
        rows = EventCounter.objects.exclude(name__startswith="cycle_").values_list("name", "count")
        return Counter(dict(rows))


@pytest.mark.long
def test_one_tenant_that_books_and_cancels_delays_nobody(
    lab: Lab, neighbour: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before every plan what is new of the one tenant is cancelled, and more is asked for."""
    waiting = [requested(lab)]

    def noise(_: Plan) -> None:
        booking_cancel(actor=lab.actor, booking=waiting.pop(), now=NOW)
        waiting.append(booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=NOW))

    between(monkeypatch, noise)
    for _ in range(4):
        theirs = requested(neighbour, hours=1)
        with as_system():
            assert cycle_run(NOW).outcome == "decided"
        assert state_of(theirs) in ("starting", "queued", "scheduled")
    found = counted()
    assert found["answers_withheld:left"] == 4
    assert not any(name.startswith("plans_dropped") for name in found)
    with as_system():
        decisions = list(Decision.objects.select_related("policy"))
        assert [len(each.withheld) for each in decisions] == [1] * 4
        assert all(decision_replay(each).is_equal for each in decisions)
        assert invariants_check() == []


def test_what_the_database_refuses_keeps_nobody_else_from_being_decided(
    lab: Lab, neighbour: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookings = [requested(lab), requested(neighbour), requested(lab), requested(neighbour)]
    seized: list[str] = []

    def seize(plan: Plan) -> None:
        """One of the places is somebody else's by now."""
        if not seized:
            assign = plan.assigns[1]
            seized.append(assign.booking)
            other = a_booking(lab.project, lab.actor.user_id, state="scheduled", starts=NOW + HOUR)
            gpu = Gpu.objects.get(id=assign.places[0].gpu)
            an_allocation(other, gpu, starts=NOW + HOUR)

    between(monkeypatch, seize)
    with as_system():
        assert cycle_run(NOW).outcome == "decided"
        first, *_ = Decision.objects.order_by("id")
        assert first.withheld == [["answer", seized[0], "conflict"]]
        assert decision_replay(first).is_equal
        assert invariants_check() == []
    # The second look of the same turn has seen who was there.
    assert {state_of(each) for each in bookings} == {"starting", "queued"}


def test_one_that_can_never_be_written_keeps_nobody_else_from_being_decided(
    lab: Lab, neighbour: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = requested(lab), requested(neighbour)
    really = assignments._change_of

    def broken(booking: Booking, assign: Assign, *rest: object) -> object:
        if booking.id == bad.id:
            raise IntegrityError("a constraint that nobody thought of")
        return really(booking, assign, *rest)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(assignments, "_change_of", broken)
    for _ in range(2):
        more = requested(neighbour, hours=1)
        with as_system():
            cycle_run(NOW)
        assert state_of(more) == "starting"
    assert (state_of(bad), state_of(good)) == ("requested", "starting")
    with as_system():
        assert SolverState.objects.get().withheld_cycles == 2


def test_who_acts_while_a_turn_holds_all_waits_and_the_turn_lands(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = requested(lab)
    with as_system():
        SolverState.objects.update(withheld_cycles=1)
    done, backend = Event(), list[int]()

    def cancel() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            backend.append(cursor.fetchone()[0])
        booking_cancel(actor=lab.actor, booking=booking, now=NOW)
        done.set()

    with ThreadPoolExecutor(1) as pool:

        def held(plan: Plan, now: datetime) -> Changes:
            assert connection.in_atomic_block
            pool.submit(lambda: apart(cancel))
            _until_blocked(backend)
            assert not done.is_set()
            return changes_of(plan, now)

        monkeypatch.setattr(cycle, "changes_of", held)
        with as_system():
            assert cycle_run(NOW).outcome == "decided"
        assert done.wait(30)
    assert state_of(booking) in ("cancelled", "ending")
    assert not counted()
    with as_system():
        assert SolverState.objects.get().withheld_cycles == 0
        assert Decision.objects.count() == 1


def _until_blocked(backend: list[int]) -> None:
    for _ in range(3000):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(0.01), cardinality(pg_blocking_pids(%s))", [(*backend, 0)[0]])
            if cursor.fetchone()[1]:
                return
    raise AssertionError("nobody waits")


def test_of_a_backlog_every_tenant_gets_its_part_of_a_turn(
    lab: Lab, neighbour: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tenants have their turns in the order of their ids.
    flooding, other = sorted((lab, neighbour), key=lambda each: each.tenant_id)
    many = [requested(flooding) for _ in range(7)]
    theirs = requested(other)
    monkeypatch.setattr(cycle, "MAX_NEW", 3)
    with as_system():
        cycle_run(NOW)
    assert state_of(theirs) == "starting"
    assert [state_of(each) for each in many].count("requested") == 5
    with as_system():
        cycle_run(NOW)
        cycle_run(NOW)
    assert "requested" not in {state_of(each) for each in many}
