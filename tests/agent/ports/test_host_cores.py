"""Host cores and memory: chosen near the GPU, nobody else's, the same after a restart, kept to."""

import dataclasses
import os
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wire
from agent.host.machine import inventory_take
from agent.owner.cgroups import OWN, Cgroups, CgroupsUnavailable, subtree_prepare
from agent.owner.shares import ActiveBooking, NodeContext, active_bookings, environment
from agent.ports.group_use import GroupUse
from agent.ports.handover import Handover, host_environment
from agent.ports.host_cores import (
    core_topology_read,
    cores_parse,
    cores_text,
    numa_node,
)
from agent.ports.programs import HostPrograms
from devtools.simulated.host import core_topology_simulated, host_simulated
from tests.agent.builders import NODE, NOW, Rig, a_document, a_whole

TOPOLOGY = core_topology_simulated(16, {"GPU-0": 0, "GPU-1": 1, "GPU-2": None})


def wanting(name: str, cores: int, memory_mb: int = 0, *, booking: str = "BK-7") -> wire.DesiredAllocation:
    """A whole GPU that comes with so much of the host."""
    plain = a_whole(name, booking=booking)
    return dataclasses.replace(plain, cores=cores, memory_mb=memory_mb)


class TestChoice:
    def test_cores_of_the_gpu_s_numa_node_come_first(self) -> None:
        assert TOPOLOGY.choose("GPU-0", 4, ()) == (0, 1, 2, 3)
        assert TOPOLOGY.choose("GPU-1", 4, ()) == (8, 9, 10, 11)
        assert TOPOLOGY.choose("GPU-1", 10, {8}) == (0, 1, 2, 9, 10, 11, 12, 13, 14, 15)
        assert TOPOLOGY.choose("GPU-2", 2, {0}) == (1, 2)

    def test_too_few_are_none(self) -> None:
        assert TOPOLOGY.choose("GPU-0", 17, ()) == ()
        assert TOPOLOGY.choose("GPU-0", 1, range(16)) == ()

    @given(st.lists(st.tuples(st.sampled_from(["GPU-0", "GPU-1", "GPU-2"]), st.integers(0, 6))))
    @settings(max_examples=200, deadline=None)
    def test_nobody_gets_what_another_has(self, asks: list[tuple[str, int]]) -> None:
        taken: set[int] = set()
        for gpu, count in asks:
            got = TOPOLOGY.choose(gpu, count, taken)
            assert len(got) == (count if count <= 16 - len(taken) else 0)
            assert taken.isdisjoint(got)
            taken |= set(got)

    @given(st.sets(st.integers(0, 300)))
    @settings(max_examples=100, deadline=None)
    def test_a_list_is_written_as_the_kernel_reads_it(self, cores: set[int]) -> None:
        assert cores_parse(cores_text(cores)) == tuple(sorted(cores))

    def test_the_kernel_s_own_words(self, tmp_path: Path) -> None:
        assert cores_text([3, 0, 1, 2, 8]) == "0-3,8"
        for number, text in (("0", "0-1,4\n"), ("1", "2-3\n"), ("2", "\n")):
            (tmp_path / f"node{number}").mkdir()
            (tmp_path / f"node{number}" / "cpulist").write_text(text)
        assert core_topology_read({}, tmp_path).cores == {0: (0, 1, 4), 1: (2, 3)}
        assert core_topology_read({}, tmp_path / "nothing").cores == {}


class TestHandOver:
    def test_what_was_handed_over_keeps_its_cores_over_a_restart(self, tmp_path: Path) -> None:
        before = Handover(tmp_path, topology=TOPOLOGY)
        before.give(wanting("a", 4), "GPU-0", "GPU-0", NOW)
        before.give(wanting("b", 6), "GPU-0", "GPU-0", NOW)
        before.take("a")
        after = Handover(tmp_path, topology=TOPOLOGY)
        assert after.cores() == {"b": (4, 5, 6, 7, 8, 9)}
        after.give(dataclasses.replace(wanting("b", 6), ends=NOW + 1), "GPU-0", "GPU-0", NOW)
        after.give(wanting("c", 5), "GPU-0", "GPU-0", NOW)
        assert after.cores() == {"b": (4, 5, 6, 7, 8, 9), "c": (0, 1, 2, 3, 10)}

    def test_a_booking_is_told_of_all_its_cores_here(self, tmp_path: Path) -> None:
        handover = Handover(tmp_path, topology=TOPOLOGY)
        desired = a_document({"GPU-0": [wanting("a", 2, 1_024)], "GPU-1": [wanting("b", 3, 2_048)]})
        for gpu in desired.gpus:
            handover.give(gpu.allocations[0], gpu.uuid, gpu.uuid, NOW)
        place = NodeContext(NODE, tmp_path)
        (part,) = active_bookings(desired, handover.devices(), NOW, place, handover.cores()).values()
        reported = environment(part)
        assert (reported["GPU_BOOKING_CORES"], reported["OMP_NUM_THREADS"]) == ("0-1,8-10", "5")
        assert reported["GPU_BOOKING_MEMORY_MB"] == "3072"
        env = (tmp_path / "biology.BK-7" / "a" / "env").read_text()
        assert "export OMP_NUM_THREADS=2" in env
        assert "export GPU_BOOKING_CORES=0-1" in env

    def test_without_a_request_nothing_is_said(self) -> None:
        assert host_environment((), 0) == {}


