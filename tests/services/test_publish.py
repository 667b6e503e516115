"""What nodes are told, and that losing Redis loses nothing."""

from datetime import timedelta

import pytest
import redis

from allocation import wire
from allocation.models import Node
from allocation.services.bookings import booking_request
from allocation.services.links import agents_redis
from allocation.services.publish import publish_due
from allocation.services.reader import Reader
from tests.builders_allocation import NOW, Lab, a_lab, a_wish, an_ask
from tests.roles import as_system
from tests.services.plant import NAME, Plant, fresh, rows_of


def document(plant: Plant) -> wire.Desired:
    raw = agents_redis().get(wire.desired_key(NAME))
    assert isinstance(raw, bytes)
    return wire.open_desired(wire.Envelope.from_json(raw), plant.identity.keys)


def a_running_slice(plant: Plant) -> tuple[Lab, str]:
    lab = a_lab("helix", gpus=0)
    with as_system():
        booking = booking_request(
            actor=lab.actor, wish=a_wish(lab.project, an_ask(profile="3g.40gb")), now=NOW
        )
    plant.round()
    assert fresh(booking).state == "active"
    (row,) = rows_of(booking)
    return lab, row.id.hex


def test_a_node_is_told_its_whole_state_and_only_when_it_changed(plant: Plant) -> None:
    lab, name = a_running_slice(plant)
    told = document(plant)
    (gpu,) = [gpu for gpu in told.gpus if gpu.allocations]
    (wanted,) = gpu.allocations
    assert (wanted.id, wanted.tenant, wanted.booking) == (name, "helix", "BK-1")
    assert (wanted.profile_id, wanted.size, wanted.state) == (9, 4, "run")
    assert (wanted.ends - wanted.starts, gpu.mode) == (7200, "sliced")
    with as_system():
        assert Node.objects.get().generation == told.generation
        assert publish_due(plant.now) == 0
    assert lab.tenant.slug == wanted.tenant


def test_a_server_that_lost_its_data_is_filled_again_and_nothing_runs_twice(plant: Plant) -> None:
    a_running_slice(plant)
    before, instances = document(plant), dict(plant.hardware.gpus[0].instances)
    agents_redis().flushall()
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        plant.portal_reads()
    # What `Reader.run` does then is to look at every stream anew.
    plant.reader = Reader("the test's", clock=lambda: plant.now)
    plant.portal_reads()
    assert document(plant) == before
    plant.later(timedelta(minutes=2))
    assert plant.hardware.gpus[0].instances == instances
    with as_system():
        assert Node.objects.get().state_reason == ""


def test_a_reader_that_dies_while_it_tells_again_leaves_that_to_the_next(plant: Plant) -> None:
    """The group is the mark that all was told; it is made last."""
    a_running_slice(plant)
    before = document(plant)
    agents_redis().flushall()
    agents_redis().xadd(wire.report_stream(NAME), {"body": b"x"})
    assert agents_redis().xinfo_groups(wire.report_stream(NAME)) == []
    with as_system():
        Reader("the next", clock=lambda: plant.now).turn(block_ms=1)
    assert document(plant) == before
