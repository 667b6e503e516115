"""The page of an array, its one line in lists, and its mails."""

import re
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from allocation.features.arrays.services import array_request
from allocation.models import Booking, BookingArray
from allocation.services.bookings.requests import ArrayRequest
from allocation.services.record.history import event_add
from allocation.words.events import event_text
from portal.integrations.mail.message import section_of
from portal.integrations.notifications.delivery import people_notify
from tenants.models import Mail, OutboxMessage, Role
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_project, a_tenant
from tests.builders_allocation import NOW, Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_owner, as_system
from tests.web.bookings.panel import asked, bookings_of, form_of, panel_client, panel_site

pytestmark = pytest.mark.turn


def client_of(lab: Lab, role: Role = Role.RESEARCHER) -> Client:
    client = Client()
    client.force_login(a_member(lab.project, role).user)
    return client


@pytest.fixture
def lab(db: None) -> Lab:
    """A lab and one GPU, in the test's own transaction."""
    return a_lab("helix")


@pytest.fixture
def array(lab: Lab) -> BookingArray:
    """An array of 120 elements of which 60 may be open."""
    with tenant_tx(lab.tenant_id):
        request = a_booking_request(lab.project, an_ask(hours=1))
        first = array_request(
            actor=lab.actor, request=request, array=ArrayRequest(120, 60), now=NOW, key=uuid4()
        )
    assert first.array is not None
    return first.array


def test_an_array_has_a_page_with_counts_and_is_cancelled_there(lab: Lab, array: BookingArray) -> None:
    lead, base = client_of(lab, Role.LEAD), f"/t/{lab.tenant.slug}"
    address = f"{base}/arrays/{array.label}"
    page = lead.get(address).content.decode()
    assert "60 waiting" in page
    assert "60 not booked yet" in page
    assert f'href="{base}/bookings/{array.label}[1]"' in page
    assert "page=2" in page
    assert f"{array.label}[60]" in lead.get(f"{address}?page=2").content.decode()
    element = lead.get(f"{base}/bookings/{array.label}[60]").content.decode()
    assert "one element of an array" in element
    assert lead.get(f"{base}/bookings/{array.label}").headers["Location"] == address

    viewer = client_of(lab, Role.VIEWER)
    assert "Cancel all elements" not in viewer.get(address).content.decode()
    assert viewer.post(f"{address}/cancel").status_code == 403
    outsider = Client()
    outsider.force_login(a_member(a_project(a_tenant())).user)
    assert outsider.get(address).status_code == 404
    assert "Cancel 120 elements" in lead.get(f"{address}/cancel").content.decode()
    over = lead.post(f"{address}/cancel", follow=True).content.decode()
    assert "120 elements" in over
    assert "Ended: cancelled" in over


def test_a_range_of_elements_is_cancelled_after_a_question(lab: Lab, array: BookingArray) -> None:
    lead = client_of(lab, Role.LEAD)
    address = f"/t/{lab.tenant.slug}/arrays/{array.label}"
    sent = {"elements": "3-20, 100"}
    asked = lead.post(f"{address}/cancel", sent).content.decode()
    assert "Cancel elements 3-20, 100 of" in asked
    with as_system():
        assert not Booking.objects.filter(array=array, state="cancelled").exists()
    assert "19 elements" in lead.post(f"{address}/cancel", sent | {"sure": "1"}, follow=True).content.decode()
    with as_system():
        found = Booking.objects.filter(array=array, state="cancelled").order_by("array_index")
        assert list(found.values_list("array_index", flat=True)) == list(range(3, 21))
    for bad in ("", "x", "0", "121", "9-3"):
        answer = lead.post(f"{address}/cancel", {"elements": bad})
        assert answer.status_code in (409, 422), bad


def test_an_array_is_one_line_of_a_list(lab: Lab, array: BookingArray) -> None:
    page = client_of(lab).get(f"/t/{lab.tenant.slug}/bookings").content.decode()
    assert page.count(f'/arrays/{array.label}"') == 1
    assert "0 running, 120 waiting, 0 of 120 over" in page
    assert "1 booking" in page


def test_of_elements_only_what_is_of_the_array_or_urgent_is_mailed(
    lab: Lab, array: BookingArray, settings: Settings
) -> None:
    settings.MAIL_ON = True
    with as_system():
        first = Booking.objects.get(array=array, array_index=1)
        kinds = ["failed", "array_failures", "expired", "pause_noticed", "array_ended"]
        for kind in kinds:
            event_add(first, kind=kind, sentence=event_text("time_over"), now=NOW)
        rows = list(OutboxMessage.objects.order_by("-id")[: len(kinds)])
        with as_owner():
            first.owner.email = "mara@example.org"
            first.owner.save(update_fields=["email"])
        people_notify(rows, NOW)
        sent = Mail.objects.filter(booking=first.id)
        assert {mail.kind.removeprefix("booking.") for mail in sent} == {kinds[1], *kinds[3:]}
        section = section_of(sent.get(kind="booking.array_ended"), timezone.now())
        assert section is not None
        assert "last element" in section.headline


@pytest.mark.django_db
def test_an_array_is_priced_for_all_its_runs_and_booked_once_by_line_or_fields() -> None:
    member = panel_site()
    page = asked(member, q="array of 20: 1 h100 2h, 4 at once")
    assert 'data-button="Book 20 runs for €192.00"' in page
    assert "Last run ends about" in page
    assert "the end of the last run is an estimate" in page
    assert "20 runs, at most 4 open at once" in page
    assert 'value="standard array of 20: 1 h100' in page
    fields = {"by": "fields", "count": "1", "classes": "h100", "profile": "", "length": "2h"}
    typed = asked(member, q="1 h100 2h", array="20", parallel="4", **fields)
    assert "array of 20: 1 h100 2h 4 at once" in typed
    assert 'data-button="Book 20 runs for €192.00"' in typed
    wrong = asked(member, q="1 h100 2h", array="20000", **fields)
    assert re.search('id="f-array"[^>]*value="20000"[^>]*aria-describedby="array-note"', wrong)
    assert "Book 20 runs" not in asked(member, q="array of 20: 1 h100 2h", array="", **fields)
    for _ in range(2):
        sent = panel_client(member).post(f"/t/{member.tenant.slug}/book", form_of(member, page))
        assert sent.headers["Location"] == f"/t/{member.tenant.slug}/arrays/BK-1"
    assert len(bookings_of(member)) == 4
