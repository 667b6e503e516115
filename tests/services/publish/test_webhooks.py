"""Webhooks over real HTTP: signed, in order per booking, tried again, and slow ones alone."""

import asyncio
import json
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone
from pytest_django import Settings
from standardwebhooks import WebhookVerificationError

from allocation.models import Booking, Gpu
from allocation.services.nodes.health import gpus_lost
from allocation.services.operate.maintenance.plan import MaintenanceTerms, maintenance_end, maintenance_plan
from allocation.services.operate.maintenance.watch import maintenance_announce
from allocation.services.policy.activations import policy_publish
from allocation.services.record.history import event_add
from allocation.words.events import event_text
from portal.integrations.answers import Answer
from portal.integrations.mail.message import section_of
from portal.integrations.relay import outbox_relay
from portal.integrations.webhooks.publish import RETENTION, events_sweep
from portal.integrations.webhooks.queue import (
    AT_ONCE_EACH,
    CLAIM,
    HELD_UP,
    HELD_UP_SILENT,
    attempt_settle,
    deliveries_claim,
    post,
)
from tenants.access import PlatformActor
from tenants.features.webhooks.services import (
    ResendTerms,
    WebhookTerms,
    deliveries_resend,
    delivery_resend,
    webhook_create,
    webhook_secret_rotate,
    webhook_test,
)
from tenants.models import Mail, Notification, PublishedEvent, User, Webhook, WebhookDelivery
from tenants.outbox import outbox_add
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tenants.queries import webhooks_lag
from tenants.rules.event_types import EVENT_TYPES, event_type
from tests.builders import a_tenant_admin, a_user, actor_now, an_operator
from tests.builders_allocation import NOW, Lab, a_booking, a_lab
from tests.roles import as_system
from tests.servers.servers import ROOT
from tests.services.webhook_receiver import Receiver, a_receiver

STATES = WebhookDelivery.State
DAY = timedelta(days=1)


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    with a_receiver() as found:
        yield found


class Hook:
    """A webhook of a lab's tenant with its secret."""

    def __init__(self, lab: Lab, url: str, *events: str, project: str | None = None) -> None:
        user = a_user(f"admin-{timezone.now():%f}")
        with as_system():
            a_tenant_admin(lab.project.tenant, user=user)
        self.actor = actor_now(user.id, lab.project.tenant.slug)
        terms = WebhookTerms(name="CI", url=url, events=events or ("booking.*",), project=project)
        with tenant_tx(lab.tenant_id):
            self.row, self.secret = webhook_create(actor=self.actor, terms=terms, now=NOW)

    def states(self) -> list[str]:
        with as_system():
            rows = WebhookDelivery.objects.filter(webhook=self.row).order_by("id")
            return list(rows.values_list("state", flat=True))

    def fresh(self) -> Webhook:
        with as_system():
            return Webhook.objects.get(id=self.row.id)


def booked(lab: Lab) -> Booking:
    return a_booking(lab.project, lab.actor.user_id)


def happened(booking: Booking, *kinds: str, now: datetime = NOW) -> None:
    """Events of the booking, published."""
    with as_system():
        for kind in kinds:
            event_add(booking, kind=kind, sentence=event_text("because", because=kind), now=now)
        outbox_relay(now)


def sent(now: datetime = NOW) -> list[Answer]:
    """Sends what is due, one attempt at a time, until nothing is."""
    answers = []
    with as_system():
        while attempts := deliveries_claim(1, now):
            answers.append(asyncio.run(post(attempts[0].message, timezone.now())))
            attempt_settle(attempts[0], answers[-1], now)
    return answers


def types(receiver: Receiver) -> list[str]:
    return [json.loads(body)["type"] for _, body in receiver.got]


