"""A change of planned and running maintenance: what moves, who is notified, what is refused."""

from datetime import timedelta

import pytest

from allocation.models import GpuEvent, Maintenance
from allocation.rules.recurrence import recurrence_read
from allocation.rules.states import State
from allocation.services.operate.maintenance.change import (
    MaintenanceChange,
    maintenance_change,
    maintenance_change_preview,
)
from allocation.services.operate.maintenance.plan import (
    MaintenanceTerms,
    Preview,
)
from tenants.models import AuditEntry, OutboxMessage, User
from tenants.platform.errors import Refused
from tenants.platform.wall import operator_tx
from tests.builders import an_operator
from tests.builders_allocation import HOUR, NOW, Lab, a_lab
from tests.roles import as_system
from tests.services.operate.test_maintenance import a_blackout, asked, nothing_is_broken, plan, said
from tests.services.operate.test_maintenance import starts as starts_of
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


@pytest.fixture
def operator(plant: Plant) -> User:
    return an_operator()


def changed(plant: Plant, operator: User, row: Maintenance, change: MaintenanceChange) -> Preview:
    """Previews the change, makes it, and returns the preview."""
    with operator_tx():
        preview = maintenance_change_preview(maintenance=row, change=change, now=plant.now)
        maintenance_change(operator=operator, maintenance=row, change=change, now=plant.now)
    plant.round()
    return preview


def test_another_window_gives_the_old_time_back_and_moves_what_is_in_its_way(
    plant: Plant, lab: Lab, operator: User
) -> None:
    row = plan(operator, a_blackout(NOW + HOUR, hours=4))
    booking = asked(plant, lab, 2, hours=3)
    assert starts_of(booking) == NOW + 5 * HOUR
    change = MaintenanceChange(starts=NOW + 3 * HOUR, ends=NOW + 6 * HOUR, reason="Old fans.")
    (moved,) = changed(plant, operator, row, change).moved
    assert (moved.label, moved.after) == (booking.label, NOW)
    assert fresh(booking).state in (State.STARTING, State.ACTIVE)
    with as_system():
        saved = Maintenance.objects.get(id=row.id)
        assert (saved.drain_by, saved.reason) == (NOW + 3 * HOUR, "Old fans")
        assert "changed maintenance: Old fans" in GpuEvent.objects.latest("id").words
        entry = AuditEntry.objects.get(action="maintenance.changed")
        sent = OutboxMessage.objects.filter(kind="maintenance.changed", tenant=None)
        assert [each.payload["data"]["was"]["reason"] for each in sent] == ["New fans"]
    assert entry.detail["before"]["starts"] == (NOW + HOUR).isoformat()
    nothing_is_broken()
    with operator_tx():
        maintenance_change(operator=operator, maintenance=row, change=change, now=plant.now)
    with as_system():
        assert AuditEntry.objects.filter(action="maintenance.changed").count() == 1


def test_owners_are_notified_of_another_deadline_and_not_of_the_same(
    plant: Plant, lab: Lab, operator: User
) -> None:
    booking = asked(plant, lab, 2, hours=8)
    row = plan(operator, a_blackout(NOW + HOUR, hours=4, drain_by=NOW + 2 * HOUR))
    changed(plant, operator, row, MaintenanceChange(reason="Old fans"))
    assert said(booking).count("leave_by") == 1
    preview = changed(plant, operator, row, MaintenanceChange(drain_by=NOW + 3 * HOUR))
    assert [each.label for each in preview.running] == [booking.label]
    assert said(booking).count("leave_by") == 2
    plant.later_until(NOW + 3 * HOUR - timedelta(seconds=1))
    assert fresh(booking).state == State.ACTIVE


def test_maintenance_that_has_begun_keeps_its_start(plant: Plant, operator: User) -> None:
    row = plan(operator, a_blackout(NOW, hours=4))
    plant.later_until(NOW + HOUR)
    changed(plant, operator, row, MaintenanceChange(ends=NOW + 9 * HOUR))
    with as_system():
        assert Maintenance.objects.get(id=row.id).ends == NOW + 9 * HOUR
    for change, code in (
        (MaintenanceChange(starts=NOW + 2 * HOUR), "maintenance_running"),
        (MaintenanceChange(ends=NOW + HOUR / 2), "window_past"),
    ):
        with operator_tx(), pytest.raises(Refused) as refused:
            maintenance_change(operator=operator, maintenance=row, change=change, now=plant.now)
        assert refused.value.code == code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (MaintenanceChange(ends=NOW), "end_before_start"),
        (MaintenanceChange(starts=NOW - HOUR), "window_past"),
        (MaintenanceChange(ends=NOW + 91 * 24 * HOUR), "too_long"),
        (MaintenanceChange(drain_by=NOW + 9 * HOUR), "bad_deadline"),
        (MaintenanceChange(reason=" . "), "reason_needed"),
        (MaintenanceChange(starts=NOW + 26 * HOUR, ends=NOW + 27 * HOUR), "series_overlap"),
    ],
)
def test_a_change_is_checked_as_a_plan_is(
    plant: Plant, operator: User, change: MaintenanceChange, code: str
) -> None:
    daily = recurrence_read("FREQ=DAILY;COUNT=2", "rrule")
    terms = a_blackout(NOW + 2 * HOUR)
    terms = MaintenanceTerms(
        terms.starts, terms.ends, terms.reason, node=terms.node, repeat=daily, zone="UTC"
    )
    row = plan(operator, terms)
    with operator_tx(), pytest.raises(Refused) as refused:
        maintenance_change(operator=operator, maintenance=row, change=change, now=NOW)
    assert refused.value.code == code
