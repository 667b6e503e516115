"""How hard a booking works, on its page: what was measured, and nothing that was not."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Allocation, Booking, GpuSample
from allocation.queries.fleet.telemetry import UseCurve, UsePoint
from allocation.web.parts.use_chart import use_chart, use_words
from tests.builders import a_member, a_project, a_tenant, an_operator
from tests.roles import as_owner, as_system
from tests.web.fleet_builders import a_booking, a_node, a_place, measured

NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def a_curve(*values: float | None) -> UseCurve:
    points = tuple(
        UsePoint(
            NOW + MINUTE * n,
            0 if busy is None else 60,
            None if busy is None else round(busy) - 5,
            busy,
            None if busy is None else round(busy) + 5,
            *[None] * 10,
        )
        for n, busy in enumerate(values)
    )
    return UseCurve(NOW, NOW + MINUTE * len(values), MINUTE, 1, points)


def test_a_gap_breaks_the_line_and_is_not_drawn_as_zero() -> None:
    chart = use_chart(a_curve(50, 50, None, None, 50, 50), UTC, NOW)
    assert len(chart.lines) == len(chart.bands) == 2
    assert "158.0" not in "".join(chart.lines)
    assert "measured 67 % of the time" in chart.text


def test_nothing_measured_is_said_and_not_called_idle() -> None:
    assert use_words(a_curve(None, None)) == "Utilisation was not measured."
    assert use_chart(a_curve(None, None), UTC, NOW).facts == ()


def test_words_say_least_mean_and_most() -> None:
    assert use_words(a_curve(20, 40, 60)) == "15 to 65 % busy, 40 % on average."


@pytest.fixture
def running() -> tuple[Booking, Allocation]:
    member, now = a_member(a_project()), timezone.now()
    booking = a_booking(member, now=now)
    place = a_place(booking, a_node(now=now).gpus.all()[0])
    with as_system():
        Booking.objects.update(ready_at=now - timedelta(hours=1))
    return booking, place


def page(booking: Booking, query: str = "") -> str:
    client = Client()
    client.force_login(booking.owner)
    answer = client.get(f"/t/{booking.tenant.slug}/bookings/{booking.label}{query}")
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.turn
@pytest.mark.django_db
def test_the_page_of_a_running_booking_shows_its_use_and_looks_again(
    running: tuple[Booking, Allocation],
) -> None:
    booking, place = running
    measured(place, [70] * 30, now=timezone.now())
    for query in ("", "?part=use", "?part=body&use=hour", "?use=nonsense"):
        text = page(booking, query)
        assert "70 % on average" in text
        assert 'data-live-every="10"' in text
        assert "410 W" in text


@pytest.mark.django_db
def test_a_booking_that_nobody_measured_is_not_called_idle(
    running: tuple[Booking, Allocation],
) -> None:
    booking, place = running
    measured(place, [None] * 3, now=timezone.now())
    text = page(booking)
    assert "Unmeasured GPUs" in text
    assert "0 %" not in text.partition('id="use"')[2].partition("</section>")[0]


@pytest.mark.django_db
def test_a_booking_that_never_ran_has_no_chart() -> None:
    booking = a_booking(a_member(a_project()), now=timezone.now(), state="queued")
    assert 'id="use"' not in page(booking)


@pytest.mark.django_db
def test_use_under_another_tenants_allocation_is_not_in_the_chart(
    running: tuple[Booking, Allocation],
) -> None:
    booking, place = running
    now = timezone.now()
    other = a_booking(a_member(a_project(a_tenant())), now=now)
    with as_system():
        GpuSample.objects.create(
            gpu=place.gpu,
            tenant=other.tenant,
            allocation_id=place.id,
            at=now - MINUTE,
            utilisation=99,
        )
    assert "99 %" not in page(booking)


@pytest.mark.turn
@pytest.mark.django_db
def test_the_page_says_what_holds_the_work_up(running: tuple[Booking, Allocation]) -> None:
    booking, place = running
    now = timezone.now()
    measured(place, [0] * 360, now=now, step=timedelta(seconds=10))
    assert "Idle: never more than 0 % busy" in page(booking)
    with as_owner():
        GpuSample.objects.update(utilisation=60, bandwidth=90, tensor=5, sm=48)
    text = page(booking)
    assert re.search(r"SMs active</dt>\s*<dd>\s*48 %", text)
    text = text.partition('class="signature')[2]
    assert "Limited by memory bandwidth: 90 %" in text[:200]


@pytest.mark.django_db
def test_an_operator_sees_one_device_over_the_time_that_is_kept(
    running: tuple[Booking, Allocation],
) -> None:
    booking, place = running
    measured(place, [70] * 30, now=timezone.now())
    url = f"/ops/fleet/gpu-a1-01/{place.gpu.index}"
    operator, member = Client(), Client()
    operator.force_login(an_operator())
    member.force_login(booking.owner)
    for query in ("", "?use=hour", "?use=all&part=use", "?use=nonsense"):
        assert "70 % on average" in operator.get(url + query).content.decode()
    assert operator.get("/ops/fleet/gpu-a1-01/99").status_code == 404
    assert member.get(url).status_code == 404
    assert url in operator.get("/ops/fleet/gpu-a1-01").content.decode()
