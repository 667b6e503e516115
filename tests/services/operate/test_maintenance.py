"""Maintenance: saved, previewed, kept free, and what it does to bookings in its way."""

from datetime import datetime, timedelta

import pytest
from django.db import IntegrityError, ProgrammingError, transaction

from allocation.models import Booking, Maintenance
from allocation.rules.states import State
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.invariants import invariants_check
from allocation.services.operate.maintenance.plan import (
    MaintenanceTerms,
    Preview,
    maintenance_end,
    maintenance_plan,
    maintenance_preview,
)
from tenants.models import User
from tenants.platform.errors import Refused
from tenants.platform.wall import operator_tx
from tests.builders import an_operator
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, a_node, an_ask
from tests.roles import as_role, as_system
from tests.services.plant import NAME, Plant, fresh, rows_of

pytestmark = pytest.mark.turn


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


@pytest.fixture
def operator(plant: Plant) -> User:
    return an_operator()


def asked(plant: Plant, lab: Lab, count: int = 1, **ask: object) -> Booking:
    with as_system():
        request = a_booking_request(lab.project, an_ask(count, **ask))  # type: ignore[arg-type]
        booking = booking_request(actor=lab.actor, request=request, now=plant.now)
    plant.round()
    return fresh(booking)


def a_blackout(
    starts: datetime, hours: float = 2, *, gpu: int | None = None, drain_by: datetime | None = None
) -> MaintenanceTerms:
    return MaintenanceTerms(
        starts=starts,
        ends=starts + hours * HOUR,
        reason="New fans",
        node=NAME,
        gpu=gpu,
        drain_by=drain_by,
    )


def plan(operator: User, terms: MaintenanceTerms, now: datetime = NOW) -> Maintenance:
    with operator_tx():
        return maintenance_plan(operator=operator, terms=terms, now=now)


def preview(operator: User, terms: MaintenanceTerms, now: datetime = NOW) -> Preview:
    with operator_tx():
        return maintenance_preview(operator=operator, terms=terms, now=now)


def starts(booking: Booking) -> datetime | None:
    return fresh(booking).planned_starts


def said(booking: Booking) -> list[str]:
    with as_system():
        return list(booking.events.values_list("kind", flat=True))


def nothing_is_broken() -> None:
    with as_system():
        assert invariants_check() == []


def test_a_planned_window_in_the_way_gets_another_place_and_its_owner_is_told(
    plant: Plant, lab: Lab, operator: User
) -> None:
    booking = asked(plant, lab, 1, starts=NOW + 3 * HOUR)
    (place,) = rows_of(booking)
    terms = a_blackout(NOW + 2 * HOUR, gpu=place.gpu.index)
    # The other GPU serves: nothing would start later.
    assert preview(operator, terms) == Preview((), ())
    plan(operator, terms)
    plant.round()
    assert fresh(booking).state == State.SCHEDULED
    assert [row.gpu.index for row in rows_of(booking) if row.state == "planned"] == [1 - place.gpu.index]
    assert said(booking)[-2:] == ["moved", "scheduled"]
    nothing_is_broken()


def test_a_window_that_nothing_else_serves_is_refused_with_the_reason_and_another_window(
    plant: Plant, lab: Lab, operator: User
) -> None:
    booking = asked(plant, lab, 2, starts=NOW + 3 * HOUR)
    terms = a_blackout(NOW + 2 * HOUR)
    (moved,) = preview(operator, terms).moved
    assert (moved.label, moved.before, moved.after) == (booking.label, NOW + 3 * HOUR, None)
    # Looking changed nothing.
    assert fresh(booking).state == State.SCHEDULED
    plan(operator, terms)
    plant.round()
    over = fresh(booking)
    assert over.state == State.REFUSED
    assert "R33" in [reason["rule"] for reason in over.reasons]
    assert over.alternatives != []
    nothing_is_broken()


def test_a_promise_moves_behind_the_maintenance_as_the_preview_said(
    plant: Plant, lab: Lab, operator: User
) -> None:
    asked(plant, lab, 2, hours=2)
    waits = asked(plant, lab, 2, hours=2)
    assert starts(waits) == NOW + 2 * HOUR
    terms = a_blackout(NOW + 3 * HOUR, hours=2)
    (moved,) = preview(operator, terms).moved
    assert (moved.before, moved.after) == (NOW + 2 * HOUR, NOW + 5 * HOUR)
    plan(operator, terms)
    plant.round()
    assert starts(waits) == NOW + 5 * HOUR
    with as_system():
        sentence = waits.events.latest("id").sentence
    assert "maintenance" in sentence
    nothing_is_broken()


