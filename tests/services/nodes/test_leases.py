"""Leases on the portal's side: what is begun anew elsewhere, when, and what it costs."""

import dataclasses
from datetime import datetime, timedelta

import pytest
import redis

import wire
from agent.act.leases import Leases
from agent.plan.targets import Record
from allocation.models import Booking, Gpu, Node, Occupancy, SolverState
from allocation.rules.ask import AskDocument
from allocation.rules.nodes.leases import LEASE_EXPIRY_SECONDS
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.decide.cycle import cycle_run
from allocation.services.decide.invariants import invariants_check
from allocation.services.inbox.consumer import Reader
from allocation.services.nodes import leases
from allocation.services.nodes.redis_accounts import agents_redis
from allocation.services.record.costs import booking_cost
from allocation.services.runs.end import allocation_empty
from allocation.services.runs.lost_runs import node_bookings_requeue
from allocation.services.runs.start import allocations_ready
from billing.rates import Spell
from tenants.models import Tier
from tests.builders import a_tier
from tests.builders_allocation import NOW, Lab, a_booking_request, a_lab, a_node, an_ask
from tests.roles import as_system
from tests.services.pause_plans import pause_of
from tests.services.paused import noticed, on_gpus_of
from tests.services.plant import NAME, Plant, Steady, fresh, rows_of

pytestmark = pytest.mark.turn

SECOND = timedelta(seconds=1)
OTHER = "gpu-b1-01"


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


def on_lease(plant: Plant, lab: Lab, ask: AskDocument | None = None) -> Booking:
    """A booking that runs on the plant's node, of a tier that begins anew; and room elsewhere."""
    a_tier("standard")
    with as_system():
        Tier.objects.update(replace_on_lost=True)
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=plant.now)
    plant.round()
    plant.later(SECOND * 5)
    assert fresh(booking).state == "active"
    a_node(OTHER, gpus=2)
    return booking


def lives(plant: Plant, *, minutes: int) -> None:
    """Time passes in steps in which leases are renewed."""
    for _ in range(minutes * 5):
        plant.later(SECOND * 12)


def node(name: str = NAME) -> Node:
    with as_system():
        return Node.objects.get(name=name)


@dataclasses.dataclass
class Second:
    """What was true in one second: the device in use here, the next run begun elsewhere."""

    here: bool
    elsewhere: bool


def watched(plant: Plant, booking: Booking, seconds: int) -> list[Second]:
    """Lets time pass second by second, with a program on the device that has to be killed."""
    gpu = plant.hardware.gpus[0]
    row = rows_of(booking)[0]
    plant.hardware.process_start(gpu.uuid, label=row.id.hex, stubborn=True)
    seen = []
    for _ in range(seconds):
        plant.agent.wait_s()
        plant.now += SECOND
        plant.node_works()
        plant.portal_reads()
        plant.cycle()
        begun = [r for r in rows_of(booking) if r.gpu.node.name == OTHER and r.state != "planned"]
        seen.append(Second(bool(gpu.processes), bool(begun)))
    return seen


CUTS = {
    "both ways": (False, False),
    "it is not heard": (False, True),
    "it receives nothing": (True, False),
}


@pytest.mark.parametrize(
    ("can_send", "can_receive"),
    [
        pytest.param(*ways, id=name, marks=() if name == "both ways" else pytest.mark.long)
        for name, ways in CUTS.items()
    ],
)
def test_it_begins_elsewhere_only_after_it_has_ended_here(
    plant: Plant, lab: Lab, *, can_send: bool, can_receive: bool
) -> None:
    booking = on_lease(plant, lab)
    plant.line.can_send, plant.line.can_receive = can_send, can_receive
    seen = watched(plant, booking, LEASE_EXPIRY_SECONDS + 8)
    assert seen[0].here
    assert seen[-1].elsewhere
    assert not [second for second in seen if second.here and second.elsewhere]


