"""The page of the waiting list."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.waiting_list.models import WaitEntry
from tests.roles import as_system
from tests.web.bookings.panel import panel_site as a_site


@pytest.mark.django_db
def test_an_offer_in_one_of_several_windows_is_asked_for_on_the_page() -> None:
    member = a_site()
    client = Client()
    client.force_login(member.user)
    address = f"/t/{member.tenant.slug}/offers"
    page = client.get(address).content.decode()
    assert "Wait for one of several times" in page
    for name in ("request", "project", "since_1", "until_1", "since_3", "until_3"):
        assert page.count(f'name="{name}"') == 1, name
    day = timezone.now() + timedelta(days=2)
    assert member.project is not None
    slug = member.project.slug
    fields = {"act": "ask", "request": "1 h100 for 2h", "project": slug}
    for number in (1, 2):
        since = day + timedelta(days=number)
        fields[f"since_{number}"] = since.strftime("%Y-%m-%dT09:00")
        fields[f"until_{number}"] = since.strftime("%Y-%m-%dT18:00")
    for name, value, said in (
        ("until_2", "x", "Enter a date and a time."),
        ("until_2", "2020-01-01T00:00", "A window must end after it begins."),
        ("request", "blub", "“blub” is not understood."),
        ("request", "1 h100", "length"),
    ):
        wrong = client.post(address, fields | {name: value})
        assert (wrong.status_code, said in wrong.content.decode()) == (422, True), value
        assert fields["since_1"] in wrong.content.decode()
    assert client.post(address, fields).status_code == 302
    with as_system():
        entry = WaitEntry.objects.select_related("booking").get()
    assert (entry.mode, len(entry.windows), entry.booking.hold_amount) == ("offer", 2, Decimal(0))


@pytest.mark.django_db
def test_entries_are_ticked_of_which_only_one_is_wanted() -> None:
    member = a_site()
    client = Client()
    client.force_login(member.user)
    address = f"/t/{member.tenant.slug}/offers"
    day = timezone.now() + timedelta(days=2)
    assert member.project is not None
    times = {"since_1": f"{day:%Y-%m-%dT09:00}", "until_1": f"{day:%Y-%m-%dT18:00}"}
    fields = {"act": "ask", "request": "1 h100 for 2h", "project": member.project.slug, **times}
    for _ in range(2):
        assert client.post(address, fields).status_code == 302
    with as_system():
        ids = [str(each) for each in WaitEntry.objects.values_list("id", flat=True)]
    none = client.post(address, {"act": "exclude"})
    assert (none.status_code, "Choose the bookings of which" in none.content.decode()) == (422, True)
    assert client.post(address, {"act": "exclude", "entries": [ids[0], "x"]}).status_code == 404
    page = client.post(address, {"act": "exclude", "entries": ids}, follow=True).content.decode()
    assert "The first of these 2 that gets a place cancels the others." in page
    assert page.count("Only one of") == 2
    with as_system():
        assert WaitEntry.objects.values("any_of").distinct().count() == 1
