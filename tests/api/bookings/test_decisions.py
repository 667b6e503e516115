"""Booking with the real decision-maker at work while the request waits."""

from datetime import timedelta

import pytest
from django.http import HttpResponse
from django.utils import timezone

from allocation.services.decide.cycle import cycle_run
from tests.api.builders import Site, a_site, awaited, said
from tests.roles import as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.races


@pytest.fixture
def deciding_site(real_db: Servers) -> Site:
    """A site, and Valkey for what is said after a commit."""
    real_db.valkey_ensure()
    return a_site()


def decided(response: HttpResponse) -> HttpResponse:
    """The answer to a request that waits, after a turn of the solver."""
    with as_system():
        cycle_run(timezone.now())
    return awaited(response, is_due=False)


@pytest.mark.turn
def test_one_gpu_for_ten_minutes_is_placed_while_the_request_waits(deciding_site: Site) -> None:
    response = decided(
        deciding_site.researcher.post(
            "bookings", {"project": "folding", "request": "1 h100 for 10m"}, prefer="wait=5"
        )
    )
    booking = said(response)
    assert response.status_code == 201, booking
    assert booking["state"] in ("scheduled", "starting")
    assert booking["waiting"] is None
    assert len(booking["allocations"]) == 1
    assert booking["allocations"][0]["node"] == "gpu-a1-01"
    assert booking["decision_id"] is not None
    assert booking["price"]["held"] == "0.800000"


@pytest.mark.turn
def test_a_fixed_window_that_is_taken_is_a_409_with_what_would_work(deciding_site: Site) -> None:
    starts = (timezone.now() + timedelta(hours=2)).replace(microsecond=0).isoformat()
    ask = {"count": 4, "classes": ["h100"], "duration": "PT1H", "starts": starts}
    first = decided(
        deciding_site.researcher.post("bookings", {"project": "folding", "ask": ask}, prefer="wait=5")
    )
    assert said(first)["state"] == "scheduled"
    second = decided(
        deciding_site.lead.post(
            "bookings", {"project": "folding", "ask": {**ask, "count": 1}}, prefer="wait=5"
        )
    )
    problem = said(second)
    assert second.status_code == 409, problem
    assert problem["rule"].startswith("R")
    assert problem["detail"]
    assert problem["decision_id"] is not None
    assert problem["alternatives"], problem
    budget = said(deciding_site.lead.get("budgets"))["items"][0]
    assert budget["held"] == said(first)["price"]["held"], "the refused one holds nothing"
