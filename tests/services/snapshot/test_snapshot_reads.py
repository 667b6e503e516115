"""A snapshot asks as little of the database for many bookings as for a few."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from allocation.models import Booking, Gpu, Maintenance
from allocation.services.snapshot.snapshot import snapshot_read
from solver import Snapshot
from tests.builders_allocation import NOW, Lab, a_booking, a_lab, an_allocation
from tests.roles import as_system

pytestmark = pytest.mark.django_db
GPUS = 6
HOUR = 3600


@pytest.fixture
def lab(db: None) -> Lab:
    return a_lab("helix", gpus=GPUS)


def held(lab: Lab, index: int, state: str) -> Booking:
    booking = a_booking(lab.project, lab.actor.user_id, state=state)
    with as_system():
        gpu = Gpu.objects.get(index=index)
    an_allocation(booking, gpu, state="planned" if state == "scheduled" else state)
    return booking


def seen() -> tuple[Snapshot, int]:
    with as_system(), CaptureQueriesContext(connection) as queries:
        return snapshot_read(NOW), len(queries)


def test_more_bookings_are_read_in_as_many_statements(lab: Lab) -> None:
    held(lab, 0, "active")
    held(lab, 1, "scheduled")
    few, statements = seen()
    for index in range(2, GPUS):
        held(lab, index, "active" if index % 2 else "scheduled")
    many, again = seen()
    assert again == statements
    assert (len(few.held), len(many.held)) == (2, GPUS)
    assert len(many.gpus) == GPUS


def test_maintenance_of_a_rack_is_read_in_as_many_statements(lab: Lab) -> None:
    def away(**where: object) -> None:
        Maintenance.objects.create(
            starts=NOW,
            ends=NOW.replace(hour=23),
            drain_by=NOW,
            reason="Fans",
            created=NOW,
            created_by_id=lab.actor.user_id,
            **where,
        )

    with as_system():
        away(gpu=Gpu.objects.get(index=0))
    few, statements = seen()
    with as_system():
        gpu = Gpu.objects.select_related("node").get(index=1)
        away(node=gpu.node)
        away(rack=gpu.node.rack)
    many, again = seen()
    assert again == statements
    assert (len(few.blackouts), len(many.blackouts)) == (1, 1 + 2 * GPUS)


def test_gpus_have_their_groups_by_pcie(lab: Lab) -> None:
    with as_system():
        Gpu.objects.filter(index=2).update(
            numa=0, peers=[[0, 0, "bridge"], [1, 0, "bridge"], [3, 0, "switch"]]
        )
        Gpu.objects.filter(index=3).update(numa=1)
        groups = {gpu.index: gpu.near for gpu in snapshot_read(NOW).gpus}
    assert (groups[1], groups[2], groups[3]) == ((), (0, 2), (1,))