def test_an_event_arrives_signed_once_and_says_what_happened(lab: Lab, receiver: Receiver) -> None:
    hook, booking = Hook(lab, receiver.url), booked(lab)
    happened(booking, "started")
    assert [answer.status for answer in sent()] == [204]
    (message,) = receiver.verified(hook.secret)
    with as_system():
        username = booking.owner.username
    assert message["type"] == "booking.started"
    assert message["data"]["booking"] | {"name": ""} == {
        "id": f"bk_{booking.id.hex}",
        "number": booking.label,
        "name": "",
        "state": booking.state,
        "project": lab.project.slug,
        "owner": username,
        "tier": booking.tier_id,
        "version": booking.version,
        "labels": {},
        "external_ref": "",
    }
    assert message["data"]["message"] == "started"
    assert message["data"]["detail"] == {}
    assert message["id"] == receiver.got[0][0]["webhook-id"]
    with as_system():
        # Messages that are no events of bookings have another payload.
        outbox_add(tenant_id=lab.tenant_id, kind="invitation.created", payload={"invitation": "x"}, now=NOW)
        outbox_relay(NOW)
    assert sent() == []
    assert hook.states() == [STATES.DELIVERED]
    with pytest.raises(WebhookVerificationError):
        receiver.verified("whsec_" + "A" * 32)


def test_project_and_event_choose_what_is_sent_and_a_neighbour_gets_nothing(
    lab: Lab, receiver: Receiver
) -> None:
    neighbour = a_lab("neighbours", gpus=0)
    Hook(lab, receiver.url, "booking.started", "booking.pause_notified", project=lab.project.slug)
    Hook(neighbour, f"{receiver.url}/neighbour", "*")
    happened(booked(lab), "starting", "started", "pause_noticed", "unheard_of")
    sent()
    assert types(receiver) == ["booking.started", "booking.pause_notified"]


def test_a_failing_message_holds_back_its_booking_only(lab: Lab, receiver: Receiver) -> None:
    hook, first, second = Hook(lab, receiver.url), booked(lab), booked(lab)
    happened(first, "starting", "started")
    happened(second, "starting")
    receiver.statuses = [500]
    assert [answer.status for answer in sent()] == [500, 204]
    assert hook.states() == [STATES.PENDING, STATES.PENDING, STATES.DELIVERED]
    assert sent(NOW + timedelta(seconds=4)) == []
    with as_system():
        # Late is what a sender could send: not what waits behind another message.
        assert webhooks_lag(NOW + timedelta(seconds=4)) == 0
        assert webhooks_lag(NOW + timedelta(seconds=65)) == 60
    sent(NOW + timedelta(seconds=5))
    bodies = [json.loads(body) for _, body in receiver.got]
    assert [each["data"]["booking"]["number"] for each in bodies] == [
        first.label,
        second.label,
        first.label,
        first.label,
    ]
    # The id and the body stay the same over the attempts, so receivers detect repetitions.
    assert bodies[0] == bodies[2]
    assert receiver.got[0][0]["webhook-id"] == receiver.got[2][0]["webhook-id"]
    assert bodies[3]["type"] == "booking.started"
    assert len(receiver.verified(hook.secret)) == 4


def test_later_messages_overtake_one_that_fails_for_too_long(lab: Lab, receiver: Receiver) -> None:
    Hook(lab, receiver.url)
    happened(booked(lab), "starting", "started")
    receiver.statuses = [500, 500]
    assert len(sent()) == 1
    # As long as the receiver takes nothing at all, the order stays for two hours.
    assert [answer.status for answer in sent(NOW + HELD_UP)] == [500]
    receiver.statuses = [204, 500]
    assert len(sent(NOW + HELD_UP_SILENT)) == 2
    with as_system():
        WebhookDelivery.objects.all().delete()
    # One that takes other messages loses this order after a quarter of an hour.
    happened(booked(lab), "starting", "started")
    receiver.statuses = [500]
    sent()
    soon, later = NOW + timedelta(minutes=1), NOW + HELD_UP
    happened(booked(lab), "ended", now=soon)
    receiver.statuses = [500, 204]
    assert len(sent(soon)) == 2
    receiver.got.clear()
    receiver.statuses = [500]
    sent(later - timedelta(seconds=1))
    assert types(receiver) == ["booking.starting"]
    receiver.statuses = [204]
    sent(later)
    assert types(receiver)[-1] == "booking.started"


def test_events_of_the_site_go_to_whole_organisations(lab: Lab, receiver: Receiver) -> None:
    whole = Hook(lab, receiver.url, "gpu.*", "policy.activated")
    of_project = Hook(lab, f"{receiver.url}/2", "*", project=lab.project.slug)
    with as_system():
        gpu = Gpu.objects.select_related("node").get()
        gpus_lost([gpu], NOW)
        policy_publish(document={"grid": 600}, now=NOW)
        outbox_relay(NOW)
    sent()
    assert types(receiver) == ["gpu.unhealthy", "policy.activated"]
    data = json.loads(receiver.got[0][1])["data"]
    assert (data["gpu"]["node"], data["gpu"]["health"]) == (gpu.node.name, "lost")
    assert len(whole.states()) == 2
    assert of_project.states() == []


