"""The environment for GPUs by index, and for the rendezvous with other nodes."""

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

import wire
from agent import run
from agent.host.network import Network, default_interface, network_find
from agent.owner.shares import (
    ActiveBooking,
    NodeContext,
    active_bookings,
    cuda_order,
    description,
    environment,
)
from tests.agent.builders import NODE, NOW, Rig, a_document, a_slice, a_whole
from tests.agent.ports.test_hand_over import GANG, NAME
from tests.agent.test_run import booked, ran

ORDER = ("GPU-c", "GPU-a", "GPU-b")
HERE = Network("ens5", "10.0.0.7")


def a_part(
    *,
    other: wire.Mode = "whole",
    gangs: tuple[wire.Gang, ...] = (),
    node: str = NODE,
    order: tuple[str, ...] = ORDER,
    hidden: bool = False,
) -> ActiveBooking:
    """A booking of GPU-b and GPU-c on a node with a third GPU in the mode `other`."""
    desired = a_document({"GPU-b": [a_whole("w1")], "GPU-c": [a_whole("w2")]}, gangs=gangs, node=node)
    third = wire.DesiredGpu(uuid="GPU-a", mode=other, allocations=())
    desired = replace(desired, gpus=(*desired.gpus, third))
    place = NodeContext(node, Path("/b"), order=order, hidden=hidden, network=HERE)
    return active_bookings(desired, {"w1": "GPU-b", "w2": "GPU-c"}, NOW, place)[NAME]


def visible(part: ActiveBooking, only: int | None = None, *, contained: bool = False) -> str:
    return environment(part, only, contained=contained)["CUDA_VISIBLE_DEVICES"]


def test_whole_gpus_go_by_their_index_in_the_order_of_the_bus() -> None:
    part = a_part()
    assert visible(part) == "2,0"
    assert [visible(part, 0), visible(part, 1)] == ["2", "0"]
    assert environment(part)["NVIDIA_VISIBLE_DEVICES"] == "GPU-b,GPU-c"
    assert environment(part)["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert [each["CUDA_VISIBLE_DEVICES"] for each in description(part)["parts"]] == ["2", "0"]


def test_a_container_counts_only_its_own_gpus() -> None:
    assert visible(a_part(), contained=True) == "1,0"
    assert visible(a_part(other="sliced", hidden=True), contained=True) == "1,0"
    assert [visible(a_part(), n, contained=True) for n in (0, 1)] == ["0", "0"]


@pytest.mark.parametrize(
    "part",
    [
        a_part(other="sliced"),
        a_part(order=("GPU-c", "GPU-b")),
        a_part(order=()),
        a_part(hidden=True),
    ],
    ids=[
        "another GPU in MIG mode",
        "a GPU that CUDA may not see",
        "an order that is not known",
        "files that may not be opened",
    ],
)
def test_where_indexes_are_not_certain_gpus_go_by_uuid(part: ActiveBooking) -> None:
    assert visible(part) == "GPU-b,GPU-c"


def test_a_slice_always_goes_by_its_uuid() -> None:
    desired = a_document({"GPU-a": [a_slice()]})
    place = NodeContext(NODE, Path("/b"), order=("GPU-a",))
    (part,) = active_bookings(desired, {"a1": "MIG-1"}, NOW, place).values()
    assert visible(part) == visible(part, 0, contained=True) == "MIG-1"


def test_the_order_is_that_of_pci_addresses_and_not_of_the_inventory(rig: Rig) -> None:
    one, two = rig.node.inventory().gpus
    swapped = (replace(one, pci="00000000:C1:00.0"), replace(two, pci="00000000:0a:00.0"))
    assert cuda_order(swapped) == (two.uuid, one.uuid)


def test_the_first_node_meets_at_an_address_and_the_others_at_its_name() -> None:
    first, second = (a_part(gangs=(GANG,), node=node) for node in ("node-0", NODE))
    assert environment(first)["MASTER_ADDR"] == environment(first)["PET_MASTER_ADDR"] == "10.0.0.7"
    assert environment(second)["MASTER_ADDR"] == "node-0"
    for part in (first, second):
        values = environment(part)
        assert values["GLOO_SOCKET_IFNAME"] == "ens5"
        assert values["NCCL_SOCKET_IFNAME"] == "=ens5"
        cluster = json.loads(values["TF_CONFIG"])
        port = values["MASTER_PORT"]
        assert cluster["cluster"] == {"worker": [f"node-0:{port}", f"{NODE}:{port}"]}
        assert cluster["task"] == {"type": "worker", "index": part.rank}


def test_a_booking_on_one_node_is_told_of_no_interface_and_no_workers() -> None:
    found = environment(a_part())
    assert not {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TF_CONFIG"} & set(found)
    assert found["MASTER_ADDR"] == "127.0.0.1"


def test_the_interface_is_that_of_the_best_default_route(tmp_path: Path) -> None:
    head = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
    routes = tmp_path / "route"
    # lo stands for an interface whose address no other node can reach.
    routes.write_text(head + "lo 00000000 010200C0 0003 0 0 5 00000000 0 0 0\n")
    assert network_find(routes=routes) is None
    assert network_find("lo") is None
    assert network_find("no-such-interface") is None
    routes.write_text(
        head
        + "eth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n"
        + "eth2 00000000 010200C0 0002 0 0 1 00000000 0 0 0\n"
        + "eth1 00000000 010200C0 0003 0 0 200 00000000 0 0 0\n"
        + "ens5 00000000 010200C0 0003 0 0 100 00000000 0 0 0\n"
    )
    assert default_interface(routes) == "ens5"
    routes.write_text(head)
    assert network_find(routes=routes) is None
    assert network_find(routes=tmp_path / "none") is None


PORTS = 'echo "$MASTER_PORT $PET_MASTER_PORT $TF_CONFIG"'


@pytest.mark.turn
def test_every_run_of_a_gang_that_is_named_has_a_port_of_its_own(tmp_path: Path) -> None:
    booked(tmp_path)
    said = [
        ran(tmp_path, *more, NAME, "--", "sh", "-c", PORTS).stdout.split(" ", 2)
        for more in ((), ("--run", "a"), ("--run", "b"), ("--run", "a"))
    ]
    assert all(one == two and f":{one}" in reported for one, two, reported in said)
    assert len({one for one, _, _ in said}) == 3
    assert said[1] == said[3]


def a_booking() -> dict[str, object]:
    return description(replace(a_part(), name=NAME))


def test_runs_on_one_node_meet_at_free_ports_and_what_they_start_with_them() -> None:
    booking = a_booking()
    own = booking["environment"]
    assert isinstance(own, dict)
    first = run.run_name(booking, None, {})
    assert first is not None
    reported = run.meeting(booking, first)
    with socket.socket() as taken:
        taken.bind(("", int(reported["MASTER_PORT"])))
        taken.listen()
        second = run.meeting(booking, run.run_name(booking, None, {}))
    assert second["MASTER_PORT"] != reported["MASTER_PORT"]
    assert run.run_name(booking, None, {**own, **reported}) == first
    other = {**own, **reported, "GPU_BOOKING": "BK-8", run.RUN: "of another booking"}
    assert run.run_name(booking, None, other) != "of another booking"
