"""A site with Slurm is adopted with one enrolment, by the real portal and agent; commands stand in."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from allocation.models import EngineAgent, Node
from tests.agent.engine_portal import KIND, EnginePortal, StandInSlurm
from tests.agent.engine_process import EngineProcess
from tests.builders_allocation import a_lab
from tests.roles import as_system

pytestmark = pytest.mark.faults


@pytest.fixture
def portal(live_portal: str) -> EnginePortal:
    a_lab("helix", gpus=0)
    return EnginePortal(live_portal)


@pytest.fixture
def slurm(tmp_path: Path) -> StandInSlurm:
    return StandInSlurm(tmp_path / "bin")


@pytest.fixture
def engine(portal: EnginePortal, slurm: StandInSlurm, tmp_path: Path) -> Iterator[EngineProcess]:
    # Nothing that a service's environment has after the enrolment.
    options = {**slurm.environment, "GPU_AGENT_PORTAL": "", "GPU_AGENT_TOKEN": ""}
    found = EngineProcess(portal, tmp_path / "state", options)
    yield found
    found.close()


def test_sixty_nodes_with_one_enrolment(
    portal: EnginePortal, slurm: StandInSlurm, engine: EngineProcess
) -> None:
    names = {f"gpu{number:02d}" for number in range(1, 61)}
    slurm.holds(*sorted(names))
    done = engine.enrol(portal.token())
    assert (done.returncode, done.stderr.count("ERROR")) == (0, 0), done.stderr
    assert done.stdout.startswith("The engine main is enrolled and has reported 60 hosts. Approve them at")
    assert portal.hosts() == dict.fromkeys(names, False)

    assert set(portal.approve(kind=KIND)) == names
    engine.start()
    portal.until(lambda: portal.connected() == names, seconds=120)
    with as_system():
        rows = Node.objects.all()
        assert {(row.state, row.engine, row.engine_agent_id) for row in rows} == {("ready", "slurm", "main")}
    assert engine.stop() == 0


def test_hosts_come_and_go_while_it_runs(
    portal: EnginePortal, slurm: StandInSlurm, engine: EngineProcess
) -> None:
    slurm.holds("n1", "n2")
    assert engine.enrol(portal.token()).returncode == 0
    engine.start()
    # Approved while it runs: it learns so by itself.
    portal.approve("n1")
    portal.until(lambda: portal.connected() == {"n1"})
    slurm.holds("n2", "n3")
    portal.until(lambda: portal.hosts() == {"n1": True, "n2": False, "n3": False})
    # Nothing new starts on a host that is gone.
    portal.until(lambda: not Node.objects.get().gpus.filter(health="ok").exists())
    # An engine that starts without the node serves it when it is there again.
    engine.kill()
    engine.start()
    slurm.holds("n1", "n2")
    portal.until(lambda: portal.hosts() == {"n1": False, "n2": False})
    portal.until(lambda: Node.objects.get().gpus.filter(health="ok").count() == 4)


def test_hosts_with_capitals_and_dots_are_served(
    portal: EnginePortal, slurm: StandInSlurm, engine: EngineProcess
) -> None:
    slurm.holds("GPU01", "gpu02.local", features="rack=B2")
    assert engine.enrol(portal.token()).returncode == 0
    assert portal.approve(kind=KIND) == ["gpu01", "gpu02-local"]
    engine.start()
    portal.until(lambda: portal.connected() == {"gpu01", "gpu02-local"})
    assert {each.name for each in engine.state.iterdir() if each.is_dir()} == {"GPU01", "gpu02.local"}
    with as_system():
        assert set(Node.objects.values_list("rack__name", flat=True)) == {"b2"}
        seen = dict(Node.objects.values_list("name", "heartbeat_seq"))
    # It knows whose they are when it starts again without the portal.
    engine.kill()
    engine.start(GPU_AGENT_PORTAL="http://127.0.0.1:9")
    portal.until(
        lambda: all(each.heartbeat_seq > seen[each.name] for each in Node.objects.all()),
    )


def test_keys_are_rotated_and_the_identity_ends_for_the_whole(
    portal: EnginePortal, slurm: StandInSlurm, engine: EngineProcess
) -> None:
    slurm.holds("n1", "n2")
    assert engine.enrol(portal.token()).returncode == 0
    portal.approve(kind=KIND)
    engine.start()
    portal.until(lambda: portal.connected() == {"n1", "n2"})

    portal.rotate()

    def settled() -> bool:
        fields = ("key_version", "key_confirmed")
        rows = [*EngineAgent.objects.values_list(*fields), *Node.objects.values_list(*fields)]
        return all(newest == confirmed for newest, confirmed in rows)

    portal.until(settled)
    portal.until(lambda: portal.connected() == {"n1", "n2"})
    folder = engine.state
    for file in (folder / "engine.json", folder / "n1" / "identity.json", folder / "n2" / "identity.json"):
        portal.until(lambda file=file: list(json.loads(file.read_text())["keys"]) == ["3"])  # type: ignore[misc]

    portal.revoke()
    portal.until(lambda: "enrol it again" in engine.log().lower())
    assert engine.stop() == 0
    # What it knows of itself is worth nothing any more, and it says so.
    done = engine.enrol(portal.token())
    assert (done.returncode, "Enrol it again with a new token" in done.stderr) == (1, True)
    assert engine.enrol(portal.token(), "--enrol-again").returncode == 0
    engine.start()
    portal.approve(kind=KIND)
    portal.until(lambda: portal.connected() == {"n1", "n2"})
    with as_system():
        assert set(Node.objects.values_list("state", flat=True)) == {"ready"}


def test_without_the_portal_it_serves_the_hosts_that_it_knows(
    portal: EnginePortal, slurm: StandInSlurm, engine: EngineProcess
) -> None:
    slurm.holds("n1")
    assert engine.enrol(portal.token()).returncode == 0
    portal.approve("n1")
    engine.start()
    portal.until(lambda: portal.connected() == {"n1"})
    engine.kill()
    with as_system():
        before = Node.objects.get().heartbeat_seq
    engine.start(GPU_AGENT_PORTAL="http://127.0.0.1:9")
    portal.until(lambda: Node.objects.get().heartbeat_seq > before)
    portal.until(lambda: "the hosts were not reported" in engine.log())


def test_hosts_that_were_enrolled_one_by_one_move_to_the_engine(
    portal: EnginePortal, slurm: StandInSlurm, engine: EngineProcess
) -> None:
    slurm.holds("n1")
    # What version 1.0 left: a node with an identity of its own, and its file.
    path = engine.state / "n1" / "identity.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(portal.enrolled_alone("n1")))
    engine.start()
    portal.until(lambda: portal.connected() == {"n1"})
    assert engine.stop() == 0

    assert engine.enrol(portal.token()).returncode == 0
    engine.start()
    assert portal.approve("n1") == ["n1"]
    portal.until(lambda: portal.connected() == {"n1"})
    with as_system():
        node = Node.objects.get()
        assert (node.state, node.engine_agent_id, node.key_version) == ("ready", "main", 4)
    assert "4" in json.loads(path.read_text())["keys"]
