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
from tests.slurm.cluster import OWNER, Cluster
from tests.slurm.engine import options_of

pytestmark = [pytest.mark.faults, pytest.mark.engines]


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


def test_bookings_run_as_jobs_on_hosts_of_one_identity(
    portal: EnginePortal, engine: EngineProcess, cluster: Cluster, lab: Lab
) -> None:
    done = engine.enrol(portal.token())
    assert "has reported 2 hosts" in done.stdout, done.stderr
    assert portal.approve(kind=KIND) == ["n1", "n2"]
    engine.start()
    portal.until(lambda: portal.connected() == {"n1", "n2"})

    def booked(count: int) -> Booking:
        request = a_booking_request(lab.project, an_ask(count, together="node"))
        with as_system():
            return booking_request(actor=lab.actor, request=request, now=now())

    # Each needs a whole node, so both hosts work.
    first, second = booked(4), booked(4)
    portal.until(lambda: {portal.state(first), portal.state(second)} == {"active"})
    assert sorted({*portal.nodes_of(first), *portal.nodes_of(second)}) == ["n1", "n2"]
    running = sorted(line.split()[2:4] for line in cluster.jobs("R"))
    assert running == [[OWNER, "n1"], [OWNER, "n2"]]

    # A killed engine finds its jobs again, with the keys that it has on disk.
    jobs = {line.split()[0] for line in cluster.jobs("R")}
    engine.kill()
    engine.start()
    portal.rotate()
    portal.until(lambda: all(node.key_version == node.key_confirmed == 3 for node in Node.objects.all()))
    assert {line.split()[0] for line in cluster.jobs("R")} == jobs
    assert {portal.state(first), portal.state(second)} == {"active"}

    with as_system():
        booking_release(actor=lab.actor, booking=Booking.objects.get(id=first.id), now=now())
    portal.until(lambda: portal.state(first) == "completed")
    assert len(cluster.jobs("R")) == 1

    # A lock-out is of both; what runs continues.
    portal.revoke()
    portal.until(lambda: "Enrol it again" in engine.log())
    assert len(cluster.jobs("R")) == 1
    assert engine.stop() == 0
    assert engine.enrol(portal.token(), "--enrol-again").returncode == 0
    engine.start()
    assert portal.approve(kind=KIND) == ["n1", "n2"]
    portal.until(lambda: portal.connected() == {"n1", "n2"})
    assert len(cluster.jobs("R")) == 1
    with as_system():
        booking_release(actor=lab.actor, booking=Booking.objects.get(id=second.id), now=now())
    portal.until(lambda: portal.state(second) == "completed")
    assert cluster.jobs() == []
    assert cluster.started() == 2
