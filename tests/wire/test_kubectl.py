"""What kubectl lists becomes pods with GPUs; anything else is said with its pod."""

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from wire.kubectl import gpus_requested, pods_read

NODES = [
    {
        "kind": "Node",
        "metadata": {"name": "gpu01", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
    },
    {"kind": "Node", "metadata": {"name": "amd01", "labels": {"amd.com/gpu.product-name": "MI300X"}}},
    {"kind": "Node", "metadata": {"name": "bare01"}},
]


def a_pod(name: str = "train-1", **status: Any) -> dict[str, Any]:  # noqa: ANN401 (parts of an object)
    """A pod of two GPUs that runs, but for this of its status."""
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "vision",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-11-02T08:00:00Z",
            "labels": {"kueue.x-k8s.io/queue-name": "team"},
        },
        "spec": {
            "nodeName": "gpu01",
            "containers": [{"name": "train", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "8"}}}],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-02T09:00:00Z"}
            ],
            **status,
        },
    }


def listed(*pods: dict[str, Any]) -> str:
    return json.dumps({"kind": "List", "items": [*NODES, *pods]})


def ended(at: str) -> dict[str, Any]:
    return {"state": {"terminated": {"finishedAt": at, "exitCode": 0}}}


def test_a_pod_that_runs_has_its_gpus_since_it_was_placed() -> None:
    (pod,) = pods_read(listed(a_pod()))
    assert (pod.number, pod.gpu_type, pod.gpus) == ("uid-train-1", "NVIDIA-H100-80GB-HBM3", 2)
    assert (pod.account, pod.partition, pod.nodes, pod.state) == ("vision", "team", "gpu01", "Running")
    assert (pod.submitted.hour, pod.started, pod.ended) == (8, datetime(2026, 11, 2, 9, tzinfo=UTC), None)


def test_it_ends_with_its_last_container_or_its_last_change() -> None:
    containers = [ended("2026-11-02T10:00:00Z"), ended("2026-11-02T11:00:00Z")]
    done = a_pod("done", phase="Succeeded", containerStatuses=containers)
    evicted = a_pod("evicted", phase="Failed", reason="Evicted")
    evicted["status"]["conditions"].append(
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-02T09:30:00Z"}
    )
    first, second = pods_read(listed(done, evicted))
    assert (first.ended, first.state) == (datetime(2026, 11, 2, 11, tzinfo=UTC), "Succeeded")
    assert (second.ended, second.state) == (datetime(2026, 11, 2, 9, 30, tzinfo=UTC), "Evicted")


def test_slices_and_other_makers_have_types_of_their_own() -> None:
    slices = a_pod("slices")
    slices["spec"]["containers"][0]["resources"]["limits"] = {
        "nvidia.com/mig-1g.10gb": "3",
        "nvidia.com/gpu": 1,
    }
    amd = a_pod("amd")
    amd["spec"] |= {"nodeName": "amd01", "containers": [{"resources": {"limits": {"amd.com/gpu": "4"}}}]}
    bare = a_pod("bare")
    bare["spec"]["nodeName"] = "bare01"
    found = {(pod.number, pod.gpu_type): pod.gpus for pod in pods_read(listed(slices, amd, bare))}
    assert found == {
        ("uid-slices", "NVIDIA-H100-80GB-HBM3"): 1,
        ("uid-slices", "NVIDIA-H100-80GB-HBM3 mig 1g.10gb"): 3,
        ("uid-amd", "MI300X"): 4,
        ("uid-bare", ""): 2,
    }


def test_pods_that_wait_or_work_in_a_booking_or_have_no_gpu_are_left_out() -> None:
    waiting, booked, plain = a_pod("waiting"), a_pod("booked"), a_pod("plain")
    del waiting["spec"]["nodeName"]
    booked["spec"]["tolerations"] = [{"key": "gpu-portal/booking", "value": "helix.bk-1"}]
    plain["spec"]["containers"] = [{"resources": {"limits": {"cpu": "1"}}}, {}]
    assert list(pods_read(listed(waiting, booked, plain))) == []


def test_a_container_that_runs_before_others_counts_where_it_needs_more() -> None:
    one = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    three = {"resources": {"limits": {"nvidia.com/gpu": "3"}}}
    assert gpus_requested({"containers": [one, one], "initContainers": [one]}) == {"nvidia.com/gpu": 2}
    assert gpus_requested({"containers": [one, one], "initContainers": [three]}) == {"nvidia.com/gpu": 3}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"items": 5}', '{"items": [5]}', '{"items": [{"kind": "Pod"}]}', "{" * 99_999]
)
def test_what_is_no_list_of_kubectl_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"kubectl|can't be read"):
        list(pods_read(text))


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("metadata", "creationTimestamp", "yesterday"),
        ("metadata", "uid", None),
        ("spec", "containers", [{"resources": {"limits": {"nvidia.com/gpu": "many"}}}]),
        ("spec", "containers", [{"resources": 5}]),
        ("status", "conditions", [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "x"}]),
    ],
)
def test_a_pod_that_cannot_be_read_is_named(part: str, key: str, value: object) -> None:
    pod = copy.deepcopy(a_pod("odd"))
    pod[part][key] = value
    with pytest.raises(ValueError, match="pod odd"):
        list(pods_read(listed(pod)))
