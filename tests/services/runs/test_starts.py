"""What is due starts together; what has to wait keeps nobody else waiting."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from allocation.models import Allocation, Booking, BookingEvent, Gpu, Node, Occupancy
from allocation.services.runs.start import allocations_ready, starts_due
from tenants.models import OutboxMessage
from tests.builders_allocation import NOW, Lab, a_booking, a_lab, an_allocation
from tests.roles import as_system

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
GPUS = 8


@pytest.fixture
def lab(db: None) -> Lab:
    return a_lab("helix", gpus=GPUS)


def gpu_of(index: int) -> Gpu:
    with as_system():
        return Gpu.objects.get(index=index)


def due(lab: Lab, *gpus: int) -> Booking:
    """A booking whose time has come, on the GPUs of these numbers."""
    booking = a_booking(lab.project, lab.actor.user_id, state="scheduled")
    for index in gpus:
        an_allocation(booking, gpu_of(index))
    return booking


def states(*bookings: Booking) -> list[str]:
    with as_system():
        return [Booking.objects.get(id=booking.id).state for booking in bookings]


def test_what_has_to_wait_keeps_nobody_else_waiting(lab: Lab) -> None:
    earlier = a_booking(lab.project, lab.actor.user_id, state="ending", starts=NOW - timedelta(hours=2))
    ago = NOW - timedelta(hours=2)
    an_allocation(earlier, gpu_of(3), state="releasing", starts=ago, ends=NOW)
    waits, gang, single = due(lab, 3), due(lab, 0, 4), due(lab, 2)
    half = due(lab, 1, 5)
    with as_system():
        assert starts_due(NOW) == 3
        open_now = Occupancy.objects.filter(closed=None).values_list("gpu__index", flat=True)
        assert sorted(open_now) == [0, 1, 2, 3, 4, 5]
    assert states(waits, gang, single, half) == ["scheduled", "starting", "starting", "starting"]


def test_many_start_in_as_few_statements_as_a_few(
    lab: Lab,
    django_assert_max_num_queries: Callable[[int], AbstractContextManager[object]],
) -> None:
    bookings = [due(lab, index) for index in range(GPUS)]
    with as_system():
        before = Node.objects.get().generation
        with django_assert_max_num_queries(16):
            assert starts_due(NOW) == GPUS
        assert Node.objects.get().generation == before + GPUS
        assert Occupancy.objects.filter(closed=None).count() == GPUS
        assert BookingEvent.objects.filter(kind="starting", state="starting").count() == GPUS
        said = OutboxMessage.objects.filter(kind="booking.starting").order_by("id")
        assert {message.payload["state"] for message in said} == {"starting"}
        assert len(said) == GPUS
    assert set(states(*bookings)) == {"starting"}


def test_a_gang_is_active_when_all_of_it_is_ready_whatever_comes_together(lab: Lab) -> None:
    gang, single = due(lab, 0, 1), due(lab, 2)
    with as_system():
        starts_due(NOW)
        one, two = Allocation.objects.filter(booking=gang).order_by("gpu__index")
        third = Allocation.objects.get(booking=single)
        allocations_ready({one.id: ["GPU-a"], third.id: ["GPU-c"]}, NOW)
    assert states(gang, single) == ["starting", "active"]
    with as_system():
        allocations_ready({one.id: ["GPU-x"], two.id: ["GPU-b"], third.id: ["GPU-x"]}, NOW)
        rows = Allocation.objects.order_by("gpu__index").values_list("state", "devices")
        assert list(rows) == [("active", ["GPU-a"]), ("active", ["GPU-b"]), ("active", ["GPU-c"])]
        assert BookingEvent.objects.filter(kind="started").count() == 2
    assert states(gang, single) == ["active", "active"]


def test_an_occupancy_begins_when_the_one_before_it_ended(lab: Lab) -> None:
    """A turn starts what became free after the turn began; their history does not overlap."""
    earlier = a_booking(lab.project, lab.actor.user_id, state="ending", starts=NOW - timedelta(hours=2))
    ago, freed = NOW - timedelta(hours=2), NOW + timedelta(seconds=2)
    place = an_allocation(earlier, gpu_of(0), state="releasing", starts=ago, ends=NOW)
    booking = due(lab, 0)
    with as_system():
        Occupancy.objects.filter(allocation=place).update(closed=freed)
        Allocation.objects.filter(id=place.id).update(state="ended")
        assert starts_due(NOW) == 1
        now_here = Occupancy.objects.get(allocation__booking=booking)
        assert now_here.opened == freed
        Occupancy.objects.filter(id=now_here.id).update(closed=NOW)
        now_here.refresh_from_db()
        assert now_here.closed == freed


def test_the_database_keeps_two_from_being_on_one_device_in_the_past_too(lab: Lab) -> None:
    rows = [an_allocation(a_booking(lab.project, lab.actor.user_id), gpu_of(i)) for i in (0, 1)]
    gpu, hour = gpu_of(0), timedelta(hours=1)
    slots = rows[0].slots
    with as_system():
        Occupancy.objects.create(allocation=rows[0], gpu=gpu, slots=slots, opened=NOW, closed=NOW + hour)
        second = Occupancy.objects.create(
            allocation=rows[1], gpu=gpu, slots=slots, opened=NOW - hour, closed=NOW
        )
        with (
            pytest.raises(IntegrityError, match="occupancy_once_on_hardware"),
            transaction.atomic(),
        ):
            Occupancy.objects.filter(id=second.id).update(closed=NOW + hour / 2)
