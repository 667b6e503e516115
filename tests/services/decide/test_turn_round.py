"""Starts right after another booking, as a turn announces them."""

from collections.abc import Iterator
from datetime import UTC, timedelta

import pytest

from allocation.features.turn_round.services import LEAST_CHANGES, delays_forget
from allocation.models import Booking
from allocation.queries.bookings.outcomes import start_shown
from allocation.web.parts.planned_start import waiting_words
from tests.builders_allocation import HOUR, NOW, a_lab, an_ask
from tests.features.turn_round.builders import runs
from tests.roles import as_system
from tests.services.paused import requested, running
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn
MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing is remembered of other tests, and by none."""
    delays_forget()
    yield
    delays_forget()


def test_a_back_to_back_start_is_announced_with_what_its_node_needs(plant: Plant) -> None:
    lab = a_lab("helix", gpus=0)
    runs(lab, LEAST_CHANGES + 1, clearing=150, preparing=25, until=NOW - HOUR)
    first = running(plant, lab, an_ask(2))
    second = requested(plant, lab, an_ask(2))
    plant.round()
    second, ends = fresh(second), fresh(first).planned_ends
    assert ends is not None
    assert (second.planned_starts, second.announced_from) == (ends, ends)
    assert second.planned_strength in ("firm", "guaranteed")
    assert second.announced_until == ends + 3 * MINUTE
    with as_system():
        shown = start_shown(second, plant.now)
    assert shown is not None
    assert shown.latest == ends + 3 * MINUTE
    with as_system():
        Booking.objects.filter(id=second.id).update(planned_strength="firm")
    assert "ready by" in waiting_words(fresh(second), UTC, plant.now)


def test_where_nothing_is_measured_a_start_is_announced_to_the_second(plant: Plant) -> None:
    lab = a_lab("helix", gpus=0)
    first = running(plant, lab, an_ask(2))
    second = requested(plant, lab, an_ask(2))
    plant.round()
    assert fresh(second).announced_until == fresh(first).planned_ends
