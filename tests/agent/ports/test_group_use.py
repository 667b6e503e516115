"""What an agent measures of the host by booking: growth of counters, and None for what is not counted."""

from pathlib import Path
from uuid import uuid5

import pytest

import wire
from agent.ports.group_use import (
    GroupUse,
    HostShare,
    HostUses,
    LinkUse,
    first_allocations,
    group_use,
    links_use,
)
from devtools.simulated.hardware import Hardware
from devtools.simulated.host import group_use_simulated
from devtools.simulated.processes import NAMESPACE, Process, kind_of


def a_group(path: Path, *, cpu_us: int = 5_000_000, **files: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "cpu.stat").write_text(f"usage_usec {cpu_us}\nuser_usec 1\nsystem_usec 2\n")
    for name, text in files.items():
        (path / name.replace("_", ".")).write_text(text)
    return path


def test_reads_what_the_kernel_counts(tmp_path: Path) -> None:
    disks = (
        "8:0 rbytes=2097152 wbytes=1024 rios=3 wios=1 dbytes=0 dios=0\n8:16 rbytes=1024 wbytes=4096 rios=1\n"
    )
    group = a_group(tmp_path / "g", memory_current="3145728\n", io_stat=disks)
    assert group_use(group) == GroupUse(5_000_000, memory_mb=3, read_kb=2049, written_kb=5)


def test_what_is_not_counted_is_none_and_no_group_is_none(tmp_path: Path) -> None:
    assert group_use(a_group(tmp_path / "g")) == GroupUse(5_000_000)
    assert group_use(a_group(tmp_path / "idle", io_stat="")) == GroupUse(5_000_000, read_kb=0, written_kb=0)
    assert group_use(tmp_path / "none") is None


def test_says_the_growth_since_the_last_message(tmp_path: Path) -> None:
    now: dict[str, GroupUse | None] = {"t.BK-1": GroupUse(1_000_000, 10, 100, 5)}
    uses = HostUses(now.get)
    bookings = {"t.BK-1": HostShare("a1", 8, 3), "t.BK-2": HostShare("b1")}

    assert uses.take(bookings, 100.0) == ()
    now["t.BK-1"] = GroupUse(31_000_000, 12, 1_124, 5)
    assert uses.take(bookings, 110.0) == (
        wire.HostUse(
            allocation="a1",
            ms=10_000,
            cpu_ms=30_000,
            cores=8,
            spare=3,
            memory_mb=12,
            read_kb=1_024,
            written_kb=0,
        ),
    )


@pytest.mark.parametrize("again", [GroupUse(5), None])
def test_a_group_that_was_made_anew_begins_anew(again: GroupUse | None) -> None:
    now: dict[str, GroupUse | None] = {"t.BK-1": GroupUse(1_000_000)}
    uses = HostUses(now.get)
    uses.take({"t.BK-1": HostShare("a1")}, 1.0)
    now["t.BK-1"] = again
    assert uses.take({"t.BK-1": HostShare("a1")}, 2.0) == ()


def test_a_counter_that_begins_or_falls_is_not_measured_for_once() -> None:
    now = [GroupUse(0, read_kb=50)]
    uses = HostUses(lambda _: now[0])
    uses.take({"x": HostShare("a")}, 1.0)
    now[0] = GroupUse(10, read_kb=20, written_kb=7)
    (found,) = uses.take({"x": HostShare("a")}, 2.0)
    assert (found.read_kb, found.written_kb) == (None, None)


def test_bookings_have_one_allocation_and_there_are_no_more_than_the_most() -> None:
    assert first_allocations([("t.b", "9"), ("t.b", "3"), ("t.a", "5")]) == {"t.b": "3", "t.a": "5"}
    many = {f"t.{number}": HostShare(f"a{number}") for number in range(wire.HOST_USES_MAX + 9)}
    uses = HostUses(lambda _: GroupUse(0))
    uses.take(many, 1.0)
    assert len(uses.take(many, 2.0)) == wire.HOST_USES_MAX


