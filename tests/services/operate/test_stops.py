"""Stops: of a tenant, a tier, a class and the site; what they refuse, keep waiting, and let run."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from allocation.models import Booking, Stop
from allocation.queries.fleet.stops import stop_reason, stops_in_force
from allocation.rules.ask import AskDocument
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.cycle import is_anything_due
from allocation.services.decide.invariants import invariants_check
from allocation.services.operate.stops import StopTerms, stop_begin, stop_effect, stop_end
from billing.services import Rung
from tenants.models import User
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_tenant, an_operator
from tests.builders_allocation import HOUR, Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_owner, as_system
from tests.services.decide.test_drains import laddered
from tests.services.decide.test_restraints import pausable_lab
from tests.services.paused import all_is_well, requested, running
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn

WHY = "An audit"
MINUTE = timedelta(minutes=1)
SCOPES = ["site", "tenant:helix", "tier:standard", "class:h100"]


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


@pytest.fixture
def operator(plant: Plant) -> User:
    return an_operator()


def booked(plant: Plant, lab: Lab, ask: AskDocument | None = None) -> Booking:
    with as_system():
        return booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=plant.now)


def terms(what: str, length: timedelta | None = None) -> StopTerms:
    scope, _, name = what.partition(":")
    return StopTerms(scope, name, WHY, length)


def stopped(plant: Plant, operator: User, what: str, length: timedelta | None = None) -> Stop:
    with as_system():
        return stop_begin(operator=operator, terms=terms(what, length), now=plant.now)


@pytest.mark.parametrize("what", SCOPES)
def test_nothing_new_starts_and_what_runs_continues(
    plant: Plant, lab: Lab, operator: User, what: str
) -> None:
    runs = booked(plant, lab)
    plant.round()
    plant.later(MINUTE)
    planned = booked(plant, lab, an_ask(starts=plant.now + MINUTE * 2))
    plant.round()
    waits = booked(plant, lab)
    with as_system():
        effect = stop_effect(terms=terms(what))
    assert (effect.waiting, effect.planned, effect.running) == (1, 1, 1)
    stop = stopped(plant, operator, what)
    with pytest.raises(Refused, match=f"stopped new work of .*{WHY}") as refused:
        booked(plant, lab)
    assert (refused.value.code, refused.value.rule, refused.value.owner) == (
        "stopped",
        "R150",
        "operator",
    )
    for _ in range(3):
        plant.later(MINUTE)
    assert [fresh(each).state for each in (runs, planned, waits)] == [
        "active",
        "scheduled",
        "queued",
    ]
    assert fresh(waits).reasons[0]["code"] == "stopped"
    with as_system():
        assert not is_anything_due(plant.now)
        reason = stop_reason(fresh(planned), plant.now)
        assert reason is not None
        assert WHY in reason["sentence"]
        # Its own reasons say it, and what runs is not stopped.
        assert stop_reason(fresh(waits), plant.now) is None
        assert stop_reason(fresh(runs), plant.now) is None
        stop_end(operator=operator, stop_id=stop.id, now=plant.now)
    plant.round()
    plant.later(MINUTE)
    assert [fresh(each).state for each in (runs, planned, waits)] == ["active", "active", "queued"]
    assert fresh(waits).planned_starts is not None
    with as_system():
        assert invariants_check() == []


def test_it_ends_by_itself_and_stops_nothing_else(plant: Plant, lab: Lab, operator: User) -> None:
    with as_system():
        a_tenant("other")
    stopped(plant, operator, "tenant:other")
    first = booked(plant, lab)
    ends = stopped(plant, operator, "site", MINUTE * 5).until
    with pytest.raises(Refused) as refused:
        booked(plant, lab)
    assert refused.value.frees_at == ends == plant.now + MINUTE * 5
    plant.later(MINUTE * 4)
    assert fresh(first).state == "queued"
    plant.later(MINUTE)
    plant.later(MINUTE)
    assert fresh(first).state == "active"


def test_a_tenant_reads_no_stop_of_another(plant: Plant, lab: Lab, operator: User) -> None:
    with as_system():
        other = a_tenant("other")
    stopped(plant, operator, "tenant:other")
    stopped(plant, operator, "tier:standard")
    assert {each.scope for each in stops_in_force(plant.now)} == {"tier"}
    with tenant_tx(lab.project.tenant_id):
        assert {each.scope for each in stops_in_force(plant.now)} == {"tier"}
    with tenant_tx(other.id):
        assert {each.scope for each in stops_in_force(plant.now)} == {"tier", "tenant"}


def test_a_second_stop_replaces_the_first_and_the_database_keeps_one(
    plant: Plant, lab: Lab, operator: User
) -> None:
    stopped(plant, operator, "site")
    again = stopped(plant, operator, "site", MINUTE)
    with as_system():
        assert [each.id for each in stops_in_force(plant.now)] == [again.id]
        with pytest.raises(IntegrityError, match="stop_open_once"), transaction.atomic():
            Stop.objects.create(scope="site", since=plant.now, reason="x", begun_by=operator)
        with pytest.raises(IntegrityError, match="stop_names_its_scope"), transaction.atomic():
            Stop.objects.create(scope="tier", since=plant.now, reason="x", begun_by=operator)


def test_the_room_of_what_is_stopped_goes_to_others(plant: Plant, lab: Lab, operator: User) -> None:
    other = a_lab("other")
    running(plant, lab, an_ask(2))
    planned = requested(plant, lab, an_ask(2))
    plant.cycle()
    starts = fresh(planned).planned_starts
    assert starts is not None
    stop = stopped(plant, operator, "tenant:helix")
    taker = requested(plant, other, an_ask(2))
    plant.cycle()
    assert fresh(planned).planned_starts is None
    assert fresh(planned).is_unplanned
    assert fresh(taker).planned_starts == starts
    with as_system():
        assert not is_anything_due(plant.now)
        stop_end(operator=operator, stop_id=stop.id, now=plant.now)
    plant.cycle()
    assert fresh(planned).planned_starts is not None
    with as_system():
        assert invariants_check() == []


def test_what_a_budget_keeps_too_says_so_when_the_stop_is_over(
    plant: Plant, lab: Lab, operator: User
) -> None:
    running(plant, lab, an_ask(2))
    stop = stopped(plant, operator, "site")
    laddered(plant, lab, Rung("committed", 1, "drain"))
    with as_system():
        waits = Booking.objects.get(id=_written_before(plant, lab, stop).id)
    plant.cycle()
    assert fresh(waits).reasons[0]["code"] == "stopped"
    with as_system():
        stop_end(operator=operator, stop_id=stop.id, now=plant.now)
    plant.cycle()
    assert fresh(waits).reasons[0]["code"] == "budget_drained"
    laddered(plant, lab)
    plant.cycle()
    assert fresh(waits).reasons[0]["code"] not in ("stopped", "budget_drained")
    with as_system():
        assert not is_anything_due(plant.now)


def test_what_was_paused_does_not_resume_until_the_stop_is_over(
    plant: Plant, lab: Lab, operator: User
) -> None:
    borrower = pausable_lab("borrower")
    runs = running(plant, borrower, an_ask(2))
    plant.later(HOUR / 2)
    laddered(plant, borrower, Rung("committed", 1, "pause"))
    plant.cycle()
    plant.later(timedelta(seconds=fresh(runs).tier.grace_seconds))
    plant.round()
    stop = stopped(plant, operator, "tenant:borrower")
    laddered(plant, borrower)
    plant.round()
    assert fresh(runs).state == "paused"
    with as_system():
        assert not is_anything_due(plant.now)
        stop_end(operator=operator, stop_id=stop.id, now=plant.now)
    plant.round()
    plant.round()
    assert fresh(runs).state == "active"
    assert all_is_well()


def _written_before(plant: Plant, lab: Lab, stop: Stop) -> Booking:
    """A request that was being written while the stop began."""
    with as_owner():
        Stop.objects.filter(id=stop.id).update(since=plant.now - MINUTE, ended_at=plant.now)
    made = requested(plant, lab)
    with as_owner():
        Stop.objects.filter(id=stop.id).update(ended_at=None)
    return made
