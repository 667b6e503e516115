"""Classes and models: made by operators, in use by nodes, and filled in by drivers."""

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from allocation.models import Gpu, GpuModel, MigPlacement, Node
from allocation.services.nodes.fleet import node_approve
from allocation.services.nodes.inventories import inventory_apply
from allocation.services.operate.catalogue import (
    ModelTerms,
    class_remove,
    class_set,
    model_remove,
    model_set,
)
from tenants.models import AuditEntry, GpuClass, Quota, User
from tenants.platform.errors import Refused
from tenants.platform.wall import operator_tx
from tests.builders import a_gpu_class, a_tenant, an_operator
from tests.builders_allocation import NOW
from tests.roles import as_owner, as_system
from tests.services.reported import a_gpu, an_inventory, enrolled, there

pytestmark = pytest.mark.django_db
H100 = ModelTerms("NVIDIA H100 80GB HBM3", "h100", 80_000)


def said(operator: User, terms: ModelTerms, slug: str = "h100-80gb") -> GpuModel:
    with operator_tx():
        class_set(operator=operator, slug=terms.gpu_class, label=terms.gpu_class.upper(), now=NOW)
        return model_set(operator=operator, slug=slug, terms=terms, now=NOW)


@pytest.fixture
def operator() -> User:
    return an_operator("olaf")


def test_partitions_of_amd_are_the_whole_gpu_only_together(operator: User) -> None:
    """No slice is all of the GPU, as 7g is with MIG."""
    name = "AMD Instinct MI300X (CPX)"
    said(operator, ModelTerms(name, "mi300x", 196_592), "mi300x-cpx")
    node = enrolled(an_inventory(a_gpu(0, name, *[("cpx.24gb", start, 1, 1, 8) for start in range(8)])))
    assert node.state != Node.State.QUARANTINED, list(node.difference_words)
    with as_system():
        model = GpuModel.objects.get()
        assert (model.memory_slots, model.compute_slices) == (8, 8)
        assert MigPlacement.objects.filter(model=model).count() == 8


def test_gpus_wait_for_their_model_and_come_in_when_it_is_named(operator: User) -> None:
    ones = [("1g.6gb", start, 1, 1, 4) for start in range(4)]
    sliced = a_gpu(0, H100.product_name, *ones, ("4g.24gb", 0, 4, 4, 1))
    inventory = an_inventory(sliced, a_gpu(1, "NVIDIA L4"))
    node = enrolled(inventory)
    assert node.state == Node.State.QUARANTINED
    assert node.state_reason.startswith("GPU 0 is a NVIDIA H100 80GB HBM3, and no model")
    with pytest.raises(Refused, match="models_unknown"), operator_tx():
        node_approve(operator=operator, node=node, now=NOW)

    said(operator, H100)
    node = there()
    assert node.state == Node.State.QUARANTINED
    assert list(node.difference_words) == [
        "GPU 1 is a NVIDIA L4, and no model of that name is in the catalogue."
    ]
    with as_system():
        assert Gpu.objects.get().model_id == "h100-80gb"
        model = GpuModel.objects.get()
    # The driver's value replaces the one that the operator entered.
    assert (model.memory_mb, model.memory_slots, model.compute_slices) == (81_559, 4, 4)

    said(operator, ModelTerms("NVIDIA L4", "l4", 23_034), "l4")
    node = there()
    assert list(node.difference_words) == []
    assert node.state_reason.startswith("Its GPUs are in the catalogue now.")
    with operator_tx():
        node_approve(operator=operator, node=node, now=NOW)
    with as_system():
        # What its agent reports again is no news.
        inventory_apply(node=there(), inventory=inventory, now=NOW + timedelta(1))
    assert there().state == Node.State.READY


@pytest.mark.parametrize(
    "places",
    [
        [("1g.24gb", start, 3, 1, 4) for start in (0, 3, 6, 9)],
        [("1g.10gb", start, 1, 1, 3) for start in range(7)],
        [(f"1g.10gb+{n}", start, 1, 1, 1) for n in range(8) for start in range(7)],
        [("1g.10gb", 0, 1, 0, 7)],
        [("1g.10gb", -1, 1, 1, 7)],
    ],
    ids=["twelve slots", "three of seven", "eight times one", "no compute", "before the first"],
)
def test_slices_that_can_not_be_planned_offer_whole_gpus(
    operator: User, places: list[tuple[str, int, int, int, int]]
) -> None:
    said(operator, dataclasses.replace(H100, product_name="NVIDIA RTX PRO 6000"))
    node = enrolled(an_inventory(a_gpu(0, "NVIDIA RTX PRO 6000", *places)))
    assert node.state == Node.State.READY
    with as_system():
        assert not MigPlacement.objects.exists()


def test_a_name_that_an_older_driver_gives_means_the_same_model(operator: User) -> None:
    said(operator, ModelTerms("NVIDIA A100-SXM4-80GB", "a100", 81_920, 30), "big")
    assert enrolled(an_inventory(a_gpu(0, "A100-SXM4-80GB"))).state == Node.State.READY


