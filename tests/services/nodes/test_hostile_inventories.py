"""Inventories that no column holds, or that contradict themselves: refused, never an error."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import wire
from allocation.models import EnrolmentToken, Gpu, Node
from allocation.services.nodes.fleet import enrolment_token_create, node_enrol
from allocation.services.nodes.inventories import inventory_apply
from tenants.platform.errors import Refused
from tests.builders_allocation import NOW, a_model
from tests.roles import as_system
from tests.services.reported import a_gpu, an_inventory, enrolled, there
from wire import envelope

pytestmark = pytest.mark.django_db
KEY = b"k" * 32
H100 = "NVIDIA H100 80GB HBM3"


def plain(*gpus: wire.InventoryGpu) -> Any:  # noqa: ANN401  JSON
    return json.loads(json.dumps(wire.inventory_to_plain(an_inventory(*gpus))))


def sliced() -> wire.InventoryGpu:
    return a_gpu(0, H100, ("1g.10gb", 0, 1, 1, 7))


TOO_LARGE = 10**9
FALSE: dict[str, Callable[[Any], object]] = {
    "an index": lambda it: it["gpus"][0].update(index=TOO_LARGE),
    "an index below zero": lambda it: it["gpus"][0].update(index=-1),
    "a NUMA node": lambda it: it["gpus"][0].update(numa=TOO_LARGE),
    "an NVLink domain": lambda it: it["gpus"][0].update(nvlink_domain=TOO_LARGE),
    "memory of a GPU": lambda it: it["gpus"][0].update(memory_mb=1 << 40),
    "a peer": lambda it: it["gpus"][0].update(peers=[{"index": -7, "nvlinks": 0, "path": None}]),
    "the number of a profile": lambda it: it["gpus"][0]["placements"][0].update(profile_id=-1),
    "the name of a profile": lambda it: it["gpus"][0]["placements"][0].update(profile="1g" * 13),
    "cores": lambda it: it.update(cores=1 << 31),
    "memory of the host": lambda it: it.update(memory_mb=-1),
    "a NUL": lambda it: it.update(driver="580\x00"),
    "half a character": lambda it: it.update(hostname="\ud800"),
}


@pytest.mark.parametrize("name", FALSE)
def test_what_no_column_holds_is_refused_and_the_token_is_still_good(name: str) -> None:
    a_model(enrolled=False)
    with as_system():
        token = enrolment_token_create(node_name="gpu-a1-01", rack_name="a1", now=NOW)
    false, good = plain(sliced()), plain(sliced())
    FALSE[name](false)
    with pytest.raises(Refused, match="inventory_invalid"):
        node_enrol(token=token, inventory=false, now=NOW)
    with as_system():
        assert not EnrolmentToken.objects.exclude(used_at=None).exists()
    node_enrol(token=token, inventory=good, now=NOW)
    # Once let in, a node signs its inventories: they are read as strictly.
    body = json.dumps({"kind": "inventory", **false, "seq": 1}).encode()
    signed = wire.Envelope(body, 1, envelope._mac(body, KEY))
    with pytest.raises(wire.WireError) as refused:
        wire.open_report(signed, {1: KEY})
    assert refused.value.reason == "malformed"


def test_two_gpus_of_one_index_are_a_difference_and_the_first_is_taken() -> None:
    a_model(enrolled=False)
    two = (a_gpu(0, H100), wire.InventoryGpu(**{**_fields(a_gpu(1, H100)), "index": 0}))
    node = enrolled(an_inventory(*two))
    assert node.state == Node.State.QUARANTINED
    assert list(node.difference_words) == ["GPU 0 (GPU-reported-1) has the index of another."]
    with as_system():
        assert Gpu.objects.get().uuid == "GPU-reported-0"


def test_gpus_may_change_their_indexes() -> None:
    a_model(enrolled=False)
    first, second = a_gpu(0, H100), a_gpu(1, H100)
    node = enrolled(an_inventory(first, second))
    moved = (
        wire.InventoryGpu(**{**_fields(first), "index": 1}),
        wire.InventoryGpu(**{**_fields(second), "index": 0}),
    )
    with as_system():
        inventory_apply(node=there(), inventory=an_inventory(*moved), now=NOW)
        found = dict(Gpu.objects.filter(node=node).values_list("uuid", "index"))
    assert found == {"GPU-reported-0": 1, "GPU-reported-1": 0}


def test_a_gpu_that_replaces_a_lost_one_has_its_index() -> None:
    a_model(enrolled=False)
    enrolled(an_inventory(a_gpu(0, H100)))
    new = wire.InventoryGpu(**{**_fields(a_gpu(1, H100)), "index": 0})
    with as_system():
        inventory_apply(node=there(), inventory=an_inventory(new), now=NOW)
        found = {gpu.uuid: (gpu.index, gpu.health) for gpu in Gpu.objects.all()}
    assert found["GPU-reported-1"] == (0, "ok")
    assert found["GPU-reported-0"][1] == "lost"


def _fields(gpu: wire.InventoryGpu) -> dict[str, Any]:
    return {name: getattr(gpu, name) for name in gpu.__dataclass_fields__}
