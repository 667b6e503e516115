"""Numbers, epochs, clocks, floods: what the portal makes of a node that is not as it should be."""

import dataclasses
import itertools
import random
from datetime import timedelta
from typing import Any

import pytest

import wire
from allocation.models import Gpu, GpuSample, Node, NodeExamination
from allocation.rules.nodes.plausibility import clock_is_wrong
from allocation.services.bookings.creation import booking_request
from allocation.services.inbox import consumer, throttle
from allocation.services.inbox.throttle import FLOOD_SECONDS, PER_SECOND, Throttle
from allocation.services.nodes.fleet import node_approve
from allocation.services.nodes.inventories import differences_of
from allocation.services.nodes.redis_accounts import agents_redis
from allocation.services.snapshot.hardware import gpus_read
from tests.builders import an_operator
from tests.builders_allocation import Lab, a_booking_request, a_lab, a_node
from tests.roles import as_system
from tests.services.inbox.test_reports import world
from tests.services.plant import NAME, Plant, fresh

pytestmark = pytest.mark.turn

SECOND = timedelta(seconds=1)


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


def node() -> Node:
    with as_system():
        return Node.objects.get(name=NAME)


def usable() -> bool:
    with as_system():
        return all(gpu.usable for gpu in gpus_read())


def signed(plant: Plant, message: wire.FromAgent) -> wire.Envelope:
    version = plant.identity.signing_version
    return wire.seal(message, key=plant.identity.keys[version], key_version=version)


def heartbeat(plant: Plant, *, skew: int = 0) -> wire.Envelope:
    beat = wire.Heartbeat(
        seq=node().heartbeat_seq + 1,
        observed_generation=0,
        sent_at=int(plant.now.timestamp()) + skew,
    )
    return signed(plant, beat)


# Numbers.


def kinds(plant: Plant) -> dict[str, wire.Envelope]:
    """One message of each kind, newer than all that were heard."""
    seen = node()
    inventory = dataclasses.replace(plant.node.inventory(), seq=seen.inventory_seq + 1)
    sample = wire.Sample(
        gpu=plant.hardware.gpus[0].uuid,
        slot=None,
        size=None,
        allocation=None,
        utilisation=1,
        memory_used_mb=None,
        memory_total_mb=None,
        power_mw=None,
        temperature_c=None,
        processes=None,
    )
    telemetry = wire.Telemetry(sent_at=1, samples=(sample,), seq=seen.telemetry_seq + 1)
    check = wire.CheckResult(name="driver", state="fail", seen="none", do="load it")
    return {
        "examination": signed(plant, wire.Examination(at=1, checks=(check,), seq=1)),
        "inventory": signed(plant, inventory),
        "report": plant.report(),
        "heartbeat": heartbeat(plant),
        "telemetry": signed(plant, telemetry),
    }


def everything() -> list[Any]:
    """All that a message could change, but what was counted."""
    with as_system():
        counted = {"stale_dropped", "refused", "throttled"}
        fields = [f.name for f in Node._meta.concrete_fields if f.name not in counted]
        examinations = list(NodeExamination.objects.values())
        return [
            *world(),
            examinations,
            list(Node.objects.values(*fields)),
            GpuSample.objects.count(),
        ]


@pytest.mark.parametrize("kind", ["examination", "inventory", "report", "heartbeat", "telemetry"])
def test_a_message_again_changes_nothing_and_is_counted(plant: Plant, kind: str) -> None:
    message = kinds(plant)[kind]
    assert plant.receive(message) == "applied"
    before = everything()
    plant.now += SECOND
    assert [plant.receive(message) for _ in range(3)] == ["stale"] * 3
    assert everything() == before
    assert node().stale_dropped == 3


@pytest.mark.parametrize("kind", ["inventory", "telemetry"])
def test_one_without_a_number_is_believed_of_an_agent_that_is_too_old_to_give_one(
    plant: Plant, kind: str
) -> None:
    message = wire.open_report(kinds(plant)[kind], plant.identity.keys)
    assert isinstance(message, wire.Inventory | wire.Telemetry)
    without = signed(plant, dataclasses.replace(message, seq=0))
    assert plant.receive(without) == "stale"
    with as_system():
        Node.objects.update(agent_version="0.2.0")
    assert plant.receive(without) == "applied"


