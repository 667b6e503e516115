"""Planned starts as people and programs see them: what they are worth, and why they moved."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from allocation.api.bookings.shapes import booking_data
from allocation.api.bookings.why import why
from allocation.models import Booking, MovedStart, PolicyVersion, QueuePlace
from allocation.rules.start_range import StartRange
from allocation.rules.states import State
from allocation.web.parts.planned_start import start_words
from allocation.words.reasons import reason_data
from solver.reasons.reason import reason
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_project
from tests.builders_pauses import a_decision
from tests.roles import as_system
from tests.web.flat import flat
from tests.web.fleet_builders import a_booking, a_node, a_place

NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("strength", "late", "words"),
    [
        ("firm", 0, "Starts today 14:00"),
        ("guaranteed", 0, "Starts by today 14:00"),
        ("expected", 2.5, "Expected to start today 14:00 – 16:30"),
        ("expected", 12, "Expected to start today 14:00 – tomorrow 02:00"),
        (None, 0, "Expected today 14:00"),
    ],
)
def test_each_strength_has_words_of_its_own(strength: str | None, late: float, words: str) -> None:
    starts = NOW + 4 * HOUR
    assert start_words(strength, StartRange(starts, starts + late * HOUR), UTC, NOW) == words


def waiting(**facts: object) -> Booking:
    """A booking that waits for three hours."""
    now = timezone.now()
    booking = a_booking(a_member(a_project()), now=now, state=State.QUEUED, starts_in=3 * HOUR)
    with as_system():
        Booking.objects.filter(id=booking.id).update(**facts)
        return Booking.objects.select_related("tenant", "project", "tier", "owner").get(id=booking.id)


def overtaken(booking: Booking, claimant: Booking | None) -> None:
    """A receipt: the booking was to start an hour earlier, until another one went first."""
    starts = booking.planned_starts
    assert starts is not None
    decision = a_decision(timezone.now())
    why = reason("overtaken", rule="tier", own_tenant=int(claimant is not None))
    with as_system():
        MovedStart.objects.create(
            tenant_id=booking.tenant_id,
            booking=booking,
            at=timezone.now(),
            decision=decision,
            was_from=starts - HOUR,
            was_until=starts - HOUR / 2,
            now_from=starts,
            now_until=starts + HOUR,
            strength="expected",
            rule=why.rule,
            overtaken_by="tier",
            is_own=claimant is not None,
            claimant=claimant,
            reason=reason_data(why),
        )


def page_of(booking: Booking) -> str:
    client = Client()
    client.force_login(booking.owner)
    return shown(client, f"/t/{booking.tenant.slug}/bookings/{booking.label}")


def shown(client: Client, url: str) -> str:
    return flat(client.get(url).content.decode())


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("strength", "headline", "mover"),
    [
        ("firm", "Starts ", "No other booking could delay this."),
        (
            "guaranteed",
            "Starts by ",
            "Only bookings of your own organisation could delay this.",
        ),
        ("expected", "Expected ", "On borrowed GPUs: bookings of their owners go first."),
    ],
)
def test_the_page_says_the_start_and_who_can_move_it(strength: str, headline: str, mover: str) -> None:
    booking = waiting(planned_strength=strength)
    page = page_of(booking)
    assert f'<h1 class="headline">{headline}' in page
    assert mover in page
    assert 'id="moved-starts"' not in page
    client = Client()
    client.force_login(booking.owner)
    for listed in (f"/t/{booking.tenant.slug}/bookings", f"/t/{booking.tenant.slug}/"):
        assert headline in shown(client, listed), listed


def planned_start(booking: Booking) -> Any:  # noqa: ANN401 (JSON)
    with tenant_tx(booking.tenant_id):
        rows = Booking.objects.select_related("tenant", "project", "tier", "owner")
        return booking_data(rows.get(id=booking.id), None)["planned_start"]


@pytest.mark.django_db
def test_a_moved_start_names_who_goes_first_only_inside_the_organisation() -> None:
    booking = waiting(planned_strength="expected")
    with as_system():
        Booking.objects.filter(id=booking.id).update(
            announced_from=booking.planned_starts, announced_until=booking.planned_ends
        )
    overtaken(booking, None)
    page = page_of(booking)
    assert "A booking of a higher tier goes first." in page
    start = planned_start(booking)
    assert (start["strength"], start["earliest"]) == ("expected", start["starts"])
    assert booking.planned_ends is not None
    assert start["latest"] == booking.planned_ends.isoformat().replace("+00:00", "Z")
    moved = start["moved_by"]
    assert (moved["rule"], moved["overtaken_by"], moved["own"]) == ("R100", "tier", False)
    assert moved["booking"] is None
    assert moved["was"]["latest"] < start["starts"]

    mate = a_booking(a_member(booking.project), now=timezone.now())
    overtaken(booking, mate)
    page = page_of(booking)
    assert "A booking of a higher tier in your organisation goes first." in page
    assert f'bookings/{mate.label}">{mate.label}' in page
    moved = planned_start(booking)["moved_by"]
    assert (moved["booking"], moved["own"]) == (mate.label, True)
    with as_system():
        Booking.objects.filter(id=booking.id).update(state=State.SCHEDULED)
        Booking.objects.filter(id=booking.id).update(state=State.STARTING)
    assert planned_start(booking) is None, "it has begun"


@pytest.mark.django_db
def test_the_page_names_who_has_its_gpus_only_inside_the_organisation() -> None:
    now = timezone.now().replace(microsecond=0)
    gpus = list(a_node(now=now, gpus=3).gpus.order_by("index"))
    places = [{"gpu": str(gpu.id), "profile": None, "start": 0, "size": 8, "share": None} for gpu in gpus]
    why: dict[str, Any] = {
        "rule": "R21",
        "code": "not_before",
        "check": "policy",
        "numbers": {},
        "frees_at": None,
    }
    booking = waiting(planned_strength="expected", planned_places=places, reasons=[why])
    mate = a_booking(a_member(booking.project), now=now, hours=3)
    other = a_booking(a_member(a_project()), now=now, hours=4, name="secret")
    later = a_booking(a_member(booking.project), now=now, hours=3, starts_in=6 * HOUR)
    a_place(mate, gpus[0])
    a_place(mate, gpus[1])
    a_place(other, gpus[2])
    a_place(later, gpus[0])
    page = page_of(booking)
    assert f"{mate.label}</a>has 2 of its GPUs until" in page
    assert "A booking of another organisation has one of its GPUs until" in page
    assert other.label not in page
    assert later.label not in page


@pytest.mark.django_db
def test_the_page_and_rest_name_who_is_ahead_only_inside_the_organisation() -> None:
    now = timezone.now().replace(microsecond=0)
    why_not: dict[str, Any] = {
        "rule": "R18",
        "code": "window_busy",
        "check": "together",
        "numbers": {},
        "frees_at": None,
    }
    booking = waiting(planned_strength="expected", reasons=[why_not])
    mate = a_booking(a_member(booking.project), now=now, state=State.QUEUED, starts_in=HOUR)
    other = a_booking(a_member(a_project()), now=now, state=State.QUEUED, starts_in=HOUR)
    with as_system():
        Booking.objects.update(starts=None)
        PolicyVersion.objects.get_or_create(
            number=1, defaults={"document": {}, "state": "live", "created": now}
        )
        for row, key in (
            (booking, [2, -50, 0, 9, 9, 9, 0, 5]),
            (mate, [2, -90, 0, 9, 9, 9, 0, 7]),
            (other, [2, -50, 0, 4, 4, 4, 0, 6]),
        ):
            QueuePlace.objects.create(booking=row, key=key)
    page = page_of(booking)
    assert "1 booking of your organisation: a higher tier." in page
    assert f'bookings/{mate.label}">{mate.label}' in page
    used_less = "1 booking of another organisation: their organisation has used less recently."
    assert used_less in page
    assert "The bookings ahead of yours are listed below." in page
    assert other.label not in page
    aged = "From then on it goes ahead of all who borrow, if it still waits."
    assert aged not in page, "it starts before that"
    with tenant_tx(booking.tenant_id):
        found = why(Booking.objects.get(id=booking.id), now)
        later = now + 8 * HOUR * 24
        Booking.objects.filter(id=booking.id).update(planned_starts=later, planned_ends=later + HOUR)
        after = why(Booking.objects.get(id=booking.id), now)["changes"]
    assert [(each["rule"], each["own"], each["bookings"]) for each in found["ahead"]] == [
        ("tier", True, [mate.label]),
        ("share", False, []),
    ]
    assert found["ahead"][1]["sentence"] == used_less
    (at_last,) = (each for each in after if each["code"] == "aged")
    assert at_last["at"] == (booking.not_before + timedelta(days=3)).isoformat().replace("+00:00", "Z")
