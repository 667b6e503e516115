"""The outbox: every committed message is pushed, and marked only after."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection
from redis.exceptions import ConnectionError as Gone

from portal.integrations import relay
from portal.integrations.relay import outbox_relay, outbox_sweep
from tenants.models import OutboxMessage
from tests.builders_allocation import NOW, Lab, a_lab
from tests.roles import as_system
from tests.servers.servers import Servers


def messages(lab: Lab, count: int) -> None:
    with as_system():
        OutboxMessage.objects.bulk_create(
            OutboxMessage(
                tenant_id=lab.tenant_id,
                kind="booking.queued",
                payload={"booking": f"BK-{number}", "version": 1},
                created=NOW,
            )
            for number in range(count)
        )


class Pages:
    """Messages that open pages received."""

    def __init__(self) -> None:
        self.received: list[str] = []

    def push(self, waiting: list[OutboxMessage]) -> None:
        self.received += [message.payload["booking"] for message in waiting]


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    found = Pages()
    monkeypatch.setattr(relay, "push", found.push)
    return found


def test_every_message_is_pushed_once_in_order_and_marked(lab: Lab, pages: Pages) -> None:
    messages(lab, relay.BATCH + 3)
    with as_system():
        assert outbox_relay(NOW) == relay.BATCH + 3
        assert outbox_relay(NOW) == 0
        assert not OutboxMessage.objects.exclude(sent=NOW).exists()
    assert pages.received == [f"BK-{number}" for number in range(relay.BATCH + 3)]


def test_a_message_that_could_not_be_pushed_stays(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: object) -> None:
        raise Gone("nobody there")

    messages(lab, 2)
    monkeypatch.setattr(relay, "push", gone)
    with as_system():
        assert outbox_relay(NOW) == 0
        assert OutboxMessage.objects.filter(sent=None).count() == 2


def test_what_was_sent_is_kept_for_a_week(lab: Lab, pages: Pages) -> None:
    messages(lab, 1)
    with as_system():
        outbox_relay(NOW)
    messages(lab, 1)
    with as_system():
        assert outbox_sweep(NOW + timedelta(days=7)) == 0
        assert outbox_sweep(NOW + timedelta(days=7, seconds=1)) == 1
        assert OutboxMessage.objects.get().sent is None


def test_relays_side_by_side_push_each_message_once(real_db: Servers, pages: Pages) -> None:
    messages(a_lab("helix"), 300)

    def one(_: int) -> int:
        try:
            with as_system():
                return outbox_relay(NOW)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(one, range(4))) == 300
    assert sorted(pages.received) == sorted(f"BK-{number}" for number in range(300))
