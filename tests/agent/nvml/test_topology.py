"""How GPUs are joined, as the driver reports it."""

from collections.abc import Iterator

import pytest

from agent.host.machine import process_signal
from agent.nvml.gpu import NvmlGpu
from agent.ports.gpu import GpuPort
from tests.agent.nvml.test_gpu import HARDWARE, simulate
from wire import Peer


@pytest.fixture(params=HARDWARE)
def readable(request: pytest.FixtureRequest) -> Iterator[GpuPort]:
    if request.param == "simulated":
        with simulate("h100:4,a100:2,l40s:2") as found:
            yield found.port
        return
    port = NvmlGpu(process_signal)
    yield port
    port.close()


def test_links_are_the_same_seen_from_both_ends_and_make_the_groups(readable: GpuPort) -> None:
    gpus = {gpu.index: gpu for gpu in readable.inventory()}
    matrix = {(i, peer.index): peer for i, gpu in gpus.items() for peer in gpu.peers}
    assert matrix.keys() == {(i, j) for i in gpus for j in gpus if i != j}
    for (i, j), peer in matrix.items():
        back = matrix[j, i]
        assert (peer.nvlinks, peer.path) == (back.nvlinks, back.path)
        if peer.nvlinks:
            assert gpus[i].nvlink_domain == gpus[j].nvlink_domain is not None


def test_gpus_on_one_nvswitch_have_all_their_links_in_common() -> None:
    with simulate("h100:4") as found:
        first, *_ = found.port.inventory()
    assert first.peers == (
        Peer(index=1, nvlinks=18, path="switch"),
        Peer(index=2, nvlinks=18, path="system"),
        Peer(index=3, nvlinks=18, path="system"),
    )


def test_gpus_without_links_have_a_path_over_pcie_alone() -> None:
    with simulate("l40s:4") as found:
        first, *_ = found.port.inventory()
    assert [peer.nvlinks for peer in first.peers] == [0, 0, 0]
    assert first.nvlink_domain is None


def test_an_old_driver_that_tells_no_path_leaves_it_unknown() -> None:
    with simulate("l40s:2") as found:
        symbol = "nvmlDeviceGetTopologyCommonAncestor"
        found.driver.faults[symbol] += ["NVML_ERROR_FUNCTION_NOT_FOUND"] * 2
        first, second = found.port.inventory()
    assert first.peers[0].path is None
    assert second.peers[0].path is None
