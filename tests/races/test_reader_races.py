"""Readers next to each other, and next to an epoch that is raised."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.db import connection, transaction

import wire
from allocation.models import Gpu, GpuSample, Node, SolverState
from allocation.services.inbox.batch import StreamMessage, messages_apply
from allocation.services.nodes.restores import epoch_raise, nodes_ahead
from tests.builders_allocation import NOW, a_lab, a_node
from tests.races.together import apart, at_once
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until
from tests.services.inbox.test_batch import NODES, a_beat, readings, seal

pytestmark = pytest.mark.races
READERS, ROUNDS = 4, 10
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


def test_readers_that_take_the_same_batch_apply_each_message_once(real_db: Servers) -> None:
    a_lab("helix", gpus=1)
    for name in NODES[1:]:
        a_node(name)
    with as_system():
        Node.objects.update(agent_version="0.3.0")
    batches = [
        [each for name in NODES for each in (a_beat(name, seq), readings(name, seq))]
        for seq in range(1, ROUNDS + 1)
    ]

    def reads(number: int) -> list[list[str]]:
        # Each begins with other nodes, so that their locks would cross.
        return [
            messages_apply(batch if number % 2 else batch[::-1], NOW)[:: 1 if number % 2 else -1]
            for batch in batches
        ]

    answers = at_once(reads, READERS)
    for batch in range(ROUNDS):
        for place in range(2 * len(NODES)):
            words = sorted(answer[batch][place] for answer in answers)
            assert words == ["applied", *["stale"] * (READERS - 1)], (batch, place)
    with as_system():
        assert GpuSample.objects.count() == ROUNDS * Gpu.objects.count()
        notified = ROUNDS * 2 * (READERS - 1)
        assert set(Node.objects.values_list("stale_dropped", flat=True)) == {notified}
    connection.close()


def ahead(kind: str, epoch: int) -> StreamMessage:
    """What a node says that follows a document of `epoch` which the database does not know."""
    if kind == "heartbeat":
        at = int(NOW.timestamp())
        beat = wire.Heartbeat(seq=epoch, epoch=epoch, observed_generation=9, sent_at=at)
        return seal(NODES[0], beat)
    return seal(NODES[0], wire.Report(epoch=epoch, observed_generation=9, seq=epoch))


@pytest.mark.parametrize(("kind", "outcome"), [("heartbeat", "applied"), ("report", "stale")])
def test_a_message_that_waits_while_the_epoch_is_raised_tells_of_no_restore(
    real_db: Servers, kind: str, outcome: str
) -> None:
    """Its reader read the epoch before, and then waited for the lock of the node."""
    a_lab("helix", gpus=1)
    with as_system():
        SolverState.objects.update_or_create(id=1, defaults={"epoch": 1})
    said = ahead(kind, epoch=1)
    with (
        as_system(),
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(real_db.admin_dsn, autocommit=True) as admin,
    ):

        def is_waiting() -> bool:
            row = admin.execute(WAITING).fetchone()
            return row is not None and row[0] > 0

        with transaction.atomic():
            raised = epoch_raise(NOW)
            reading = pool.submit(lambda: apart(lambda: messages_apply([said], NOW)))
            wait_until(is_waiting, seconds=30)
        assert reading.result(timeout=30) == [outcome]
        assert nodes_ahead() == []

        # The same with a document that is newer than the raised epoch.
        assert messages_apply([ahead(kind, epoch=raised + 1)], NOW) == [outcome]
        assert nodes_ahead() == [NODES[0]]
    connection.close()
