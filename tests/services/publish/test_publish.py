"""Published documents of nodes; a loss of Redis data loses nothing."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
import redis
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

import wire
from allocation.models import Booking, Gpu, Node
from allocation.services.bookings.creation import booking_request
from allocation.services.inbox.consumer import Reader
from allocation.services.nodes.inventories import inventory_apply
from allocation.services.nodes.redis_accounts import agents_redis
from allocation.services.publish.desired import desired_documents
from allocation.services.publish.publish import publish_due, republish_all
from tests.builders_allocation import (
    NOW,
    Lab,
    a_booking,
    a_booking_request,
    a_lab,
    a_node,
    an_allocation,
    an_ask,
)
from tests.roles import as_system
from tests.services.plant import NAME, Plant, fresh, rows_of

pytestmark = pytest.mark.turn


def document(plant: Plant) -> wire.Desired:
    raw = agents_redis().get(wire.desired_key(NAME))
    assert isinstance(raw, bytes)
    return wire.open_desired(wire.Envelope.from_json(raw), plant.identity.keys)


def a_running_slice(plant: Plant) -> tuple[Lab, str]:
    lab = a_lab("helix", gpus=0)
    with as_system():
        booking = booking_request(
            actor=lab.actor,
            request=a_booking_request(lab.project, an_ask(profile="3g.40gb")),
            now=NOW,
        )
    plant.round()
    assert fresh(booking).state == "active"
    (row,) = rows_of(booking)
    return lab, row.id.hex


def test_a_node_is_told_its_whole_state_and_only_when_it_changed(plant: Plant) -> None:
    lab, name = a_running_slice(plant)
    published = document(plant)
    (gpu,) = [gpu for gpu in published.gpus if gpu.allocations]
    (wanted,) = gpu.allocations
    assert (wanted.id, wanted.tenant, wanted.booking) == (name, "helix", "BK-1")
    assert (wanted.profile_id, wanted.size, wanted.state) == (9, 4, "run")
    assert (wanted.ends - wanted.starts, gpu.mode) == (7200, "sliced")
    with as_system():
        assert Node.objects.get().generation == published.generation
        assert publish_due(plant.now) == 0
    assert lab.tenant.slug == wanted.tenant


def test_a_server_that_lost_its_data_is_filled_again_and_nothing_runs_twice(plant: Plant) -> None:
    a_running_slice(plant)
    before, instances = document(plant), dict(plant.hardware.gpus[0].instances)
    agents_redis().flushall()
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        plant.portal_reads(block_ms=1)
    # What `Reader.run` does then is to look at every stream anew.
    plant.reader = Reader("the test's", clock=lambda: plant.now)
    plant.portal_reads()
    assert document(plant) == before
    plant.later(timedelta(minutes=2))
    assert plant.hardware.gpus[0].instances == instances
    with as_system():
        assert Node.objects.get().state_reason == ""


def test_a_reader_publishes_again_at_a_server_whose_run_it_does_not_know(plant: Plant) -> None:
    """A replica that took the primary's place may lack the newest document, and has the group."""
    a_running_slice(plant)
    before, key = document(plant), wire.desired_key(NAME)
    agents_redis().delete(key)
    plant.portal_reads()
    assert agents_redis().get(key) is None
    plant.reader = Reader("the next", clock=lambda: plant.now)
    plant.portal_reads()
    assert document(plant) == before


def test_a_reader_that_dies_while_it_tells_again_leaves_that_to_the_next(plant: Plant) -> None:
    """The group marks that everything is published; it is created last."""
    a_running_slice(plant)
    before = document(plant)
    agents_redis().flushall()
    agents_redis().xadd(wire.report_stream(NAME), {"body": b"x"})
    assert agents_redis().xinfo_groups(wire.report_stream(NAME)) == []
    with as_system():
        Reader("the next", clock=lambda: plant.now).turn(block_ms=0)
    assert document(plant) == before


def a_gang(plant: Plant) -> tuple[Lab, Booking]:
    """A booking of two GPUs here and one on another node, starting."""
    lab = a_lab("helix", gpus=0)
    a_node("gpu-a1-02", gpus=1)
    booking = a_booking(lab.project, lab.actor.user_id, state="starting")
    with as_system():
        gpus = list(Gpu.objects.order_by("node__name", "index"))
    for gpu in gpus:
        an_allocation(booking, gpu, state="starting")
    with as_system():
        Node.objects.update(generation=F("generation") + 1)
        publish_due(plant.now)
    return lab, booking


