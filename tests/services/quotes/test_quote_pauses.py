"""A quote may pause bookings of the own organisation; others are busy until their end."""

from datetime import datetime, timedelta

import pytest

from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.services.bookings.creation import booking_request
from allocation.services.quotes.quotes import Quote, quote_make
from allocation.words.quotes import note_text
from billing.models import PriceBook
from tenants.models import Quota, Tier
from tenants.platform.wall import tenant_tx
from tests.builders import UNITS_PER_GPU, a_tier
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, an_ask
from tests.prices import price_add
from tests.roles import as_system
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn

GRACE = timedelta(minutes=10)


def requested(plant: Plant, lab: Lab, ask: AskDocument) -> Booking:
    with as_system():
        return booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=plant.now)


def quoted(lab: Lab, ask: AskDocument, now: datetime) -> Quote:
    with tenant_tx(lab.tenant_id):
        return quote_make(actor=lab.actor, request=a_booking_request(lab.project, ask), now=now)


@pytest.fixture
def labs(plant: Plant) -> tuple[Lab, Lab]:
    """The guaranteed owner of both GPUs and their borrower, one hour into four."""
    lender = a_lab("lender", gpus=0, limit=2)
    a_tier("standard", pausable=True)
    borrower = a_lab("borrower", gpus=0, limit=2)
    with as_system():
        Quota.objects.filter(tenant=borrower.tenant).update(
            guaranteed_units=0, borrow_limit_units=2 * UNITS_PER_GPU
        )
        Tier.objects.update(pausable=True)
    weak = requested(plant, borrower, an_ask(2, hours=4))
    plant.round()
    assert fresh(weak).state == "active"
    plant.later(HOUR)
    return lender, borrower


def test_what_others_have_is_busy_until_its_end_and_the_cycle_may_start_it_sooner(
    plant: Plant, labs: tuple[Lab, Lab]
) -> None:
    lender, _ = labs
    option = quoted(lender, an_ask(2, hours=1), plant.now).options[0]
    assert (option.kind, option.starts, option.pauses) == ("as_asked", NOW + 4 * HOUR, 0)
    assert option.notes[0] == note_text("within_guarantee")
    strong = requested(plant, lender, an_ask(2, hours=1))
    plant.round()
    assert fresh(strong).planned_starts == NOW + HOUR + GRACE


def test_who_of_the_own_organisation_is_asked_to_leave_is_said(plant: Plant) -> None:
    lab = a_lab("helix", gpus=0, limit=2)
    a_tier("standard", pausable=True)
    a_tier("assured", priority=90)
    with as_system():
        Tier.objects.filter(slug="standard").update(pausable=True, priority=10)
        price = PriceBook.objects.get()
        price_add(book=price, gpu_class_id="h100", tier_id="assured", per_gpu_hour=5)
    requested(plant, lab, an_ask(2, hours=4))
    plant.round()
    plant.later(HOUR)
    with tenant_tx(lab.tenant_id):
        request = a_booking_request(lab.project, an_ask(2, hours=1), tier="assured")
        option = quote_make(actor=lab.actor, request=request, now=plant.now).options[0]
    assert (option.starts, option.pauses) == (NOW + HOUR + GRACE, 1)
    assert option.notes[0] == ("1 running booking of your organisation in a lower tier will be paused")


def test_who_borrows_is_not_offered_the_room_of_others(plant: Plant, labs: tuple[Lab, Lab]) -> None:
    _, borrower = labs
    option = quoted(borrower, an_ask(2, hours=1), plant.now).options[0]
    assert (option.starts, option.pauses) == (NOW + 4 * HOUR, 0)


def test_who_asks_for_several_gpus_hears_that_a_pause_will_not_suspend_them(
    plant: Plant, labs: tuple[Lab, Lab]
) -> None:
    lender, _ = labs
    with as_system():
        Tier.objects.update(pause_method="suspend")
    said = "stopped, not suspended, if it is paused: programs that work together on several GPUs"
    for count, is_said in ((2, True), (1, False)):
        option = quoted(lender, an_ask(count, hours=1), plant.now).options[0]
        assert any(note.startswith(said) for note in option.notes) == is_said
