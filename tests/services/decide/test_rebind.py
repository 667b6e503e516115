"""Rows that are written and have not begun get other places, so that more fits."""

from dataclasses import replace
from datetime import timedelta

import pytest

from allocation.models import Allocation, Booking, Decision
from allocation.services.decide.replay import decision_replay
from allocation.services.operate.maintenance.plan import MaintenanceTerms, maintenance_plan
from allocation.services.plans import answers
from allocation.services.plans.assignments import PlanStale
from allocation.services.snapshot import snapshot
from allocation.services.snapshot.kept import snapshot_keeper
from allocation.services.snapshot.snapshot import snapshot_take
from solver import Plan
from tenants.platform.wall import operator_tx
from tests.builders import an_operator
from tests.builders_allocation import HOUR, Lab, a_lab, a_node, an_ask
from tests.roles import as_system
from tests.services.broken import held, nothing_is_broken, said
from tests.services.moved import (
    LATER,
    a_move,
    apart,
    asked,
    cancelled,
    decided,
    gpu_of,
    place_of,
)
from tests.services.pause_plans import plan_written
from tests.services.plant import NAME, Plant, fresh, rows_of

pytestmark = pytest.mark.turn

WHOLE = an_ask(starts=LATER)


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


def states(booking: object) -> list[str]:
    return sorted(row.state for row in rows_of(booking))  # type: ignore[arg-type]


def test_a_window_is_let_in_by_a_move_that_its_owner_is_told_of(plant: Plant, lab: Lab) -> None:
    large, small = apart(plant, lab)
    before, money = {each.id: fresh(each) for each in (large, small)}, held(lab)
    new = asked(plant, lab, WHOLE)
    plant.round()
    assert fresh(new).state == "scheduled"
    (moved,) = (each for each in (large, small) if len(rows_of(each)) == 2)
    after, was = fresh(moved), before[moved.id]
    assert states(moved) == ["planned", "superseded"]
    assert len({row.period.lower for row in rows_of(moved)}) == 1
    assert {row.gpu.index for row in rows_of(moved)} == {0, 1}
    assert gpu_of(large) == gpu_of(small) != gpu_of(new)
    assert (after.state, after.planned_starts) == ("scheduled", was.planned_starts)
    assert after.version == was.version + 1
    assert (after.hold_amount, held(lab)) == (was.hold_amount, money + fresh(new).hold_amount)
    assert [reason["rule"] for reason in after.reasons] == ["R73"]
    with as_system():
        event = moved.events.latest("id")
    assert (event.kind, event.detail["rule"]) == ("moved", "R73")
    indexes = [row.gpu.index for row in sorted(rows_of(moved), key=lambda row: row.state)]
    assert event.sentence == (
        f"Moved from GPU {indexes[1]} of {NAME} to GPU {indexes[0]} of {NAME} before its start, "
        "so that more bookings fit. Its time stays the same."
    )
    nothing_is_broken()


def test_everybody_starts_where_the_move_has_put_them(plant: Plant, lab: Lab) -> None:
    large, small = apart(plant, lab)
    new = asked(plant, lab, WHOLE)
    plant.round()
    plant.later_until(LATER)
    assert [fresh(each).state for each in (large, small, new)] == ["active"] * 3
    assert sorted(len(gpu.instances) for gpu in plant.hardware.gpus) == [0, 2]
    plant.later_until(LATER + 2 * HOUR + timedelta(seconds=10))
    assert [fresh(each).outcome for each in (large, small, new)] == ["completed"] * 3
    nothing_is_broken()


