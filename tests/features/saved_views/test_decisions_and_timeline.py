"""Filters of decisions, and saved views of decisions and of the timeline."""

import re
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import BookingEvent
from allocation.rules.states import State
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking
from tests.builders_pauses import a_decision
from tests.roles import as_system
from tests.web.flat import flat

DAY = timedelta(days=1)


def made(site: Site, days: int, counts: dict[str, int], *, changes: bool = False) -> int:
    """A decision so many days ago, which may have changed a booking of the organisation."""
    decision = a_decision(timezone.now() - days * DAY, counts)
    if changes:
        booking = a_booking(site.project, site.people["researcher"].id, state=State.QUEUED)
        with as_system():
            BookingEvent.objects.create(
                tenant=site.tenant,
                booking=booking,
                at=timezone.now(),
                kind="queued",
                state="queued",
                sentence="Waits.",
                detail={"decision": decision.id},
            )
    return int(decision.id)


@pytest.fixture
def decisions(site: Site) -> list[int]:
    """A start of an organisation, a pause and a refusal that changed no booking of it, each older."""
    return [
        made(site, 0, {"assigns": 2}, changes=True),
        made(site, 3, {"pauses": 1, "assigns": 0}),
        made(site, 9, {"refusals": 1}),
    ]


def operator_of(site: Site) -> Client:
    client = Client()
    client.force_login(site.people["operator"])
    return client


def shown(client: Client, query: str, decisions: list[int]) -> list[bool]:
    page = flat(client.get(f"/ops/decisions?{query}").content.decode())
    return [f"decision {each}<" in page for each in decisions]


def test_decisions_are_found_by_what_they_did_for_whom_and_when(site: Site, decisions: list[int]) -> None:
    client, day = operator_of(site), timezone.localdate(timezone=ZoneInfo("Europe/Berlin"))
    cases = {
        "": [True, True, True],
        "did=assigns": [True, False, False],
        "did=pauses": [False, True, False],
        "did=nonsense": [True, True, True],
        "tenant=helix": [True, False, False],
        "tenant=helix&did=assigns": [True, False, False],
        "tenant=northlab": [False, False, False],
        "tenant=helix&did=pauses": [False, False, False],
        f"since={day - 4 * DAY}": [True, True, False],
        f"until={day - 4 * DAY}": [False, False, True],
        f"until={day}&since={day}": [True, False, False],
        "since=x&until=9999-12-31": [True, True, True],
    }
    assert {query: shown(client, query, decisions) for query in cases} == cases
    assert "No decisions match this filter" in flat(client.get("/ops/decisions?tenant=x").content.decode())


def test_older_decisions_are_a_page_further_with_the_same_filter(
    site: Site, decisions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allocation.web.decisions.ops_decisions.DECISIONS_SHOWN", 1)
    client, newest = operator_of(site), max(decisions)
    older = f'href="/ops/decisions?did=&amp;before={newest}"'
    assert older in client.get("/ops/decisions?did=").content.decode()
    page = client.get(f"/ops/decisions?before={newest}").content.decode()
    assert f"decision {newest}<" not in flat(page)
    assert 'href="/ops/decisions?"' in page
    last = client.get(f"/ops/decisions?before={sorted(decisions)[1]}").content.decode()
    assert 'rel="next"' not in last
    for query in ("before=x", "before=-1", f"before={2**64}"):
        assert f"decision {newest}<" in flat(client.get(f"/ops/decisions?{query}").content.decode()), query


def test_operators_read_the_same_over_rest_by_pages(site: Site, decisions: list[int]) -> None:
    def ids(**query: str) -> list[int]:
        return [each["id"] for each in said(site.operator.get("platform/decisions", **query))["items"]]

    newest, middle, oldest = decisions
    assert ids() == [oldest, middle, newest]
    assert (ids(did="pauses"), ids(tenant="helix"), ids(tenant="northlab")) == ([middle], [newest], [])
    assert ids(since=(timezone.now() - DAY).isoformat()) == [newest]
    assert ids(until=(timezone.now() - 4 * DAY).isoformat()) == [oldest]
    first = said(site.operator.get("platform/decisions", limit="2"))
    assert ids(cursor=first["next"], limit="2") == [newest]
    assert first["items"][0]["counts"] == {"refusals": 1}
    for wrong in ({"did": "x"}, {"since": "monday"}, {"who": "x"}):
        assert site.operator.get("platform/decisions", **wrong).status_code in (400, 422), wrong
    assert site.admin.get("platform/decisions").status_code == 403


def test_views_of_decisions_and_of_the_timeline_are_saved_and_offered(site: Site) -> None:
    client = operator_of(site)
    for of_list, query in (("decisions", "did=pauses&tenant=helix"), ("timeline", "tenant=helix&class=h100")):
        form = {"act": "save", "list": of_list, "name": f"View of {of_list}", "query": query}
        assert client.post("/ops/views", form).status_code == 302
        assert f"View of {of_list}" in flat(client.get(f"/ops/{of_list}").content.decode())
    mine = {"list": "timeline", "name": "Night", "query": "span=3d&class=h100&open=n1&view=list"}
    assert said(site.researcher.put("views", mine))["query"] == "span=3d&class=h100&view=list&open=n1"
    reader = Client()
    reader.force_login(site.people["researcher"])
    page = flat(reader.get("/t/helix/timeline?span=3d&class=h100&view=list&open=n1").content.decode())
    assert 'aria-label="View: Night"' in page
    # A view has no fixed time, and members have no list of decisions.
    for wrong in (mine | {"query": "from=2026-01-01"}, mine | {"list": "decisions", "query": "did=pauses"}):
        assert site.researcher.put("views", wrong).status_code in (404, 422), wrong


def test_a_row_names_the_booking_that_changed_and_what_became_of_it(site: Site, decisions: list[int]) -> None:
    page = flat(operator_of(site).get("/ops/decisions").content.decode())
    assert re.search(r'href="/ops/bookings/[-0-9a-f]{36}">[^<]+</a>Waits\.', page), page
