"""The program that sends webhooks, with receivers that hang."""

import json
import os
import sys
import time
from datetime import datetime
from ipaddress import ip_network

import pytest
from django.utils import timezone
from pytest_django import Settings

from allocation.services.record.history import event_add
from allocation.words.events import event_text
from devtools.launch.processes import Program, start, stop
from portal.integrations.relay import outbox_relay
from tenants.features.webhooks.services import WebhookTerms, webhook_create
from tenants.platform.wall import tenant_tx
from tests.builders import a_tenant_admin, a_user, actor_now
from tests.builders_allocation import a_booking, a_lab
from tests.roles import as_system
from tests.servers.servers import ROOT, Servers
from tests.services.webhook_receiver import a_receiver

pytestmark = [pytest.mark.faults, pytest.mark.turn]
BOOKINGS, KINDS = 4, ("starting", "started", "ending")


def _published(urls: list[str], now: datetime) -> None:
    """A webhook for each address, and a few events of a few bookings."""
    lab, user = a_lab("helix", now=now), a_user("ada")
    with as_system():
        a_tenant_admin(lab.tenant, user=user)
    actor = actor_now(user.id, "helix")
    for url in urls:
        with tenant_tx(lab.tenant_id):
            terms = WebhookTerms(name="CI", url=url, events=["*"])
            webhook_create(actor=actor, terms=terms, now=now)
    for _ in range(BOOKINGS):
        booking = a_booking(lab.project, lab.actor.user_id, starts=now, now=now)
        with as_system():
            for kind in KINDS:
                event_add(booking, kind=kind, sentence=event_text("time_over"), now=now)
    with as_system():
        outbox_relay(now)


def test_receivers_that_hang_hold_up_nobody_and_the_program_ends_in_order(
    real_db: Servers, settings: Settings
) -> None:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    with a_receiver() as slow, a_receiver() as quick:
        slow.is_hanging = True
        _published([f"{slow.url}/{number}" for number in range(5)] + [quick.url], timezone.now())
        environment = {"DATABASE_URL": real_db.dsn("portal_system"), "WEBHOOK_ALLOW": "127.0.0.0/8"}
        command = (sys.executable, "manage.py", "webhooks_sender", "--skip-checks")
        program = Program("sender", command, {**os.environ, **environment}, ROOT)
        process = start(program)
        try:
            for _ in range(BOOKINGS * len(KINDS)):
                assert quick.arrived.acquire(timeout=20)
            for _ in range(5 * BOOKINGS):
                # One attempt a booking and webhook has begun, and waits for its answer.
                assert slow.arrived.acquire(timeout=20)
            began = time.monotonic()
            slow.is_hanging = False
            slow.release.set()
            stop(process, program)
        finally:
            process.kill()
        # It waited for the answers of the attempts that it had begun, and for nothing else.
        assert process.returncode == 0
        assert time.monotonic() - began < 8
    assert len(slow.got) >= 5 * BOOKINGS
    order: dict[str, list[str]] = {}
    for _, body in quick.got:
        event = json.loads(body)
        order.setdefault(event["data"]["booking"]["number"], []).append(event["type"])
    assert list(order.values()) == [[f"booking.{kind}" for kind in KINDS]] * BOOKINGS
