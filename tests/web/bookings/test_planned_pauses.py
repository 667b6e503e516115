"""A pause that is planned for a waiting booking, on the page of the booking that runs and on lists."""

import re
from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Booking
from allocation.rules.states import State
from tenants.models import Membership
from tests.builders import a_member, a_project, a_tenant, an_operator
from tests.roles import as_system
from tests.web.flat import flat
from tests.web.fleet_builders import a_booking, a_node, a_place

pytestmark = pytest.mark.django_db


def _client(member: Membership) -> Client:
    client = Client()
    client.force_login(member.user)
    return client


def _url(booking: Booking) -> str:
    return f"/t/{booking.tenant.slug}/bookings/{booking.label}"


def _change(booking: Booking, **values: object) -> Booking:
    with as_system():
        Booking.objects.filter(id=booking.id).update(**values)
        return Booking.objects.select_related("tenant", "project").get(id=booking.id)


def _planned_over(member: Membership, gpu: str, starts_in: timedelta, now: datetime) -> Booking:
    """A waiting booking that is planned on the GPU."""
    waits = a_booking(member, now=now, state=State.QUEUED, name="waits", starts_in=starts_in)
    return _change(waits, planned_places=[{"gpu": gpu, "profile": None, "start": 0, "size": 8}])


@pytest.mark.turn
def test_a_planned_pause_is_said_on_the_booking_and_on_all_lists_of_it() -> None:
    now, member = timezone.now(), a_member(a_project())
    (gpu,) = a_node(now=now, gpus=1).gpus.all()
    runs = _change(a_booking(member, now=now, tier="spot", name="runs"), starts=None)
    a_place(runs, gpu)
    base, client = f"/t/{member.tenant.slug}", _client(member)
    assert "Running until" in flat(client.get(_url(runs)).content.decode())
    waits = _planned_over(member, str(gpu.id), timedelta(hours=2), now)
    page = flat(client.get(_url(runs)).content.decode())
    assert re.search(r'<h1 class="headline">Pauses about (today|tomorrow) [0-9:]+</h1>', page)
    assert f">{waits.label}</a>needs its GPUs then. The last 3 h run as soon as GPUs are free again" in page
    for path in ("/", "/bookings"):
        page = flat(client.get(f"{base}{path}").content.decode())
        assert "Pauses about" in page, path
        assert "Running until" not in page, path
    assert "pauses about" in flat(client.get(f"{base}/p/{runs.project.slug}").content.decode())


def test_a_booking_of_another_project_that_needs_the_gpus_has_no_number() -> None:
    now, member = timezone.now(), a_member(a_project())
    (gpu,) = a_node(now=now, gpus=1).gpus.all()
    runs = a_booking(member, now=now, tier="spot")
    a_place(runs, gpu)
    hidden = a_member(a_project(member.tenant))
    waits = _planned_over(hidden, str(gpu.id), timedelta(hours=2), now)
    page = flat(_client(member).get(_url(runs)).content.decode())
    assert "A higher-priority booking needs its GPUs then. It resumes if GPUs are free before" in page
    assert waits.label not in page


def test_operators_read_the_planned_pause_and_whose_booking_needs_the_gpus() -> None:
    now, member, other = timezone.now(), a_member(a_project()), a_member(a_project(a_tenant()))
    (gpu,) = a_node(now=now, gpus=1).gpus.all()
    runs = a_booking(member, now=now, tier="spot")
    a_place(runs, gpu)
    waits = _planned_over(other, str(gpu.id), timedelta(hours=2), now)
    client = Client()
    client.force_login(an_operator())
    page = flat(client.get(f"/ops/bookings/{runs.id}").content.decode())
    assert re.search(r'<h1 class="headline">Pauses about (today|tomorrow) [0-9:]+</h1>', page)
    assert f"{waits.label} needs its GPUs then" in page