def test_lost_messages_are_sent_again_together(lab: Lab, receiver: Receiver) -> None:
    hook = Hook(lab, receiver.url)
    happened(booked(lab), "starting", "started", "ended")
    with as_system():
        WebhookDelivery.objects.update(state=STATES.FAILED, settled=NOW)

    def again(since: datetime) -> int:
        with tenant_tx(lab.tenant_id):
            terms = ResendTerms(since=since, states=["failed"])
            return deliveries_resend(actor=hook.actor, webhook_id=hook.row.id, terms=terms, now=NOW)

    assert again(NOW + DAY) == 0
    assert again(NOW) == 3
    # They wait now, so they are not queued a second time.
    assert again(NOW) == 0
    sent()
    assert types(receiver) == ["booking.starting", "booking.started", "booking.ended"]


def test_a_receiver_that_never_answers_is_tried_for_a_day_and_then_switched_off(
    lab: Lab, receiver: Receiver
) -> None:
    hook = Hook(lab, receiver.url)
    happened(booked(lab), "started")
    receiver.statuses = [503] * 99
    receiver.headers = {"Retry-After": "40"}
    now, tries = NOW, []
    while hook.fresh().disabled_at is None:
        tries.append((now - NOW).total_seconds())
        assert len(sent(now)) == 1
        with as_system():
            now = WebhookDelivery.objects.get().due
        assert len(tries) < 20
    # The receiver asked for 40 s; later delays are longer anyway.
    assert tries[:4] == [0, 40, 100, 400]
    assert tries[-1] == 24 * 3600
    assert hook.states() == [STATES.FAILED]
    assert hook.fresh().disabled_reason == "No message was delivered for 24 hours."
    with as_system():
        (row,) = WebhookDelivery.objects.all()
    assert [each["status"] for each in row.attempts] == [503] * len(tries)
    happened(booked(lab), "started")
    assert hook.states() == [STATES.FAILED]


def test_gone_switches_off_and_redirects_are_not_followed(lab: Lab, receiver: Receiver) -> None:
    hook = Hook(lab, receiver.url)
    receiver.statuses, receiver.headers = [302, 410], {"Location": receiver.url}
    happened(booked(lab), "starting")
    happened(booked(lab), "starting")
    (redirect, gone) = sent()
    assert (redirect.status, redirect.error) == (302, "Redirects are not followed.")
    assert gone.status == 410
    assert len(receiver.got) == 2
    assert hook.states() == [STATES.DROPPED, STATES.FAILED]
    assert hook.fresh().disabled_reason == "The receiver answered 410 Gone."


def test_both_secrets_sign_for_a_day_after_a_rotation(lab: Lab, receiver: Receiver) -> None:
    hook = Hook(lab, receiver.url)
    with tenant_tx(lab.tenant_id):
        _, renewed = webhook_secret_rotate(actor=hook.actor, webhook_id=hook.row.id, now=NOW)
    assert renewed != hook.secret
    happened(booked(lab), "started")
    sent()
    assert receiver.verified(hook.secret) == receiver.verified(renewed)
    receiver.got.clear()
    later = NOW + timedelta(hours=24)
    happened(booked(lab), "started", now=later)
    sent(later)
    assert len(receiver.verified(renewed)) == 1
    with pytest.raises(WebhookVerificationError):
        receiver.verified(hook.secret)


def test_secrets_outlive_a_change_of_the_portal_s_key(
    lab: Lab, receiver: Receiver, settings: Settings
) -> None:
    hook = Hook(lab, receiver.url)
    before, settings.SECRET_KEY = settings.SECRET_KEY, "n3w" * 20
    settings.SECRET_KEY_FALLBACKS = [before]
    happened(booked(lab), "started")
    sent()
    assert len(receiver.verified(hook.secret)) == 1
    settings.SECRET_KEY_FALLBACKS = []
    happened(booked(lab), "started")
    assert [answer.error for answer in sent()] == ["The secret's key is gone. Rotate the secret."]


