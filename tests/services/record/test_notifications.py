"""The inbox: written once with the mark on the message, for its person alone, as they chose."""

from datetime import time, timedelta

import pytest
from django.db import DatabaseError, transaction
from django.test import Client
from pytest_django.fixtures import Settings

from allocation.models import Booking
from allocation.services.record.history import event_add
from allocation.words.events import event_text
from portal.integrations.notifications.delivery import people_notify
from portal.integrations.relay import outbox_relay
from tenants.models import KnownPerson, Mail, Notification, OutboxMessage, User
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tenants.rules.notifications import Choice
from tenants.services.notifications import (
    NotificationTerms,
    notification_settings_set,
    notifications_mark_read,
    notifications_sweep,
)
from tests.builders import a_member, a_user, actor_now
from tests.builders_allocation import NOW, Lab, a_lab
from tests.roles import as_owner, as_system
from tests.services.paused import requested
from tests.services.plant import Plant

pytestmark = pytest.mark.turn


def event_sent(booking: Booking, *kinds: str) -> None:
    with as_system():
        for kind in kinds:
            event_add(booking, kind=kind, sentence=event_text("because", because="So."), now=NOW)
        outbox_relay(NOW)


def inbox() -> list[Notification]:
    with as_system():
        return list(Notification.objects.order_by("message"))


def chosen(lab: Lab, **choices: Choice) -> None:
    terms = NotificationTerms(choices, time(22), time(7), time(8))
    with tenant_tx(lab.tenant_id):
        notification_settings_set(actor=lab.actor, terms=terms, now=NOW)


def test_an_event_is_one_entry_and_one_mail_as_its_owner_chose(plant: Plant, settings: Settings) -> None:
    settings.MAIL_ON = True
    lab = a_lab("helix", gpus=8)
    a_member(lab.project)
    with as_owner():
        User.objects.filter(id=lab.actor.user_id).update(email="mara@example.org")
    booking = requested(plant, lab)
    chosen(lab, run=Choice(in_app=False, mail="daily"), refused=Choice(in_app=True, mail="never"))
    event_sent(booking, "resumed", "refused", "pause_noticed", "moved")
    # A message that is relayed again after a crash changes nothing.
    with as_system():
        people_notify(list(OutboxMessage.objects.all()), NOW)
        mails = {mail.kind: mail.due - NOW for mail in Mail.objects.all()}
    assert [row.kind for row in inbox()] == ["booking.refused", "booking.pause_noticed"]
    assert inbox()[0].title == f"{booking.label} got no place"
    assert inbox()[0].path == f"bookings/{booking.label}"
    # NOW is 10:00 in Berlin, 11:00 on its clock: the next daily mail is tomorrow at eight.
    assert mails == {
        "booking.resumed": timedelta(hours=21),
        "booking.pause_noticed": timedelta(0),
    }


def test_an_entry_names_the_latest_of_an_expected_start(plant: Plant) -> None:
    booking = requested(plant, a_lab("helix", gpus=8))
    detail = {"starts": NOW.isoformat(), "latest": (NOW + timedelta(hours=2)).isoformat()}
    with as_system():
        text = event_text("because", because="So.")
        event_add(booking, kind="delayed", sentence=text, now=NOW, detail=detail)
        outbox_relay(NOW)
    assert [row.until for row in inbox()] == [NOW + timedelta(hours=2)]


def test_who_left_or_was_disabled_gets_nothing(plant: Plant) -> None:
    lab = a_lab("helix", gpus=8)
    booking = requested(plant, lab)
    with as_system():
        KnownPerson.objects.filter(user_id=lab.actor.user_id).update(disabled=NOW)
    event_sent(booking, "paused")
    assert inbox() == []


def test_an_inbox_belongs_to_one_person(plant: Plant) -> None:
    lab = a_lab("helix", gpus=8)
    event_sent(requested(plant, lab), "paused", "resumed")
    colleague = actor_now(a_member(lab.project, user=a_user()).user_id, "helix")
    ids = [row.id for row in inbox()]
    with tenant_tx(lab.tenant_id), pytest.raises(Refused, match="not_found"):
        notifications_mark_read(actor=colleague, now=NOW, only=ids)
    with tenant_tx(lab.tenant_id):
        assert notifications_mark_read(actor=colleague, now=NOW) == 0
        # What was written can only be marked, not changed.
        with pytest.raises(DatabaseError), transaction.atomic():
            Notification.objects.update(title="Something else")
        assert notifications_mark_read(actor=lab.actor, now=NOW, only=ids[:1]) == 1
        assert notifications_mark_read(actor=lab.actor, now=NOW) == 1
    with as_system():
        assert notifications_sweep(NOW + timedelta(days=90)) == 0
        assert notifications_sweep(NOW + timedelta(days=91)) == 2


def test_settings_that_contradict_are_refused(plant: Plant) -> None:
    lab = a_lab("helix", gpus=8)
    quiet = (time(22), time(7))
    hidden, unknown = Choice(in_app=False, mail="now"), Choice(in_app=True, mail="now")
    cases = {
        "bad_quiet_hours": NotificationTerms({}, time(22), None, time(8)),
        "always_in_app": NotificationTerms({"pause": hidden}, *quiet, time(8)),
        "unknown_type": NotificationTerms({"weather": unknown}, *quiet, time(8)),
    }
    for code, terms in cases.items():
        with tenant_tx(lab.tenant_id), pytest.raises(Refused, match=code):
            notification_settings_set(actor=lab.actor, terms=terms, now=NOW)


def test_the_pages_show_mark_and_store(plant: Plant, client: Client) -> None:
    lab = a_lab("helix", gpus=8)
    booking = requested(plant, lab)
    event_sent(booking, "pause_noticed")
    with as_system():
        client.force_login(User.objects.get(id=lab.actor.user_id))
    page = client.get("/t/helix/notifications").content.decode()
    assert "1 unread notification" in page
    assert f"{booking.label} is to be paused" in page
    (row,) = inbox()
    assert row.read is None, "a GET changes nothing"
    opened = client.post("/t/helix/notifications", {"act": "open", "id": str(row.id)})
    assert opened["Location"] == f"/t/helix/bookings/{booking.label}"
    assert "Nothing unread" in client.get("/t/helix/notifications?show=unread").content.decode()
    assert client.get("/t/helix/notifications?cursor=x").status_code == 422
    settings = "/t/helix/notifications/settings"
    form = {"act": "save", "daily_at": "25:00", "quiet_from": "", "quiet_until": ""}
    answer = client.post(settings, form)
    assert answer.status_code == 422
    assert "Write a time of day like 22:00." in answer.content.decode()