def test_running_work_is_told_and_broken_off_at_the_deadline(plant: Plant, lab: Lab, operator: User) -> None:
    booking = asked(plant, lab, 2, hours=6)
    a_node("gpu-b1-01", gpus=2)
    terms = a_blackout(NOW + HOUR, hours=4, drain_by=NOW + 2 * HOUR)
    assert [each.label for each in preview(operator, terms).running] == [booking.label]
    plan(operator, terms)
    assert said(booking)[-1] == "leave_by"
    plant.later_until(NOW + 2 * HOUR - timedelta(seconds=1))
    assert fresh(booking).state == State.ACTIVE
    plant.later_until(NOW + 2 * HOUR)
    assert fresh(booking).state == State.STARTING
    assert {r.gpu.node.name for r in rows_of(booking) if r.state == "starting"} == {"gpu-b1-01"}
    nothing_is_broken()


def test_work_that_ends_before_the_deadline_is_left_alone(plant: Plant, lab: Lab, operator: User) -> None:
    booking = asked(plant, lab, 2, hours=2)
    terms = a_blackout(NOW + HOUR, hours=4, drain_by=NOW + 2 * HOUR)
    assert preview(operator, terms).running == ()
    plan(operator, terms)
    plant.later_until(NOW + 2 * HOUR + timedelta(seconds=1))
    assert fresh(booking).state == State.ENDED
    assert "leave_by" not in said(booking)


def test_maintenance_that_is_called_off_gives_the_time_back(plant: Plant, lab: Lab, operator: User) -> None:
    saved = plan(operator, a_blackout(NOW, hours=4))
    booking = asked(plant, lab, 1, hours=1)
    assert starts(booking) == NOW + 4 * HOUR
    with operator_tx():
        maintenance_end(operator=operator, maintenance=saved, now=plant.now)
    plant.round()
    assert fresh(booking).state == State.ACTIVE
    with operator_tx(), pytest.raises(Refused, match="blackout_over"):
        maintenance_end(operator=operator, maintenance=saved, now=plant.now)


def test_a_rack_takes_all_its_nodes_along(plant: Plant, lab: Lab, operator: User) -> None:
    terms = MaintenanceTerms(starts=NOW, ends=NOW + HOUR, reason="Power", rack="a1")
    saved = plan(operator, terms)
    assert saved.where == "rack a1"
    assert starts(asked(plant, lab, 1, hours=1)) == NOW + HOUR


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        (a_blackout(NOW, hours=0), "end_before_start"),
        (a_blackout(NOW - HOUR), "window_past"),
        (a_blackout(NOW + timedelta(days=366)), "advance_window"),
        (a_blackout(NOW, hours=24 * 91), "too_long"),
        (a_blackout(NOW + HOUR, drain_by=NOW), "bad_deadline"),
        (a_blackout(NOW, gpu=7), "not_found"),
        (MaintenanceTerms(NOW, NOW + HOUR, " . ", node=NAME), "reason_needed"),
        (MaintenanceTerms(NOW, NOW + HOUR, "Fans"), "one_target"),
        (MaintenanceTerms(NOW, NOW + HOUR, "Fans", rack="a1", node=NAME), "one_target"),
        (MaintenanceTerms(NOW, NOW + HOUR, "Fans", rack="z9"), "not_found"),
        (MaintenanceTerms(NOW, NOW + HOUR, "Fans", node="nope"), "not_found"),
    ],
)
def test_maintenance_that_makes_no_sense_is_refused(
    plant: Plant, operator: User, terms: MaintenanceTerms, code: str
) -> None:
    with pytest.raises(Refused) as refused:
        plan(operator, terms)
    assert refused.value.code == code


@pytest.mark.parametrize("bad", ["maintenance_of_one_thing", "maintenance_window_sane"])
def test_the_database_refuses_it_too(plant: Plant, operator: User, bad: str) -> None:
    saved = plan(operator, a_blackout(NOW + HOUR))
    values = {"drain_by": NOW} if bad == "maintenance_window_sane" else {"node": None}
    with as_system(), pytest.raises(IntegrityError, match=bad):
        Maintenance.objects.filter(id=saved.id).update(**values)


def test_tenants_may_read_maintenance_and_not_change_it(plant: Plant, lab: Lab, operator: User) -> None:
    plan(operator, a_blackout(NOW + HOUR))
    with as_role("portal_web"), transaction.atomic():
        assert Maintenance.objects.count() == 1
        with pytest.raises(ProgrammingError, match="permission denied"):
            Maintenance.objects.update(reason="Theirs")
