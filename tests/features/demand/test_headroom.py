"""Headroom: which hours are peaks, what a turn of the solver makes of them, and what is counted."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.demand.headroom import headroom_peaks, headroom_store, is_peak_hour
from allocation.features.demand.models import DemandForecast, DemandHour, HeadroomHour
from allocation.models import Booking, Gpu
from allocation.rules.states import State
from allocation.services.policy.policies import policy_check
from allocation.services.snapshot.published import published_snapshot
from allocation.services.snapshot.snapshot import snapshot_read
from solver import Policy
from tenants.platform.wall import tenant_tx
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking, a_policy, an_allocation
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
AHEAD = 336


def now_hour() -> datetime:
    """The present hour's begin."""
    return timezone.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def forecast(at: datetime, asked: dict[int, float], wanted: float) -> str:
    """A forecast in which so many GPUs may be asked for in these hours and none in others."""
    name = str(Gpu.objects.order_by("number")[0].gpu_class_id)
    zero = [0.0] * AHEAD
    high = {
        "requested": [asked.get(number, 0.0) for number in range(AHEAD)],
        "wanted": [wanted] * AHEAD,
        "in_use": zero,
    }
    with as_system():
        for kind, bounds in high.items():
            DemandForecast.objects.create(
                gpu_class_id=name, kind=kind, at=at, low=zero, middle=zero, high=bounds, hits={}
            )
    return name


def test_an_hour_is_a_peak_if_so_many_may_be_asked_for_and_fewer_are_free() -> None:
    """Of eight GPUs two are kept."""
    found = [
        is_peak_hour(asked, wanted, 8, 2) for asked, wanted in ((2, 6.5), (5, 30), (1.9, 30), (2, 6), (0, 0))
    ]
    assert found == [True, True, False, False, False]
    assert not is_peak_hour(9, 30, 8, 0)


def test_peaks_are_joined_and_end_with_the_forecast_of_a_week(site: Site) -> None:
    """Hours 2, 3 and 5 are peaks, and those behind a week are not looked at."""
    at = now_hour()
    name = forecast(at, {0: 3, 2: 3, 3: 4, 5: 2, 300: 9}, 100)
    with as_system():
        found = list(headroom_peaks({name: 2}, at + HOUR))
    hours = [((starts - at) / HOUR, (ends - at) / HOUR) for _, starts, ends in found]
    assert hours == [(2, 4), (5, 6)]


@pytest.mark.turn
def test_a_snapshot_has_peaks_of_the_live_policy_and_a_draft_is_tried_with_its_own(site: Site) -> None:
    at = now_hour()
    name = forecast(at, {3: 3, 4: 3}, 100)
    with as_system():
        assert snapshot_read(at).peaks == ()
        assert policy_check({"headroom": {name: 2}}, at) == 0
    a_policy(headroom={name: 2})
    with as_system():
        (peak,) = snapshot_read(at).peaks
    with tenant_tx(site.tenant.id):
        assert published_snapshot(at, Policy(1)).peaks == (peak,)
    assert (peak.gpu_class, peak.starts, peak.ends) == (
        name,
        int((at + 3 * HOUR).timestamp()),
        int((at + 5 * HOUR).timestamp()),
    )


def ran(site: Site, gpu: Gpu, starts: datetime, ends: datetime, *, asked: datetime | None = None) -> Booking:
    """A run on a GPU; `asked`: when it was requested, to start at once."""
    booking = a_booking(
        site.project, site.people["researcher"].pk, state=State.ENDED, starts=starts, now=starts
    )
    with as_owner():
        Booking.objects.filter(id=booking.id).update(
            submitted=asked or starts - HOUR,
            not_before=asked or starts,
            starts=None if asked else starts,
            duration_seconds=(ends - starts).total_seconds(),
            planned_class=gpu.gpu_class_id,
            ended_at=ends,
        )
    an_allocation(booking, gpu, starts=starts, ends=ends, state="ended")
    return booking


def test_what_headroom_gave_and_cost_is_counted_once_the_hour_is_over(site: Site, client: Client) -> None:
    """All GPUs but three were in use. Of four bookings that wanted to start at once the first took the last
    one that is free for everybody, the next two were served from headroom, and one was too long."""
    at = now_hour() - HOUR
    name = forecast(at, {0: 3}, 100)
    gpus = list(Gpu.objects.filter(gpu_class=name).order_by("number"))
    for gpu in gpus[:-4]:
        tier = ran(site, gpu, at - 5 * HOUR, at + 5 * HOUR).tier_id
    a_policy(headroom={name: 3}, headroom_for={tier: 1800})
    with as_system():
        headroom_store(at)
        headroom_store(at)
        DemandHour.objects.create(
            gpu_class_id=name, at=at, requested=3, in_use=len(gpus) - 2, wanted=len(gpus) - 1
        )
    for number, minutes in enumerate((20, 20, 20, 40)):
        starts = at + timedelta(minutes=5 + number)
        ran(site, gpus[-4 + number], starts, starts + timedelta(minutes=minutes), asked=starts)
    with as_system():
        headroom_store(at + HOUR)
        row = HeadroomHour.objects.get()
    assert (row.at, row.gpus, row.counted, row.served) == (at, 3, True, 2)
    assert (row.idle, row.waited) == (2.0, 1.0)
    shown = next(e for e in said(site.operator.get("capacity/report"))["items"] if e["gpu_class"] == name)
    assert shown["headroom"] == {"gpus": 3, "hours": 1, "served": 2, "idle": 2.0, "waited": 1.0}
    client.force_login(site.people["operator"])
    page = flat(client.get("/ops/capacity").content.decode())
    assert (
        "1 hour was a peak: 2 bookings started at once on them, and 2.0 GPU-hours of them were idle" in page
    )