def test_a_booking_on_several_nodes_names_them_and_its_ranks_on_each(plant: Plant) -> None:
    _, booking = a_gang(plant)
    members = (wire.Member(node=NAME, devices=2), wire.Member(node="gpu-a1-02", devices=1))
    assert document(plant).gangs == (wire.Gang(tenant="helix", booking=booking.label, members=members),)
    plant.node_works()
    found = json.loads((plant.folder / "bookings" / f"helix.{booking.label}" / "booking.json").read_text())
    assert (found["node_rank"], found["world_size"]) == (0, 3)
    assert found["master"]["address"] == NAME


def test_nodes_told_together_hear_what_each_alone_would_in_as_many_statements(
    plant: Plant,
) -> None:
    _, booking = a_gang(plant)
    with as_system():
        an_allocation(booking, Gpu.objects.filter(node=a_node("gpu-a1-03")).get(), state="active")
        nodes = list(Node.objects.order_by("name"))
        with CaptureQueriesContext(connection) as alone:
            apart = [document for node in nodes for document in desired_documents([node], 1)]
        with CaptureQueriesContext(connection) as together:
            assert desired_documents(nodes, 1) == apart
    assert [len(document.gpus) for document in apart] == [2, 1, 1]
    assert len(alone) == 3 * len(together)


def test_a_member_that_ends_first_changes_nothing_in_the_document_of_the_others(
    plant: Plant,
) -> None:
    """The same generation must always be the same bytes: the agent refuses anything else."""
    _, booking = a_gang(plant)
    raw = agents_redis().get(wire.desired_key(NAME))
    with as_system():
        booking.allocations.filter(gpu__node__name="gpu-a1-02").update(state="ended")
        republish_all(NOW)
    assert agents_redis().get(wire.desired_key(NAME)) == raw


def test_an_agent_that_does_not_know_gangs_is_not_told_of_them(plant: Plant) -> None:
    with as_system():
        Node.objects.update(agent_version="0.1.0")
    a_gang(plant)
    raw = agents_redis().get(wire.desired_key(NAME))
    assert isinstance(raw, bytes)
    assert b"gangs" not in raw
    assert document(plant).gpus[0].allocations


def test_a_booking_on_one_node_is_no_gang(plant: Plant) -> None:
    a_running_slice(plant)
    assert document(plant).gangs == ()


def test_a_generation_never_says_two_things(plant: Plant) -> None:
    """A mode that the agent reported changes the document, and so needs a number of its own."""
    a_running_slice(plant)
    for mode in ("sliced", "whole", "sliced"):
        before = document(plant)
        with as_system():
            node = Node.objects.get()
            spare = node.gpus.latest("index")
            turned = wire.ReportedGpu(uuid=spare.uuid, mode=mode)
            report = wire.Report(
                epoch=plant.identity.epoch,
                observed_generation=node.generation,
                seq=node.report_seq + 1,
                gpus=(turned,),
            )
            version = plant.identity.signing_version
            seal = wire.seal(report, key=plant.identity.keys[version], key_version=version)
            assert plant.receive(seal) == "applied"
            # As a server does that has lost its data: the same generation is written again.
            Node.objects.update(published_generation=-1)
            publish_due(plant.now)
        after = document(plant)
        assert (after.gpus == before.gpus) == (after.generation == before.generation)


def test_a_node_is_told_of_host_cores_and_memory_and_says_whether_it_keeps_to_them(
    plant: Plant,
) -> None:
    lab = a_lab("helix", gpus=0)
    with as_system():
        request = a_booking_request(lab.project, an_ask(cores=3, memory=8))
        booking_request(actor=lab.actor, request=request, now=NOW)
    plant.round()
    (wanted,) = [each for gpu in document(plant).gpus for each in gpu.allocations]
    assert (wanted.cores, wanted.memory_mb) == (3, 8_192)
    with as_system():
        node = Node.objects.get()
        assert (node.host_limits, node.host_note) == ("counted", "")
        found = replace(plant.node.inventory(), limits="enforced", limits_note="")
        inventory_apply(node=node, inventory=found, now=plant.now)
        assert Node.objects.get().host_limits == "enforced"
        # An agent that is too old would refuse its whole document for a field it does not know.
        node.agent_version = "0.4.0"
        (old,) = desired_documents([node], 1)
    (wanted,) = [each for gpu in old.gpus for each in gpu.allocations]
    assert (wanted.cores, wanted.memory_mb) == (0, 0)