class TestNear:
    @pytest.mark.parametrize(
        ("pci", "reported", "node"),
        [
            ("00000000:C1:00.0", "1\n", 1),
            ("00010000:C1:00.0", "0\n", 0),
            ("00000000:C1:00.0", "-1\n", None),
            ("00000000:C1:00.0", "", None),
            ("00000000:C2:00.0", "1\n", None),
            ("garbage", "1\n", None),
        ],
    )
    def test_the_node_is_the_kernel_s_word(
        self, pci: str, reported: str, node: int | None, tmp_path: Path
    ) -> None:
        for name in ("0000:c1:00.0", "10000:c1:00.0"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "numa_node").write_text(reported)
        assert numa_node(pci, tmp_path) == node

    def test_programs_are_told_the_nodes_and_cores_next_to_their_gpus(self) -> None:
        desired = a_document(
            {
                "GPU-0": [a_whole("w1")],
                "GPU-1": [a_whole("w2")],
                "GPU-2": [a_whole("w3", booking="BK-8")],
            }
        )
        given = {"w1": "GPU-0", "w2": "GPU-1", "w3": "GPU-2"}
        place = NodeContext(NODE, Path("/b"), topology=TOPOLOGY)
        parts = active_bookings(desired, given, NOW, place)
        both = parts["biology.BK-7"]
        assert self._near(environment(both)) == ("0-1", "0-15")
        assert self._near(environment(both, 0)) == ("0", "0-7")
        assert self._near(environment(both, 1)) == ("1", "8-15")
        assert self._near(environment(parts["biology.BK-8"])) == (None, None)

    def _near(self, values: Mapping[str, str]) -> tuple[str | None, str | None]:
        return values.get("GPU_BOOKING_NUMA_NODES"), values.get("GPU_BOOKING_NUMA_CORES")

    def test_the_inventory_tells_the_kernel_s_node_and_not_the_driver_s(self, rig: Rig) -> None:
        host = host_simulated(NODE, 2)
        reported = inventory_take(host, rig.node.port)
        assert [gpu.numa for gpu in reported.gpus] == [0, 1]
        kernel = dataclasses.replace(host, numa=lambda _: None)
        assert {gpu.numa for gpu in inventory_take(kernel, rig.node.port).gpus} == {None}


class Named(HostPrograms):
    """Programs that the test names."""

    def __init__(self) -> None:
        super().__init__()
        self.pids: tuple[int, ...] = ()

    def named(self, names: Collection[str]) -> tuple[int, ...]:
        return self.pids if "biology.BK-7" in names else ()


def a_part(cores: tuple[int, ...] = (0,), memory_mb: int = 64) -> ActiveBooking:
    """A booking with so much of the host."""
    return ActiveBooking(
        name="biology.BK-7",
        booking="BK-7",
        tenant="biology",
        owner="ada",
        sliced=False,
        starts=NOW,
        ends=NOW + 60,
        devices=("GPU-0",),
        members=(),
        rank=0,
        cores=cores,
        memory_mb=memory_mb,
    )


def a_tree(path: Path, controllers: str = "cpuset cpu memory pids") -> Path:
    """Files as of a delegated cgroup v2 folder. Plain files: the kernel's own rules (which lists
    it takes, that a limited group is a leaf) are not in them."""
    path.mkdir(parents=True)
    for name, text in (("controllers", controllers), ("subtree_control", ""), ("procs", "")):
        (path / f"cgroup.{name}").write_text(text)
    return path


