"""Periodic tasks are sent once a period, by any number of beats, however often they restart; those
that have nothing to do less often."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
import redis
from django.conf import settings
from django.db import OperationalError

from portal.beat import CLAIM_MS, PREFIX, SharedScheduler
from portal.celery import PERIODS, app
from portal.due_tasks import ASKED, LONGEST_SECONDS, DueTasks
from tenants.models import OutboxMessage, PasswordReset
from tests.roles import as_system

QUEUES = ("broker:default", "broker:solver")
EVERY_FIVE_MINUTES = PREFIX + "allocation.invariants"


@pytest.fixture
def broker(valkey_url: str) -> Iterator["redis.Redis"]:
    """The broker's own database, empty at the start."""
    assert valkey_url
    with redis.Redis.from_url(settings.BROKER_REDIS_URL) as client:
        client.flushdb()
        yield client


def a_beat() -> SharedScheduler:
    return SharedScheduler(app)


def sent(broker: "redis.Redis") -> Counter[str]:
    """How often each task waits in its queue."""
    # kombu pushes on the left; the name of the task is in the message's headers.
    words = [word for queue in QUEUES for word in broker.lrange(queue, 0, -1)]
    return Counter(name for word in words for name in PERIODS if f'"{name}"'.encode() in word)


def test_the_first_beat_of_a_site_sends_everything_at_once(broker: "redis.Redis") -> None:
    wait = a_beat().tick()
    assert sent(broker) == Counter(PERIODS.keys())
    assert 0 < wait <= min(PERIODS.values()) + 0.001


def test_a_second_beat_sends_nothing_twice_and_all_that_the_first_left(
    broker: "redis.Redis",
) -> None:
    first, second = a_beat(), a_beat()
    first.tick()
    second.tick()
    assert sent(broker) == Counter(PERIODS.keys())
    # What the killed first one would have sent next falls due.
    broker.pexpire(EVERY_FIVE_MINUTES, 0)
    second.tick()
    first.tick()
    assert sent(broker)["allocation.invariants"] == 2


def test_a_restart_of_beat_postpones_nothing(broker: "redis.Redis") -> None:
    a_beat().tick()
    broker.pexpire(EVERY_FIVE_MINUTES, 60_000)
    for _ in range(3):
        a_beat().tick()
    assert 50_000 < broker.pttl(EVERY_FIVE_MINUTES) <= 60_000
    broker.pexpire(EVERY_FIVE_MINUTES, 0)
    a_beat().tick()
    assert sent(broker)["allocation.invariants"] == 2


def test_a_beat_that_dies_before_it_sends_delays_a_task_by_seconds(
    broker: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = a_beat()

    def dies(*_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(dying, "_send", dies)
    with pytest.raises(SystemExit):
        dying.tick()
    assert not sent(broker)
    assert max(broker.pttl(PREFIX + name) for name in PERIODS) <= CLAIM_MS


def test_a_server_whose_clock_was_set_back_keeps_nothing_waiting(broker: "redis.Redis") -> None:
    beat = a_beat()
    beat.tick()
    broker.pexpire(EVERY_FIVE_MINUTES, 7_200_000)
    beat.tick()
    assert sent(broker)["allocation.invariants"] == 2


def test_a_broker_that_is_away_is_waited_for(broker: "redis.Redis", caplog: pytest.LogCaptureFixture) -> None:
    beat = a_beat()
    away = redis.Redis.from_url("redis://127.0.0.1:1")
    beat._server = away
    beat._claim.registered_client = away
    assert beat.tick() == 1.0
    assert "wait for the broker" in caplog.text


NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)


@pytest.mark.django_db
def test_a_task_is_sent_when_there_is_something_to_do_and_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = 0.0
    with as_system():
        due = DueTasks(lambda: NOW, lambda: at)
        everything = list(PERIODS)
        assert due.needed(everything) == everything
        at = LONGEST_SECONDS - 1
        assert set(due.needed(everything)) == PERIODS.keys() - ASKED
        OutboxMessage.objects.create(kind="x", payload={}, created=NOW)
        PasswordReset.objects.create(wanted="mara", at=NOW)
        assert set(due.needed(everything)) - (PERIODS.keys() - ASKED) == {
            "outbox.relay",
            "mail.send",
        }
        monkeypatch.setattr("portal.due_tasks.tick_has_work", lambda now: now == NOW)
        assert "allocation.tick" in due.needed(["allocation.tick"])
        at = LONGEST_SECONDS
        assert "jira.process" in due.needed(everything)


@pytest.mark.django_db
def test_a_database_that_is_away_makes_all_tasks_due(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: datetime) -> bool:
        raise OperationalError("away")

    due = DueTasks(lambda: NOW, lambda: 0.0)
    due.needed(list(PERIODS))
    monkeypatch.setattr("portal.due_tasks.tick_has_work", away)
    monkeypatch.setattr("portal.due_tasks.connections", SimpleNamespace(close_all=lambda: None))
    with as_system():
        assert due.needed(list(PERIODS)) == list(PERIODS)


@pytest.mark.django_db
def test_beat_sends_no_task_without_work_and_looks_again_in_its_period(
    broker: "redis.Redis",
) -> None:
    beat = a_beat()
    beat.tick()
    for _ in range(2):
        broker.pexpire(PREFIX + "billing.guardrails", 0)
        with as_system():
            beat.tick()
        assert sent(broker)["billing.guardrails"] == 1
        assert 0 < broker.pttl(PREFIX + "billing.guardrails") <= 1_000
