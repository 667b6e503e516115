"""The promises are asked for by themselves, and a solver that fails stops nobody else."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Allocation, Booking, Decision, Occupancy
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_release
from allocation.services.decide import cycle
from allocation.services.decide.cycle import cycle_run
from allocation.services.decide.replay import decision_replay
from allocation.services.decide.self_check import invariants_run
from solver import Plan, Snapshot, solve
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab
from tests.roles import as_system
from tests.servers.servers import Servers


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix", gpus=2)


def shown() -> dict[str, int | None]:
    found: dict[str, int | None] = Client().get("/statusz").json()
    return found


def test_what_must_be_zero_is_shown_once_somebody_has_looked(lab: Lab) -> None:
    assert shown() == {
        "invariant_violations": None,
        "invariants_checked_seconds_ago": None,
        "failed_cycles": 0,
        "clock_jump_seconds": 0,
        "oldest_undecided_seconds": 0,
        "decisions_behind": 0,
        "failed_messages": 0,
        "decisions_frozen": 0,
        "planned_outage": 0,
        "backup_age_seconds": None,
    }
    with as_system():
        assert invariants_run(NOW) == 0
    assert shown()["invariant_violations"] == 0
    assert isinstance(shown()["invariants_checked_seconds_ago"], int)


def test_a_request_that_nobody_decides_is_shown_with_its_age(lab: Lab) -> None:
    asked = timezone.now() - timedelta(seconds=31)
    with as_system():
        booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=asked)
    said = shown()
    assert said["oldest_undecided_seconds"] in range(31, 60)
    assert said["decisions_behind"] == 1
    with as_system():
        cycle_run(timezone.now())
    said = shown()
    assert (said["oldest_undecided_seconds"], said["decisions_behind"]) == (0, 0)


def test_a_broken_promise_is_counted_and_logged(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    with as_system():
        booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=NOW)
        cycle_run(NOW)
        Occupancy.objects.update(closed=NOW)
        assert invariants_run(NOW) == 1
    assert shown()["invariant_violations"] == 1
    assert "P2, on a node without an occupancy" in caplog.text


def test_a_solver_that_fails_keeps_nothing_from_ending_or_starting(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> Plan:
        raise IndexError("a mistake")

    with as_system():
        first = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=NOW)
        cycle_run(NOW)
        monkeypatch.setattr(cycle, "solve", broken)
        second = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=NOW)
        booking_release(actor=lab.actor, booking=first, now=NOW + HOUR)
        assert cycle_run(NOW + HOUR).outcome == "failed"
        assert Decision.objects.count() == 1
        assert Allocation.objects.get(booking=first).state == "releasing"
        second.refresh_from_db()
        assert second.state == "requested"
    assert shown()["failed_cycles"] == 1
    assert "The solver failed on snapshot" in caplog.text

    monkeypatch.setattr(cycle, "solve", solve)
    with as_system():
        assert cycle_run(NOW + HOUR).outcome == "decided"


def test_a_request_on_which_the_solver_fails_stops_no_other(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with as_system():
        asked = [
            booking_request(
                actor=lab.actor,
                request=a_booking_request(lab.project),
                now=NOW + number * timedelta(seconds=1),
            )
            for number in range(6)
        ]
    culprit, now = str(asked[2].id), NOW + HOUR

    def broken(site: Snapshot, *others: Any, **more: Any) -> Plan:  # noqa: ANN401  as `solve`
        if any(request.booking == culprit for request in site.requests):
            raise IndexError("a mistake")
        return solve(site, *others, **more)

    monkeypatch.setattr(cycle, "solve", broken)
    with as_system():
        assert cycle_run(now).outcome == "decided"
        states = [Booking.objects.get(id=each.id).state for each in asked]
        assert states.pop(2) == "requested"
        assert "requested" not in states
        assert decision_replay(Decision.objects.latest("id")).is_equal
        cycle_run(now)
        assert Booking.objects.get(id=culprit).state == "requested"
    assert shown()["failed_cycles"] == 2
    assert f"Decided without {culprit}, on which the solver failed" in caplog.text
    monkeypatch.setattr(cycle, "solve", solve)
    with as_system():
        cycle_run(now)
        assert Booking.objects.get(id=culprit).state != "requested"
