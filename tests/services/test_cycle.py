"""From a request to the last line of the bill, through the real agent."""

from allocation.services.bookings import booking_request
from tests.builders_allocation import NOW, a_lab, a_wish, an_ask
from tests.roles import as_system
from tests.services.plant import Plant, fresh, rows_of


def test_a_booking_goes_all_the_way_and_is_charged_to_the_second(plant: Plant) -> None:
    lab = a_lab(gpus=0)
    with as_system():
        booking = booking_request(
            actor=lab.actor, wish=a_wish(lab.project, an_ask(profile="2g.20gb")), now=NOW
        )
    plant.cycle()
    assert fresh(booking).state == "starting"
    plant.node_works()
    plant.portal_reads()
    booking = fresh(booking)
    assert (booking.state, booking.ready_at) == ("active", NOW)
    (row,) = rows_of(booking)
    assert row.state == "active"
    assert row.devices[0].startswith("MIG-")
