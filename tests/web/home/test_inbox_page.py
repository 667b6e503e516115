"""The inbox: what is urgent comes first, and entries of one type on a day are one line."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from tenants.models import Membership, Notification
from tests.builders import a_member, a_project
from tests.roles import as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db


def entry(member: Membership, number: int, name: str, kind: str, ends: str) -> Notification:
    return Notification(
        tenant=member.tenant,
        user=member.user,
        message=number,
        kind=kind,
        title=f"{name} {ends}",
        path="bookings/BK-1",
        at=timezone.now() - timedelta(seconds=100 - number),
    )


def test_starts_of_a_day_are_one_line_below_a_pause() -> None:
    member = a_member(a_project())
    starts = [
        entry(member, number, f"run-{number}", "booking.started", "has started") for number in range(1, 6)
    ]
    pause = entry(member, 0, "fold", "booking.pause_noticed", "is to be paused")
    alone = entry(member, 7, "other", "booking.delayed", "starts later than planned")
    with as_system():
        Notification.objects.bulk_create([*starts, pause, alone])
    client = Client()
    client.force_login(member.user)
    page = flat(client.get(f"/t/{member.tenant.slug}/notifications").content.decode())
    assert "<b>Starts (5)</b>" in page
    assert "run-5, run-4, run-3, run-2 and 1 more" in page
    assert "5 unread" in page
    urgent, single, group = (
        page.index(each) for each in ("fold is to be paused", "other starts later", "Starts (5)")
    )
    assert urgent < single < group
