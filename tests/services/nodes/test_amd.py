"""A node with GPUs of AMD, from its inventory to bookings of partitions and of the whole GPU."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from allocation.models import GpuModel, Node
from allocation.services.bookings.creation import booking_request
from allocation.services.snapshot.hardware import gpus_read, models_read
from solver import units_of
from tests.builders_allocation import Lab, a_booking_request, a_lab, a_model, a_policy, a_price_book, an_ask
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.plant import Plant, a_plant, fresh, rows_of

NAME = "AMD Instinct MI300X (CPX)"


@pytest.fixture
def amd(real_db: Servers, tmp_path: Path) -> Iterator[Plant]:
    """A node of one MI300X, in the class of the builders."""
    h100 = a_model(enrolled=False)
    with as_system():
        GpuModel.objects.create(
            slug="mi300x-cpx", product_name=NAME, gpu_class=h100.gpu_class, memory_mb=196_592
        )
    a_policy()
    a_price_book()
    with a_plant(tmp_path, simulate="mi300x:1") as plant:
        yield plant


@pytest.fixture
def lab(amd: Plant) -> Lab:
    return a_lab("helix", gpus=0)


def test_partitions_are_booked_as_slices_and_then_the_gpu_is_whole_again(amd: Plant, lab: Lab) -> None:
    with as_system():
        model = GpuModel.objects.get(slug="mi300x-cpx")
        assert (model.memory_slots, model.compute_slices, model.placements.count()) == (8, 8, 8)
        assert Node.objects.get().state == "ready"
        # Only NVIDIA's GPUs can be shared, by MPS.
        assert [gpu.shares for gpu in gpus_read()] == [False]
        part = a_booking_request(lab.project, an_ask(hours=1, profile="cpx.24gb"))
        parts = [booking_request(actor=lab.actor, request=part, now=amd.now) for _ in range(3)]
    amd.round()
    assert [fresh(each).state for each in parts] == ["active"] * 3
    found = [row for each in parts for row in rows_of(each)]
    assert len({row.start for row in found}) == 3
    (gpu,) = amd.hardware.gpus
    assert len(gpu.instances) == 8
    with as_system():
        request = a_booking_request(lab.project, an_ask(hours=1))
        whole = booking_request(actor=lab.actor, request=request, now=amd.now)
    amd.round()
    assert fresh(whole).state != "active"
    for _ in range(4):
        amd.later(timedelta(minutes=20))
    assert [fresh(each).state for each in parts] == ["ended"] * 3
    assert fresh(whole).state == "active"
    assert gpu.instances == {}


def test_a_partition_costs_its_part_of_the_gpu(amd: Plant) -> None:
    with as_system():
        model = {each.slug: each for each in models_read()}["mi300x-cpx"]
    assert 8 * units_of(model, "cpx.24gb") == units_of(model, None)
