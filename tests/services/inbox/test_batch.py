"""Messages of many nodes, taken together: the same as one by one, and none spoils the others."""

import dataclasses
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

import wire
from allocation.models import Allocation, Booking, EventCounter, Gpu, GpuSample, Node, SolverState
from allocation.services.inbox import apply, consumer, heartbeats
from allocation.services.inbox.apply import message_apply
from allocation.services.inbox.batch import StreamMessage, messages_apply
from allocation.services.inbox.report_streams import GROUP
from allocation.services.nodes.fleet import node_key
from allocation.services.nodes.redis_accounts import agents_redis
from tests.builders_allocation import NOW, a_booking, a_lab, a_node, an_allocation
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.plant import NAME, Plant

pytestmark = pytest.mark.turn

NODES = ("gpu-a1-01", "gpu-a1-02", "gpu-a1-03")
Watched = Callable[..., AbstractContextManager[object]]
SECONDS = int(NOW.timestamp())


def seal(node: str, message: wire.FromAgent, version: int = 1) -> StreamMessage:
    with as_system():
        key = node_key(Node.objects.get(name=node), version)
    return StreamMessage(node, wire.seal(message, key=key, key_version=version))


def a_beat(node: str, seq: int, *, skew: int = 0, version: int = 1) -> StreamMessage:
    beat = wire.Heartbeat(seq=seq, observed_generation=0, sent_at=SECONDS + skew)
    return seal(node, beat, version)


def readings(node: str, seq: int, allocation: str | None = None, **values: int) -> StreamMessage:
    """Of the node's one GPU, five seconds later with each number."""
    blank: dict[str, Any] = dict.fromkeys(
        (
            "slot",
            "size",
            "utilisation",
            "memory_used_mb",
            "memory_total_mb",
            "power_mw",
            "temperature_c",
            "processes",
        )
    )
    sample = wire.Sample(**{**blank, "gpu": f"GPU-{node}-0", "allocation": allocation, **values})
    at = SECONDS - 600 + 5 * seq
    return seal(node, wire.Telemetry(sent_at=at, samples=(sample,), seq=seq))


def a_report(node: str, seq: int, *words: wire.ReportedAllocation) -> StreamMessage:
    report = wire.Report(epoch=1, observed_generation=0, seq=seq, allocations=words)
    return seal(node, report)


@pytest.fixture
def starting(db: None) -> Allocation:
    """Three nodes, on the first of which a whole GPU is being handed over."""
    lab = a_lab("helix", gpus=1)
    for name in NODES[1:]:
        a_node(name)
    with as_system():
        Node.objects.update(agent_version="0.3.0", observed_generation=0)
        SolverState.objects.update_or_create(id=1, defaults={"epoch": 1})
        gpu = Gpu.objects.get(node__name=NODES[0])
    booking = a_booking(lab.project, lab.actor.user_id, state="starting")
    return an_allocation(booking, gpu, state="starting")


def a_day(starting: Allocation) -> list[StreamMessage]:
    """All that may come: news, old news, doubled, forged, of nobody, and what changes something in
    between, each of which decides what becomes of those after it."""
    first, second, third = NODES
    name = starting.id.hex
    ready = wire.ReportedAllocation(id=name, state="ready", devices=("GPU-1",), error=None, since=SECONDS)
    with as_system():
        Node.objects.filter(name=third).update(key_version=2)
    forged = a_beat(second, 9)
    body = forged.envelope.body.replace(b'"seq":9', b'"seq":8')
    return [
        a_beat(first, 1),
        readings(first, 2, name, utilisation=5),
        a_report(first, 3, ready),
        readings(first, 4, name, utilisation=50, temperature_c=900),
        readings(first, 4, name, utilisation=50),
        a_beat(first, 5, skew=40),
        a_beat(first, 6, skew=-3),
        a_beat(first, 5),
        readings(second, 3, name),
        readings(second, 2, utilisation=7),
        a_beat(second, 4, skew=90),
        StreamMessage(second, dataclasses.replace(forged.envelope, body=body)),
        a_beat(second, 7),
        StreamMessage("gpu-zz", forged.envelope),
        a_beat(third, 1),
        a_beat(third, 2, version=2),
        a_beat(third, 3),
        readings(third, 4),
        a_beat(third, 5, version=2),
        a_report(third, 6),
    ]


def world() -> list[Any]:
    """Everything that a message could change."""
    samples = GpuSample.objects.order_by("gpu_id", "at")
    return [
        list(Node.objects.order_by("id").values()),
        [{**row, "id": None} for row in samples.values()],
        list(Booking.objects.values("id", "state", "ready_at")),
        list(Allocation.objects.values("id", "state", "devices")),
        list(EventCounter.objects.order_by("name").values()),
    ]


def heard_in(batches: Sequence[Sequence[StreamMessage]]) -> tuple[list[str], list[Any]]:
    """What became of each message, and the world after it; nothing of it stays."""
    with as_system(), transaction.atomic():
        outcomes = [word for batch in batches for word in messages_apply(batch, NOW)]
        after = world()
        transaction.set_rollback(True)
    return outcomes, after


def one_by_one(said: Sequence[StreamMessage]) -> tuple[list[str], list[Any]]:
    """As `heard_in`, without batches."""
    with as_system(), transaction.atomic():
        outcomes = [message_apply(node_name=each.node, envelope=each.envelope, now=NOW) for each in said]
        after = world()
        transaction.set_rollback(True)
    return outcomes, after


def cut(said: Sequence[StreamMessage], size: int) -> list[Sequence[StreamMessage]]:
    return [said[first : first + size] for first in range(0, len(said), size)]


