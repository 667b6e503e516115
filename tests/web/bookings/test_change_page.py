"""The page on which a booking is changed: present values, then price and start, then the change."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.db.models import F
from django.test import Client
from django.utils import timezone

from allocation.models import Booking, BookingChange, Maintenance, Node, Series
from allocation.rules.changes import Strength
from allocation.rules.recurrence import recurrence_read
from allocation.rules.states import State
from allocation.services.bookings.change_rows import Kept, change_keep, change_wait
from allocation.services.bookings.checks.terms import target_of
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.series import Repeat, series_request
from allocation.services.quotes.changes import ChangeQuote
from allocation.services.record.terms import terms_of
from allocation.web.bookings.booking_pages import page_context
from allocation.web.changes.change_form import ChangeForm
from allocation.web.changes.change_page import preview_of
from solver.reasons.reason import reason
from tenants.models import Quota
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.api.builders import Site, a_site
from tests.builders_allocation import a_booking_request, an_ask
from tests.roles import as_system
from tests.services.bookings.test_approvals import COSTLY, ruled
from tests.web.flat import flat

pytestmark = pytest.mark.turn


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


@pytest.fixture
def booking(site: Site) -> Booking:
    """A firm window of two GPUs, tomorrow."""
    now = timezone.now()
    starts = (now + timedelta(days=1)).replace(minute=0, second=0, microsecond=0)
    request = a_booking_request(site.project, an_ask(2, starts=starts))
    with tenant_tx(site.tenant.id):
        return booking_request(actor=site.actor(), request=request, now=now)


def posted(site: Site, booking: Booking, **values: str) -> tuple[int, str]:
    """Status and text of the page after the form was sent as it was shown, with these values."""
    client = Client()
    client.force_login(site.people["researcher"])
    url = f"/t/{site.tenant.slug}/bookings/{booking.label}/change"
    page = client.get(url).content.decode()
    shown = dict(re.findall(r'name="(\w+)"[^>]*?value="([^"]*)"', page, flags=re.DOTALL))
    shown |= dict(
        re.findall(r'<select[^>]*name="(\w+)".*?<option value="([^"]*)" selected', page, flags=re.DOTALL)
    )
    shown.pop("csrfmiddlewaretoken", None)
    answer = client.post(url, {**shown, **values})
    return answer.status_code, flat(answer.content.decode())


def series_page(site: Site, booking: Booking) -> str:
    client, series_id = Client(), fresh(booking).series_id
    client.force_login(site.people["researcher"])
    assert series_id is not None
    return flat(client.get(f"/t/{site.tenant.slug}/series/sr_{series_id.hex}").content.decode())


def fresh(booking: Booking) -> Booking:
    with as_system():
        return Booking.objects.get(id=booking.id)


def test_the_price_and_the_start_are_shown_before_anything_changes(site: Site, booking: Booking) -> None:
    status, page = posted(site, booking, act="look", length="3 h")
    assert status == 200
    assert "Ask for the change" in page
    assert "Price at most" in page
    assert "+€" in page
    assert "if it does not fit, the booking keeps what it has" in page
    assert re.search(r"All times in \w+", page)
    with as_system():
        assert not booking.changes.exists()
    status, _ = posted(site, booking, act="change", length="3 h")
    assert status == 302
    with as_system():
        assert booking.changes.get().state == "changed"
    assert fresh(booking).duration_seconds == 3 * 3600


def test_less_is_changed_at_once_and_an_unchanged_form_changes_nothing(site: Site, booking: Booking) -> None:
    before = fresh(booking)
    status, page = posted(site, booking, act="look")
    assert (status, "no difference" in page) == (200, True)
    status, _ = posted(site, booking, act="change", count="1")
    after = fresh(booking)
    assert (status, after.ask["count"], after.revision) == (302, 1, 2)
    assert after.hold_amount == before.hold_amount / Decimal(2)


REFUSED: tuple[tuple[dict[str, str], str], ...] = (
    ({"name": "x" * 81}, "A name has at most 80 characters."),
    ({"length": "purple"}, "Enter a duration, such as 6h or 1h30m."),
    ({"count": "0"}, "The count must be between 1 and 512."),
    ({"starts": ""}, "Enter a date and a time."),
    ({"starts": "9999-12-31T23:59"}, "days from now"),
    ({"length": "9d"}, "may last"),
    ({"tier": "gold"}, "There is no such tier."),
    ({"pin": "nowhere"}, "nowhere"),
    ({"revision": "7"}, "was changed in the meantime"),
    ({"revision": "x"}, "The booking has changed since you opened this form."),
    ({"count": "5"}, "may use 4"),
)


def test_what_can_not_be_is_refused_in_the_form_and_changes_nothing(site: Site, booking: Booking) -> None:
    for values, words in REFUSED:
        for act in ("look", "change"):
            status, page = posted(site, booking, act=act, **values)
            assert (status, words in page) == (409, True), (values, page)
    assert fresh(booking).revision == 1


@pytest.mark.parametrize(
    "value", ["x" * 300, "9" * 300, "-1", "0001-01-01T00:00", "9999-12-31T23:59", "\u0661", "a/9999999999999"]
)
def test_no_value_of_any_field_is_an_error_of_the_portal(site: Site, booking: Booking, value: str) -> None:
    with tenant_tx(site.tenant.id):
        fields = [*ChangeForm.of(booking, UTC).values, "start_by", "strength", "scope", "quote"]
    for act in ("look", "change"):
        for name in fields:
            status, _ = posted(site, booking, act=act, **{name: value})
            assert status in (200, 302, 409), (act, name)


def test_more_gpus_than_a_pinned_node_has_offer_as_many_as_it_has(site: Site, booking: Booking) -> None:
    with as_system():
        node = Node.objects.order_by("name")[0]
        most = node.gpus.count()
        Quota.objects.update(guaranteed_units=90 * 56_000, borrow_limit_units=None)
    with tenant_tx(site.tenant.id):
        ask = replace(an_ask(1), pin=(node.name,))
        pinned = booking_request(
            actor=site.actor(), request=a_booking_request(site.project, ask), now=timezone.now()
        )
    status, page = posted(site, pinned, act="look", count=str(most + 1))
    assert status == 409
    assert f"A number of {most}." in page


def test_a_change_that_needs_an_approval_says_so_and_shows_approvers_what_changes(
    site: Site, booking: Booking
) -> None:
    terms = replace(COSTLY, name="Long ones", min_cost=None, min_seconds=3 * 3600)
    ruled(site.actor("admin"), terms)
    with as_system():
        Booking.objects.filter(id=booking.id).update(state="queued")
    _, page = posted(site, booking, act="look", length="3 h")
    assert "It needs an approval first, by the rule Long ones." in page
    assert posted(site, booking, act="change", length="3 h")[0] == 302
    client = Client()
    client.force_login(site.people["admin"])
    inbox = flat(client.get(f"/t/{site.tenant.slug}/approvals").content.decode())
    assert f"Changes {booking.label}, which stays as it is until then: Length: 2 h → 3 h" in inbox
    client.force_login(site.people["researcher"])
    url = f"/t/{site.tenant.slug}/bookings/{booking.label}"
    mine = flat(client.get(url).content.decode())
    assert "A change waits for its approval" in mine
    assert "by the rule Long ones. The booking stays as it is until then." in mine


def test_a_dragged_bar_opens_the_page_with_its_price(site: Site, booking: Booking) -> None:
    client = Client()
    client.force_login(site.people["researcher"])
    address = f"/t/helix/bookings/{booking.label}/change"

    def start_of(page: str) -> datetime:
        (field,) = re.findall(r"<input[^>]*change-starts[^>]*>", page)
        (value,) = re.findall(r'value="([^"]+)"', field)
        return datetime.fromisoformat(value)

    before = client.get(address).content.decode()
    dragged = client.get(address, {"shift": "3600", "grow": "-1800"}).content.decode()
    assert "preview-h" not in before
    assert "preview-h" in dragged
    assert start_of(dragged) - start_of(before) == timedelta(hours=1)
    for bad in ({"shift": "x"}, {"shift": "1" * 9}, {"grow": "-9999999"}, {"shift": "-9999999"}):
        assert client.get(address, bad).status_code in {200, 409}
    # The card on the timeline says the same, and asks for exactly this.
    card = client.get(address, {"shift": "3600", "grow": "-1800", "part": "drag"}).content.decode()
    assert card.lstrip().startswith("<form")
    assert "at most" in card
    assert "keep their time, and nobody is paused" in card or "Nobody else moves" in card
    (starts,) = re.findall(r'name="starts" value="([^"]+)"', card)
    assert starts == start_of(dragged).strftime("%Y-%m-%dT%H:%M")
    bad_card = client.get(address, {"shift": "-9999999", "part": "drag"}).content.decode()
    assert 'name="act" value="change"' not in bad_card
    # Looking changes nothing.
    assert fresh(booking).revision == booking.revision


def start_in(form: ChangeForm, booking: Booking) -> datetime | None:
    """The start that the form asks for."""
    ask = form.patch(booking).ask
    assert ask is not None
    return ask.starts


def test_a_start_in_the_hour_that_a_clock_change_repeats_keeps_its_offset(booking: Booking) -> None:
    """A bar that is dragged to 02:30 for the second time that night, and its form as it is shown."""
    berlin, second = ZoneInfo("Europe/Berlin"), datetime(2029, 10, 28, 1, 30, tzinfo=UTC)
    first = ChangeForm.of(booking, berlin).typed({"starts": "2029-10-28T02:30"})
    assert start_in(first, booking) == second - timedelta(hours=1)
    asked = target_of(booking).ask.starts
    assert asked is not None
    dragged = ChangeForm.of(booking, berlin).dragged(booking, int((second - asked).total_seconds()), 0)
    assert start_in(dragged, booking) == second
    shown = {field.name: str(field.value) for field in dragged.fields(None)}
    assert shown["starts"] == "2029-10-28T02:30+01:00"
    assert start_in(ChangeForm.of(booking, berlin).typed(shown), booking) == second


def test_a_start_that_a_clock_change_skips_is_refused(booking: Booking) -> None:
    form = ChangeForm.of(booking, ZoneInfo("Europe/Berlin")).typed({"starts": "2029-03-25T02:30"})
    with pytest.raises(Refused) as refused:
        form.patch(booking)
    assert (refused.value.code, refused.value.param) == ("no_such_time", "starts")


def test_a_change_that_was_just_made_can_be_undone_on_the_page(site: Site, booking: Booking) -> None:
    posted(site, booking, name="shorter", length="1h", act="change")
    assert fresh(booking).duration_seconds == 3600
    client = Client()
    client.force_login(site.people["researcher"])
    url = f"/t/{site.tenant.slug}/bookings/{booking.label}"
    page = flat(client.get(url).content.decode())
    assert "Just changed" in page
    assert "Length: 2 h → 1 h" in page
    answer = client.post(f"{url}/undo", follow=True)
    page = flat(answer.content.decode())
    assert "is undone." in page
    assert "Just changed" not in page
    assert (fresh(booking).duration_seconds, fresh(booking).name) == (7200, booking.name)
    assert client.post(f"{url}/undo").status_code == 409


def test_a_date_of_a_series_changes_alone_or_with_others(site: Site) -> None:
    now = timezone.now()
    starts = (now + timedelta(days=1)).replace(hour=12, minute=0, second=0, microsecond=0)
    request = a_booking_request(site.project, an_ask(2, starts=starts))
    with tenant_tx(site.tenant.id):
        series_request(
            actor=site.actor(),
            request=request,
            repeat=Repeat(recurrence_read("FREQ=DAILY;COUNT=3")),
            now=now,
        )
    with as_system():
        booking = Booking.objects.order_by("starts")[1]
    chosen = {"scope": "following", "parts": "all", "own": "stay", "length": "1h"}
    status, page = posted(site, booking, **chosen, act="look")
    assert status == 200
    assert "2 dates change at once." in page
    assert "€19.20 (now €38.40)" in page
    status, _ = posted(site, booking, **chosen, act="change")
    assert status == 302
    with as_system():
        lengths = list(Booking.objects.order_by("starts").values_list("duration_seconds", flat=True))
        assert lengths == [7200, 3600, 3600]
        assert Series.objects.count() == 2
        Booking.objects.filter(series=fresh(booking).series).update(
            state=State.SCHEDULED, planned_starts=F("starts"), planned_class="h100"
        )
    send, headers = site.researcher.send, {"if_match": "*"}
    asked = send("PATCH", f"bookings/{booking.label}", {"count": 3}, headers=headers)
    assert asked.status_code == 202, asked.content
    assert series_page(site, booking).count("A change is being decided: Number: 2 → 3") == 1
    other = (starts + timedelta(days=3)).strftime("%Y-%m-%dT%H:%M")
    status, page = posted(site, booking, scope="all", parts="fit", own="overwrite", starts=other)
    assert (status, "The dates of a series keep their days." in page) == (409, True)


def test_dates_in_conflict_are_listed_before_a_series_changes(site: Site) -> None:
    now = timezone.now()
    starts = (now + timedelta(days=1)).replace(hour=12, minute=0, second=0, microsecond=0)
    request = a_booking_request(site.project, an_ask(2, starts=starts))
    repeat = Repeat(recurrence_read("FREQ=DAILY;COUNT=3"))
    with tenant_tx(site.tenant.id):
        series_request(actor=site.actor(), request=request, repeat=repeat, now=now)
    with as_system():
        Booking.objects.update(state=State.SCHEDULED, planned_starts=F("starts"), planned_class="h100")
        booking = Booking.objects.order_by("starts")[1]
        for node in Node.objects.all():
            Maintenance.objects.create(
                node=node,
                starts=booking.not_before,
                ends=booking.not_before + timedelta(hours=4),
                drain_by=booking.not_before,
                reason="Cables.",
                created=now,
                created_by=site.people["researcher"],
            )
    chosen = {"scope": "all", "parts": "all", "own": "stay", "count": "3"}
    status, page = posted(site, booking, **chosen, act="look")
    assert status == 200
    assert "3 dates are decided in a few seconds." in page
    assert "1 of 3 dates does not fit now. All dates stay as they are." in page
    shown = page.split("Dates that do not fit: 1")[1]
    assert f"{booking.label}: " in shown.split("</li>")[0]
    assert shown.split("</ul>")[0].count("<li>") == 1
    status, page = posted(site, booking, **chosen | {"count": "400"}, act="look")
    assert (status, "Dates that do not fit: 3" in page) == (409, True)


def test_the_form_of_a_paused_booking_names_the_time_that_is_left(booking: Booking) -> None:
    booking.state = State.PAUSED
    length = ChangeForm.of(booking, UTC).fields(None)[1]
    assert length.label == "Length, with the pause", "its window is fixed"
    booking.starts, booking.ask = None, {**booking.ask, "starts": None}
    length = ChangeForm.of(booking, UTC).fields(None)[1]
    assert (length.label, "only become shorter" in length.hint) == ("Time left", True)


def test_a_later_end_that_looks_busy_can_be_asked_for_and_waited_for(site: Site, booking: Booking) -> None:
    with tenant_tx(site.tenant.id):
        ctx = page_context(site.actor(), timezone.now())
    terms, until = terms_of(fresh(booking)), timezone.now() + timedelta(hours=1)

    def buttons(blocking: str) -> tuple[bool, bool]:
        shown = preview_of(ChangeQuote(Strength.STRONGER, terms, terms, until, blocking=blocking), ctx)
        return shown.can_ask, shown.can_wait

    assert buttons("Others have the GPU then.") == (True, True)
    assert buttons("") == (True, False)


def test_a_full_window_of_a_change_is_waited_for_with_one_click(site: Site, booking: Booking) -> None:
    """From the preview, and again from the page of the booking once it was not possible."""
    now = timezone.now()
    ends = booking.not_before + timedelta(seconds=booking.duration_seconds)
    with as_system():
        for node in Node.objects.all():
            Maintenance.objects.create(
                node=node,
                starts=ends,
                ends=ends + timedelta(days=3),
                drain_by=ends,
                reason="power",
                created=now,
                created_by=site.people["researcher"],
            )
        Booking.objects.update(state=State.QUEUED)
    status, page = posted(site, booking, act="look", length="8 h")
    assert (status, "It can wait" in page, "Wait for it" in page) == (200, True, True)
    assert posted(site, booking, act="change", length="8 h")[0] == 302
    with as_system():
        (change,) = BookingChange.objects.filter(booking=booking)
        change_keep(fresh(booking), change, Kept((reason("change_no_room"),)), now)
    client = Client()
    client.force_login(site.people["researcher"])
    url = f"/t/{site.tenant.slug}/bookings/{booking.label}"
    assert "The change was not possible" in (kept := client.get(url).content.decode())
    assert f"{url}/change/wait" in kept
    assert client.post(f"{url}/change/wait").status_code == 302
    with as_system():
        change = BookingChange.objects.get(booking=booking, state=BookingChange.State.ASKED)
        change_wait(fresh(booking), change, Kept((reason("change_no_room"),)), now)
    page = client.get(url).content.decode()
    assert "A change waits for room" in page
    assert "Withdraw the change" in page
    listed = client.get(f"/t/{site.tenant.slug}/offers").content.decode()
    assert f'href="{url}"' in listed.split("Changes that wait for room")[-1]
    assert client.post(f"{url}/change/wait").status_code == 409
