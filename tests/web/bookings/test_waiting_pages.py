"""What the panel offers while a class is out of service: to wait in line for it."""

import re
from decimal import Decimal

import pytest
from django.test import Client

from allocation.models import Booking, Gpu
from tests.roles import as_system
from tests.web.bookings.test_booking_pages_panel import _site as a_site

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
    assert "4 of 4 h100 are out of service or do not answer" in page
    (form,) = re.findall(r'<form id="wait-form".*?</form>', page, re.S)
    assert '<button class="btn wide" form="wait-form">Join the queue instead</button>' in page
    answer = client.post(address, dict(FIELD.findall(form)))
    assert answer.status_code == 302, answer.content.decode()
    with as_system():
        booking = Booking.objects.get(tenant=member.tenant)
    assert (booking.state, booking.hold_amount) == ("requested", Decimal("28.8"))