def test_without_the_fence_it_would_run_twice(
    plant: Plant, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: an agent that does not end what outlives its lease."""

    def never(_: Leases, held: dict[str, Record], __: float) -> dict[str, Record]:
        return held

    monkeypatch.setattr(Leases, "fence", never)
    booking = on_lease(plant, lab)
    plant.line.can_send = plant.line.can_receive = False
    seen = watched(plant, booking, LEASE_EXPIRY_SECONDS + 8)
    assert [second for second in seen if second.here and second.elsewhere]


@pytest.mark.long
def test_a_cut_that_is_shorter_than_the_lease_changes_nothing(plant: Plant, lab: Lab) -> None:
    booking = on_lease(plant, lab)
    plant.line.can_send = plant.line.can_receive = False
    watched(plant, booking, 10)
    plant.line.can_send = plant.line.can_receive = True
    seen = watched(plant, booking, LEASE_EXPIRY_SECONDS + 8)
    assert all(second.here and not second.elsewhere for second in seen)
    assert fresh(booking).state == "active"


def test_other_tiers_run_on_where_they_are(plant: Plant, lab: Lab) -> None:
    booking = on_lease(plant, lab)
    with as_system():
        Tier.objects.update(replace_on_lost=False)
        other = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    plant.round()
    assert {row.leased for row in rows_of(other)} == {False}
    cut_until_replaced(plant, booking)
    assert fresh(other).state == "active"
    (row,) = rows_of(other)
    assert row.id.hex in plant.node.handover.devices()


def cut_until_replaced(plant: Plant, booking: Booking) -> datetime:
    """Cuts the node off until the booking has left it; when its last heartbeat was heard."""
    plant.line.can_send = plant.line.can_receive = False
    heard = node().heartbeat_at
    assert heard is not None
    for _ in range(5):
        plant.agent.wait_s()
        plant.now += SECOND * 11
        plant.node_works()
        plant.portal_reads()
    assert fresh(booking).state == "queued"
    return heard


def pausing_on_lease(plant: Plant, lab: Lab) -> Booking:
    """A leased booking whose owner was notified of a pause in ten minutes."""
    booking = on_lease(plant, lab)
    with as_system():
        Tier.objects.update(pausable=True)
    noticed(plant, booking, lab, ask=on_gpus_of(booking, an_ask(1, hours=1)))
    assert fresh(booking).state == "pausing"
    return booking


def test_what_pauses_on_a_node_that_is_lost_is_paused_in_time_and_goes_on_elsewhere_once(
    plant: Plant, lab: Lab
) -> None:
    booking = pausing_on_lease(plant, lab)
    lives(plant, minutes=1)
    plant.line.can_send = plant.line.can_receive = False
    for _ in range(5):
        plant.agent.wait_s()
        plant.now += SECOND * 11
        plant.node_works()
        plant.portal_reads()
    # It keeps the grace that it was promised, and is broken off once.
    now = fresh(booking)
    # That a node is silent is no failure of hardware: the run is charged like any that pauses.
    assert (now.state, now.hardware_lost_at) == ("pausing", None)
    assert {(row.state, row.abandoned) for row in rows_of(booking)} == {("releasing", True)}
    with as_system():
        assert node_bookings_requeue(node_id=node().id, seq=node().heartbeat_seq, now=plant.now) == 0
        assert booking.events.filter(kind="broken_off").count() == 1

    plant.now = pause_of(booking).deadline
    plant.cycle()
    assert fresh(booking).state == "starting"
    assert [row.gpu.node.name for row in rows_of(booking) if not row.abandoned] == [OTHER]
    with as_system():
        assert invariants_check() == []


@pytest.mark.long
def test_what_is_being_cleared_for_a_pause_on_a_node_that_is_lost_does_not_hang(
    plant: Plant, lab: Lab
) -> None:
    booking = pausing_on_lease(plant, lab)
    lives(plant, minutes=1)
    plant.line.can_send = plant.line.can_receive = False
    plant.now = pause_of(booking).deadline
    plant.cycle()
    assert {row.state for row in rows_of(booking)} == {"releasing"}
    for _ in range(5):
        plant.now += SECOND * 11
        plant.portal_reads()
    plant.cycle()
    assert fresh(booking).state == "starting"
    with as_system():
        assert invariants_check() == []


def test_what_is_left_behind_keeps_the_device_until_it_is_proven_empty(plant: Plant, lab: Lab) -> None:
    booking = on_lease(plant, lab, an_ask(2))
    cut_until_replaced(plant, booking)
    plant.cycle()
    assert fresh(booking).state == "starting"
    left, now_there = rows_of(booking)[:2], rows_of(booking)[2:]
    assert {(row.state, row.abandoned, row.gpu.node.name) for row in left} == {("releasing", True, NAME)}
    assert {(row.state, row.abandoned, row.gpu.node.name) for row in now_there} == {
        ("starting", False, OTHER)
    }
    with as_system():
        assert Occupancy.objects.filter(closed=None).count() == 4
        assert invariants_check() == []

    plant.line.can_send = plant.line.can_receive = True
    plant.later(SECOND * 5)
    assert {row.state for row in rows_of(booking)[:2]} == {"ended"}
    assert fresh(booking).state == "starting"
    with as_system():
        assert Occupancy.objects.filter(closed=None).count() == 2
        assert invariants_check() == []


def test_it_is_charged_for_what_it_had_and_gets_the_time_it_has_left(plant: Plant, lab: Lab) -> None:
    booking = on_lease(plant, lab)
    ready = fresh(booking).ready_at
    assert ready is not None
    lives(plant, minutes=2)
    heard = cut_until_replaced(plant, booking)
    used = int((heard - ready).total_seconds())
    now = fresh(booking)
    assert (now.used_seconds, now.replacement_count, now.ready_at) == (used, 1, None)
    assert now.reasons[0]["rule"] == "R55"

    plant.cycle()
    row = rows_of(booking)[-1]
    assert (row.period.upper - row.period.lower).total_seconds() == 7200 - used
    began = plant.now
    with as_system():
        allocations_ready({row.id: ["GPU-x"]}, began)
        plant.now = row.period.upper
        allocation_empty(row.id, plant.now)
        over = fresh(booking)
        assert over.state == "ended"
        second = int((row.period.upper - began).total_seconds())
        assert over.charged == booking_cost(over, Spell(used + second))
        # The node that fell silent is still silent, and the booking is over all the same.
        assert Occupancy.objects.filter(closed=None).count() == 1
        assert invariants_check() == []


def test_what_is_cancelled_while_it_waits_is_charged_for_what_it_had(plant: Plant, lab: Lab) -> None:
    booking = on_lease(plant, lab)
    lives(plant, minutes=2)
    cut_until_replaced(plant, booking)
    with as_system():
        over = booking_cancel(actor=lab.actor, booking=fresh(booking), now=plant.now)
        assert over.charged == booking_cost(over, Spell(over.used_seconds)) > 0
        assert invariants_check() == []


def test_a_fixed_window_takes_what_is_left_of_it(plant: Plant, lab: Lab) -> None:
    booking = on_lease(plant, lab, an_ask(starts=NOW))
    cut_until_replaced(plant, booking)
    plant.cycle()
    assert rows_of(booking)[-1].period.upper <= NOW + timedelta(hours=2)
    assert fresh(booking).state == "starting"


def test_a_fixed_window_that_finds_no_place_is_over_and_charged(plant: Plant, lab: Lab) -> None:
    booking = on_lease(plant, lab, an_ask(starts=NOW))
    with as_system():
        Gpu.objects.filter(node__name=OTHER).update(health=Gpu.Health.LOST)
    cut_until_replaced(plant, booking)
    plant.now = NOW + timedelta(hours=2)
    plant.cycle()
    over = fresh(booking)
    assert over.state == "expired"
    assert over.charged == booking_cost(over, Spell(over.used_seconds)) > 0


def test_less_than_a_minute_is_not_worth_another_start(plant: Plant, lab: Lab) -> None:
    booking = on_lease(plant, lab, an_ask(hours=0.03))
    lives(plant, minutes=1)
    plant.line.can_send = plant.line.can_receive = False
    for _ in range(5):
        plant.now += SECOND * 11
        plant.portal_reads()
    assert fresh(booking).state == "active"


def test_a_heartbeat_that_was_heard_in_the_meantime_keeps_it_where_it_is(plant: Plant, lab: Lab) -> None:
    booking = on_lease(plant, lab)
    seq = node().heartbeat_seq
    plant.later(SECOND * 5)
    assert node().heartbeat_seq > seq
    with as_system():
        assert node_bookings_requeue(node_id=node().id, seq=seq, now=plant.now) == 0
    assert fresh(booking).state == "active"


@pytest.mark.parametrize("hours", [1, -1])
def test_a_jump_of_the_portals_clock_replaces_nothing_and_silences_nobody(
    hours: int, plant: Plant, lab: Lab
) -> None:
    booking = on_lease(plant, lab)
    jumped = Reader(
        "another",
        clock=lambda: plant.now + timedelta(hours=hours),
        steady=Steady(plant),
    )
    for _ in range(12):
        plant.agent.wait_s()
        plant.now += SECOND * 5
        plant.node_works()
        with as_system():
            jumped.turn(block_ms=0)
    now = node()
    assert (fresh(booking).state, now.unreachable_since, now.partitioned) == ("active", None, False)
    # The two clocks differ, and nobody knows whose is wrong: nothing new goes there.
    assert now.clock_wrong
    assert not now.takes_work


def test_a_jump_of_the_portals_clock_takes_nobodys_term_and_ends_by_the_clock_it_has(
    plant: Plant, lab: Lab
) -> None:
    """Terms are counted, so a cycle that ran an hour ahead keeps no later one from leading. What
    is to end by the clock ends early: the portal believes its own."""
    booking = on_lease(plant, lab, an_ask(hours=0.5))
    with as_system():
        before = SolverState.objects.get(id=1).leader_term
        cycle_run(plant.now + timedelta(hours=1))
        assert fresh(booking).state == "ending"
        cycle_run(plant.now - timedelta(hours=1))
        cycle_run(plant.now)
        assert SolverState.objects.get(id=1).leader_term == before + 3
        assert invariants_check() == []
    plant.later(SECOND * 15)
    assert fresh(booking).state == "ended"


def test_a_node_whose_agent_knows_no_lease_gets_none_and_nothing_is_held_on_one(
    plant: Plant, lab: Lab
) -> None:
    agents_redis().delete(wire.lease_key(NAME))
    with as_system():
        Node.objects.update(agent_version="0.2.0")
        Tier.objects.update(replace_on_lost=True)
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=NOW)
    plant.cycle()
    plant.node_works()
    plant.portal_reads()
    assert {row.leased for row in rows_of(booking)} == {False}
    raw = agents_redis().get(wire.desired_key(NAME))
    assert isinstance(raw, bytes)
    assert b"lease" not in raw
    assert agents_redis().get(wire.lease_key(NAME)) is None


def test_a_heartbeat_counts_although_its_answer_is_lost(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise redis.ConnectionError("away")

    before = node().heartbeat_seq
    plant.now += SECOND * 5
    plant.node_works()
    monkeypatch.setattr(leases, "agents_redis", away)
    plant.portal_reads()
    assert node().heartbeat_seq > before
