"""Manage calendars: what is in them, who may read them, and when they have changed."""

import re
from datetime import timedelta
from typing import Any

import icalendar
import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from allocation.features.calendars.models import CalendarFeed
from allocation.models import Booking, BookingEvent, Maintenance
from allocation.rules.recurrence import recurrence_read
from allocation.rules.states import State
from allocation.services.operate.maintenance.change import MaintenanceChange, maintenance_change
from allocation.services.operate.maintenance.plan import (
    MaintenanceTerms,
    maintenance_end,
    maintenance_plan,
)
from allocation.services.record.history import Event, event_add
from allocation.services.runs.transition import booking_change, booking_lock
from allocation.words.events import event_text
from tenants.models import AuditEntry, Membership
from tenants.platform.wall import operator_tx
from tests.builders import a_gpu_class, a_member, a_project, a_user, an_operator
from tests.roles import as_owner, as_system
from tests.web.fleet_builders import a_booking, a_node

pytestmark = pytest.mark.django_db
ADDRESS = re.compile(r"http[^<\s]*(/calendar/[A-Za-z0-9_-]{43}\.ics)")


def signed_in(member: Membership) -> Client:
    client = Client()
    client.force_login(member.user)
    return client


def page_of(member: Membership) -> str:
    return f"/t/{member.tenant.slug}/settings/calendars"


def made(member: Membership, what: str = "mine") -> str:
    """A new calendar's path."""
    a_gpu_class()
    answer = signed_in(member).post(page_of(member), {"act": "make", "what": what})
    assert answer.status_code == 200, answer.content
    (address,) = ADDRESS.findall(answer.content.decode())
    return str(address)


def events(path: str) -> dict[str, Any]:
    """Of the calendar there, by summary; a reader signs in nowhere."""
    answer = Client().get(path)
    assert answer.status_code == 200
    calendar: Any = icalendar.Calendar.from_ical(answer.content)
    return {str(each["SUMMARY"]): each for each in calendar.walk("VEVENT")}


def changed(booking: Booking, **values: object) -> None:
    """As every change does, with a new version."""
    with as_system():
        version = Booking.objects.get(id=booking.id).version + 1
        Booking.objects.filter(id=booking.id).update(version=version, **values)


def test_an_address_is_shown_once_and_only_its_hash_is_kept() -> None:
    member = a_member(a_project())
    path = made(member)
    token = path.split("/")[-1].removesuffix(".ics")
    assert token not in signed_in(member).get(page_of(member)).content.decode()
    with as_system():
        row = repr(CalendarFeed.objects.values().get())
        logged = AuditEntry.objects.filter(action="calendar.made").values()
        assert token not in row + repr(logged)
        assert len(logged) == 1


def test_ones_own_calendar_has_ones_own_bookings_with_time_state_and_link() -> None:
    project = a_project()
    member, colleague = a_member(project), a_member(project)
    now = timezone.now()
    mine = a_booking(member, now=now, name="ablation")
    a_booking(colleague, now=now, name="theirs")
    a_booking(member, now=now, name="promised", state=State.QUEUED)
    a_booking(member, now=now, name="long ago", starts_in=timedelta(days=-40))
    path = made(member)
    found = events(path)
    assert set(found) == {"ablation: 1 × H100", "promised: 1 × H100"}
    event = found["ablation: 1 × H100"]
    assert event.start == mine.planned_starts
    assert event.end == mine.planned_ends
    assert (event["STATUS"], event["SEQUENCE"]) == ("CONFIRMED", mine.version)
    assert event["UID"].startswith(f"bk_{mine.id.hex}@")
    assert event["URL"].endswith(f"/t/{member.tenant.slug}/bookings/{mine.label}")
    promised = found["promised: 1 × H100"]
    assert promised["STATUS"] == "TENTATIVE"
    assert "waiting, its planned start can change" in promised["DESCRIPTION"]
    assert "running" in event["DESCRIPTION"]
    changed(mine, ask={**mine.ask, "share": 250})
    assert "ablation: 0.25 of one H100" in events(path)


@pytest.mark.parametrize("state", list(State))
def test_every_state_is_an_entry_and_what_will_never_run_is_cancelled(state: State) -> None:
    member = a_member(a_project())
    a_booking(member, now=timezone.now(), state=state, starts_in=timedelta(hours=1))
    (event,) = events(made(member)).values()
    never = {"cancelled", "refused", "rejected", "expired", "failed"}
    assert (event["STATUS"] == "CANCELLED") == (state in never)


def test_what_is_moved_or_cancelled_is_the_same_entry_with_a_higher_sequence() -> None:
    member = a_member(a_project())
    booking = a_booking(member, now=timezone.now(), state=State.QUEUED)
    path = made(member)
    (before,) = events(path).values()
    assert booking.planned_starts is not None
    later = booking.planned_starts + timedelta(hours=3)
    changed(booking, planned_starts=later, planned_ends=later + timedelta(hours=6))
    (moved,) = events(path).values()
    changed(booking, state=State.CANCELLED)
    (gone,) = events(path).values()
    assert before["UID"] == moved["UID"] == gone["UID"]
    assert before["SEQUENCE"] < moved["SEQUENCE"] < gone["SEQUENCE"]
    assert (moved.start, gone["STATUS"]) == (later, "CANCELLED")


