"""What an API server says, read."""

from decimal import Decimal

import pytest

from agent.kubernetes.bodies import is_same, quotas_of, resource_groups
from agent.kubernetes.objects import gpus_of, node_read, pod_read, quantity
from tests.agent.builders import a_whole

NODE = {
    "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "host-1"}},
    "spec": {},
    "status": {
        "capacity": {"nvidia.com/gpu": "4"},
        "allocatable": {"cpu": "63500m", "memory": "400Gi", "nvidia.com/gpu": "4"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


@pytest.mark.parametrize(
    ("text", "number"),
    [("4", 4), ("63500m", Decimal("63.5")), ("2Ki", 2048), ("1M", 10**6), ("1e3", 1000), ("1E", 10**18)],
)
def test_quantities_are_read(text: str, number: Decimal | int) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize("text", ["", "x", "1x", "1 Gi", "--1"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        quantity(text)


def test_whole_gpus_and_slices_count_and_nothing_else() -> None:
    found = gpus_of(
        {"nvidia.com/gpu": "2", "nvidia.com/mig-1g.10gb": "7", "nvidia.com/gpu.shared": "4", "cpu": "9"}
    )
    assert found == {"nvidia.com/gpu": 2, "nvidia.com/mig-1g.10gb": 7}


def test_a_pod_uses_what_its_containers_or_the_first_ones_need() -> None:
    def container(count: int) -> dict[str, object]:
        return {"resources": {"limits": {"nvidia.com/gpu": str(count)}}}

    spec = {"containers": [container(1), container(2)], "initContainers": [container(2), container(4)]}
    pod = pod_read({"metadata": {"uid": "u", "namespace": "a", "name": "b"}, "spec": spec})
    assert (pod.uses, pod.node, pod.booking) == ({"nvidia.com/gpu": 4}, "", "")


def test_quotas_are_what_was_booked_or_a_share_of_the_node() -> None:
    node = node_read(NODE)
    plain = quotas_of([(a_whole(), "nvidia.com/gpu"), (a_whole("b"), "nvidia.com/gpu")], node)
    assert plain == {
        "nvidia.com/gpu": "2",
        "cpu": "31750m",
        "memory": str(200 * 2**30),
        "ephemeral-storage": "0",
    }
    assert is_same(plain, {**plain, "cpu": "31.75", "memory": "200Gi", "nvidia.com/mig-1g.10gb": "0"})
    assert not is_same(plain, {**plain, "cpu": "31"})


def test_each_flavor_has_a_quota_of_each_resource() -> None:
    (group,) = resource_groups({"a": {"cpu": "1", "nvidia.com/gpu": "2"}, "b": {"cpu": "3"}})
    assert group["coveredResources"] == ["cpu", "nvidia.com/gpu"]
    assert group["flavors"][1]["resources"] == [
        {"name": "cpu", "nominalQuota": "3"},
        {"name": "nvidia.com/gpu", "nominalQuota": "0"},
    ]
    assert resource_groups({}) == []
