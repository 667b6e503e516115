"""The list of bookings: order, words, stable pages, CSV; numbers as links; questions first."""

import csv
import io
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Booking
from allocation.queries.bookings.booking_list import PAGE, BookingFilter, bookings_page
from allocation.rules.states import State
from allocation.web.parts.booking_links import linked
from tenants.models import Membership, Tenant
from tenants.platform.text import csv_plain
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_project, a_tenant, a_user, an_actor
from tests.roles import as_system
from tests.web.flat import flat
from tests.web.fleet_builders import a_booking, a_node, a_place

pytestmark = pytest.mark.django_db


def _get(member: Membership, path: str) -> str:
    client = Client()
    client.force_login(member.user)
    answer = client.get(f"/t/{member.tenant.slug}/{path}")
    assert answer.status_code == 200
    return answer.content.decode()


def _names(member: Membership, wanted: BookingFilter) -> list[str]:
    with tenant_tx(member.tenant_id):
        return [row.name for row in bookings_page(an_actor(member), wanted).rows]


def test_every_column_sorts_both_ways_and_says_so() -> None:
    mine = a_member(a_project())
    for number, name in enumerate(("beta", "Alpha", "gamma")):
        a_booking(mine, now=timezone.now(), name=name, held=str(number), starts_in=timedelta(hours=number))
    assert _names(mine, BookingFilter(sort="name")) == ["Alpha", "beta", "gamma"]
    assert _names(mine, BookingFilter(sort="-cost")) == ["gamma", "Alpha", "beta"]
    assert _names(mine, BookingFilter(sort="start")) == ["beta", "Alpha", "gamma"]
    for column in ("booked", "state", "tier", "project", "owner"):
        for sign in ("", "-"):
            assert len(_names(mine, BookingFilter(sort=sign + column))) == 3
    page = _get(mine, "bookings?sort=-cost")
    assert 'aria-sort="descending"' in page
    assert page.count("aria-sort") == 1


def test_pages_by_cursor_show_each_booking_once_though_new_ones_come() -> None:
    mine = a_member(a_project())
    now = timezone.now()
    for number in range(PAGE + 3):
        a_booking(mine, now=now, name=f"run-{number:02}", held="5")
    with tenant_tx(mine.tenant_id):
        first = bookings_page(an_actor(mine), BookingFilter(sort="cost"))
    a_booking(mine, now=now, name="newcomer", held="1")
    with tenant_tx(mine.tenant_id):
        second = bookings_page(an_actor(mine), BookingFilter(sort="cost", after=first.after))
        back = bookings_page(an_actor(mine), BookingFilter(sort="cost", before=second.before))
    seen = [row.name for row in (*first.rows, *second.rows)]
    assert sorted(seen) == [f"run-{number:02}" for number in range(PAGE + 3)]
    assert back.rows == first.rows
    assert (first.before, second.after) == ("", "")
    assert _get(mine, "bookings?after=nonsense&sort=drop+table&state=x")


def test_words_search_the_list_and_stay_in_its_links() -> None:
    project = a_project(name="Orchid")
    mine = a_member(project, user=a_user("mara"))
    other = a_member(project, user=a_user("noah"))
    a_booking(mine, now=timezone.now(), name="needle one")
    a_booking(other, now=timezone.now(), name="needle two")
    assert _names(mine, BookingFilter(text="needle MAR")) == ["needle one"]
    page = _get(mine, "bookings?q=needle&sort=name")
    assert "q=needle&amp;sort=-name" in page
    assert 'href="bookings.csv?q=needle&amp;sort=name"' in page


def test_csv_has_the_filter_and_no_cell_begins_a_formula() -> None:
    mine = a_member(a_project())
    outsider = a_member(a_project(a_tenant()))
    now = timezone.now()
    a_booking(mine, now=now, name="=HYPERLINK(1)")
    a_booking(mine, now=now, name="quiet, with a comma", state=State.ENDED)
    a_booking(outsider, now=now, name="theirs")
    rows = list(csv.DictReader(io.StringIO(_get(mine, "bookings.csv"))))
    assert {row["name"] for row in rows} == {"'=HYPERLINK(1)", "quiet, with a comma"}
    assert [row["name"] for row in csv.DictReader(io.StringIO(_get(mine, "bookings.csv?state=over")))] == [
        "quiet, with a comma"
    ]


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", "\n", "  =", "\uff1d", "\uff20"])
def test_what_a_spreadsheet_would_calculate_is_text(sign: str) -> None:
    assert csv_plain(f"{sign}1+1") == f"'{sign}1+1"
    assert csv_plain("BK-1") == "BK-1"


def test_numbers_in_a_sentence_lead_to_their_bookings_and_the_rest_is_escaped() -> None:
    tenant = Tenant(slug="helix")
    found = linked("<b> after BK-12, not XBK-1", tenant)
    assert found == ('&lt;b&gt; after <a class="link" href="/t/helix/bookings/BK-12">BK-12</a>, not XBK-1')
    assert linked("BK-12", None) == "BK-12"


def test_releasing_a_gang_is_asked_first_with_what_is_lost_and_whose() -> None:
    mine = a_member(a_project(name="Folding"), user=a_user("mara"))
    now = timezone.now()
    booking = a_booking(mine, now=now, hours=6, name="big")
    for gpu in a_node(now=now, gpus=2).gpus.all():
        a_place(booking, gpu)
    page = flat(_get(mine, f"bookings/{booking.label}"))
    assert f'<form method="get" action="/t/{mine.tenant.slug}/bookings/{booking.label}/release"' in page
    asked = _get(mine, f"bookings/{booking.label}/release")
    for words in (
        "Release big (",
        "belongs to mara in Folding",
        "on gpu-a1-01",
        "Unsaved work",
    ):
        assert words in asked
    assert "of its time, until" in asked
    assert "can&#x27;t be undone" in asked
    with as_system():
        assert Booking.objects.get(id=booking.id).state == State.ACTIVE


def test_cancelling_names_the_start_that_is_lost_and_strangers_are_not_asked() -> None:
    mine = a_member(a_project())
    now = timezone.now()
    booking = a_booking(mine, now=now, state=State.SCHEDULED, starts_in=timedelta(hours=30))
    assert "Others can get its start" in _get(mine, f"bookings/{booking.label}/cancel")
    outsider = a_member(a_project(mine.tenant))
    client = Client()
    client.force_login(outsider.user)
    answer = client.get(f"/t/{mine.tenant.slug}/bookings/{booking.label}/cancel")
    assert answer.status_code == 404
