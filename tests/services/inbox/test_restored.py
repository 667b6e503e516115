"""After a backup was restored, nodes that have heard newer words are seen, and follow again; after
Redis lost its data, all of it is there again."""

import dataclasses
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
import redis
from django.conf import settings
from django.core.management import call_command

import wire
from allocation.models import Node, SolverState
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.invariants import invariants_check
from allocation.services.inbox.batch import StreamMessage, messages_apply
from allocation.services.nodes.redis_accounts import agent_accounts_ensure, agents_redis
from allocation.services.nodes.restores import (
    FATE_NOT_ENROLLED,
    bookings_lost,
    epoch_now,
    nodes_ahead,
)
from allocation.services.publish.publish import republish_all
from tests.builders_allocation import Lab, a_booking_request, a_lab
from tests.roles import as_system
from tests.services.inbox.test_protocol import heartbeat, node, signed, usable
from tests.services.inbox.test_reports import world
from tests.services.plant import NAME, Plant, fresh

pytestmark = pytest.mark.turn

SECOND = timedelta(seconds=1)


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


def test_a_word_that_is_newer_than_ours_is_not_believed_and_tells_of_a_restore(
    plant: Plant, lab: Lab
) -> None:
    plant.round()
    with as_system():
        old = SolverState.objects.get(id=1).epoch
    for fields in ({"epoch": old + 5}, {"observed_generation": node().generation + 1}):
        before = world()
        assert plant.receive(plant.report(**fields)) == "stale"
        assert world() == before
        assert not usable()
        with as_system():
            assert nodes_ahead() == [NAME]
        assert plant.receive(plant.report()) == "applied"
        assert usable()


@pytest.mark.parametrize("how", ["alone", "with others"])
def test_a_node_that_went_on_further_is_seen_by_its_next_heartbeat(plant: Plant, how: str) -> None:
    """No document has to reach it first: a restored portal may publish none for hours."""
    plant.round()
    old, beat = node(), wire.open_report(heartbeat(plant), plant.identity.keys)
    assert isinstance(beat, wire.Heartbeat)
    with as_system():
        epoch = SolverState.objects.get(id=1).epoch
    gone_on = dataclasses.replace(
        beat, epoch=epoch, observed_generation=old.generation + 1, seq=old.heartbeat_seq + 7
    )
    known = dataclasses.replace(gone_on, observed_generation=old.generation, seq=beat.seq)
    for message, ahead in ((known, None), (gone_on, epoch)):
        if how == "alone":
            assert plant.receive(signed(plant, message)) == "applied"
        else:
            with as_system():
                said = [StreamMessage(NAME, signed(plant, message))]
                assert messages_apply(said, plant.now) == ["applied"]
        assert node().ahead_epoch == ahead
    assert not usable()
    with as_system():
        assert [(v.promise, v.detail) for v in invariants_check()] == [("P3", NAME)]
        call_command("epoch_raise")
        assert invariants_check() == []


def test_an_agent_that_does_not_say_its_epoch_is_believed_as_before(plant: Plant) -> None:
    assert plant.receive(heartbeat(plant)) == "applied"
    assert node().ahead_epoch is None


def test_after_a_restore_the_raised_epoch_makes_nodes_follow_again(
    plant: Plant, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    with as_system():
        backup = Node.objects.values("generation", "published_generation", "report_seq").get()
        first = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    plant.round()
    assert fresh(first).state == "active"
    followed = plant.node.store.generation
    with as_system():
        # The node's part of an older backup.
        Node.objects.update(**backup)
        republish_all(plant.now)
    plant.later(SECOND * 61)
    assert plant.node.store.generation == followed
    assert node().ahead_epoch is not None
    assert not usable()

    with as_system():
        call_command("epoch_raise")
    plant.later(SECOND * 5)
    with as_system():
        epoch = SolverState.objects.get(id=1).epoch
    assert plant.node.store.epoch == epoch > followed
    assert str(epoch) in capsys.readouterr().out
    assert node().ahead_epoch is None
    assert usable()


def test_the_epoch_rises_above_what_nodes_have_told_of(plant: Plant) -> None:
    far = 1 << 40
    assert plant.receive(plant.report(epoch=far)) == "stale"
    with as_system():
        call_command("epoch_raise")
        assert SolverState.objects.get(id=1).epoch == far + 1
        call_command("epoch_raise")
        assert SolverState.objects.get(id=1).epoch == far + 2


@pytest.mark.long
def test_after_the_loss_of_redis_everything_is_there_again_within_one_period(plant: Plant, lab: Lab) -> None:
    with as_system():
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    plant.round()
    server: Any = agents_redis()
    before = server.get(wire.desired_key(NAME))
    server.flushall()
    server.acl_deluser(f"agent-{NAME}")

    # The reader's own turns: the first finds its group gone, the next makes all of it anew.
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        plant.portal_reads(block_ms=1)
    plant.reader._known.clear()
    plant.reader._took_over = 0
    plant.portal_reads()
    assert server.get(wire.desired_key(NAME)) == before
    with as_system():
        assert agent_accounts_ensure() == 0
    plant.now += SECOND * 5
    plant.node_works()
    plant.portal_reads()
    assert server.get(wire.lease_key(NAME))
    assert fresh(booking).state == "active"


@pytest.mark.long
def test_after_a_recovery_bookings_that_only_nodes_know_are_named_by_their_last_documents(
    plant: Plant, lab: Lab
) -> None:
    with as_system():
        known = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    plant.round()
    assert fresh(known).state == "active"
    now = int(plant.now.timestamp())
    lost = wire.DesiredAllocation(
        id="b" * 32,
        booking="BK-77",
        tenant="helix",
        owner="mara",
        profile=None,
        profile_id=None,
        slot=0,
        size=8,
        starts=now,
        ends=now + 3600,
        state="run",
    )
    gone = wire.Desired(
        node="gpu-z9-01",
        epoch=1,
        generation=3,
        gpus=(wire.DesiredGpu(uuid="GPU-z", mode="whole", allocations=(lost,)),),
    )
    master = settings.AGENTS_MASTER_KEY.encode()
    # By a key that was changed after the backup, for a node that joined after it.
    envelope = wire.seal(gone, key=wire.node_key(master, gone.node, 4), key_version=4)
    agents_redis().set(wire.desired_key(gone.node), envelope.to_json())
    forged = wire.seal(gone, key=b"x" * 32, key_version=4)
    agents_redis().set(wire.desired_key("gpu-z9-02"), forged.to_json())
    agents_redis().set(wire.desired_key("gpu-z9-03"), b"{}")
    said = StringIO()
    with as_system():
        (found,) = bookings_lost()
        assert (found.booking, found.owner, found.fate) == ("BK-77", "mara", FATE_NOT_ENROLLED)
        before = epoch_now()
        call_command("restore", recovered=True, stdout=said)
        assert epoch_now() > before
    assert "known to nodes 1, in the previous database 0." in said.getvalue()
    assert "BK-77 of helix, mara, on gpu-z9-01 until" in said.getvalue()