def test_the_largest_message_is_small_enough() -> None:
    most = (1 << 31) - 1
    use = wire.HostUse(
        allocation="a" * 32,
        ms=most,
        cpu_ms=most,
        cores=9_999,
        memory_mb=most,
        read_kb=most,
        written_kb=most,
        received_kb=most,
        sent_kb=most,
    )
    message = wire.Telemetry(sent_at=1, host=(use,) * wire.HOST_USES_MAX)
    assert len(wire.seal(message, key=b"k" * 32, key_version=1).body) < wire.MAX_BYTES // 8


def test_simulated_programs_use_the_host_by_what_they_wait_for() -> None:
    now = [1_000.0]
    hardware = Hardware("n", ["h100"] * 5, state=None, clock=lambda: now[0])
    names = [f"helix.BK-{number}" for number in range(40)]
    kinds = {kind_of(uuid5(NAMESPACE, name).int): name for name in names}
    for pid, (gpu, name) in enumerate(zip(hardware.gpus, kinds.values(), strict=True)):
        gpu.processes[pid] = Process(pid=pid, instance=None, label=f"a{pid}", starts=990, load=name)
    uses = HostUses(group_use_simulated(hardware))
    asked = {name: HostShare(name, cores=4) for name in [*kinds.values(), "helix.BK-99"]}
    assert uses.take(asked, 0.0) == ()
    now[0] += 10
    found = {each.allocation: each for each in uses.take(asked, 10.0)}
    assert found.keys() == set(kinds.values()), "a booking without a program has no group"
    assert found[kinds["input"]].cpu_ms > 0.8 * 4 * 10_000 > found[kinds["training"]].cpu_ms
    assert found[kinds["idle"]].cpu_ms < 1_000
    assert found[kinds["input"]].read_kb == 3_100_000
    assert found[kinds["communication"]].received_kb == found[kinds["communication"]].sent_kb == 14_000_000
    assert (found[kinds["idle"]].sent_kb or 0) < 100


def a_port(root: Path, name: str, received: str, sent: str) -> None:
    counters = root / name / "ports" / "1" / "counters"
    counters.mkdir(parents=True)
    (counters / "port_rcv_data").write_text(received)
    (counters / "port_xmit_data").write_text(sent)


def test_adapters_count_words_of_four_bytes_and_one_that_does_not_count_is_not_measured(
    tmp_path: Path,
) -> None:
    assert links_use(tmp_path / "none") is None
    a_port(tmp_path, "mlx5_0", "1024\n", "2048\n")
    a_port(tmp_path, "mlx5_1", "1024\n", "0\n")
    assert links_use(tmp_path) == LinkUse(received_kb=8, sent_kb=8)
    a_port(tmp_path, "other", "N/A\n", "0\n")
    assert links_use(tmp_path) is None


def test_adapters_count_for_a_booking_that_alone_has_the_node() -> None:
    links, use = [LinkUse(100, 100)], [GroupUse(0, received_kb=5, sent_kb=5)]
    uses = HostUses(lambda _: use[0], lambda: links[0])
    one, both = {"t.a": HostShare("a")}, {"t.a": HostShare("a"), "t.b": HostShare("b")}

    def network(asked: dict[str, HostShare], steady: float) -> list[tuple[int | None, int | None]]:
        links[0] = LinkUse(links[0].received_kb + 1_000, links[0].sent_kb + 500)
        use[0] = GroupUse(0, received_kb=(use[0].received_kb or 0) + 10, sent_kb=use[0].sent_kb)
        return [(each.received_kb, each.sent_kb) for each in uses.take(asked, steady)]

    assert network(one, 1) == []
    assert network(one, 2) == [(1_010, 500)]
    assert network(both, 3) == [(None, None)]
    assert network(both, 4) == [(None, None)] * 2
    assert network(one, 5) == [(None, None)], "the other one was there for a part of the time"
    assert network(one, 6) == [(1_010, 500)]
