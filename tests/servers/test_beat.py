"""Periodic tasks are sent once a period, by any number of beats, however often they restart."""

from collections import Counter
from collections.abc import Iterator

import pytest
import redis
from django.conf import settings

from portal.beat import CLAIM_MS, PREFIX, SharedScheduler
from portal.celery import PERIODS, app

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


def test_a_broker_that_is_away_is_waited_for(
    broker: "redis.Redis", caplog: pytest.LogCaptureFixture
) -> None:
    beat = a_beat()
    away = redis.Redis.from_url("redis://127.0.0.1:1")
    beat._server = away
    beat._claim.registered_client = away
    assert beat.tick() == 1.0
    assert "wait for the broker" in caplog.text
