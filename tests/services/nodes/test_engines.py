"""What the portal makes of a node whose GPUs another scheduler gives to bookings."""

import dataclasses

import pytest
import yaml

import wire
from allocation.models import Booking, Gpu, Node
from allocation.queries.bookings.bookings import node_places_of
from allocation.queries.fleet.fleet import fleet_now
from allocation.services.bookings.creation import booking_request
from allocation.services.nodes.inventories import inventory_apply
from allocation.services.publish.desired import desired_documents
from allocation.services.snapshot.hardware import gpus_read
from allocation.web.bookings.summary import commands_of
from tests.builders_allocation import Lab, a_booking_request, a_lab
from tests.roles import as_system
from tests.services.plant import Plant, fresh, rows_of


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


def withheld(plant: Plant, why: str | None) -> None:
    """The agent's report, in which the node's engine withholds its GPUs."""
    version = plant.identity.signing_version
    plain = wire.open_report(plant.report(), plant.identity.keys)
    assert isinstance(plain, wire.Report)
    gpus = (wire.ReportedGpu(uuid=gpu.uuid, mode="whole", withheld=why) for gpu in plant.hardware.gpus)
    report = dataclasses.replace(plain, gpus=tuple(gpus))
    sealed = wire.seal(report, key=plant.identity.keys[version], key_version=version)
    assert plant.receive(sealed) == "applied"


def health() -> set[tuple[str, str]]:
    with as_system():
        return set(Gpu.objects.values_list("health", "health_reason"))


def test_what_it_withholds_takes_no_new_work_and_what_runs_goes_on(plant: Plant, lab: Lab) -> None:
    with as_system():
        first = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    plant.round()
    withheld(plant, "Slurm says that n1 is DRAIN (a fan).")
    withheld(plant, "Slurm says that n1 is DRAIN (a fan).")
    assert health() == {("draining", "Nothing new starts on it: Slurm says that n1 is DRAIN (a fan).")}
    assert fresh(first).state == "active"
    with as_system():
        second = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    plant.cycle()
    assert rows_of(second) == []
    withheld(plant, "n1 is not in Slurm's reservation portal")
    assert health() == {("draining", "Nothing new starts on it: n1 is not in Slurm's reservation portal.")}
    withheld(plant, None)
    assert health() == {("ok", "")}


def test_an_operators_drain_stays_when_it_withholds_nothing_more(plant: Plant) -> None:
    with as_system():
        Gpu.objects.update(health="draining", health_reason="Fan", needs_operator=True)
    withheld(plant, "Slurm says that n1 is DRAIN")
    withheld(plant, None)
    assert health() == {("draining", "Fan")}


def test_its_devices_are_planned_whole(plant: Plant) -> None:
    inventory = dataclasses.replace(plant.node.inventory(), engine="slurm", seq=9)
    with as_system():
        assert {(gpu.mode, gpu.shares) for gpu in gpus_read()} == {(None, True)}
        inventory_apply(node=Node.objects.get(), inventory=inventory, now=plant.now)
        assert Node.objects.get().engine == "slurm"
        assert {(gpu.mode, gpu.shares) for gpu in gpus_read()} == {("whole", False)}


@pytest.mark.parametrize("host", ["", "n3"])
def test_the_page_of_a_booking_says_how_to_work_in_its_job(plant: Plant, lab: Lab, host: str) -> None:
    """In a pool it names the host that the engine has chosen, too."""
    with as_system():
        inventory = dataclasses.replace(plant.node.inventory(), engine="slurm", pool="portal", seq=9)
        inventory_apply(node=Node.objects.get(), inventory=inventory, now=plant.now)
        assert Node.objects.get().engine_pool == "portal"
        (tile,) = fleet_now(tenant_id=None, now=plant.now)
        assert tile.engine == "Slurm, slot of the pool portal"
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    plant.cycle()
    (row,) = rows_of(booking)
    ready = wire.ReportedAllocation(
        id=row.id.hex, state="ready", devices=(row.gpu.uuid,), error=None, since=0, job=4711, host=host
    )
    assert plant.receive(plant.report(ready)) == "applied"
    with as_system():
        found = fresh(booking)
        (place,) = node_places_of(found)
        name = f"{place.name}, on n3" if host else place.name
        assert commands_of(found, [place]) == [(name, "srun --jobid=4711 --overlap --pty bash -l")]


def test_a_node_of_kubernetes_learns_the_project_and_the_page_names_the_queue(plant: Plant, lab: Lab) -> None:
    with as_system():
        inventory = dataclasses.replace(plant.node.inventory(), engine="kubernetes", seq=9)
        inventory_apply(node=Node.objects.get(), inventory=inventory, now=plant.now)
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    plant.cycle()
    with as_system():
        (document,) = desired_documents(list(Node.objects.all()), epoch=1)
        wanted = [each for gpu in document.gpus for each in gpu.allocations]
        assert {each.project for each in wanted} == {lab.project.slug}
        Node.objects.update(engine="device")
        (plain,) = desired_documents(list(Node.objects.all()), epoch=1)
        assert {each.project for gpu in plain.gpus for each in gpu.allocations} == {None}
        Node.objects.update(engine="kubernetes")
    (row,) = rows_of(booking)
    ready = wire.ReportedAllocation(
        id=row.id.hex, state="ready", devices=(row.gpu.uuid,), error=None, since=0
    )
    assert plant.receive(plant.report(ready)) == "applied"
    with as_system():
        found = fresh(booking)
        (place,) = node_places_of(found)
        queue = f"bk-{found.number}"
        assert commands_of(found, [place]) == [(place.name, f"kueue.x-k8s.io/queue-name: {queue}")]
        assert {engine: pod_lines(found, lab, engine) for engine in ("quota", "volcano")} == {
            "quota": (pod := pod_needs(found, lab)),
            "volcano": {
                "metadata": {
                    "annotations": {
                        "scheduling.volcano.sh/queue-name": f"gpu-portal.{lab.project.tenant.slug}.{queue}"
                    }
                },
                "spec": {"schedulerName": "volcano", **pod},
            },
        }


def pod_needs(booking: Booking, lab: Lab) -> dict[str, object]:
    """What a pod needs without Kueue."""
    (place,) = node_places_of(booking)
    return {
        "priorityClassName": f"gpu-portal.{lab.project.tenant.slug}.bk-{booking.number}.{place.name}",
        "nodeSelector": {"kubernetes.io/hostname": place.name},
        "tolerations": [{"key": "gpu-portal/node", "operator": "Exists"}],
    }


def pod_lines(booking: Booking, lab: Lab, engine: str) -> object:
    """What the page says of a node of such an engine, which learns the project, too."""
    Node.objects.update(engine=engine)
    (document,) = desired_documents(list(Node.objects.all()), epoch=1)
    assert {each.project for gpu in document.gpus for each in gpu.allocations} == {lab.project.slug}
    (place,) = node_places_of(booking)
    ((_, lines),) = commands_of(booking, [place])
    return yaml.safe_load(lines)
