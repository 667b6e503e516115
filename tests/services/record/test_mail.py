"""Mail: owed with the mark on the message, sent once, tried again until a server takes it."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from email.message import EmailMessage
from typing import Any

import icalendar
import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from allocation.models import Booking
from allocation.services.bookings.release import booking_release
from allocation.services.record.history import event_add
from allocation.words.events import event_text
from portal.integrations.mail.send import MAX_TRIES, RETENTION, mails_send, mails_sweep
from portal.integrations.relay import outbox_relay
from tenants.models import Mail, Membership, User
from tenants.platform.wall import tenant_tx
from tenants.rules.notifications import BUNDLING_DELAY
from tenants.services import invitation_create, invitation_revoke
from tests.builders import a_tier, a_user, actor_now
from tests.builders_allocation import NOW, Lab, a_lab, an_ask
from tests.roles import as_owner, as_system
from tests.services.paused import noticed, requested, running
from tests.services.plant import Plant, fresh
from tests.services.smtp_sink import Sink, a_sink

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)


@pytest.fixture
def sink(settings: Settings) -> Iterator[Sink]:
    with a_sink() as found:
        settings.MAIL_ON = True
        settings.PUBLIC_URL = "https://gpu.example.org"
        settings.PUBLIC_HOST = "gpu.example.org"
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", found.port
        yield found


@pytest.fixture
def lab(plant: Plant) -> Lab:
    lab = a_lab("helix", gpus=0)
    a_tier("standard", pausable=True)
    reader(lab, email="mara@example.org")
    return lab


def reader(lab: Lab, **values: object) -> None:
    with as_owner():
        User.objects.filter(id=lab.actor.user_id).update(**values)


def event_sent(booking: Booking, kind: str, sentence: str = "It continued.") -> None:
    with as_system():
        event_add(booking, kind=kind, sentence=event_text("because", because=sentence), now=NOW)
        outbox_relay(NOW)


def sent(now: object = NOW + BUNDLING_DELAY) -> int:
    with as_system():
        return mails_send(now)  # type: ignore[arg-type]


def the_mail() -> Mail:
    with as_system():
        return Mail.objects.get()


def plain(letter: EmailMessage) -> str:
    body = letter.get_body(("plain",))
    assert body is not None
    return str(body.get_content())


def test_a_notice_is_sent_at_once_with_the_deadline_in_the_subject(
    plant: Plant, lab: Lab, sink: Sink
) -> None:
    booking = running(plant, lab, an_ask(2, hours=2))
    rival = a_lab("rivals", gpus=0)
    reader(rival, email="rita@example.org")
    plant.later(30 * MINUTE)
    noticed(plant, booking, rival, ask=an_ask(2, hours=1))
    with as_system():
        outbox_relay(plant.now)
        assert mails_send(plant.now) == 1
        assert mails_send(plant.now + 30 * MINUTE) == 0
    (letter,) = sink.letters
    assert letter["To"] == "mara@example.org"
    # Ten UTC plus forty minutes, in Berlin.
    assert letter["Subject"] == f"{booking.label} pauses at 11:40 (in 10 min)"
    text = plain(letter)
    assert "It has until Tue 17 Nov 11:40 +0100." in text
    assert "If you do nothing, at 11:40" in text
    assert f"https://gpu.example.org/t/helix/bookings/{booking.label}" in text
    assert "rivals" not in letter.as_string()


def test_a_pause_that_is_over_is_not_told_any_more(plant: Plant, lab: Lab, sink: Sink) -> None:
    booking = running(plant, lab, an_ask(2, hours=2))
    noticed(plant, booking, a_lab("rivals", gpus=0))
    with as_system():
        outbox_relay(plant.now)
        booking_release(actor=lab.actor, booking=booking, now=plant.now)
        assert mails_send(plant.now) == 0
    assert sink.letters == []
    assert the_mail().dropped == "No longer true when it was due."


def test_that_a_notice_is_taken_back_is_sent_as_soon_as_the_notice_was(
    plant: Plant, lab: Lab, sink: Sink
) -> None:
    booking = requested(plant, lab)
    event_sent(booking, "pause_withdrawn", "Not paused after all.")
    assert sent(NOW) == 1
    (letter,) = sink.letters
    assert letter["Subject"] == f"{booking.label} continues, its pause was withdrawn"


def test_what_happens_together_comes_in_one_mail(plant: Plant, lab: Lab, sink: Sink) -> None:
    first, second = requested(plant, lab), requested(plant, lab)
    event_sent(first, "resumed", "It runs <b>again</b>.")
    event_sent(second, "expired", "Its deadline has passed.")
    assert sent(NOW + BUNDLING_DELAY - timedelta(seconds=1)) == 0
    assert sent() == 1
    (letter,) = sink.letters
    assert letter["Subject"] == f"{first.label} runs again (and 1 more)"
    assert "It runs <b>again</b>." in plain(letter)
    page = letter.get_body(("html",))
    assert page is not None
    assert "&lt;b&gt;again" in page.get_content()
    assert f"{second.label} expired without a place" in plain(letter)


def test_who_wants_none_or_is_gone_gets_none(plant: Plant, lab: Lab, sink: Sink) -> None:
    booking = requested(plant, lab)
    for change in ({"mails": "none"}, {"mails": "urgent"}, {"mails": "all", "email": ""}):
        reader(lab, **change)
        event_sent(booking, "resumed")
    reader(lab, email="mara@example.org", is_active=False)
    event_sent(booking, "resumed")
    reader(lab, is_active=True)
    with as_system():
        Membership.objects.filter(user_id=lab.actor.user_id).delete()
    event_sent(booking, "resumed")
    with as_system():
        assert not Mail.objects.exists()


def test_without_a_mail_server_nothing_is_owed(plant: Plant, lab: Lab, settings: Settings) -> None:
    settings.MAIL_ON = False
    event_sent(requested(plant, lab), "resumed")
    with as_system():
        assert not Mail.objects.exists()


def test_a_server_that_is_down_costs_no_mail(
    plant: Plant, lab: Lab, sink: Sink, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    event_sent(requested(plant, lab), "resumed")
    settings.EMAIL_PORT = 1
    with caplog.at_level(logging.WARNING):
        assert sent() == 0
    assert "does not answer" in caplog.text
    assert "mara" not in caplog.text
    assert the_mail().tries == 0
    settings.EMAIL_PORT = sink.port
    assert sent() == 1
    assert the_mail().sent is not None


def test_a_refusal_for_now_is_tried_again_and_one_for_good_is_not(plant: Plant, lab: Lab, sink: Sink) -> None:
    event_sent(requested(plant, lab), "resumed")
    sink.answers["mara@example.org"] = "450 later"
    assert sent() == 0
    assert (the_mail().tries, the_mail().due) == (1, NOW + BUNDLING_DELAY + MINUTE)
    assert sent(NOW + BUNDLING_DELAY + MINUTE / 2) == 0
    assert the_mail().tries == 1
    sink.answers["mara@example.org"] = "550 nobody of that name"
    assert sent(NOW + BUNDLING_DELAY + MINUTE) == 0
    assert the_mail().dropped == "Rejected: SMTPRecipientsRefused 550."


def test_an_address_that_is_none_does_not_stop_the_others(plant: Plant, lab: Lab, sink: Sink) -> None:
    reader(lab, email="mara@example.org\nBcc: all@example.org")
    event_sent(requested(plant, lab), "resumed")
    other = a_lab("rivals", gpus=0)
    reader(other, email="rita@example.org")
    event_sent(requested(plant, other), "resumed")
    assert sent() == 1
    assert [letter["To"] for letter in sink.letters] == ["rita@example.org"]
    with as_system():
        assert Mail.objects.get(tenant=lab.tenant_id).dropped == "Rejected: ValueError."


def test_a_mail_that_ends_its_sender_does_so_only_so_often(
    plant: Plant, lab: Lab, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    event_sent(requested(plant, lab), "resumed")
    monkeypatch.setattr("portal.integrations.mail.send.section_of", _killed)
    now = NOW + BUNDLING_DELAY
    for _ in range(MAX_TRIES):
        with pytest.raises(SystemExit):
            sent(now)
        now += timedelta(hours=2)
    assert sent(now) == 0
    assert the_mail().dropped == "Tried too often."


def _killed(*_: object) -> None:
    raise SystemExit


def test_two_senders_send_once(plant: Plant, lab: Lab, sink: Sink) -> None:
    for _ in range(6):
        event_sent(requested(plant, lab), "resumed")

    def run(_: int) -> int:
        try:
            return sent()
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(run, range(2))) == len(sink.letters)
    words = "".join(plain(letter) for letter in sink.letters)
    assert words.count("runs again") == 6


def test_what_is_settled_is_kept_for_a_month(plant: Plant, lab: Lab, sink: Sink) -> None:
    event_sent(requested(plant, lab), "resumed")
    with as_system():
        assert mails_sweep(NOW + RETENTION * 2) == 0
    sent()
    with as_system():
        assert mails_sweep(NOW + RETENTION) == 0
        assert mails_sweep(NOW + RETENTION + MINUTE) == 1


def test_what_may_have_another_time_now_comes_with_its_entry_for_a_calendar(
    plant: Plant, lab: Lab, sink: Sink
) -> None:
    booking = running(plant, lab, an_ask(2, hours=2))
    event_sent(booking, "resumed")
    assert sent() == 1
    (letter,) = sink.letters
    (attached,) = letter.iter_attachments()
    assert attached.get_content_type() == "text/calendar"
    calendar: Any = icalendar.Calendar.from_ical(attached.get_content())
    (entry,) = calendar.walk("VEVENT")
    planned = fresh(booking)
    assert entry["UID"] == f"bk_{booking.id.hex}@gpu.example.org"
    assert (entry.start, entry.end) == (planned.planned_starts, planned.planned_ends)
    assert entry["STATUS"] == "CONFIRMED"


def test_who_is_invited_hears_of_it_by_mail_and_unknown_addresses_get_a_link(
    plant: Plant, sink: Sink
) -> None:
    lab = a_lab("helix", gpus=0)
    with as_system():
        invited = a_user("jonas.weil", first_name="Jonas")
        with as_owner():
            User.objects.filter(id=invited.id).update(email="jonas@example.org")
        Membership.objects.filter(user_id=lab.actor.user_id).update(role="lead")
    lead = actor_now(lab.actor.user_id, "helix")
    with tenant_tx(lead.tenant_id):
        made = [
            invitation_create(actor=lead, to=to, role="researcher", project=lab.project.slug, now=NOW)
            for to in ("Jonas@example.org", "jonas.weil", "nobody@example.org", "nobody")
        ]
        invitation_revoke(actor=lead, invitation_id=made[1].id, now=NOW)
    with as_system():
        outbox_relay(NOW)
        assert mails_send(NOW + BUNDLING_DELAY) == 2
    letter, linked = sorted(sink.letters, key=lambda each: str(each["To"]))
    assert (letter["To"], linked["To"]) == ("jonas@example.org", "nobody@example.org")
    assert "https://gpu.example.org/invitation/" in plain(linked)
    assert letter["Subject"].startswith("You are invited to ")
    assert "/account" in str(letter.get_body(("plain",)))
