"""A real Slurm of two nodes is adopted with one enrolment, and bookings run there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from allocation.models import Booking, Node
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_release
from tests.agent.engine_portal import KIND, EnginePortal, now
from tests.agent.engine_process import EngineProcess
from tests.builders_allocation import Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.slurm.cluster import OWNER, Cluster, running
from tests.slurm.engine import options_of

pytestmark = [pytest.mark.faults, pytest.mark.engines]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Slurm's names may have capitals.
    yield from running(names=("n1", "N2"))


@pytest.fixture
def lab(live_portal: str) -> Lab:
    return a_lab("helix", gpus=0)


@pytest.fixture
def portal(live_portal: str, lab: Lab) -> EnginePortal:
    return EnginePortal(live_portal)


@pytest.fixture
def engine(portal: EnginePortal, cluster: Cluster, tmp_path: Path) -> Iterator[EngineProcess]:
    # The nodes are those of the reservation.
    options = options_of(cluster, tmp_path / "state", nodes="")
    found = EngineProcess(portal, tmp_path / "state", {**options, "GPU_AGENT_TOKEN": ""})
    yield found
    found.close()
    cluster.empty()


def booked(lab: Lab) -> Booking:
    """A booking that needs a whole node."""
    request = a_booking_request(lab.project, an_ask(4, together="node"))
    with as_system():
        return booking_request(actor=lab.actor, request=request, now=now())


def released(portal: EnginePortal, lab: Lab, booking: Booking) -> None:
    with as_system():
        booking_release(actor=lab.actor, booking=Booking.objects.get(id=booking.id), now=now())
    portal.until(lambda: portal.state(booking) == "ended")


def racks() -> dict[str, str]:
    with as_system():
        return dict(Node.objects.values_list("host_name", "rack__name"))


def numbers(cluster: Cluster) -> set[str]:
    return {line.split()[0] for line in cluster.jobs("R")}


def test_bookings_run_as_jobs_on_hosts_of_one_identity(
    portal: EnginePortal, engine: EngineProcess, cluster: Cluster, lab: Lab
) -> None:
    done = engine.enrol(portal.token())
    assert "has reported 2 hosts" in done.stdout, done.stderr
    assert sorted(portal.approve(kind=KIND)) == ["n1", "n2"]
    engine.start()
    portal.until(lambda: portal.connected() == {"n1", "n2"})
    first, second = booked(lab), booked(lab)
    portal.until(lambda: {portal.state(first), portal.state(second)} == {"active"})
    assert sorted({*portal.nodes_of(first), *portal.nodes_of(second)}) == ["n1", "n2"]
    assert sorted(line.split()[2:4] for line in cluster.jobs("R")) == [[OWNER, "N2"], [OWNER, "n1"]]
    assert racks() == {"": "leaf-n1", "N2": "leaf-n2"}

    # A killed engine finds its jobs again, with the keys that it has on disk, and takes new ones.
    jobs = numbers(cluster)
    engine.kill()
    engine.start()
    portal.rotate()
    portal.until(lambda: all(node.key_version == node.key_confirmed == 3 for node in Node.objects.all()))
    assert numbers(cluster) == jobs
    assert {portal.state(first), portal.state(second)} == {"active"}
    released(portal, lab, first)
    assert len(numbers(cluster)) == 1

    # A lock-out is of both; what runs continues, also after a new enrolment.
    portal.revoke()
    portal.until(lambda: "Enrol it again" in engine.log())
    assert engine.stop() == 0
    assert engine.enrol(portal.token(), "--enrol-again").returncode == 0
    engine.start()
    assert sorted(portal.approve(kind=KIND)) == ["n1", "n2"]
    portal.until(lambda: portal.connected() == {"n1", "n2"})
    assert len(numbers(cluster)) == 1
    released(portal, lab, second)
    assert cluster.jobs() == []
    assert cluster.started() == 2
