"""One message of Jira stops no other: production roles, ladders, and messages that fail."""

from collections.abc import Iterator
from datetime import datetime
from ipaddress import ip_network
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from allocation.features.jira import process
from allocation.features.jira.models import JiraConnection, JiraMessage
from allocation.models import Booking
from allocation.services.bookings.creation import booking_create
from allocation.services.bookings.requests import BookingRequest
from billing.services import Rung, ladder_set
from tenants.access import Actor
from tenants.platform.wall import tenant_tx
from tests.api.builders import said
from tests.jira.connected import (
    Connected,
    processed,
)
from tests.jira.stub import a_jira
from tests.roles import as_system

pytestmark = pytest.mark.turn


@pytest.fixture
def cloud(db: None, settings: Settings) -> Iterator[Connected]:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    with a_jira() as jira:
        yield Connected(jira)


@pytest.mark.parametrize("action", ["no_bookings", "approval"])
def test_an_issue_books_where_a_ladder_decides_about_new_bookings(cloud: Connected, action: str) -> None:
    rungs = [Rung("committed", 50, action)]
    with tenant_tx(cloud.admin.tenant_id):
        ladder_set(actor_id=None, budget=cloud.site.budget, rungs=rungs, now=timezone.now())
    # The first issue takes more than half of the budget: the rung decides about the next one.
    cloud.issue("GPU-7", customfield_10050="1 h100 for 150h")
    cloud.issue("GPU-8")
    assert processed() == 2
    first, second = cloud.answers()
    assert (first[0], second[0]) == ("done", "refused" if action == "no_bookings" else "done")
    states = [booking.state for booking in cloud.bookings()]
    assert states == ["requested", "awaiting_approval"][: 1 + (action == "approval")], second


def test_a_message_that_fails_stops_no_other_and_is_shown(
    cloud: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those of its own organisation either."""
    for key in ("GPU-7", "GPU-8", "GPU-9"):
        cloud.issue(key)

    def broken(actor: Actor, request: BookingRequest, now: datetime, key: UUID) -> Booking:
        if request.external_ref.endswith("GPU-8"):
            with connection.cursor() as cursor:
                cursor.execute("SELECT no_such_function()")
        return booking_create(actor, request, now, key)

    monkeypatch.setattr(process, "booking_create", broken)
    assert processed() == 3
    assert [answer.partition(" ")[0] for _, answer in cloud.answers()] == [
        "Requested",
        "The",
        "Requested",
    ]
    (failed,) = said(cloud.site.operator.get("failed-messages"))["items"]
    assert (failed["queue"], failed["tenant"], failed["tries"]) == ("jira", "helix", 1)
    assert failed["error"].startswith("ProgrammingError: function no_such_function()")
    assert Client().get("/statusz").json()["failed_messages"] == 1
    ready = Client().get("/readyz")
    assert (ready.status_code, ready.json()["status"], ready.json()["messages"]) == (
        200,
        "degraded",
        "1 failed",
    )
    # It waits for its next try; an operator can make that now.
    assert processed() == 0
    monkeypatch.undo()
    address = f"failed-messages/{failed['id']}"
    assert cloud.site.admin.post(f"{address}/retry").status_code == 403
    assert cloud.site.operator.post(f"{address}/retry").status_code == 200
    assert processed() == 1
    assert said(cloud.site.operator.get("failed-messages"))["items"] == []
    assert len(cloud.bookings()) == 3
    assert Client().get("/readyz").json()["status"] == "ok"


def test_many_messages_of_one_organisation_wait_behind_the_first_of_another(
    cloud: Connected,
) -> None:
    for number in range(process.BATCH + 5):
        cloud.issue(f"OTHER-{number}")
    with as_system():
        other = cloud.site.other_project.tenant_id
        row = JiraMessage.objects.latest("id")
        connection_of_other = JiraConnection.objects.get()
        mine = connection_of_other.receiver
        mine.pk, mine.tenant_id = uuid4(), other
        mine.save(force_insert=True)
        connection_of_other.pk, connection_of_other.tenant_id = uuid4(), other
        connection_of_other.receiver = mine
        connection_of_other.save(force_insert=True)
        row.pk, row.tenant_id, row.connection = None, other, connection_of_other
        row.save(force_insert=True)
    assert processed() == process.BATCH
    with as_system():
        states = JiraMessage.objects.filter(tenant_id=other).values_list("state", flat=True)
        assert list(states) == ["ignored"]