def test_a_person_tests_and_sends_again(lab: Lab, receiver: Receiver) -> None:
    hook = Hook(lab, receiver.url)
    happened(booked(lab), "started")
    sent()
    with as_system():
        delivery = WebhookDelivery.objects.get()
    with tenant_tx(lab.tenant_id):
        webhook_test(actor=hook.actor, webhook_id=hook.row.id, now=NOW)
        delivery_resend(actor=hook.actor, webhook_id=hook.row.id, delivery_id=delivery.id, now=NOW)
    receiver.statuses = [500]
    sent()
    # A test is for the person who looks at it now, so it is not tried again.
    assert hook.states() == [STATES.DELIVERED, STATES.FAILED, STATES.DELIVERED]
    assert types(receiver) == ["booking.started", "webhook.test", "booking.started"]
    assert receiver.got[0][1] == receiver.got[2][1]
    assert hook.fresh().disabled_at is None


def test_a_sender_that_died_leaves_its_claim_to_others(lab: Lab, receiver: Receiver) -> None:
    hook = Hook(lab, receiver.url)
    happened(booked(lab), "started")
    with as_system():
        (attempt,) = deliveries_claim(10, NOW)
        assert deliveries_claim(10, NOW + timedelta(seconds=59)) == []
    assert [answer.status for answer in sent(NOW + CLAIM)] == [204]
    with as_system():
        # The first sender was only slow: its outcome changes nothing any more.
        attempt_settle(attempt, Answer(500, "", 1), NOW + CLAIM)
    assert hook.states() == [STATES.DELIVERED]


def test_few_are_sent_to_one_webhook_at_once(lab: Lab, receiver: Receiver) -> None:
    hooks = [Hook(lab, receiver.url), Hook(lab, f"{receiver.url}/2")]
    for _ in range(AT_ONCE_EACH + 2):
        happened(booked(lab), "started")
    with as_system():
        attempts = deliveries_claim(100, NOW)
        assert deliveries_claim(100, NOW) == []
    assert [attempt.message.webhook for attempt in attempts].count(hooks[0].row.id) == AT_ONCE_EACH
    assert len(attempts) == 2 * AT_ONCE_EACH


