"""Outages, freezes and stops as events: who gets them, and what they say."""

from datetime import timedelta

import pytest

from allocation.services.operate.portal_modes import (
    freeze_begin,
    mode_end,
    outage_begin,
    outage_close,
)
from allocation.services.operate.stops import StopTerms, stop_begin, stop_end
from portal.integrations.relay import outbox_relay
from tenants.models import PublishedEvent
from tests.builders import an_operator
from tests.builders_allocation import NOW, Lab, a_lab
from tests.roles import as_system

pytestmark = pytest.mark.django_db


def test_modes_and_stops_are_events_for_those_whom_they_concern(lab: Lab) -> None:
    neighbour = a_lab("neighbours", gpus=0)
    with as_system():
        otto = an_operator()
        outage_begin(operator=otto, length=timedelta(minutes=20), reason="Upgrade.", now=NOW)
        outage_close(operator=otto, now=NOW)
        outage_close(operator=otto, now=NOW)
        mode_end(kind="outage", operator=otto, now=NOW)
        freeze_begin(operator=otto, reason="Look", now=NOW)
        mode_end(kind="freeze", operator=otto, now=NOW)
        for terms in (
            StopTerms("tenant", lab.tenant.slug, "Unpaid"),
            StopTerms("site", "", "Fire"),
        ):
            stop = stop_begin(operator=otto, terms=terms, now=NOW)
            stop_end(operator=otto, stop_id=stop.id, now=NOW)
        outbox_relay(NOW)
        rows = list(PublishedEvent.objects.order_by("id"))
    everybody = [
        "outage.begun",
        "outage.closed",
        "outage.ended",
        "freeze.begun",
        "freeze.ended",
        "stop.begun",
        "stop.ended",
    ]
    concerned = [*everybody, "stop.begun", "stop.ended"]
    for tenant, wanted in ((None, concerned), (lab.tenant_id, concerned)):
        assert [row.type for row in rows if row.tenant_id == tenant] == wanted
    theirs = [row for row in rows if row.tenant_id == neighbour.tenant_id]
    assert [row.type for row in theirs] == everybody
    # A stop of one organisation is no news for another.
    assert "Unpaid" not in str([row.data for row in theirs])
    first, closed = theirs[0].data, theirs[1].data
    assert first["message"] == "The outage of the portal has begun: Upgrade."
    assert first["outage"]["until"] == (NOW + timedelta(minutes=20)).isoformat()
    assert (first["outage"]["closed_at"], closed["outage"]["closed_at"]) == (None, NOW.isoformat())
    assert theirs[-1].data["stop"] | {"id": ""} == {
        "id": "",
        "scope": "site",
        "name": "",
        "reason": "Fire",
        "since": NOW.isoformat(),
        "until": None,
        "ended_at": NOW.isoformat(),
    }
