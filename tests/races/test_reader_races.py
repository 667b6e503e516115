"""Two readers with the same messages, as after one was taken for dead."""

import pytest
from django.db import connection

from allocation.models import Gpu, GpuSample, Node
from allocation.services.inbox.batch import messages_apply
from tests.builders_allocation import NOW, a_lab, a_node
from tests.races.together import at_once
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.inbox.test_batch import NODES, a_beat, readings

pytestmark = pytest.mark.races
READERS, ROUNDS = 4, 10


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
        told = ROUNDS * 2 * (READERS - 1)
        assert set(Node.objects.values_list("stale_dropped", flat=True)) == {told}
    connection.close()