def test_the_connection_goes_to_the_address_that_was_checked(
    lab: Lab, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that resolves to loopback later (DNS rebinding) is not resolved a second time."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def answer(host: str, port: int, *rest: object, **more: object) -> object:
        if host != "example.org":
            return real(host, port, *rest, **more)  # type: ignore[arg-type]
        asked.append(host)
        address = "127.0.0.1" if len(asked) < 3 else "10.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    hook = Hook(lab, f"http://example.org:{receiver.port}/hook")
    happened(booked(lab), "started")
    happened(booked(lab), "started")
    taken, refused = sent()
    assert (taken.status, len(asked)) == (204, 3)
    assert receiver.got[0][0]["host"] == f"example.org:{receiver.port}"
    assert refused.status is None
    assert "private or reserved" in refused.error
    assert len(receiver.got) == 1
    assert hook.states() == [STATES.DELIVERED, STATES.PENDING]


def test_old_events_leave_with_their_deliveries(lab: Lab, receiver: Receiver) -> None:
    Hook(lab, receiver.url)
    happened(booked(lab), "started")
    sent()
    with as_system():
        assert events_sweep(NOW + RETENTION) == 0
        assert events_sweep(NOW + RETENTION + timedelta(seconds=1)) == 1
        assert not WebhookDelivery.objects.exists()


def _kinds(sources: list[str], pattern: str) -> set[str]:
    return {found for source in sources for found in re.findall(pattern, source)}


def test_the_catalogue_has_every_kind_of_the_history() -> None:
    """A new kind of `BookingEvent` needs a line in tenants/rules/event_types.py."""
    sources = [path.read_text() for path in sorted(Path(ROOT, "allocation").rglob("*.py"))]
    kinds = {
        *_kinds(sources, r'\bEvent\(\s*"([a-z_]+)"'),
        *_kinds(sources, r'event_add\([^)]*?kind="([a-z_]+)"'),
        *("ended", "failed", "refused", "cancelled", "expired", "start_slow", "started", "resumed"),
        *("queued", "moved", "change_asked", "more_time", "more_time_refused"),
        *("array_started", "array_failures", "array_ended"),
    }
    assert len(kinds) >= sum(name.startswith("booking.") for name in EVENT_TYPES) - 3
    assert {kind for kind in kinds if event_type(f"booking.{kind}") is None} == set()
    public = {event_type(f"booking.{kind}") for kind in kinds}
    of_bookings = {name for name in EVENT_TYPES if name.startswith("booking.")}
    assert of_bookings - public == set()


def maintained(operator: User, node: str) -> None:
    """Maintenance that runs to its end, and some that is cancelled."""
    plan = MaintenanceTerms(NOW + DAY, NOW + 2 * DAY, "New fans", node=node)
    maintenance_plan(operator=operator, terms=plan, now=NOW)
    times = [maintenance_announce(NOW + days * DAY) for days in (0, 1, 1, 2, 3)]
    assert times == [0, 1, 0, 1, 0]
    again = maintenance_plan(operator=operator, terms=plan, now=NOW)
    maintenance_end(operator=operator, maintenance=again, now=NOW)
    assert maintenance_announce(NOW + 3 * DAY) == 0


def test_webhooks_of_the_platform_get_the_site_s_events_once_and_no_tenant_sees_them(
    lab: Lab, receiver: Receiver
) -> None:
    neighbour = a_lab("neighbours", gpus=0)
    whole = Hook(lab, "http://127.0.0.1:9/whole", "*")
    with as_system():
        operator = an_operator()
        actor, terms = PlatformActor.of(operator), WebhookTerms(name="Pager", url=receiver.url, events=["*"])
        row, secret = webhook_create(actor=actor, terms=terms, now=NOW)
        node = Gpu.objects.select_related("node").get().node
        maintained(operator, node.name)
        gpus_lost(list(Gpu.objects.select_related("node")), NOW)
    happened(booked(lab), "started")
    sent()
    stages = ["planned", "started", "ended", "planned", "cancelled"]
    wanted = [f"maintenance.{each}" for each in stages] + ["gpu.unhealthy"]
    said = receiver.verified(secret)
    assert sorted(each["type"] for each in said) == sorted(wanted)
    begun = next(each["data"] for each in said if each["type"] == "maintenance.started")
    assert begun["message"] == f"Maintenance of {node.name} has begun: New fans."
    assert (begun["maintenance"]["where"], begun["maintenance"]["later_dates"]) == (node.name, 0)
    # The organisation has the same, and its own booking.
    with as_system():
        theirs = whole.row.deliveries.values_list("type", flat=True)
        assert sorted(theirs) == sorted([*wanted, "booking.started"])
    for each in (lab, neighbour):
        with tenant_tx(each.tenant_id):
            assert not Webhook.objects.filter(id=row.id).exists()
            assert not WebhookDelivery.objects.filter(webhook=row.id).exists()
            assert not PublishedEvent.objects.filter(tenant=None).exists()
    with pytest.raises(Refused, match="There is no event 'booking"), as_system():
        webhook_create(actor=actor, terms=replace(terms, events=["booking.*"]), now=NOW)


def test_operators_hear_of_a_failing_webhook_of_the_platform(lab: Lab, receiver: Receiver) -> None:
    with as_system():
        operator = an_operator()
        terms = WebhookTerms(name="Pager", url=receiver.url, events=["gpu.*"])
        row, _ = webhook_create(actor=PlatformActor.of(operator), terms=terms, now=NOW)
        gpus_lost(list(Gpu.objects.all()), NOW)
        outbox_relay(NOW)
    receiver.statuses = [410]
    sent()
    with as_system():
        outbox_relay(NOW)
        (entry,) = Notification.objects.filter(user=operator)
        assert (entry.tenant_id, entry.path) == (None, f"/ops/webhooks/{row.id}")
        note = section_of(Mail(user=operator, kind=entry.kind, message=entry.message), NOW)
        assert note is not None
        assert note.href.endswith(f"/ops/webhooks/{row.id}")


def test_a_delivery_of_the_platform_is_never_for_a_tenant_s_webhook(lab: Lab, receiver: Receiver) -> None:
    hook = Hook(lab, receiver.url)
    row = WebhookDelivery(webhook=hook.row, key=uuid4(), type="x", created=NOW, due=NOW)
    with as_system(), pytest.raises(IntegrityError, match="webhook of"), transaction.atomic():
        row.save()
    found = Webhook.objects.filter(id=hook.row.id)
    with as_system(), pytest.raises(IntegrityError, match="is_plain"), transaction.atomic():
        found.update(tenant=None, project=lab.project)