def test_what_is_in_use_stays(operator: User) -> None:
    said(operator, H100)
    said(operator, ModelTerms("NVIDIA L4", "l4", 23_034), "l4")
    enrolled(an_inventory(a_gpu(0, "NVIDIA H100 80GB HBM3")))
    with as_system():
        Quota.objects.create(tenant=a_tenant(), gpu_class_id="l4")

    def refused(work: Callable[..., object], **arguments: object) -> Refused:
        with pytest.raises(Refused) as caught, operator_tx():
            work(operator=operator, now=NOW, **arguments)
        return caught.value

    assert "1 model and 1 GPU" in refused(class_remove, slug="h100").sentence
    assert "1 model and 1 quota" in refused(class_remove, slug="l4").sentence
    assert refused(model_remove, slug="h100-80gb").code == "model_in_use"
    used = dataclasses.replace(H100, memory_mb=81_559)
    for terms, param in (
        (dataclasses.replace(used, product_name="NVIDIA H200"), "product_name"),
        (dataclasses.replace(used, gpu_class="l4"), "gpu_class"),
        (dataclasses.replace(used, memory_mb=1), "memory_mb"),
    ):
        assert refused(model_set, slug="h100-80gb", terms=terms).param == param
    with operator_tx():
        terms = dataclasses.replace(used, switch_seconds=20)
        assert model_set(operator=operator, slug="h100-80gb", terms=terms, now=NOW).mode_switch == ("reset")
        model_remove(operator=operator, slug="l4", now=NOW)
    with as_owner():
        Quota.objects.all().delete()
    with operator_tx():
        class_remove(operator=operator, slug="l4", now=NOW)
    with as_system():
        actions = list(
            AuditEntry.objects.filter(tenant=None, actor=operator)
            .order_by("id")
            .values_list("action", "object_id")
        )
        assert GpuClass.objects.get().slug == "h100"
    assert actions == [
        ("gpu_class.set", "h100"),
        ("gpu_model.set", "h100-80gb"),
        ("gpu_class.set", "l4"),
        ("gpu_model.set", "l4"),
        ("gpu_model.set", "h100-80gb"),
        ("gpu_model.removed", "l4"),
        ("gpu_class.removed", "l4"),
    ]


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"product_name": ""}, "bad_name", "product_name"),
        ({"product_name": "NVIDIA L4"}, "product_name_taken", "product_name"),
        ({"gpu_class": "nope"}, "not_found", "gpu_class"),
        ({"memory_mb": 0}, "bad_model", "memory_mb"),
        ({"memory_mb": 2**40}, "bad_model", "memory_mb"),
        ({"switch_seconds": 601}, "bad_model", "switch_seconds"),
        ({"switch_seconds": -1}, "bad_model", "switch_seconds"),
    ],
)
def test_senseless_models_are_refused_at_their_field(
    operator: User, change: dict[str, Any], code: str, param: str
) -> None:
    said(operator, H100)
    said(operator, ModelTerms("NVIDIA L4", "l4", 23_034), "l4")
    terms = dataclasses.replace(H100, **change)
    with pytest.raises(Refused) as caught, operator_tx():
        model_set(operator=operator, slug="h100-80gb", terms=terms, now=NOW)
    assert (caught.value.code, caught.value.param) == (code, param)


def test_two_classes_never_have_one_name(operator: User) -> None:
    with operator_tx():
        class_set(operator=operator, slug="a", label="H100 80 GB", now=NOW)
        made = class_set(operator=operator, slug="b", label="L4", now=NOW)
        assert made.order == 1
        class_set(operator=operator, slug="b", label="L4 24 GB", now=NOW)
    for label, order in (("h100 80 gb", None), ("", None), ("L4", 1001)):
        with pytest.raises(Refused) as caught, operator_tx():
            class_set(operator=operator, slug="b", label=label, order=order, now=NOW)
        assert caught.value.param in ("label", "order")


def named(**site: str) -> None:
    """The site's models by short name, with NVML's names."""
    made = a_gpu_class("x")
    with as_system():
        for slug, name in site.items():
            GpuModel.objects.create(slug=slug, product_name=name, gpu_class=made, memory_mb=97_887)


@pytest.mark.parametrize(
    ("name", "device", "memory_mb", "model"),
    [
        ("NVIDIA RTX PRO 6000 of a later driver", "10de:2bb4", 97_887, "workstation"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "10de:2bb4", 97_887, "maxq"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "", 97_887, "maxq"),
        ("NVIDIA RTX PRO 6000 Blackwell DC-24Q", "10de:2bb5", 24_576, None),
        ("NVIDIA of ours", "10de:ffff", 97_887, "ours"),
        ("NVIDIA of ours", "10de:27b8", 23_034, "ours"),
        ("NVIDIA of theirs", "", 97_887, None),
    ],
)
def test_a_gpu_is_known_by_its_pci_id_first_and_by_its_name_where_that_says_nothing(
    name: str, device: str, memory_mb: int, model: str | None
) -> None:
    prefix = "NVIDIA RTX PRO 6000 Blackwell"
    named(
        maxq=f"{prefix} Max-Q Workstation Edition",
        workstation=f"{prefix} Workstation Edition",
        server=f"{prefix} Server Edition",
        ours="NVIDIA of ours",
    )
    item = dataclasses.replace(a_gpu(0, name), device_id=device, memory_mb=memory_mb)
    node = enrolled(an_inventory(item))
    with as_system():
        assert list(Gpu.objects.values_list("model_id", flat=True)) == [model] * bool(model)
    assert node.state == (Node.State.READY if model else Node.State.QUARANTINED)
