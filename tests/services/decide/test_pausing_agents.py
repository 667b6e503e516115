"""Pauses as agents see them: documents, reports and suspended work."""

from datetime import timedelta

import pytest

import wire
from allocation.models import Allocation, Booking, BookingEvent, Node
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.nodes.redis_accounts import agents_redis
from allocation.services.runs.resume import allocation_suspended
from allocation.services.snapshot.snapshot import CLEARING_SECONDS, seconds
from tenants.models import Tier
from tenants.platform.wall import tenant_tx
from tests.builders import a_tier
from tests.builders_allocation import HOUR, Lab, a_lab, a_node, an_ask
from tests.roles import as_system
from tests.services.pause_plans import GRACE, pause_of
from tests.services.paused import all_is_well, desired, document, noticed, on_gpus_of, running, saved
from tests.services.plant import NAME, Plant, fresh, rows_of

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)
CLEARING = timedelta(seconds=CLEARING_SECONDS)
ONE_GPU = pytest.mark.parametrize("plant", [1], indirect=True, ids=["one GPU"])


@pytest.fixture
def lab(plant: Plant) -> Lab:
    lab = a_lab("helix", gpus=0)
    a_tier("standard", pausable=True)
    return lab


@pytest.fixture
def rival(plant: Plant, lab: Lab) -> Lab:
    return a_lab("rivals", gpus=0)


