"""The sentences of a mail about a time: what was measured, and what was not."""

from datetime import UTC, date, datetime, timedelta

import pytest

from allocation.features.insights.figures import Whose
from allocation.features.insights.summary import summary_sentences
from allocation.models import Booking, Gpu, GpuUse
from allocation.rules.states import State
from billing.rules import Period
from tests.api.builders import Site
from tests.builders_allocation import a_booking, an_allocation
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
OCTOBER = Period(date(2026, 10, 1), date(2026, 11, 1))


def ran(site: Site, starts: datetime, hours: float, gpu: int = 0) -> None:
    """A run that began at once, with one reading of five minutes at 60 %."""
    booking = a_booking(
        site.project, site.people["researcher"].pk, state=State.ENDED, starts=starts, now=starts
    )
    with as_owner():
        Booking.objects.filter(id=booking.id).update(submitted=starts - HOUR, not_before=starts)
    ends = starts + hours * HOUR
    place = an_allocation(
        booking, Gpu.objects.order_by("number")[gpu], starts=starts, ends=ends, state="ended"
    )
    with as_system():
        GpuUse.objects.create(
            gpu_id=place.gpu_id,
            tenant_id=place.tenant_id,
            allocation_id=place.id,
            at=starts,
            seconds=300,
            measured=300,
            busy_avg=60.0,
            processes_max=1,
            energy_mj=360_000_000,
        )


def sentences(site: Site) -> list[str]:
    """What a mail about October says."""
    with as_system():
        return list(summary_sentences(Whose(site.tenant.id), OCTOBER))


def test_a_time_is_compared_with_the_month_before_and_measured_parts_are_said(site: Site) -> None:
    """Half an hour in October against an hour in September, which has a day less."""
    assert sentences(site) == ["No GPU was booked in this time."]
    ran(site, datetime(2026, 9, 1, 0, tzinfo=UTC), 1)
    ran(site, datetime(2026, 10, 31, 23, 30, tzinfo=UTC), 1)
    assert sentences(site) == [
        "GPUs were booked for 0.5 hours, -50 % against the time before.",
        "They were 60 % busy, and idle for 0 % of the measured hours (17 % of all).",
        "They used 0.1 kWh in 0.1 measured GPU-hours.",
        "Half of those that began (1) waited at most 0 min, and 19 of 20 at most 0 min.",
    ]


def test_a_time_without_enough_readings_says_so(site: Site) -> None:
    """Five minutes of a hundred hours say nothing about them."""
    ran(site, datetime(2026, 10, 2, tzinfo=UTC), 100)
    assert sentences(site)[:2] == [
        "GPUs were booked for 100.0 hours.",
        "Too little of their use was measured to say how busy they were.",
    ]
