"""What the panel offers while a class is out of service or a window is full: to wait for it."""

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.waiting_list.models import WaitEntry
from allocation.models import Booking, Gpu, Maintenance, Node
from tests.roles import as_system
from tests.web.bookings.panel import panel_site as a_site

FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')


@pytest.mark.django_db
def test_what_is_out_of_service_can_be_waited_for() -> None:
    member = a_site()
    with as_system():
        Gpu.objects.update(health=Gpu.Health.LOST)
    client = Client()
    client.force_login(member.user)
    address = f"/t/{member.tenant.slug}/book"
    page = client.get(address, {"q": "1 h100 6h"}).content.decode()
    assert "4 of 4 H100 are out of service or do not answer" in page
    (form,) = re.findall(r'<form id="wait-form".*?</form>', page, re.S)
    assert '<button class="btn wide" form="wait-form">Join the queue instead</button>' in page
    answer = client.post(address, dict(FIELD.findall(form)))
    assert answer.status_code == 302, answer.content.decode()
    with as_system():
        booking = Booking.objects.get(tenant=member.tenant)
    assert (booking.state, booking.hold_amount) == ("requested", Decimal("28.8"))


@pytest.mark.turn
@pytest.mark.django_db
def test_a_full_window_is_waited_for_with_one_click() -> None:
    member = a_site()
    client = Client()
    client.force_login(member.user)
    address = f"/t/{member.tenant.slug}/book"
    ask = {"q": "1 h100 tomorrow 9:00 for 2h"}
    assert "full-form" not in client.get(address, ask).content.decode()
    starts = timezone.now() + timedelta(hours=1)
    with as_system():
        Maintenance.objects.create(
            node=Node.objects.get(),
            starts=starts,
            ends=starts + timedelta(days=3),
            drain_by=starts,
            reason="power",
            created=starts,
            created_by=member.user,
        )
    page = client.get(address, ask).content.decode()
    (form,) = re.findall(r'<form id="full-form".*?</form>', page, re.S)
    assert 'form="full-form">Wait for it</button>' in page
    answer = client.post(address, dict(FIELD.findall(form)))
    assert answer.status_code == 302, answer.content.decode()
    with as_system():
        booking = Booking.objects.get(tenant=member.tenant)
        assert WaitEntry.objects.filter(booking=booking).exists()
    assert (booking.state, booking.waitlist) == ("requested", "auto")
    # The other button asks for an offer, for which nothing is held.
    (offer,) = re.findall(r'<button[^>]*form="full-form"[^>]*value="offer">', page)
    assert 'name="if_full"' in offer
    fields = dict(FIELD.findall(form)) | {"key": "00" * 16, "if_full": "offer"}
    assert client.post(address, fields).status_code == 302
    with as_system():
        offered = Booking.objects.order_by("number").last()
    assert offered is not None
    assert (offered.waitlist, offered.hold_amount) == ("offer", Decimal(0))
