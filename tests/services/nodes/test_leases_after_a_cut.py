"""What a node that was cut off gets when it is back: no lease before it has heard the newest."""

import pytest

import wire
from allocation.rules.nodes.leases import LEASE_EXPIRY_SECONDS
from allocation.services.nodes.leases import leases_grant
from allocation.services.nodes.redis_accounts import agents_redis
from tests.builders_allocation import Lab, a_lab
from tests.roles import as_system
from tests.services.nodes.test_leases import SECOND, node, on_lease, watched
from tests.services.plant import NAME, Plant

pytestmark = pytest.mark.turn


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


def test_a_node_whose_lease_ran_out_has_none_until_it_acts_on_our_newest_word(plant: Plant, lab: Lab) -> None:
    """Back on the line, by the old word it could begin here what has been begun elsewhere."""
    booking = on_lease(plant, lab)
    plant.line.can_send = plant.line.can_receive = False
    watched(plant, booking, LEASE_EXPIRY_SECONDS + 8)
    assert node().partitioned
    before = agents_redis().get(wire.lease_key(NAME))
    with as_system():
        leases_grant([(node(), 10**15, node().key_version)])
    assert agents_redis().get(wire.lease_key(NAME)) == before

    plant.line.can_send = plant.line.can_receive = True
    for _ in range(12):
        plant.later(SECOND)
    assert not node().partitioned
    assert agents_redis().get(wire.lease_key(NAME)) != before
