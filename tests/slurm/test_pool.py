"""A real Slurm of three nodes as a pool: it chooses the node of each job, and the portal keeps its plan."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from allocation.models import Allocation, Booking, Gpu
from allocation.queries.bookings.bookings import node_places_of
from allocation.queries.fleet.nodes import engines_now
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_release
from allocation.web.bookings.summary import commands_of
from tests.agent.engine_portal import KIND, EnginePortal, now
from tests.agent.engine_process import EngineProcess
from tests.builders_allocation import Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.slurm.cluster import OWNER, Cluster, running
from tests.slurm.engine import options_of

pytestmark = [pytest.mark.faults, pytest.mark.engines]
SLOTS = ["portal-1", "portal-2", "portal-3"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for found in running(names=("n1", "n2", "n3", "n4")):
        # Jobs of this reservation may start on nodes outside of it.
        found.run("scontrol", "update", "ReservationName=portal", "Nodes=n1,n2,n3", "Flags+=FLEX")
        yield found


@pytest.fixture
def lab(live_portal: str) -> Lab:
    return a_lab("helix", gpus=0, limit=12)


@pytest.fixture
def portal(live_portal: str, lab: Lab) -> EnginePortal:
    return EnginePortal(live_portal)


@pytest.fixture
def engine(portal: EnginePortal, cluster: Cluster, tmp_path: Path) -> Iterator[EngineProcess]:
    options = options_of(cluster, tmp_path / "state", nodes="")
    pool = {"GPU_AGENT_TOKEN": "", "GPU_AGENT_GRANULARITY": "pool"}
    found = EngineProcess(portal, tmp_path / "state", {**options, **pool})
    yield found
    found.close()
    cluster.empty()


def booked(lab: Lab, gpus: int) -> Booking:
    request = a_booking_request(lab.project, an_ask(gpus, together="node"))
    with as_system():
        return booking_request(actor=lab.actor, request=request, now=now())


def released(portal: EnginePortal, lab: Lab, *bookings: Booking) -> None:
    with as_system():
        for each in bookings:
            booking_release(actor=lab.actor, booking=Booking.objects.get(id=each.id), now=now())
    portal.until(lambda: {portal.state(each) for each in bookings} == {"ended"})


def active(portal: EnginePortal, *bookings: Booking) -> None:
    portal.until(lambda: {portal.state(each) for each in bookings} == {"active"})


def placed(cluster: Cluster, booking: Booking) -> dict[int | None, tuple[str, str]]:
    """Returns the slot of each job of a booking and its node, which the portal knows."""
    with as_system():
        rows = list(Allocation.objects.filter(booking=booking).select_related("gpu__node"))
    for row in rows:
        node = cluster.run("squeue", "--noheader", f"--jobs={row.job}", "--format=%N %u").split()
        assert node == [row.host, OWNER]
    return {row.job: (row.gpu.node.name, row.host) for row in rows}


def where(cluster: Cluster, booking: Booking) -> tuple[str, str]:
    (place,) = placed(cluster, booking).values()
    return place


def withheld() -> set[str]:
    with as_system():
        rows = Gpu.objects.filter(health_text__fleet="withheld")
        return set(rows.values_list("node__name", flat=True))


def enrolled(portal: EnginePortal, engine: EngineProcess) -> None:
    assert "has reported 3 hosts" in engine.enrol(portal.token()).stdout
    assert portal.approve(kind=KIND) == SLOTS
    engine.start()
    portal.until(lambda: portal.connected() == set(SLOTS))


def closed(portal: EnginePortal, cluster: Cluster, node: str) -> None:
    """Slurm starts nothing on the node any more: one slot less has work."""
    cluster.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    portal.until(lambda: withheld() == {"portal-3"})


def opened(portal: EnginePortal, cluster: Cluster, node: str) -> None:
    cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
    portal.until(lambda: withheld() == set())


def test_slurm_chooses_the_node_and_the_plan_of_slots_holds(
    portal: EnginePortal, engine: EngineProcess, cluster: Cluster, lab: Lab
) -> None:
    enrolled(portal, engine)
    # The portal would take its first node first.
    closed(portal, cluster, "n1")
    first, second = booked(lab, 2), booked(lab, 4)
    active(portal, first, second)
    slots, hosts = zip(where(cluster, first), where(cluster, second), strict=True)
    assert set(slots) == {"portal-1", "portal-2"}
    assert set(hosts) == {"n2", "n3"}

    # What comes to a slot with work follows its first job, also after a kill.
    engine.kill()
    engine.start()
    third = booked(lab, 2)
    active(portal, third)
    assert where(cluster, third) == (slots[0], hosts[0])
    assert len(cluster.jobs("R")) == 3

    # A slot that is empty again may come to another node.
    opened(portal, cluster, "n1")
    released(portal, lab, second)
    closed(portal, cluster, hosts[1])
    fourth = booked(lab, 4)
    active(portal, fourth)
    assert where(cluster, fourth) == (slots[1], "n1")
    opened(portal, cluster, hosts[1])
    released(portal, lab, first, third, fourth)
    assert cluster.jobs() == []


def test_the_portal_says_where_the_job_is(
    portal: EnginePortal, engine: EngineProcess, cluster: Cluster, lab: Lab
) -> None:
    enrolled(portal, engine)
    booking = booked(lab, 4)
    active(portal, booking)
    slot, host = where(cluster, booking)
    with as_system():
        (found,) = engines_now()
        ((name, command),) = commands_of(Booking.objects.get(id=booking.id), node_places_of(booking))
    assert (found.name, found.granularity, found.gpus) == ("slurm", "pool", 12)
    assert name == f"{slot}, on {host}"
    assert command.startswith("srun --jobid=")
    released(portal, lab, booking)


@pytest.mark.timeout(600)
def test_many_bookings_at_once_on_an_engine_that_is_killed(
    portal: EnginePortal, engine: EngineProcess, cluster: Cluster, lab: Lab
) -> None:
    """All that the portal starts gets its node, and two slots are never on one."""
    enrolled(portal, engine)
    chance, count, before = random.Random(36), 0, cluster.started()  # noqa: S311 (the same each time)
    for _ in range(8):
        bookings = [booked(lab, gpus) for gpus in chance.sample((1, 1, 2, 2, 3, 3), 6)]
        portal.turn()
        engine.kill_after(chance.uniform(0, 2))
        engine.start()
        active(portal, *bookings)
        # One that does not fit a slot any more has a job on each of two.
        jobs = {job: place for each in bookings for job, place in placed(cluster, each).items()}
        places = set(jobs.values())
        assert len(places) == len(dict(places)) == len({host for _, host in places}) == len(SLOTS)
        count += len(jobs)
        released(portal, lab, *bookings)
    assert cluster.jobs() == []
    assert cluster.started() - before == count