def test_a_silent_agent_keeps_the_booking_pausing_and_its_room_is_nobodys(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking = running(plant, lab)
    plant.later(MINUTE)
    strong = noticed(plant, booking, rival)
    plant.now += GRACE + MINUTE
    plant.cycle()
    assert (fresh(booking).state, fresh(strong).state) == ("pausing", "scheduled")
    assert all_is_well()
    plant.later(MINUTE)
    assert (fresh(booking).state, fresh(strong).state) == ("paused", "active")


def test_a_node_that_says_failed_while_it_pauses_makes_the_run_no_cheaper(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    with as_system():
        Tier.objects.update(credit_cap_seconds=0)
    booking = running(plant, lab)
    plant.later(30 * MINUTE)
    noticed(plant, booking, rival)
    row = rows_of(booking)[0]
    failed = wire.ReportedAllocation(
        id=row.id.hex, state="failed", devices=(), error="the device is gone", since=0
    )
    assert plant.receive(plant.report(failed)) == "applied"
    assert fresh(booking).state == "pausing"
    plant.later(GRACE)
    # As any pause: half an hour of two GPUs, and the grace, which was no use, comes back.
    pause = pause_of(booking)
    assert (str(pause.charged), pause.remaining_seconds) == ("4.800000", 90 * 60)
    assert fresh(booking).hardware_lost_at is None
    with as_system():
        assert Node.objects.get(name=NAME).conflicts == 1
    assert all_is_well()


def test_an_agent_that_does_not_know_notices_still_hears_the_end(plant: Plant, lab: Lab, rival: Lab) -> None:
    with as_system():
        Node.objects.update(agent_version="0.2.0")
    booking = running(plant, lab)
    noticed(plant, booking, rival)
    documents = desired(plant)
    assert {each.notice for each in documents} == {None}
    assert {each.ends for each in documents} == {seconds(plant.now + GRACE)}
    raw = agents_redis().get(wire.desired_key(NAME))
    assert isinstance(raw, bytes)
    assert b"notice" not in raw
    assert b"resumes" not in raw


def test_the_agents_word_of_a_save_is_taken_from_its_report(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking = running(plant, lab)
    plant.later(MINUTE)
    noticed(plant, booking, rival)
    said = [
        wire.ReportedAllocation(
            id=row.id.hex,
            state="ready",
            devices=tuple(row.devices),
            error=None,
            since=0,
            saved=seconds(plant.now),
        )
        for row in rows_of(booking)
    ]
    assert plant.receive(plant.report(said[0])) == "applied"
    assert pause_of(booking).acknowledged_at is None
    assert plant.receive(plant.report(said[1])) == "applied"
    assert pause_of(booking).acknowledged_at == plant.now
    assert {row.state for row in rows_of(booking)} == {"releasing"}


@pytest.mark.long
@ONE_GPU
def test_what_was_frozen_on_a_node_is_named_to_what_goes_on_there(plant: Plant, lab: Lab, rival: Lab) -> None:
    with as_system():
        Tier.objects.filter(slug="standard").update(pause_method="suspend")
    booking = running(plant, lab, an_ask(1))
    noticed(plant, booking, rival, ask=an_ask(1, hours=1))
    assert {each.notice.method for each in desired(plant) if each.notice} == {"suspend"}
    old = sorted(row.id.hex for row in rows_of(booking))
    saved(plant, booking)
    with as_system():
        for row in rows_of(booking):
            allocation_suspended(row.id)
    plant.later(MINUTE)
    assert fresh(booking).state == "paused"
    plant.later(HOUR)
    plant.later(CLEARING)
    assert fresh(booking).state == "active"
    assert sorted(each.resumes or "" for each in desired(plant)) == old


def frozen_paused(plant: Plant, lab: Lab, rival: Lab, hours: float = 1) -> tuple[Booking, list[str]]:
    """Pauses a saved booking that stays suspended on its node; returns its allocations."""
    with as_system():
        Tier.objects.filter(slug="standard").update(pause_method="suspend")
    booking = running(plant, lab, an_ask(1))
    plant.later(MINUTE)
    noticed(plant, booking, rival, ask=an_ask(1, hours=1))
    saved(plant, booking)
    with as_system():
        for row in rows_of(booking):
            allocation_suspended(row.id)
    return booking, sorted(row.id.hex for row in rows_of(booking))


@ONE_GPU
def test_the_notice_stays_in_the_document_until_the_device_is_empty(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking, _ = frozen_paused(plant, lab, rival)
    plant.cycle()
    assert {row.state for row in rows_of(booking)} == {"releasing"}
    documents = [each for each in desired(plant) if each.state == "release"]
    assert [each.notice and each.notice.method for each in documents] == ["suspend"]


@pytest.mark.long
@ONE_GPU
def test_a_node_is_told_what_may_still_be_resumed_there_until_it_is_gone_on_with(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking, old = frozen_paused(plant, lab, rival)
    plant.later(MINUTE)
    assert fresh(booking).state == "paused"
    assert document(plant).suspended == tuple(old)
    plant.later(HOUR)
    plant.later(CLEARING)
    assert fresh(booking).state == "active"
    assert document(plant).suspended == tuple(old)
    assert {each.resumes for each in desired(plant)} == set(old)
    with as_system():
        booking_release(actor=lab.actor, booking=fresh(booking), now=plant.now)
    plant.later(MINUTE)
    assert fresh(booking).state == "ended"
    assert document(plant).suspended == ()


@ONE_GPU
def test_what_is_given_up_while_it_is_paused_is_forgotten_by_its_node(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking, _ = frozen_paused(plant, lab, rival)
    plant.later(MINUTE)
    assert len(document(plant).suspended or ()) == 1
    booking = fresh(booking)
    with tenant_tx(lab.tenant_id):
        booking_cancel(actor=lab.actor, booking=booking, now=plant.now)
    plant.cycle()
    before = document(plant)
    assert before.suspended == ()
    plant.cycle()
    assert document(plant).generation == before.generation


@pytest.mark.long
@ONE_GPU
def test_what_goes_on_elsewhere_is_forgotten_where_it_was(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking, old = frozen_paused(plant, lab, rival)
    plant.later(MINUTE)
    assert document(plant).suspended == tuple(old)
    a_node("gpu-b1-01", gpus=2)
    with as_system():
        Allocation.objects.filter(booking=booking, state="planned").update(state="superseded")
    plant.cycle()
    plant.cycle()
    assert fresh(booking).state == "starting"
    assert {row.gpu.node.name for row in rows_of(booking)[1:]} == {"gpu-b1-01"}
    assert document(plant).suspended == ()


@pytest.mark.long
@ONE_GPU
def test_it_waits_for_the_gpu_where_it_is_frozen_while_that_is_worth_it(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    """Elsewhere there is room at once, but an hour's work would have to be done again there."""
    with as_system():
        Tier.objects.filter(slug="standard").update(pause_method="suspend")
    booking = running(plant, lab, an_ask(1))
    plant.later(HOUR)
    noticed(plant, booking, rival, ask=an_ask(1, hours=0.5))
    with as_system():
        for row in rows_of(booking):
            allocation_suspended(row.id)
    a_node("gpu-b1-01", gpus=2)
    plant.later(GRACE)
    plant.later(CLEARING)
    assert fresh(booking).state == "paused"
    plant.cycle()
    promised = fresh(booking)
    assert promised.planned_starts is not None
    assert promised.planned_starts > plant.now
    assert "R87" in [reason["rule"] for reason in promised.reasons]
    plant.later(HOUR / 2)
    plant.later(CLEARING)
    assert fresh(booking).state == "active"
    assert {row.gpu.node.name for row in rows_of(booking)} == {NAME}
    assert all_is_well()


@pytest.mark.parametrize(
    ("count", "driver", "why"),
    [
        (2, "580.95.05", "programs that work together on several GPUs can't be suspended"),
        (1, "Slurm 22.05.8", "Slurm gives the devices of suspended programs to others"),
        (1, "Kubernetes v1.32.4", "Kubernetes can't suspend programs"),
        (1, "535.183.06", "its node has a driver older than 550, which can't suspend programs"),
        (1, "", None),
    ],
)
def test_the_owner_hears_at_the_notice_that_it_is_stopped_and_not_suspended(
    plant: Plant, lab: Lab, rival: Lab, count: int, driver: str, why: str | None
) -> None:
    with as_system():
        Tier.objects.filter(slug="standard").update(pause_method="suspend")
    booking = running(plant, lab, an_ask(count))
    with as_system():
        Node.objects.update(driver=driver)
    noticed(plant, booking, rival, ask=on_gpus_of(booking, an_ask(count)))
    method = "suspend" if why is None else "stop"
    assert {each.notice.method for each in desired(plant) if each.notice} == {method}
    assert pause_of(booking).method == method
    with as_system():
        (event,) = BookingEvent.objects.filter(booking=booking, kind="pause_noticed")
    assert ("not suspended" in event.sentence) == (why is not None)
    assert (why or "") in event.sentence


def test_an_agent_that_knows_no_pauses_is_told_nothing_of_what_is_frozen(plant: Plant, lab: Lab) -> None:
    with as_system():
        Node.objects.update(agent_version="0.2.0")
    running(plant, lab)
    assert document(plant).suspended is None