def test_the_same_messages_leave_the_same_rows_in_any_batches(starting: Allocation) -> None:
    said = a_day(starting)
    expected = one_by_one(said)
    assert expected[0] == [
        "applied",
        "applied",
        "applied",
        "applied",
        "stale",
        "applied",
        "applied",
        "stale",
        "applied",
        "stale",
        "applied",
        "refused",
        "applied",
        "unknown_node",
        "applied",
        "applied",
        "refused",
        "refused",
        "applied",
        "refused",
    ]
    assert expected[1] != heard_in([])[1]
    for size in (1, 2, 3, 5, 7, len(said)):
        assert heard_in(cut(said, size)) == expected, size


@pytest.mark.parametrize("seed", range(6))
def test_so_they_do_when_they_come_in_any_order(starting: Allocation, seed: int) -> None:
    said = a_day(starting) * 2
    chance = random.Random(seed)  # noqa: S311 (only an order)
    chance.shuffle(said)
    expected = one_by_one(said)
    for size in (chance.randrange(2, len(said)), len(said)):
        assert heard_in(cut(said, size)) == expected, size


def test_a_batch_of_heartbeats_and_readings_is_a_few_statements(
    starting: Allocation,
    django_assert_max_num_queries: Watched,
) -> None:
    said = [each for node in NODES for each in (a_beat(node, 1), readings(node, 2))]
    with as_system(), django_assert_max_num_queries(10):
        assert set(messages_apply(said, NOW)) == {"applied"}


def test_a_batch_answers_each_node_with_its_newest_heartbeat_and_no_stale_one(
    starting: Allocation,
) -> None:
    first, second, third = NODES
    with as_system():
        Node.objects.filter(name=third).update(heartbeat_seq=9)
        messages_apply([a_beat(first, 1), a_beat(second, 5), a_beat(first, 2)], NOW)
        messages_apply([a_beat(third, 8)], NOW)
        granted = {}
        for node in Node.objects.all():
            raw: Any = agents_redis().get(wire.lease_key(node.name))
            if raw is not None:
                lease = wire.open_lease(wire.Envelope.from_json(raw), {1: node_key(node)})
                granted[node.name] = lease.seq
    assert granted == {first: 2, second: 5}


def test_a_report_without_news_asks_for_no_turn(
    starting: Allocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = wire.ReportedAllocation(
        id=starting.id.hex, state="ready", devices=("GPU-1",), error=None, since=SECONDS
    )
    asked: list[str] = []
    monkeypatch.setattr(apply, "task_request", asked.append)

    def nudged(said: StreamMessage) -> bool:
        asked.clear()
        with as_system():
            assert messages_apply([said], NOW) == ["applied"]
        return asked == ["allocation.cycle"]

    assert nudged(a_report(NODES[0], 1, word))
    assert not nudged(a_report(NODES[0], 2, word))
    with as_system():
        Node.objects.filter(name=NODES[0]).update(partitioned=True)
    assert nudged(a_report(NODES[0], 3, word))


def test_one_message_that_no_row_can_hold_does_not_spoil_its_batch(real_db: Servers, owner_dsn: str) -> None:
    a_lab("helix", gpus=1)
    a_node(NODES[1])
    first, second, _ = NODES
    with psycopg.connect(owner_dsn, autocommit=True) as owner:
        owner.execute("ALTER TABLE allocation_gpusample ADD CHECK (temperature_c IS DISTINCT FROM 66)")
    batch = [
        a_beat(first, 1),
        readings(first, 2, temperature_c=66),
        readings(second, 1, temperature_c=50),
        a_beat(second, 2),
    ]
    with as_system():
        assert messages_apply(batch, NOW) == ["applied", "refused", "applied", "applied"]
        rows = Node.objects.values_list("heartbeat_seq", "telemetry_seq", "refused")
        assert list(rows) == [(1, 0, 1), (2, 1, 0)]
        assert GpuSample.objects.get().gpu.node.name == second


def test_a_reader_killed_between_its_commit_and_its_acknowledgement_loses_and_doubles_nothing(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant.now += timedelta(minutes=2)
    plant.node_works()

    def killed(said: Sequence[StreamMessage], now: datetime) -> None:
        assert "applied" in messages_apply(said, now)
        raise KeyboardInterrupt

    monkeypatch.setattr(consumer, "messages_apply", killed)
    with pytest.raises(KeyboardInterrupt):
        plant.portal_reads()
    with as_system():
        before, samples = Node.objects.values().get(), GpuSample.objects.count()
    assert samples
    monkeypatch.undo()
    monkeypatch.setattr(consumer, "TAKEN_OVER_MS", 0)
    second = consumer.Reader("another", clock=lambda: plant.now)
    with as_system():
        assert second.turn(block_ms=0)
        after = Node.objects.values().get()
        assert GpuSample.objects.count() == samples
    assert after["stale_dropped"] > before["stale_dropped"]
    assert after | {"stale_dropped": 0} == before | {"stale_dropped": 0}
    waiting: Any = agents_redis().xpending(wire.report_stream(NAME), GROUP)
    assert waiting["pending"] == 0


def test_a_database_that_is_gone_in_the_middle_leaves_the_whole_batch_to_be_read_again(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant.now += timedelta(minutes=2)
    plant.node_works()

    def gone(*_: object) -> None:
        raise OperationalError("the connection is gone")

    with as_system():
        before = Node.objects.values("heartbeat_seq", "heartbeat_at", "telemetry_seq").get()
    monkeypatch.setattr(heartbeats, "samples_store", gone)
    with pytest.raises(OperationalError):
        plant.portal_reads()
    with as_system():
        assert Node.objects.values(*before).get() == before
    waiting: Any = agents_redis().xpending(wire.report_stream(NAME), GROUP)
    assert waiting["pending"] > 0
    assert not connection.in_atomic_block