def test_old_messages_in_any_order_end_in_the_same_state(plant: Plant, lab: Lab) -> None:
    """What is newest of its kind wins, in each of the 720 orders of six messages."""
    base = node()
    sealed = []
    for step in (1, 2):
        report = plant.report(seq=base.report_seq + step)
        beat = wire.Heartbeat(
            seq=base.heartbeat_seq + step,
            observed_generation=step,
            sent_at=int(plant.now.timestamp()),
        )
        found = dataclasses.replace(plant.node.inventory(), seq=base.inventory_seq + step, cores=100 + step)
        sealed += [report, signed(plant, beat), signed(plant, found)]
    ends = []
    orders = list(itertools.permutations(sealed))
    for order in random.Random(7).sample(orders, 12):  # noqa: S311 (only an order)
        for envelope in order:
            plant.receive(envelope)
        ends.append(everything())
        with as_system():
            Node.objects.update(
                report_seq=base.report_seq,
                heartbeat_seq=base.heartbeat_seq,
                inventory_seq=base.inventory_seq,
                cores=base.cores,
            )
    assert all(end == ends[0] for end in ends)
    assert ends[0][-2][0]["cores"] == 102


def test_what_is_refused_is_counted(plant: Plant) -> None:
    message = dataclasses.replace(heartbeat(plant), mac="0" * 64)
    assert plant.receive(message) == "refused"
    assert (node().refused, node().stale_dropped) == (1, 0)


# Clocks.


@pytest.mark.parametrize("skew", [6, -6, 3600, -3600])
def test_a_node_with_a_wrong_clock_gets_no_new_work_until_it_is_right(
    plant: Plant, lab: Lab, skew: int
) -> None:
    assert plant.receive(heartbeat(plant, skew=skew)) == "applied"
    assert usable(), "one heartbeat may have waited on its way"
    assert plant.receive(heartbeat(plant, skew=skew)) == "applied"
    assert not usable()
    with as_system():
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    plant.cycle()
    # The only node of its class: it waits until the clock is right.
    assert fresh(booking).state == "queued"
    assert "R80" in {reason["rule"] for reason in fresh(booking).reasons}
    assert node().clock_skew_seconds == skew

    assert plant.receive(heartbeat(plant, skew=3)) == "applied"
    assert not usable(), "nearly right is not right"
    assert plant.receive(heartbeat(plant, skew=1)) == "applied"
    assert usable()


