"""A plant whose hardware fails: what tests of it do and ask."""

from datetime import timedelta
from decimal import Decimal

from allocation.models import Booking, Gpu, Occupancy
from allocation.rules.states import State
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.invariants import invariants_check
from billing.queries import budget_figures
from tests.builders_allocation import NOW, Lab, a_booking_request, an_ask
from tests.roles import as_system
from tests.services.plant import NAME, Plant, fresh


def booked(plant: Plant, lab: Lab, count: int = 1, **ask: object) -> Booking:
    """A booking that the node was notified of and runs."""
    with as_system():
        request = a_booking_request(lab.project, an_ask(count, **ask))  # type: ignore[arg-type]
        booking = booking_request(actor=lab.actor, request=request, now=plant.now)
    plant.round()
    assert fresh(booking).state == State.ACTIVE
    return booking


def fails(plant: Plant, index: int, xid: int, *, instance: int | None = None) -> None:
    """The GPU has an error, and five seconds later everybody knows."""
    plant.hardware.fail(plant.hardware.gpus[index], xid, instance=instance)
    plant.later(timedelta(seconds=5))


def gpu(index: int, node: str = NAME) -> Gpu:
    with as_system():
        return Gpu.objects.get(node__name=node, index=index)


def occupied() -> int:
    with as_system():
        return Occupancy.objects.filter(closed=None).count()


def said(booking: Booking) -> list[str]:
    with as_system():
        return list(booking.events.values_list("kind", flat=True))


def held(lab: Lab) -> Decimal:
    with as_system():
        effect = budget_figures(project_id=lab.project.id, at=NOW)
    assert effect is not None
    return effect.held


def nothing_is_broken() -> None:
    with as_system():
        assert invariants_check() == []
