"""Chat messages over real HTTP by the real library: of people, of projects, and what is refused."""

import json
from collections.abc import Iterator
from datetime import timedelta
from ipaddress import ip_network

import pytest
from pytest_django import Settings

from allocation.models import Booking
from allocation.services.record.history import event_add
from allocation.words.events import event_text
from portal.integrations.chat.send import chat_send
from portal.integrations.relay import outbox_relay
from tenants.features.chat.services import ChatChannelTerms, chat_channel_create, chat_channel_test
from tenants.models import ChatChannel, ChatMessage, User
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tenants.rules.notifications import Choice
from tenants.services.notifications import NotificationTerms, notification_settings_set
from tests.builders import a_tenant_admin, actor_now
from tests.builders_allocation import NOW, Lab, a_booking
from tests.roles import as_system
from tests.services.webhook_receiver import Receiver, a_receiver

pytestmark = pytest.mark.turn


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    with a_receiver() as found:
        # A Mattermost answers 200 and not 204.
        found.statuses = [200] * 20
        yield found


def address(receiver: Receiver) -> str:
    """A Mattermost at the receiver."""
    return receiver.url.replace("http://", "mmost://").rpartition("/")[0] + "/3ccdd113474722377935511fc8"


def channel(lab: Lab, url: str) -> ChatChannel:
    terms = ChatChannelTerms(name="Chat", url=url)
    with tenant_tx(lab.tenant_id):
        return chat_channel_create(actor=lab.actor, terms=terms, now=NOW)


def happened(booking: Booking, kind: str) -> None:
    with as_system():
        event_add(booking, kind=kind, sentence=event_text("because", because=kind), now=NOW)
        outbox_relay(NOW)


def sent(after: timedelta = timedelta()) -> int:
    with as_system():
        return chat_send(NOW + after)


def test_a_person_gets_what_they_chose_and_a_project_what_its_lead_chose(
    lab: Lab, receiver: Receiver
) -> None:
    with as_system():
        a_tenant_admin(lab.project.tenant, user=User.objects.get(id=lab.actor.user_id))
    lead = actor_now(lab.actor.user_id, lab.project.tenant.slug)
    own = channel(lab, address(receiver))
    with tenant_tx(lab.tenant_id):
        shared = chat_channel_create(
            actor=lead,
            terms=ChatChannelTerms(
                name="Team", url=address(receiver), project=lab.project.slug, events=["hardware"]
            ),
            now=NOW,
        )
        quiet = Choice(in_app=True, mail="never", chat=False)
        chosen = NotificationTerms({"run": quiet}, None, None, NOW.time())
        notification_settings_set(actor=lab.actor, terms=chosen, now=NOW)
    booking = a_booking(lab.project, lab.actor.user_id)
    for kind in ("paused", "failed", "pause_noticed"):
        happened(booking, kind)
    with as_system():
        queued = set(ChatMessage.objects.values_list("channel__name", "kind"))
        clear = ChatChannel.objects.values_list("sealed", flat=True)
        assert all("3ccdd" not in each for each in clear)
    assert queued == {
        (own.name, "booking.failed"),
        (shared.name, "booking.failed"),
        (own.name, "booking.pause_noticed"),
    }
    # A pause notice does not wait; what can wait is bundled for two minutes.
    assert sent() == 2
    assert sent(timedelta(minutes=2)) == 1
    texts = [json.loads(body)["text"] for _, body in receiver.got]
    assert sum("failed" in text for text in texts) == 2
    assert all(f"/bookings/{booking.label}" in text for text in texts)


def test_a_refused_message_is_tried_again_and_a_test_is_not(lab: Lab, receiver: Receiver) -> None:
    made = channel(lab, address(receiver))
    receiver.statuses = [500, 500, 200]
    happened(a_booking(lab.project, lab.actor.user_id), "pause_noticed")
    with tenant_tx(lab.tenant_id):
        chat_channel_test(actor=lab.actor, channel_id=made.id, now=NOW)
    assert sent() == 0
    with as_system():
        states = dict(ChatMessage.objects.values_list("kind", "state"))
        made.refresh_from_db()
    assert states == {"booking.pause_noticed": "pending", "chat.test": "failed"}
    assert made.last_error == "The service did not take the message."
    assert sent(timedelta(seconds=59)) == 0
    assert sent(timedelta(minutes=1)) == 1
    with as_system():
        made.refresh_from_db()
    assert made.last_error == ""


def test_no_connection_reaches_an_address_that_is_not_allowed(
    lab: Lab, receiver: Receiver, settings: Settings
) -> None:
    made = channel(lab, address(receiver))
    # As if the name resolved to another address since it was checked.
    settings.WEBHOOK_ALLOW = []
    with tenant_tx(lab.tenant_id):
        chat_channel_test(actor=lab.actor, channel_id=made.id, now=NOW)
    assert sent() == 0
    assert receiver.got == []
    with as_system():
        assert "private or reserved address" in ChatMessage.objects.get().error


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("json://127.0.0.1/", "begins with one of the services"),
        ("file:///etc/passwd", "begins with one of the services"),
        ("mmost://10.0.0.1/3ccdd113474722377935511fc8", "private or reserved"),
        ("ntfys://169.254.169.254/topic", "private or reserved"),
        ("slack://only-one", "not complete"),
        ("mmosts://chat.example.org/3ccdd113474722377935511fc8?verify=no", "verify"),
        ("slack://" + "a" * 600, "at most"),
    ],
)
def test_a_wrong_address_is_refused(lab: Lab, url: str, words: str) -> None:
    with pytest.raises(Refused, match=words) as found:
        channel(lab, url)
    assert (found.value.code, found.value.param) == ("bad_url", "url")