def test_what_was_released_early_ends_then() -> None:
    member = a_member(a_project())
    booking = a_booking(member, now=timezone.now(), state=State.ENDED)
    assert booking.planned_starts is not None
    released = booking.planned_starts + timedelta(minutes=20)
    changed(booking, released_at=released)
    (event,) = events(made(member)).values()
    assert event.end == released


def test_nothing_new_is_304_and_a_change_is_not() -> None:
    member = a_member(a_project())
    booking = a_booking(member, now=timezone.now())
    path = made(member)
    first = Client().get(path)
    again = Client().get(path, headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    assert first["Cache-Control"] == again["Cache-Control"] == "private, max-age=300"
    assert Client().head(path)["ETag"] == first["ETag"]
    changed(booking, name="other")
    other = Client().get(path, headers={"If-None-Match": first["ETag"]})
    assert other.status_code == 200
    assert other["ETag"] != first["ETag"]


def test_names_can_make_no_entry_of_their_own() -> None:
    member = a_member(a_project(name="Fold; ing, \\ co\r\nBEGIN:VEVENT"))
    name = "a;b,c\\n\r\nEND:VEVENT\r\nBEGIN:VEVENT\r\nUID:x " + "ü" * 60
    a_booking(member, now=timezone.now(), name=name[:80])
    path = made(member, f"project:{member.project.slug}")  # type: ignore[union-attr]
    raw = Client().get(path).content
    assert all(len(line) <= 75 for line in raw.split(b"\r\n"))
    assert raw.count(b"\r\nBEGIN:VEVENT") == 1
    assert b"Fold\\; ing\\, \\\\ co\\nBEGIN:VEVENT\r\n" in raw
    (title,) = events(path)
    assert title.startswith("a;b,c\\n\nEND:VEVENT")


def test_a_projects_calendar_has_all_of_it_while_one_is_in_it() -> None:
    project = a_project()
    member, colleague = a_member(project), a_member(project)
    other = a_member(a_project(project.tenant), user=member.user)
    a_booking(colleague, now=timezone.now(), name="theirs")
    a_booking(other, now=timezone.now(), name="elsewhere")
    path = made(member, f"project:{project.slug}")
    assert set(events(path)) == {"theirs: 1 × H100"}
    with as_system():
        member.delete()
    assert Client().get(path).status_code == 404


def test_a_pools_calendar_has_what_one_may_see_and_its_maintenance() -> None:
    now = timezone.now()
    node = a_node(now=now)
    member = a_member(a_project())
    outsider = a_member(a_project(member.tenant))
    a_booking(member, now=now, name="mine")
    a_booking(outsider, now=now, name="not my project")
    with as_system():
        Maintenance.objects.create(
            node=node,
            starts=now,
            ends=now + timedelta(hours=2),
            drain_by=now,
            created=now,
            reason="New fans",
            created_by=an_operator(),
        )
    found = events(made(member, "pool:h100"))
    assert set(found) == {"mine: 1 × H100", f"Maintenance of {node.name}"}
    assert found[f"Maintenance of {node.name}"]["DESCRIPTION"] == "New fans"


@pytest.mark.turn
def test_maintenance_that_moves_or_ends_is_the_same_entry_and_newer() -> None:
    """The number and the time rise, or calendar programs keep the entry that they have."""
    now = timezone.now().replace(microsecond=0)
    node = a_node(now=now)
    operator = an_operator()
    begins = now + timedelta(days=2)
    terms = MaintenanceTerms(
        begins,
        begins + timedelta(hours=2),
        "New fans",
        node=node.name,
        repeat=recurrence_read("FREQ=DAILY;COUNT=2"),
    )
    with operator_tx():
        row = maintenance_plan(operator=operator, terms=terms, now=now)
    path = made(a_member(a_project()), "pool:h100")
    seen = [_by_start(path)]
    for step, change in enumerate(
        (
            MaintenanceChange(starts=begins + timedelta(hours=3), ends=begins + timedelta(hours=5)),
            MaintenanceChange(reason="Other fans"),
            MaintenanceChange(ends=begins + timedelta(hours=6)),
        ),
        1,
    ):
        at = now + timedelta(minutes=step)
        with operator_tx():
            maintenance_change(operator=operator, maintenance=row, change=change, now=at)
        seen.append(_by_start(path))
    with operator_tx():
        at = now + timedelta(minutes=9)
        maintenance_end(operator=operator, maintenance=row, now=at, following=True)
    seen.append(_by_start(path))
    first, later = zip(*seen, strict=True)
    assert len({each["UID"] for each in first}) == 1
    assert [each["SEQUENCE"] for each in first] == [0, 1, 2, 3, 4]
    stamps = [each["DTSTAMP"].dt for each in first]
    assert stamps == sorted(set(stamps))
    assert [first[1].start, first[3].end] == [
        begins + timedelta(hours=3),
        begins + timedelta(hours=6),
    ]
    assert [each["STATUS"] for each in first] == ["CONFIRMED"] * 4 + ["CANCELLED"]
    assert [each["SEQUENCE"] for each in later] == [0, 0, 0, 0, 1], "the other date only ends"
    assert later[-1]["DTSTAMP"].dt == now + timedelta(minutes=9)


def _by_start(path: str) -> list[Any]:
    calendar: Any = icalendar.Calendar.from_ical(Client().get(path).content)
    return sorted(calendar.walk("VEVENT"), key=lambda each: each.start)


def test_a_booking_that_moves_without_an_event_is_newer() -> None:
    now = timezone.now().replace(microsecond=0)
    member = a_member(a_project())
    booking = a_booking(member, now=now, state=State.QUEUED)
    path = made(member)
    (before,) = events(path).values()
    assert booking.planned_starts is not None
    later = booking.planned_starts + timedelta(hours=3)
    with as_system(), transaction.atomic():
        at = now + timedelta(minutes=5)
        booking_change(
            booking_lock(booking.id), now=at, planned_starts=later, planned_ends=later + timedelta(hours=6)
        )
    (moved,) = events(path).values()
    assert moved.start == later
    assert before["DTSTAMP"].dt < moved["DTSTAMP"].dt == now + timedelta(minutes=5)
    assert before["SEQUENCE"] < moved["SEQUENCE"]


def test_a_history_never_runs_backwards() -> None:
    """A turn of the solver writes, after a person's change, what it began to decide before."""
    now = timezone.now().replace(microsecond=0)
    booking = a_booking(a_member(a_project()), now=now, state=State.QUEUED)
    for seconds in (5, 2, 9, 1):
        with as_system(), transaction.atomic():
            row, at = booking_lock(booking.id), now + timedelta(seconds=seconds)
            if seconds == 9:
                event_add(row, kind="note", sentence=event_text("expired", charged=""), now=at)
            else:
                event = Event("note", event_text("expired", charged=""))
                booking_change(row, event=event, now=at, name=f"at {seconds}")
    with as_system():
        times = list(BookingEvent.objects.filter(booking=booking, kind="note").order_by("id"))
    assert [(each.at - now).seconds for each in times] == [5, 5, 9, 9]


def test_a_calendar_of_one_tenant_has_nothing_of_another_that_its_owner_is_in() -> None:
    person = a_user()
    here, there = (a_member(a_project(), user=person) for _ in range(2))
    a_booking(here, now=timezone.now(), name="here")
    a_booking(there, now=timezone.now(), name="there")
    for what in ("mine", "pool:h100"):
        assert set(events(made(here, what))) == {"here: 1 × H100"}
    foreign = {"act": "make", "what": f"project:{there.project.slug}"}  # type: ignore[union-attr]
    assert signed_in(here).post(page_of(here), foreign).status_code == 404


def test_a_revoked_calendar_is_gone_at_once_and_only_its_owner_revokes_it() -> None:
    member = a_member(a_project())
    path = made(member)
    with as_system():
        form = {"act": "revoke", "calendar": str(CalendarFeed.objects.get().id)}
    colleague = a_member(member.project)  # type: ignore[arg-type]
    assert signed_in(colleague).post(page_of(colleague), form).status_code == 404
    assert Client().get(path).status_code == 200
    assert signed_in(member).post(page_of(member), form).status_code == 302
    assert Client().get(path).status_code == 404
    assert signed_in(member).post(page_of(member), form).status_code == 302, "twice is once"


def test_a_closed_tenant_and_an_inactive_person_have_no_calendars() -> None:
    for close in ("person", "tenant"):
        member = a_member(a_project())
        path = made(member)
        with as_system():
            if close == "person":
                member.user.is_active = False
                with as_owner():
                    member.user.save()
            else:
                member.tenant.is_open = False
                member.tenant.save()
        assert Client().get(path).status_code == 404, close


def test_what_is_no_token_costs_no_query_and_answers_like_one_that_nobody_made() -> None:
    nobodys = Client().get(f"/calendar/{'x' * 43}.ics")
    with CaptureQueriesContext(connection) as asked:
        mangled = Client().get("/calendar/short.ics")
    assert not asked.captured_queries
    assert mangled.status_code == nobodys.status_code == 404
    assert mangled.content == nobodys.content
    assert Client().post(f"/calendar/{'x' * 43}.ics").status_code == 405


def test_nobody_hoards_calendars_and_what_there_is_not_has_none() -> None:
    member = a_member(a_project())
    with as_system():
        CalendarFeed.objects.bulk_create(
            CalendarFeed(
                tenant=member.tenant,
                owner=member.user,
                digest=bytes([n] * 32),
                created=timezone.now(),
            )
            for n in range(20)
        )
    client = signed_in(member)
    assert client.post(page_of(member), {"act": "make", "what": "mine"}).status_code == 422
    assert client.post(page_of(member), {"act": "make", "what": "pool:b300"}).status_code == 422