def test_a_reader_that_comes_late_makes_no_clock_wrong(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream knows when each heartbeat came."""
    server: Any = agents_redis()
    first = node().heartbeat_seq + 1
    for seq in (first, first + 1):
        beat = wire.Heartbeat(seq=seq, observed_generation=0, sent_at=int(plant.now.timestamp()))
        server.xadd(wire.report_stream(NAME), signed(plant, beat).to_fields())
    late, server_ms = timedelta(minutes=10), consumer.server_ms
    plant.now += late
    monkeypatch.setattr(
        consumer, "server_ms", lambda link: server_ms(link) + late // timedelta(milliseconds=1)
    )
    assert plant.portal_reads() == 2
    assert node().clock_skew_seconds in (0, 1)
    assert not node().clock_wrong


def test_a_clock_at_the_limit_does_not_come_and_go() -> None:
    assert not clock_is_wrong(skew=5, before=5, was_wrong=False)
    assert clock_is_wrong(skew=6, before=-6, was_wrong=False)
    assert clock_is_wrong(skew=3, before=6, was_wrong=True)
    assert not clock_is_wrong(skew=2, before=6, was_wrong=True)
    assert not clock_is_wrong(skew=60, before=None, was_wrong=False)


def test_an_absurd_time_of_a_node_is_only_a_wrong_clock(plant: Plant) -> None:
    for _ in range(2):
        assert plant.receive(heartbeat(plant, skew=1 << 60)) == "applied"
    assert node().clock_wrong


# Floods.


def flood(count: int) -> None:
    server: Any = agents_redis()
    with server.pipeline(transaction=False) as pipe:
        for _ in range(count):
            pipe.xadd(wire.report_stream(NAME), {"body": "x", "key": "1", "mac": "y"})
        pipe.execute()


def test_a_node_that_says_too_much_waits_for_the_next_second(plant: Plant) -> None:
    flood(3 * PER_SECOND)
    read = sum(plant.portal_reads() for _ in range(10))
    assert PER_SECOND <= read < 2 * PER_SECOND
    assert node().throttled == 1
    plant.now += SECOND
    assert plant.portal_reads() > 0


@pytest.mark.long
def test_a_node_that_goes_on_and_on_is_locked_out(plant: Plant) -> None:
    for _ in range(FLOOD_SECONDS):
        flood(2 * PER_SECOND)
        plant.portal_reads()
        plant.portal_reads()
        plant.now += SECOND
    after = node()
    assert (after.state, after.link_digest) == (Node.State.QUARANTINED, None)
    assert "exceeded its message rate" in after.state_reason
    server: Any = agents_redis()
    assert server.acl_getuser(f"agent-{NAME}") is None


def test_others_are_heard_while_one_floods() -> None:
    watch = Throttle()
    assert not watch.count("one", PER_SECOND - 1, 0, 7.0)
    assert watch.count("one", 1, 0, 7.9)
    assert not watch.count("one", 5, 0, 7.9), "once a second"
    assert not watch.may_send("one", 7.9)
    assert watch.may_send("two", 7.9)
    assert watch.may_send("one", 8.0)


def test_a_node_with_bursts_now_and_then_is_not_locked_out() -> None:
    watch = Throttle()
    for burst in range(100):
        watch.count("one", PER_SECOND, 0, burst * 10.0)
        assert not watch.floods("one")
    assert throttle.WATCHED_SECONDS / 10 < FLOOD_SECONDS


# What a node is made of.


def inventory_sent(plant: Plant, *gpus: wire.InventoryGpu) -> None:
    found = dataclasses.replace(plant.node.inventory(), gpus=gpus, seq=node().inventory_seq + 1)
    assert plant.receive(signed(plant, found)) == "applied"


def test_new_hardware_and_other_links_wait_for_an_operator(plant: Plant) -> None:
    one, two = plant.node.inventory().gpus
    inventory_sent(plant, one, two)
    assert (node().state, list(node().difference_words)) == (Node.State.READY, [])

    new = dataclasses.replace(two, index=2, uuid="GPU-new")
    moved = dataclasses.replace(two, nvlink_domain=7)
    inventory_sent(plant, one, moved, new)
    assert node().state == Node.State.QUARANTINED
    assert [text.split(",")[0] for text in list(node().difference_words)] == [
        "GPU 2 is new: NVIDIA H100 80GB HBM3",
        "GPU 1 moved from NVLink domain 0 to NVLink domain 7.",
    ]
    assert not usable()
    # Said again, it is still for the operator to see, once.
    inventory_sent(plant, one, moved, new)
    assert len(list(node().difference_words)) == 2
    with as_system():
        node_approve(operator=an_operator(), node=node(), now=plant.now)
    inventory_sent(plant, one, moved, new)
    assert (node().state, list(node().difference_words)) == (Node.State.READY, [])


def test_links_that_mig_mode_hides_are_no_news(plant: Plant) -> None:
    one, two = plant.node.inventory().gpus
    inventory_sent(plant, one, two)
    in_slices = dataclasses.replace(two, mode="sliced", nvlink_domain=None, peers=())
    inventory_sent(plant, one, in_slices)
    inventory_sent(plant, one, two)
    assert (node().state, list(node().difference_words)) == (Node.State.READY, [])
    with as_system():
        assert [g.domain for g in node().gpus.order_by("index")] == [0, 0]
        assert [peer[1] for g in node().gpus.order_by("index") for peer in g.peers] == [18, 18]
    # What is another link without MIG is still an operator's to see.
    inventory_sent(plant, one, dataclasses.replace(two, nvlink_domain=None))
    assert node().state == Node.State.QUARANTINED


def test_a_node_that_came_in_slices_tells_its_links_later(plant: Plant) -> None:
    one, two = (
        dataclasses.replace(gpu, mode="sliced", nvlink_domain=None) for gpu in plant.node.inventory().gpus
    )
    with as_system():
        Gpu.objects.update(domain=None)
    inventory_sent(plant, one, two)
    inventory_sent(plant, *plant.node.inventory().gpus)
    assert (node().state, list(node().difference_words)) == (Node.State.READY, [])
    with as_system():
        assert [g.domain for g in node().gpus.order_by("index")] == [0, 0]


def test_a_gpu_that_another_node_has_told_of_is_not_taken_over(plant: Plant) -> None:
    a_node("gpu-a1-02")
    one, two = plant.node.inventory().gpus
    inventory_sent(plant, one, two, dataclasses.replace(two, index=2, uuid="GPU-gpu-a1-02-0"))
    assert node().state == Node.State.QUARANTINED
    assert "already known on gpu-a1-02" in node().difference_words[0]
    with as_system():
        assert Gpu.objects.get(uuid="GPU-gpu-a1-02-0").node.name == "gpu-a1-02"


def test_a_node_that_comes_for_the_first_time_differs_from_nothing(plant: Plant) -> None:
    with as_system():
        Node.objects.update(state=Node.State.EXPECTED)
        assert differences_of(node(), plant.node.inventory()) == []
