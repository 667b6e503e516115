"""What each GPU of a gang does, and giving back those that do nothing."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.idle_gpus.services import gpu_states
from allocation.models import Allocation, Booking, Gpu, GpuSample
from allocation.rules.states import State
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking, an_allocation, an_ask
from tests.roles import as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def gang(site: Site) -> Booking:
    """A booking of three GPUs that began an hour ago."""
    now = timezone.now().replace(microsecond=0)
    starts = now - 60 * MINUTE
    booking = a_booking(
        site.project,
        site.people["researcher"].id,
        state=State.ACTIVE,
        starts=starts,
        hours=4,
        ask=an_ask(3, hours=4),
    )
    with as_system():
        gpus = list(Gpu.objects.order_by("number")[:3])
    for gpu in gpus:
        an_allocation(booking, gpu, starts=starts, ends=starts + 240 * MINUTE, state="active")
    return booking


def read(booking: Booking, *use: int | None, minutes: int = 30, until: int = 0) -> None:
    """Readings of each GPU, one a minute for so many minutes until so many minutes ago."""
    now = timezone.now()
    with as_system():
        rows = list(booking.allocations.select_related("gpu").order_by("gpu_number"))
        for row, busy in zip(rows, use, strict=False):
            for number in range(until, minutes):
                GpuSample.objects.create(
                    gpu=row.gpu,
                    tenant_id=row.tenant_id,
                    allocation_id=row.id,
                    at=now - number * MINUTE,
                    utilisation=busy,
                    memory_used_mb=4_000,
                    memory_total_mb=81_000,
                    processes=1,
                )


def idle_of(booking: Booking, now: datetime | None = None) -> list[bool]:
    """Which of its GPUs are idle."""
    with as_system():
        return [each.is_idle for each in gpu_states(booking, now or timezone.now())]


def test_a_gpu_is_idle_if_all_readings_of_ten_minutes_say_so(gang: Booking) -> None:
    assert idle_of(gang) == [False, False, False], "silence is no idleness"
    read(gang, 0, 97, None)
    assert idle_of(gang) == [True, False, False]
    with as_system():
        first, second, third = gpu_states(gang, timezone.now())
    assert first.idle_since is not None
    assert timezone.now() - first.idle_since == pytest.approx(29 * MINUTE, abs=MINUTE)
    assert (first.busy, second.busy, third.busy) == (0, 97, None)
    assert (first.memory_used_mb, first.memory_total_mb, first.processes) == (4_000, 81_000, 1)
    assert idle_of(gang, timezone.now() + 3 * MINUTE) == [False] * 3, "the readings are too old"


@pytest.mark.parametrize(("minutes", "until", "expected"), [(9, 0, True), (6, 0, False), (30, 3, False)])
def test_a_window_with_a_silent_begin_or_end_is_not_idle(
    gang: Booking, minutes: int, until: int, *, expected: bool
) -> None:
    read(gang, 0, minutes=minutes, until=until)
    assert idle_of(gang)[0] is expected


def test_idle_ones_are_given_back_over_rest_and_the_others_run_on(site: Site, gang: Booking) -> None:
    path = f"bookings/{gang.label}/gpus"
    assert said(site.researcher.post(f"{path}/give-back-idle"))["code"] == "none_idle"
    read(gang, 0, 80, 3)
    listed = said(site.viewer.get(path))["items"]
    assert [each["is_idle"] for each in listed] == [True, False, True]
    assert site.viewer.post(f"{path}/give-back-idle").status_code == 403
    for act in (site.outsider.get(path), site.outsider.post(f"{path}/give-back-idle")):
        assert act.status_code == 404
    kept = said(site.researcher.post(f"{path}/give-back-idle"))["gpus"]
    assert [each["name"] for each in kept] == [listed[1]["name"]]
    with as_system():
        assert Booking.objects.get(id=gang.id).ask["count"] == 1
    again = site.researcher.post(f"{path}/give-back-idle")
    assert again.status_code == 409


def test_a_gang_that_is_idle_as_a_whole_is_released_and_not_made_empty(site: Site, gang: Booking) -> None:
    read(gang, 0, 0, 0)
    answer = site.researcher.post(f"bookings/{gang.label}/gpus/give-back-idle")
    assert (answer.status_code, said(answer)["code"]) == (409, "give_back_all")
    with as_system():
        assert Allocation.objects.filter(booking=gang, state="active").count() == 3


def test_a_click_gives_back_one_gpu_after_a_question(site: Site, gang: Booking, client: Client) -> None:
    read(gang, 0, 80, 3)
    address = f"/t/helix/bookings/{gang.label}"

    def page() -> str:
        return flat(client.get(address).content.decode())

    client.force_login(site.people["viewer"])
    assert "Each GPU" in page()
    assert "Give back" not in page()
    client.force_login(site.people["researcher"])
    assert page().count('name="gpu"') == 4, "two single ones, and both at once"
    with as_system():
        name = gpu_states(gang, timezone.now())[2].name
    form: dict[str, Any] = {"gpu": name}
    asked = flat(client.post(f"{address}/gpus", form).content.decode())
    assert f"Programs on {name} are stopped" in asked
    assert client.post(f"{address}/gpus", form | {"sure": "1"}).status_code == 302
    with as_system():
        assert Booking.objects.get(id=gang.id).ask["count"] == 2
    for bad in ({"gpu": "n9/9"}, {}, {"gpu": "\x00"}):
        assert client.post(f"{address}/gpus", bad | {"sure": "1"}).status_code in (409, 422)
    client.force_login(site.people["outsider"])
    assert client.post(f"{address}/gpus", form).status_code == 404
