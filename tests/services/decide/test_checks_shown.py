"""What REST and a booking's page say of its six checks is true, and the same."""

from dataclasses import dataclass
from datetime import UTC
from typing import Any

from allocation.api.bookings.why import why
from allocation.models import Booking
from allocation.services.quotes.start_checks import CHECKS
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.summary import BookingSummary, booking_summary
from tenants.models import Quota
from tenants.platform.wall import tenant_tx
from tests.builders import UNITS_PER_GPU
from tests.builders_allocation import a_lab, an_ask
from tests.roles import as_system
from tests.services.paused import requested
from tests.services.plant import Plant


@dataclass(frozen=True, slots=True)
class Shown:
    """The checks of REST and of the page, by their name there."""

    rest: dict[str, dict[str, Any]]
    page: BookingSummary

    def sentence(self, name: str) -> str:
        """What the page says of a check."""
        (found,) = [each for each in self.page.checks if each.name == CHECKS[name]]
        return " ".join(found.sentences)

    def passed(self, name: str) -> bool | None:
        """What both say of a check."""
        (found,) = [each for each in self.page.checks if each.name == CHECKS[name]]
        passed = self.rest[name]["passed"]
        assert (found.blocks, found.is_open) == (passed is False, passed is None)
        return bool(passed) if passed is not None else None


def shown(plant: Plant, booking: Booking) -> Shown:
    with tenant_tx(booking.tenant_id):
        row = Booking.objects.get(id=booking.id)
        checks = {each["check"]: each for each in why(row, plant.now)["checks"]}
        ctx = PageContext(plant.now, UTC, "/", {"h100": "H100 80 GB"})
        return Shown(checks, booking_summary(row, ctx, may_change=True))


def test_a_booking_that_a_cut_quota_ends_does_not_say_that_gpus_are_free(plant: Plant) -> None:
    lab = a_lab("lab", gpus=0, limit=2)
    requested(plant, lab, an_ask(2, hours=6))
    plant.round()
    waits = requested(plant, lab, an_ask(2, hours=6))
    plant.round()
    assert shown(plant, waits).passed("together") is False
    with as_system():
        Quota.objects.filter(tenant=lab.tenant).update(guaranteed_units=UNITS_PER_GPU, borrow_limit_units=0)
    plant.round()
    over = shown(plant, waits)
    assert over.page.headline == "Expired: a limit does not allow it"
    assert [over.passed(name) for name in ("quota", "together", "line")] == [False, None, None]
    assert over.sentence("together") == "No start could be planned, so this was not checked."
    assert over.sentence("policy") == "Not the reason."


def test_a_booking_that_only_a_limit_delays_says_from_when_it_has_gpus(plant: Plant) -> None:
    """The plan has GPUs for it later; it says nothing of GPUs that are free now."""
    lab = a_lab("lab", gpus=0, limit=1)
    requested(plant, lab, an_ask(1, hours=6))
    plant.round()
    waits = requested(plant, lab, an_ask(1, hours=1))
    plant.round()
    found = shown(plant, waits)
    assert (found.passed("quota"), found.passed("together")) == (False, True)
    assert found.sentence("together") == (
        "Enough GPUs are planned for it together from its start, today 16:00."
    )
