"""The time between two bookings of a device: what is measured, announced and shown."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.test import Client

from allocation.features.turn_round.services import (
    LEAST_CHANGES,
    delays_forget,
    start_delays,
    turn_rounds,
)
from tests.api.builders import Site, said
from tests.builders_allocation import HOUR, NOW, a_booking, a_lab, an_allocation
from tests.features.turn_round.builders import a_run, runs
from tests.roles import as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing is remembered of other tests, and by none."""
    delays_forget()
    yield
    delays_forget()


def test_a_change_is_clearing_and_preparing_and_not_the_time_in_which_nobody_waited() -> None:
    lab = a_lab("helix")
    gpu = runs(lab, 4, clearing=100, preparing=20)
    a_run(lab, gpu, NOW - 25 * MINUTE, clearing=0, preparing=500, pauses=1)
    with as_system():
        (row,) = turn_rounds(NOW)[gpu.node_id]
    assert (row.kind, row.changes) == ("whole", 3)
    assert (row.clearing_p50, row.preparing_p50, row.total_p50, row.total_p90) == (100, 20, 120, 120)
    assert not row.announced, "three changes say too little"


@pytest.mark.parametrize(("took", "minutes"), [(20, 0), (60, 0), (61, 2), (170, 3), (7200, 15)])
def test_what_is_announced_is_nothing_up_to_a_minute_and_whole_minutes_up_to_a_bound(
    took: float, minutes: int
) -> None:
    lab = a_lab("helix")
    gpu = runs(lab, LEAST_CHANGES + 1, clearing=0, preparing=took)
    with as_system():
        (row,) = turn_rounds(NOW)[gpu.node_id]
    assert row.announced == minutes * MINUTE


def test_only_starts_right_after_another_booking_of_their_gpus_are_late() -> None:
    lab = a_lab("helix")
    gpu = runs(lab, LEAST_CHANGES + 1, clearing=150, preparing=25)
    an_allocation(
        a_booking(lab.project, lab.actor.user_id, state="active"),
        gpu,
        starts=NOW,
        ends=NOW + HOUR,
        state="active",
    )
    with as_system():
        starts = [({gpu.id}, NOW + HOUR + late * MINUTE) for late in (-1, 0, 1, 3, 60)]
        found = start_delays(starts, NOW)
        assert found == [each for start in starts for each in start_delays([start], NOW)]
        assert start_delays([((), NOW + HOUR)], NOW) == [timedelta()]
    assert found == [each * MINUTE for each in (0, 3, 2, 0, 0)]


def test_operators_see_it_on_the_node_and_over_rest_and_nobody_else(site: Site, client: Client) -> None:
    lab = a_lab("rival", gpus=0)
    gpu = runs(lab, LEAST_CHANGES + 1, clearing=150, preparing=25, until=NOW)
    found = said(site.operator.get("turn-rounds"))["items"]
    (row,) = [each for each in found if each["node"] == gpu.node.name]
    assert (row["kind"], row["changes"], row["announced_seconds"]) == ("whole", LEAST_CHANGES, 180)
    assert said(site.operator.get("turn-rounds?node=nowhere"))["items"] == []
    for other in (site.admin, site.outsider):
        assert other.get("turn-rounds").status_code == 403
    client.force_login(site.people["operator"])
    page = flat(client.get(f"/ops/fleet/{gpu.node.name}").content.decode())
    assert "Time between two bookings" in page
    assert "announced up to 3 min later" in page
    client.force_login(site.people["admin"])
    assert "Time between two bookings" not in flat(
        client.get(f"/t/helix/fleet/{gpu.node.name}").content.decode()
    )