def test_the_control_without_levels_the_window_is_refused(
    plant: Plant, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart(plant, lab)
    monkeypatch.setattr(snapshot, "_level", lambda _: None)
    snapshot_keeper.forget()
    new = asked(plant, lab, WHOLE)
    plant.round()
    assert fresh(new).state == "refused"


def test_a_decision_with_moves_is_the_same_again_byte_for_byte(plant: Plant, lab: Lab) -> None:
    apart(plant, lab)
    asked(plant, lab, WHOLE)
    plant.round()
    with as_system():
        decisions = list(Decision.objects.select_related("policy").order_by("id"))
        assert all(decision_replay(each).is_equal for each in decisions)


def test_two_that_change_places_are_never_in_each_others_way(plant: Plant, lab: Lab) -> None:
    one, other = decided(plant, lab, WHOLE, WHOLE)
    there, here = place_of(one), place_of(other)
    plan_written(_moving(a_move(one, here), a_move(other, there)), plant.now)
    assert (place_of(one), place_of(other)) == (here, there)
    nothing_is_broken()


def test_the_control_one_that_does_not_leave_first_is_in_the_way(
    plant: Plant, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = decided(plant, lab, WHOLE, WHOLE)
    there, here = place_of(one), place_of(other)
    monkeypatch.setattr(answers, "moved_rows_supersede", lambda *_: True)
    with pytest.raises(PlanStale, match="taken"):
        plan_written(_moving(a_move(one, here), a_move(other, there)), plant.now)
    assert (place_of(one), place_of(other)) == (there, here)


def _moving(*moves: object) -> Plan:
    return Plan((), (), (), (), moves=tuple(moves))  # type: ignore[arg-type]


@pytest.mark.parametrize("meanwhile", ["cancelled", "begun", "moved already", "another place"])
def test_a_move_of_what_is_something_else_by_now_is_dropped_whole(
    plant: Plant, lab: Lab, meanwhile: str
) -> None:
    one, other = decided(plant, lab, an_ask(profile="3g.40gb", starts=LATER), WHOLE)
    place = place_of(one)
    other_slots = replace(place, start=4 - place.start)
    move = a_move(one, other_slots)
    if meanwhile == "cancelled":
        cancelled(plant, lab, one)
    if meanwhile == "begun":
        plant.later_until(LATER)
    if meanwhile == "moved already":
        plan_written(_moving(move), plant.now)
    if meanwhile == "another place":
        move = replace(move, source=(other_slots,), places=(place,))
    before = [(row.id, row.state) for row in rows_of(one)]
    with pytest.raises(PlanStale):
        plan_written(_moving(move), plant.now)
    assert [(row.id, row.state) for row in rows_of(one)] == before
    assert fresh(other).state in ("scheduled", "active")
    nothing_is_broken()


def test_only_the_slots_changed_and_the_history_says_so(plant: Plant, lab: Lab) -> None:
    (one,) = decided(plant, lab, an_ask(profile="3g.40gb", starts=LATER))
    place = place_of(one)
    plan_written(_moving(a_move(one, replace(place, start=4 - place.start))), plant.now)
    with as_system():
        assert "to other slots of GPU" in one.events.latest("id").sentence


def test_what_may_move_is_in_the_snapshot_with_its_level(plant: Plant, lab: Lab) -> None:
    together = an_ask(2, profile="1g.10gb", together="gpu", required=True, starts=LATER)
    request = an_ask(2, profile="1g.10gb", together="gpu", starts=LATER)
    gang, loose, runs = decided(plant, lab, together, request, an_ask(profile="1g.10gb"))
    extended = asked(plant, lab, an_ask(profile="1g.10gb", starts=LATER))
    plant.round()
    with as_system():
        Booking.objects.filter(id=extended.id).update(extension_until=LATER + 3 * HOUR)
        found = {row.booking: row.level for row in snapshot_take(plant.now).held}
    assert {found[str(each.id)] for each in (extended, runs)} == {None}
    assert (found[str(gang.id)], found[str(loose.id)]) == ("gpu", "any")


def test_maintenance_under_a_window_moves_others_instead_of_losing_it(plant: Plant, lab: Lab) -> None:
    large, small = apart(plant, lab)
    a_node("gpu-b1-01")
    (whole,) = decided(plant, lab, WHOLE)
    with as_system():
        node = rows_of(whole)[0].gpu.node.name
    assert node == "gpu-b1-01", "else this is no test"
    request = MaintenanceTerms(LATER, LATER + HOUR, "New fans", node=node)
    operator = an_operator()
    with operator_tx():
        maintenance_plan(operator=operator, terms=request, now=plant.now)
    plant.round()
    assert fresh(whole).state == "scheduled"
    assert gpu_of(large) == gpu_of(small)
    assert sorted(states(whole)) == ["planned", "superseded"]
    with as_system():
        live = Allocation.objects.filter(state="planned", gpu__node__name=node)
        assert not live.exists()
    assert "moved" in said(whole)
    nothing_is_broken()


def test_a_whole_gpu_that_can_go_nowhere_else_stays(plant: Plant, lab: Lab) -> None:
    one, other = decided(plant, lab, WHOLE, WHOLE)
    third = asked(plant, lab, an_ask(profile="1g.10gb", starts=LATER))
    plant.round()
    assert fresh(third).state == "refused"
    assert [states(each) for each in (one, other)] == [["planned"]] * 2
