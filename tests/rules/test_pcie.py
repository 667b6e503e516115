"""Groups of a node's GPUs by PCIe, from what the driver says of each pair."""

import pytest

from allocation.rules.nodes.pcie import Peer, pcie_groups

# Two switches at the first processor, one at the second.
PATHS: tuple[Peer, ...] = ((0, 0, "switch"), (2, 0, "bridge"), (3, 0, "numa"), (4, 0, "system"))


def test_the_groups_are_named_by_their_lowest_gpu() -> None:
    assert pcie_groups(1, 0, PATHS) == (0, 0)


def test_a_gpu_of_another_switch_shares_the_processor() -> None:
    assert pcie_groups(2, 0, ((0, 0, "bridge"), (1, 0, "bridge"), (3, 0, "switches"))) == (0, 2)


def test_a_gpu_with_no_neighbour_is_a_group_of_its_own() -> None:
    assert pcie_groups(4, 1, ((0, 0, "system"), (1, 0, "system"))) == (4, 4)


@pytest.mark.parametrize(("numa", "groups"), [(1, (1,)), (None, ())])
def test_without_paths_the_numa_node_is_all_that_is_known(numa: int | None, groups: tuple[int, ...]) -> None:
    assert pcie_groups(3, numa, ((0, 4, None),)) == groups