class TestCgroups:
    def test_a_booking_is_kept_to_its_cores_and_memory(self, tmp_path: Path) -> None:
        root = subtree_prepare(str(a_tree(tmp_path / "ours")))
        assert (root / "cgroup.subtree_control").read_text() == "+cpuset +memory"
        programs = Named()
        group = a_tree(root / "biology.BK-7")
        programs.pids = (4711,)
        assert Cgroups(root, programs).sync({"biology.BK-7": a_part((0, 1, 2, 5))}) is None
        assert (group / "cpuset.cpus").read_text() == "0-2,5"
        assert (group / "memory.max").read_text() == str(64 << 20)
        assert (group / "cgroup.procs").read_text() == "4711"

    def test_who_asked_for_nothing_is_measured_and_not_limited(self, tmp_path: Path) -> None:
        root = a_tree(tmp_path / "ours")
        group = a_tree(root / "biology.BK-7")
        cgroups = Cgroups(root, Named())
        assert cgroups.sync({"biology.BK-7": a_part((), 0)}) is None
        assert not (group / "cpuset.cpus").exists()
        assert not (group / "memory.max").exists()
        (group / "cpu.stat").write_text("usage_usec 12\n")
        assert cgroups.use("biology.BK-7") == GroupUse(12)
        assert cgroups.use("biology.BK-8") is None

    def test_disks_are_measured_where_the_kernel_offers_it(self, tmp_path: Path) -> None:
        root = subtree_prepare(str(a_tree(tmp_path / "ours", "cpuset io memory")))
        assert (root / "cgroup.subtree_control").read_text() == "+cpuset +memory +io"

    def test_an_agent_that_systemd_starts_in_the_child_has_the_group_above(self, tmp_path: Path) -> None:
        """Else its successor, which systemd starts in the same child, would find it limited."""
        own, proc = a_tree(tmp_path / "mount" / "unit"), tmp_path / "proc"
        a_tree(own / "agent")
        proc.mkdir()
        (proc / "cgroup").write_text("0::/unit/agent\n")
        assert subtree_prepare(OWN, mount=tmp_path / "mount", proc=proc) == own
        assert (own / "cgroup.subtree_control").read_text() == "+cpuset +memory"
        assert (own / "agent" / "cgroup.subtree_control").read_text() == ""

    def test_from_its_own_group_the_agent_moves_to_a_child(self, tmp_path: Path) -> None:
        own, proc = a_tree(tmp_path / "mount" / "unit"), tmp_path / "proc"
        a_tree(own / "agent")
        proc.mkdir()
        (proc / "cgroup").write_text("4:memory:/elsewhere\n0::/unit\n")
        assert subtree_prepare(OWN, mount=tmp_path / "mount", proc=proc) == own
        assert (own / "agent" / "cgroup.procs").read_text() == "0"

    @pytest.mark.parametrize("controllers", ["", "memory pids"])
    def test_a_host_that_offers_too_little_says_so(self, tmp_path: Path, controllers: str) -> None:
        with pytest.raises(CgroupsUnavailable, match="does not offer cpuset"):
            subtree_prepare(str(a_tree(tmp_path / "ours", controllers)))

    def test_a_folder_of_another_kind_says_so(self, tmp_path: Path) -> None:
        with pytest.raises(CgroupsUnavailable, match="no cgroup v2 folder"):
            subtree_prepare(str(tmp_path))


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A real cgroup v2 hierarchy, with whatever controllers this kernel leaves for it."""
    mount = tmp_path / "cgroup2"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "cgroup2", "none", str(mount)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no cgroup v2 can be mounted here: the tests above know plain files only")
    group = mount / f"gpu-portal-test-{os.getpid()}"
    group.mkdir()
    yield group
    for each in (*group.glob("*/"), group):
        each.rmdir()
    subprocess.run(["umount", str(mount)], check=True)


def test_on_a_real_hierarchy_programs_join_and_an_empty_group_goes(mounted: Path) -> None:
    programs = Named()
    cgroups = Cgroups(mounted, programs)
    offered = (mounted / "cgroup.controllers").read_text().split()
    if "cpuset" not in offered or "memory" not in offered:
        with pytest.raises(CgroupsUnavailable, match="does not offer"):
            subtree_prepare(str(mounted))
    group = mounted / "biology.BK-7"
    group.mkdir()
    program = subprocess.Popen(["sleep", "60"])
    try:
        programs.pids = (program.pid, 2**22 + 1)
        cgroups._join(group, program.pid)
        assert (group / "cgroup.procs").read_text().split() == [str(program.pid)]
        cgroups._join(group, 2**22 + 1)
        cgroups.sync({})
        assert group.exists(), "somebody is in it"
    finally:
        program.kill()
        program.wait()
    cgroups.sync({})
    assert not group.exists()
