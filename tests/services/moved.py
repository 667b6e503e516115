"""Two slices on two GPUs, an hour from now, that could lie on one."""

from datetime import datetime

from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.record.places import place_of_row
from allocation.services.snapshot.snapshot import seconds
from solver import Move, Place
from solver.reasons.reason import reason
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, an_ask
from tests.roles import as_system
from tests.services.plant import Plant, rows_of

LATER = NOW + HOUR
R73 = reason("laid_anew")


def asked(plant: Plant, lab: Lab, ask: AskDocument) -> Booking:
    with as_system():
        return booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=plant.now)


def decided(plant: Plant, lab: Lab, *asks: AskDocument) -> list[Booking]:
    """Asked for one after the other, each decided before the next."""
    found = []
    for ask in asks:
        found.append(asked(plant, lab, ask))
        plant.round()
    return found


def cancelled(plant: Plant, lab: Lab, booking: Booking) -> None:
    with as_system():
        booking_cancel(actor=lab.actor, booking=booking, now=plant.now)


def gpu_of(booking: Booking) -> int:
    """Index of the GPU that it has now."""
    (row,) = (row for row in rows_of(booking) if row.state in row.LIVE)
    return row.gpu.index


def apart(plant: Plant, lab: Lab, starts: datetime = LATER) -> tuple[Booking, Booking]:
    """A 4g and a 3g, each alone on its GPU, for two hours from then on."""
    large = an_ask(profile="4g.40gb", starts=starts)
    one, other, small = decided(plant, lab, large, large, an_ask(profile="3g.40gb", starts=starts))
    alongside, alone = (one, other) if gpu_of(one) == gpu_of(small) else (other, one)
    cancelled(plant, lab, alongside)
    assert {gpu_of(alone), gpu_of(small)} == {0, 1}
    return alone, small


def place_of(booking: Booking) -> Place:
    """Where its one live row is."""
    (row,) = (row for row in rows_of(booking) if row.state in row.LIVE)
    return place_of_row(row)


def a_move(booking: Booking, to: Place) -> Move:
    """As the solver would say it."""
    (row,) = (row for row in rows_of(booking) if row.state in row.LIVE)
    window = (seconds(row.period.lower), seconds(row.period.upper))
    return Move(str(booking.id), "h100", (place_of_row(row),), (to,), *window, (R73,))
