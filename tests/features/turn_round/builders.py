"""Runs that followed each other on a GPU."""

from datetime import datetime, timedelta

from allocation.models import Allocation, Booking, Gpu, Occupancy
from tests.builders_allocation import NOW, Lab, a_booking, an_allocation
from tests.roles import as_system

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def a_run(lab: Lab, gpu: Gpu, began: datetime, *, clearing: float, preparing: float, pauses: int = 0) -> None:
    """A run of 20 minutes whose device was empty so long after its end and ready so long after its order."""
    booking = a_booking(lab.project, lab.actor.user_id, state="ended", starts=began, held="0")
    ends = began + 20 * MINUTE
    row = an_allocation(booking, gpu, starts=began, ends=ends, state="planned")
    with as_system():
        Allocation.objects.filter(id=row.id).update(state="ended")
        Booking.objects.filter(id=booking.id).update(ready_at=began + preparing * SECOND, pause_count=pauses)
        Occupancy.objects.create(
            allocation=row,
            gpu=gpu,
            slots=row.slots,
            opened=began,
            closed=ends + clearing * SECOND,
        )


def runs(lab: Lab, count: int, *, clearing: float, preparing: float, until: datetime = NOW) -> Gpu:
    """So many runs, one every half hour, each but the first after another one."""
    with as_system():
        gpu = Gpu.objects.select_related("node").earliest("number")
    for number in range(count):
        began = until - (count + 1 - number) * 30 * MINUTE
        a_run(lab, gpu, began, clearing=clearing, preparing=preparing)
    return gpu
