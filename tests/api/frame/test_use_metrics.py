"""Metrics of use, of waits and of how fast budgets are spent."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.utils import timezone

from allocation.models import Booking, Gpu
from allocation.queries.fleet.metrics import burn, metrics_of
from allocation.rules.states import State
from billing.queries import BudgetFigures, running_budgets
from tenants.platform.wall import operator_tx
from tests.agent.report.test_metrics import parsed
from tests.api.builders import Site
from tests.builders_allocation import a_booking, an_allocation
from tests.roles import as_owner
from wire.exposition import exposition

HOUR = timedelta(hours=1)


def figures(spent: str, amount: str = "1000") -> BudgetFigures:
    """A budget of ten days in November."""
    return BudgetFigures(
        budget_id=uuid4(),
        level="project",
        project_id=None,
        amount=Decimal(amount),
        spent=Decimal(spent),
        held=Decimal(0),
        warn_percent=80,
        starts=date(2026, 11, 1),
        ends=date(2026, 11, 11),
        left=Decimal(amount) - Decimal(spent),
        currency="EUR",
    )


def test_a_burn_above_one_ends_a_budget_before_its_period() -> None:
    """After five of ten days half of the money is on time, and all of it twice as fast."""
    half = datetime(2026, 11, 6, tzinfo=UTC)
    assert burn(figures("500"), half) == pytest.approx(1)
    assert burn(figures("1000"), half) == pytest.approx(2)
    assert burn(figures("0"), half) == 0
    assert burn(figures("500"), half - 5 * timedelta(days=1) + HOUR) is None
    assert burn(figures("0", "0"), half) is None


@pytest.mark.django_db
def test_use_the_oldest_wait_and_budgets_are_said_without_a_name(site: Site) -> None:
    """A slice of half a GPU runs, one booking could start an hour ago and another only tomorrow."""
    now = timezone.now()
    person = site.people["researcher"].pk
    gpu = Gpu.objects.order_by("number")[0]
    running = a_booking(site.project, person, state=State.ACTIVE, starts=now - HOUR, now=now)
    an_allocation(running, gpu, profile="3g.40gb", starts=now - HOUR, ends=now + HOUR, state="active")
    for not_before in (now - HOUR, now + 24 * HOUR):
        booking = a_booking(site.project, person, state=State.QUEUED, starts=now, now=now)
        with as_owner():
            Booking.objects.filter(id=booking.id).update(
                submitted=now - 5 * HOUR, not_before=not_before, starts=None
            )
    with operator_tx():
        found = parsed(exposition(metrics_of(now)))
        budgets = running_budgets(now)
    used = found["gpu_portal_gpus_in_use", (("class", str(gpu.gpu_class_id)),)]
    assert 0 < used < 1
    assert found["gpu_portal_queue_age_seconds", ()] == pytest.approx(3600, abs=1)
    assert found["gpu_portal_waiting_list_age_seconds", ()] == 0
    counts = [found["gpu_portal_budgets", (("used", n),)] for n in ("all", "over_80", "over_50", "under_50")]
    assert sum(counts) == len(budgets) > 0
