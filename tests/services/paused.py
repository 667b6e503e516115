"""Bookings that run, get notice of a pause, and what is to be seen of it."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import wire
from allocation.models import Booking, BookingEvent
from allocation.rules.ask import AskDocument
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.invariants import invariants_check
from allocation.services.nodes.redis_accounts import agents_redis
from allocation.services.runs.end import allocation_saved
from billing.queries import reference_totals
from tests.builders_allocation import Lab, a_booking_request, an_ask
from tests.roles import as_system
from tests.services.pause_plans import GRACE, pause_plan, plan_written
from tests.services.plant import NAME, Plant, fresh, rows_of


def requested(plant: Plant, lab: Lab, ask: AskDocument | None = None) -> Booking:
    with as_system():
        return booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=plant.now)


def running(plant: Plant, lab: Lab, ask: AskDocument | None = None) -> Booking:
    booking = requested(plant, lab, ask or an_ask(2))
    plant.round()
    assert fresh(booking).state == "active"
    return fresh(booking)


def on_gpus_of(booking: Booking, ask: AskDocument) -> AskDocument:
    """The request on the GPUs that a booking has, so that no free one can serve it."""
    places = tuple(f"{row.gpu.node.name}/{row.gpu.index}" for row in rows_of(booking))
    return replace(ask, count=len(places), pin=places)


def noticed(
    plant: Plant,
    victim: Booking,
    rival: Lab,
    *,
    grace: timedelta = GRACE,
    resume: datetime | None = None,
    ask: AskDocument | None = None,
) -> Booking:
    """The victim is notified now; the booking of the rival that it is for."""
    strong = requested(plant, rival, ask or an_ask(2))
    with as_system():
        plan = pause_plan(victim, strong, plant.now + grace, resume=resume)
    plan_written(plan, plant.now)
    plant.cycle()
    return strong


def story(booking: Booking) -> list[str]:
    with as_system():
        return list(BookingEvent.objects.filter(booking=booking).values_list("kind", flat=True))


def money_of(booking: Booking) -> tuple[Decimal, Decimal]:
    """Still held, and charged."""
    with as_system():
        return reference_totals(tenant_id=booking.tenant_id, reference=booking.id)


def all_is_well() -> bool:
    with as_system():
        assert invariants_check() == []
    return True


def document(plant: Plant) -> wire.Desired:
    """What the node is notified."""
    raw = agents_redis().get(wire.desired_key(NAME))
    assert isinstance(raw, bytes)
    return wire.open_desired(wire.Envelope.from_json(raw), plant.identity.keys)


def desired(plant: Plant) -> list[wire.DesiredAllocation]:
    return [each for gpu in document(plant).gpus for each in gpu.allocations]


def saved(plant: Plant, booking: Booking, *, members: int = 2, ago: timedelta = timedelta(0)) -> None:
    """The agent says that the owner has saved on so many of the booking's members, `ago` by the
    node's clock."""
    rows = [row for row in rows_of(booking) if row.state == "active"][:members]
    with as_system():
        for row in rows:
            allocation_saved(row.id, plant.now - ago, plant.now)
