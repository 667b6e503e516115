"""A large plan is written in pieces: each holds or fails by itself, and none is lost or twice."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest
from django.db import connection

from allocation.models import Allocation, Booking, Decision, DecisionPiece, Gpu, SolverState
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.decide import cycle
from allocation.services.decide.cycle import cycle_run
from allocation.services.decide.invariants import invariants_check
from allocation.services.decide.replay import decision_replay
from allocation.services.plans import transactions
from allocation.services.plans.plan_diff import Changes, changes_of
from solver import Plan
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
from tests.faults.crashing_cycle import BOOKINGS_OF_A_PIECE, OF_PIECES
from tests.races.together import apart
from tests.roles import as_system
from tests.servers.servers import ROOT, Servers

pytestmark = pytest.mark.races
COUNT = 50


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix", gpus=COUNT, limit=COUNT, money="100000")


def requested(lab: Lab, count: int) -> list[Booking]:
    """Fixed windows, which are assigned at once; a decision was made before."""
    with as_system():
        booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=NOW)
        assert cycle_run(NOW).outcome == "decided"
        request = a_booking_request(lab.project, an_ask(hours=1, starts=NOW + 5 * HOUR))
        return [booking_request(actor=lab.actor, request=request, now=NOW) for _ in range(count)]


def decided_once(bookings: list[Booking]) -> None:
    """Each has one place, and the database is as it should be."""
    ids = [each.id for each in bookings]
    assert Booking.objects.filter(id__in=ids, state="scheduled").count() == len(ids)
    assert Allocation.objects.filter(booking__in=ids).count() == len(ids)
    assert invariants_check() == []


def test_one_cancelled_booking_makes_only_its_own_part_stale(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "PIECE_BOOKINGS", BOOKINGS_OF_A_PIECE)
    gone, *others = requested(lab, COUNT)

    def cancelled(plan: Plan, now: datetime) -> Changes:
        found = changes_of(plan, now)

        def cancel() -> None:
            booking_cancel(actor=lab.actor, booking=gone, now=NOW)

        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: apart(cancel)).result(timeout=30)
        return found

    monkeypatch.setattr(cycle, "changes_of", cancelled)
    with as_system():
        assert cycle_run(NOW).outcome == "decided"
        decided_once(others)
        decision = Decision.objects.latest("id")
        written = list(DecisionPiece.objects.filter(decision=decision).order_by("number"))
        assert decision.pieces == 5
        assert [each.number for each in written] == [1, 2, 3, 4, 5]
        withheld = [part for each in written for part in each.withheld]
        assert withheld == [["answer", str(gone.id), "left"]]
        assert decision_replay(decision).is_equal


def test_what_the_database_refuses_of_a_delta_is_found_by_halves(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halves are tried in one transaction, where a base can have one delta."""

    def asked(hours: int, count: int) -> list[Booking]:
        request = a_booking_request(lab.project, an_ask(hours=1, starts=NOW + hours * HOUR))
        return [booking_request(actor=lab.actor, request=request, now=NOW) for _ in range(count)]

    def seized(plan: Plan, now: datetime) -> Changes:
        found = changes_of(plan, now)
        if not taken:
            assign = plan.assigns[2]
            taken.append(assign.booking)
            other = a_booking(lab.project, lab.actor.user_id, state="scheduled", starts=NOW + HOUR)
            gpu = Gpu.objects.get(id=assign.places[0].gpu)
            an_allocation(other, gpu, starts=NOW + 6 * HOUR, ends=NOW + 7 * HOUR)
        return found

    taken: list[str] = []
    with as_system():
        asked(3, 8)
        assert cycle_run(NOW).outcome == "decided"
        asked(6, 4)
        monkeypatch.setattr(cycle, "changes_of", seized)
        assert cycle_run(NOW).outcome == "decided"
        second = Decision.objects.order_by("id")[1]
        assert second.keyframe_id is not None
        assert second.withheld == [["answer", taken[0], "conflict"]]
        assert decision_replay(second).is_equal


@pytest.mark.long
@pytest.mark.parametrize("point", OF_PIECES)
def test_after_a_kill_between_two_pieces_the_next_turn_decides_the_rest(
    lab: Lab, real_db: Servers, point: str
) -> None:
    bookings = requested(lab, 3 * BOOKINGS_OF_A_PIECE)
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.crashing_cycle", point, NOW.isoformat()],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": real_db.dsn("portal_system")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    with as_system():
        killed = Decision.objects.latest("id")
        assert (killed.pieces, killed.written.count()) == (3, 2)
        assert Booking.objects.filter(state="scheduled").count() == 2 * BOOKINGS_OF_A_PIECE
        assert invariants_check() == []
        assert cycle_run(NOW).outcome == "decided"
        decided_once(bookings)
        assert decision_replay(killed).is_equal
        assert decision_replay(Decision.objects.latest("id")).is_equal


@pytest.mark.long
def test_a_process_that_is_overtaken_between_two_pieces_writes_no_more(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookings = requested(lab, 3 * BOOKINGS_OF_A_PIECE)
    monkeypatch.setattr(transactions, "PIECE_BOOKINGS", BOOKINGS_OF_A_PIECE)
    really, seen = transactions._piece_write, []

    def overtaken(*args: object) -> object:
        seen.append(1)
        if len(seen) == 3:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(lambda: apart(lead)).result(timeout=30)
        return really(*args)  # type: ignore[arg-type]  # as they came

    def lead() -> None:
        with as_system():
            SolverState.objects.update(leader_term=900)

    monkeypatch.setattr(transactions, "_piece_write", overtaken)
    with as_system():
        assert not connection.in_atomic_block
        assert cycle_run(NOW).outcome == "decided"
        assert Booking.objects.filter(state="scheduled").count() == 2 * BOOKINGS_OF_A_PIECE
        monkeypatch.undo()
        assert cycle_run(NOW).outcome == "decided"
        decided_once(bookings)
