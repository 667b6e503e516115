"""What Slurm 22.05.8 printed, read."""

from agent.slurm.parse import (
    Job,
    fields_of,
    gpus_of,
    hosts_expand,
    jobs_parse,
    nodes_parse,
    rack_of,
    switches_parse,
)

JOBS = """\
1|RUNNING|games|n1||portal|gres:gpu:2|2026-11-29T03:54:09|2026-11-29T03:54:09|None|portal:n1:helix.BK-1:abc
2|PENDING|news|||(null)|gres:gpu:1|N/A|2026-11-29T03:55:20|ReqNodeNotAvail, May be reserved for other job|wrap
3|PENDING|games||n2|portal|gres:gpu:h100:4|N/A|2026-11-29T03:55:21|JobHeldUser|a|b = State=IDLE
4|COMPLETING|games|n[1-2]||portal|N/A|2026-11-29T03:54:09|2026-11-29T03:54:09|None|x
5|CANCELLED|games|n1||portal|gres:gpu:2|2026-11-29T03:54:09|2026-11-29T03:54:09|None|x
"""
NODES = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=8  CPUAlloc=1 CPUEfctv=6 CPUTot=8 CPULoad=1.31"
    " AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:h100:4(S:0-1) GresDrain=N/A"
    " GresUsed=gpu:h100:2(IDX:0,2) NodeAddr=127.0.0.1 NodeHostName=vm Port=44633 Version=22.05.8"
    " OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=8000 AllocMem=0 FreeMem=14437 Sockets=1"
    " State=MIXED+RESERVED ThreadsPerCore=1 Partitions=main  BootTime=2026-11-28T14:20:28\n"
    "NodeName=n2 CPUTot=8 Gres=gpu:a100:1,gpu:h100:1 GresUsed=gpu:a100:0 RealMemory=8000"
    " State=IDLE*+DRAIN+RESERVED BootTime=None Reason=bad fan [root@2026-11-29T04:00:00]\n"
    "NodeName=n3 CPUTot=8 Gres=(null) GresUsed=gpu:0 RealMemory=8000 State=DOWN+NOT_RESPONDING"
    " Reason=Not responding [slurm@2026-11-29T04:00:00]\n"
)


def test_jobs_are_read_whatever_their_names_are() -> None:
    found = {job.id: job for job in jobs_parse(JOBS)}
    assert (found[1].nodes, found[1].gpus, found[1].reservation) == (frozenset({"n1"}), 2, "portal")
    assert (found[2].nodes, found[2].started, found[2].is_held) == (frozenset(), None, False)
    assert (found[3].nodes, found[3].gpus, found[3].is_held) == (frozenset({"n2"}), 4, True)
    assert found[3].name == "a|b = State=IDLE"
    assert (found[4].nodes, found[4].gpus) == (frozenset({"n1", "n2"}), None)

    def marks(job: Job) -> tuple[bool, bool]:
        return job.is_waiting, job.is_over

    # A job that is completing has not left its nodes.
    assert [marks(job) for job in found.values()] == [
        (False, False),
        (True, False),
        (True, False),
        (False, False),
        (False, True),
    ]


def test_nodes_are_read() -> None:
    n1, n2, n3 = nodes_parse(NODES)
    assert (n1.types, n1.used, n1.cores, n1.memory_mb) == (("h100",) * 4, 2, 6, 8000)
    assert (n1.damage, n1.closure) == (None, None)
    assert (n2.types, n2.cores, n2.damage) == (("a100", "h100"), 8, None)
    assert n2.closure == "Slurm says that n2 is DRAIN+NOT_RESPONDING (bad fan)"
    assert (n3.types, n3.damage) == ((), "Slurm says that n3 is DOWN (Not responding)")


def test_racks_are_read() -> None:
    assert [rack_of(text) for text in ("(null)", "ib,rack=A-2,h100", "track=1")] == ["", "A-2", ""]
    # As Slurm 22.05.8 prints a tree.
    text = (
        "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2] \n"
        "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=N3 \n"
        "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-2],N3 Switches=leaf[1-2] \n"
    )
    assert switches_parse(text) == {"n1": "leaf1", "n2": "leaf1", "N3": "leaf2"}
    assert switches_parse("") == {}


def test_lists_of_hosts_and_devices_are_expanded() -> None:
    assert hosts_expand("n[1-3,07],login,r[1-2]n[08-09]") == [
        *("n1", "n2", "n3", "n07", "login"),
        *("r1n08", "r1n09", "r2n08", "r2n09"),
    ]
    assert hosts_expand("(null)") == hosts_expand("") == []
    assert gpus_of("gres:gpu:2") == gpus_of("gres/gpu=2") == gpus_of("gpu:2(IDX:0-1)") == ("", "")
    assert gpus_of("gpu:a100:1,shard:8,gpu:h100:2") == ("a100", "h100", "h100")
    assert gpus_of("N/A") == gpus_of("gpu:0") == gpus_of("lustre:1") == ()


def test_of_two_fields_of_a_name_the_first_counts() -> None:
    line = "ReservationName=portal StartTime=x Users=root Comment=a State=INACTIVE Users=b"
    assert fields_of(line)["Users"] == "root"
