"""Operators read what a move would win; nothing changes by reading."""

import pytest

from allocation.models import Allocation, Booking, Gpu
from allocation.rules.states import State
from allocation.services.compaction import compaction_proposals
from tenants.models import Tier
from tenants.wall import operator_tx
from tests.builders_allocation import HOUR, NOW, a_booking, a_lab, an_allocation, an_ask
from tests.roles import as_system

SLICE = "1g.10gb"


def a_full_site() -> Booking:
    """Two GPUs with a slice in each, both pausable, and a booking that waits for a whole one."""
    lab = a_lab("helix", gpus=2)
    with as_system():
        gpus = list(Gpu.objects.order_by("index"))
    for gpu in gpus:
        ask = an_ask(1, profile=SLICE, hours=6)
        booking = a_booking(
            lab.project,
            lab.actor.user_id,
            state=State.ACTIVE,
            hours=6,
            starts=NOW - 2 * HOUR,
            ask=ask,
        )
        an_allocation(
            booking,
            gpu,
            profile=SLICE,
            start=0,
            starts=NOW - 2 * HOUR,
            ends=NOW + 4 * HOUR,
            state=Allocation.State.ACTIVE,
        )
    waiting = a_booking(lab.project, lab.actor.user_id, hours=2)
    with as_system():
        Tier.objects.update(pausable=True, protected_seconds=600)
    return waiting


@pytest.mark.django_db
def test_a_waiting_gpu_is_won_by_moving_one_slice() -> None:
    waiting = a_full_site()
    with operator_tx():
        (found,) = compaction_proposals(NOW)
    assert found.booking == waiting
    assert found.sooner == "4h"
    (move,) = found.moves
    assert {move.source, move.target} <= {
        f"gpu-a1-01 GPU {index}, {SLICE} at slot {start}" for index in (0, 1) for start in range(7)
    }
    assert move.lost == "2h2m"
    assert found.proven
