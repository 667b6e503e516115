"""Notebooks over REST and on the page of a booking; what nodes get and say; who is let in."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

import wire
from allocation.features.notebooks import entries
from allocation.features.notebooks.models import Notebook, NotebookEntry
from allocation.features.notebooks.services import message_keep, orders_of, orders_turn
from allocation.models import Allocation, Booking, Gpu, Node
from allocation.rules.states import State
from tenants.models import Scope, Session
from tenants.platform.wall import tenant_tx
from tenants.services import TokenLimits, token_create
from tests.api.builders import Api, Site, said
from tests.builders_allocation import a_booking, an_allocation
from tests.roles import as_owner, as_system
from tests.web.flat import flat

SESSION = b"s" * 32
KEY = "ab" * 32


@pytest.fixture(autouse=True)
def _on(settings: Settings) -> None:
    settings.NOTEBOOK_URL = "http://notebook.localhost:8010"


@pytest.fixture
def running(site: Site) -> Booking:
    """A booking of the researcher that runs on a node with two programs."""
    now = timezone.now()
    with as_system():
        booking = a_booking(site.project, site.people["researcher"].id, state=State.ACTIVE, starts=now)
        Booking.objects.filter(id=booking.id).update(ready_at=now)
        booking.refresh_from_db()
        an_allocation(booking, Gpu.objects.all()[0], starts=now, state=Allocation.State.ACTIVE)
    node_says(1, ("lab", "code"))
    return booking


def refused(response: HttpResponse, status: int) -> str:
    """The code of a refusal."""
    assert response.status_code == status, response.content
    return str(json.loads(response.content)["code"])


def node() -> Node:
    with as_system():
        return Node.objects.get()


def node_says(seq: int, programs: tuple[str, ...] = ("lab",), *notebooks: wire.ReportedNotebook) -> bool:
    with as_system():
        message = wire.Notebooks(seq=seq, programs=programs, notebooks=notebooks)
        return message_keep(node(), message, timezone.now())


def reported(row: Notebook, state: wire.NotebookState = "ready", error: str = "") -> wire.ReportedNotebook:
    return wire.ReportedNotebook(id=row.id.hex, state=state, key=KEY, error=error)


def turned() -> tuple[wire.DesiredNotebook, ...]:
    """What stands in the document of the node, after a turn."""
    with as_system():
        orders_turn(timezone.now())
        return orders_of([node().id]).get(node().id, ())


def the_row() -> Notebook:
    with as_system():
        return Notebook.objects.select_related("booking").get(ended_at=None)


def a_ready_one(site: Site, booking: Booking) -> Notebook:
    answer = site.researcher.post(at(booking), {})
    assert answer.status_code == 200, answer.content
    turned()
    assert node_says(2, ("lab",), reported(the_row()))
    return the_row()


def at(booking: Booking) -> str:
    return f"bookings/{booking.label}/notebook"


def test_it_is_asked_for_ordered_ready_and_ended(site: Site, running: Booking) -> None:
    before = node().generation
    asked = said(site.researcher.post(at(running), {"program": "code"}))
    assert (asked["state"], asked["program"], asked["node"]) == ("asked", "code", "gpu-a1-01")
    with as_system():
        assert orders_of([node().id]) == {}, "a document changes with its generation only"
    (order,) = turned()
    assert node().generation == before + 1
    assert (order.program, order.booking, order.tenant) == ("code", running.node_name, "helix")
    assert order.address.startswith(f"{site.tenant.id.hex}.")

    again = said(site.researcher.post(at(running), {}))
    assert again["id"] == asked["id"], "a booking has one"
    node_says(2, ("lab", "code"), reported(the_row(), "starting"))
    assert said(site.researcher.get(at(running)))["state"] == "starting"
    node_says(3, ("lab", "code"), reported(the_row()))
    ready = said(site.researcher.get(at(running)))
    assert (ready["state"], bool(ready["ready_at"])) == ("ready", True)
    assert ready["url"].endswith(f"/t/helix/bookings/{running.label}/notebook/open")

    assert site.researcher.delete(at(running)).status_code == 204
    assert said(site.researcher.get(at(running)))["reason"] == "Its owner ended it."
    assert turned() == ()
    assert site.researcher.delete(at(running)).status_code == 204


def test_a_node_that_says_something_old_again_changes_nothing(site: Site, running: Booking) -> None:
    a_ready_one(site, running)
    assert not node_says(2, (), reported(the_row(), "failed", "old"))
    assert the_row().state == "ready"
    # Of a notebook that is not its own it says nothing.
    other = wire.ReportedNotebook(id="0" * 32, state="failed", key=None)
    assert node_says(3, ("lab",), other)
    assert the_row().state == "ready"


def test_a_node_that_failed_says_why_and_its_order_goes(site: Site, running: Booking) -> None:
    row = a_ready_one(site, running)
    node_says(3, ("lab",), reported(row, "failed", "no such licence"))
    found = said(site.researcher.get(at(running)))
    assert (found["state"], found["reason"]) == ("failed", "no such licence")
    assert turned() == ()
    assert said(site.researcher.post(at(running), {}))["id"] != found["id"]


@pytest.mark.parametrize("states", [(State.PAUSING, State.PAUSED), (State.ENDING,)])
def test_it_ends_with_the_booking_and_with_a_pause(
    site: Site, running: Booking, states: tuple[State, ...]
) -> None:
    row = a_ready_one(site, running)
    for state in states:
        assert turned() != ()
        _gone(row, state=state)
    assert turned() == ()
    with as_system():
        row.refresh_from_db()
    assert (row.state, row.reason) == ("ended", "The booking has ended, or was paused.")


def test_one_that_no_node_starts_fails(site: Site, running: Booking) -> None:
    said(site.researcher.post(at(running), {}))
    turned()
    with as_system():
        orders_turn(timezone.now() + timedelta(minutes=4))
    assert said(site.researcher.get(at(running)))["state"] == "failed"


@pytest.mark.parametrize(
    ("who", "status", "code"),
    [
        ("lead", 403, "not_allowed"),
        ("viewer", 403, "not_allowed"),
        ("admin", 403, "not_allowed"),
        ("outsider", 404, "not_found"),
    ],
)
def test_a_notebook_is_its_owners_alone(
    site: Site, running: Booking, who: str, status: int, code: str
) -> None:
    a_ready_one(site, running)
    caller: Api = getattr(site, who)
    assert refused(caller.get(at(running)), status) == code
    assert refused(caller.delete(at(running)), status) in (code, "insufficient_scope")
    if who != "viewer":
        assert refused(caller.post(at(running), {}), status) == code
    browser = reader(site, who)
    assert browser.get(f"/t/helix/{at(running)}/open").status_code == status
    assert "Open the notebook" not in flat(browser.get(f"/t/helix/bookings/{running.label}").content.decode())
    assert the_row().state == "ready"


def test_a_token_of_another_project_or_without_the_scope_finds_none(site: Site, running: Booking) -> None:
    a_ready_one(site, running)
    now = timezone.now()
    with tenant_tx(site.tenant.id):
        hidden = token_create(
            actor=site.actor("admin"), name="t", days=1, now=now, limits=TokenLimits(project="hidden")
        )[1]
        reading = token_create(
            actor=site.actor(), name="r", days=1, now=now, limits=TokenLimits(scopes=(Scope.READ,))
        )[1]
    assert Api(hidden).get(at(running)).status_code == 404
    assert Api(reading).post(at(running), {}).status_code == 403
    assert Api(reading).get(at(running)).status_code == 200


def test_what_can_t_be_started_is_refused_with_the_reason(
    site: Site, running: Booking, settings: Settings
) -> None:
    assert refused(site.researcher.post(at(running), {"program": "sh -c id"}), 422) == "notebook_program"
    node_says(2, ())
    assert refused(site.researcher.post(at(running), {}), 409) == "notebook_not_offered"
    with as_system():
        Booking.objects.filter(id=running.id).update(state=State.ENDING)
    assert refused(site.researcher.post(at(running), {}), 409) == "notebook_not_running"
    settings.NOTEBOOK_URL = ""
    assert refused(site.researcher.post(at(running), {}), 409) == "notebooks_off"


def reader(site: Site, who: str = "researcher") -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def test_the_page_starts_it_shows_how_it_is_and_lets_its_owner_in(site: Site, running: Booking) -> None:
    browser, page = reader(site), f"/t/helix/bookings/{running.label}"
    assert "Start lab" in flat(browser.get(page).content.decode())
    assert browser.post(f"{page}/notebook/start", {"program": "lab"}).status_code == 302
    part = flat(browser.get(f"{page}/notebook").content.decode())
    assert "Asking gpu-a1-01 to start it" in part
    assert 'data-live-every="1"' in part
    assert browser.get(f"{page}/notebook/open").status_code == 409
    turned()
    node_says(2, ("lab",), reported(the_row()))
    assert "Open the notebook" in flat(browser.get(f"{page}/notebook").content.decode())

    entry = browser.get(f"{page}/notebook/open")
    assert entry.status_code == 302
    origin = f"http://{the_row().label}.notebook.localhost:8010"
    assert entry["Location"].startswith(f"{origin}/.gpu-portal/enter?ticket={site.tenant.id.hex}.")
    assert browser.post(f"{page}/notebook/end").status_code == 302
    assert "The last one ended" in flat(browser.get(f"{page}/notebook").content.decode())
    with as_system():
        assert not NotebookEntry.objects.exists()


def let_in(site: Site, row: Notebook) -> str:
    """The cookie of a browser that came with a ticket."""
    now = timezone.now()
    with as_owner():
        Session.objects.get_or_create(
            digest=SESSION,
            defaults={
                "user": site.people["researcher"],
                "created": now,
                "last_seen": now,
                "expires": now + timedelta(hours=1),
            },
        )
    cookie = entries.ticket_take(ticket_of(site, row), row.label, now)
    assert cookie is not None
    return cookie


def ticket_of(site: Site, row: Notebook) -> str:
    with tenant_tx(site.tenant.id):
        url = entries.ticket_make(
            actor=site.actor(), reference=row.booking.label, session=SESSION, now=timezone.now()
        )
    return url.partition("ticket=")[2]


def test_a_ticket_counts_once_soon_and_for_its_own_host(site: Site, running: Booking) -> None:
    row, now = a_ready_one(site, running), timezone.now()
    ticket = ticket_of(site, row)
    assert entries.ticket_take(ticket, "0" * 20, now) is None
    assert entries.ticket_take(ticket, row.label, now + timedelta(seconds=40)) is None
    assert entries.ticket_take(ticket, row.label, now) is not None
    assert entries.ticket_take(ticket, row.label, now) is None
    other_tenant = site.other_project.tenant_id.hex
    for wrong in ("", "x", f"{other_tenant}.{ticket.partition('.')[2]}", ticket + "é", ticket * 9):
        assert entries.ticket_take(wrong, row.label, now) is None
        assert entries.visit_of(wrong, row.label, now) is None


def _gone(row: Notebook, **changes: Any) -> None:  # noqa: ANN401 (of a booking)
    with as_system():
        Booking.objects.filter(id=row.booking_id).update(**changes)


def test_a_cookie_is_good_while_booking_and_session_are(site: Site, running: Booking) -> None:
    row, now = a_ready_one(site, running), timezone.now()
    cookie = let_in(site, row)
    visit = entries.visit_of(cookie, row.label, now)
    assert visit == entries.Visit(row.id, site.people["researcher"].id)
    assert entries.visit_of(cookie, "0" * 20, now) is None
    # A ticket is no cookie, and a cookie no ticket.
    assert entries.ticket_take(cookie, row.label, now) is None

    _gone(row, state=State.PAUSING)
    assert entries.visit_of(cookie, row.label, now) is not None
    assert entries.visit_of(cookie, row.label, now + timedelta(hours=2)) is None, "the session is over"
    _gone(row, state=State.PAUSED)
    assert entries.visit_of(cookie, row.label, now) is None


def test_who_signs_out_or_leaves_is_out_of_the_notebook(site: Site, running: Booking) -> None:
    row, now = a_ready_one(site, running), timezone.now()
    cookie = let_in(site, row)
    assert entries.visit_of(cookie, row.label, now) is not None
    with as_owner():
        Session.objects.filter(digest=SESSION).delete()
    assert entries.visit_of(cookie, row.label, now) is None


def test_a_tunnel_needs_the_secret_of_its_node(site: Site, running: Booking) -> None:
    row = a_ready_one(site, running)
    address = f"{site.tenant.id.hex}.{row.label}"
    assert entries.tunnel_of(address, "secret") is None
    with as_system():
        digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
        Notebook.objects.filter(id=row.id).update(key=digest)
    assert entries.tunnel_of(address, "secret") == entries.Visit(row.id, row.owner_id)
    assert entries.tunnel_of(f"{site.other_project.tenant_id.hex}.{row.label}", "secret") is None
    _gone(row, state=State.ENDING)
    assert entries.tunnel_of(address, "secret") is None
