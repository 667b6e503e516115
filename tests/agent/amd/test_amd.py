"""AMD's GPUs over a simulated amdsmi: partitions as slices, hand-over, measurements, proofs of emptiness."""

import contextlib
import dataclasses
import json
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import wire
from agent import __main__ as agent_main
from agent.amd.gpu import AmdGpu
from agent.amd.library import NAMES, library_load
from agent.amd.measure import AmdWatch
from agent.amd.partitions import place_of, placements_of, slots_of
from agent.amd.processors import AmdDeviceNodes, Processors
from agent.doctor.command import Drivers
from agent.doctor.command import main as doctor
from agent.hardware import hardware_open
from agent.host.machine import inventory_take
from agent.host.open_files import AMD_FILE, HostOpenFiles
from agent.options import options_parse
from agent.owner.accounts import AccountDirectory
from agent.owner.booking_files import BookingFiles
from agent.owner.shares import NodeContext
from agent.ports.clock import Clock
from agent.ports.gpu import GpuError, Place
from agent.ports.handover import Handover
from agent.process import Agent
from devtools.simulated.amd import SimulatedAmdFiles, SimulatedAmdSmi
from devtools.simulated.hardware import Hardware
from devtools.simulated.host import host_simulated
from devtools.simulated.models import fleet_parse
from devtools.simulated.platform import simulated_platform
from tests.agent.builders import HOUR, NODE, NOW, FakeTime, Rig, a_document, a_rig, a_slice, a_whole


@dataclasses.dataclass
class Amd:
    """A simulated node with GPUs of AMD, and the agent's parts for it."""

    hardware: Hardware
    smi: SimulatedAmdSmi
    files: SimulatedAmdFiles
    processors: Processors
    port: AmdGpu

    @property
    def gpu(self) -> str:
        return self.hardware.gpus[0].uuid


def an_amd(hardware: Hardware, partition: str = "cpx") -> Amd:
    smi = SimulatedAmdSmi(hardware)
    files = SimulatedAmdFiles(hardware)
    processors = Processors(smi)
    return Amd(
        hardware, smi, files, processors, AmdGpu(processors, partition, hardware.process_signal, files)
    )


@pytest.fixture
def clock() -> FakeTime:
    return FakeTime()


@pytest.fixture
def amd(clock: FakeTime) -> Amd:
    return an_amd(Hardware(NODE, fleet_parse("mi300x:2"), state=None, clock=clock))


@contextlib.contextmanager
def an_amd_rig(folder: Path, partition: str = "cpx") -> Iterator[tuple[Rig, Amd]]:
    """The whole agent on two MI300X."""
    with a_rig(folder, simulate="mi300x:2") as rig:
        amd = an_amd(rig.hardware, partition)
        place = NodeContext(
            NODE, folder / "bookings", rocm_name_of=lambda device: amd.processors.device(device).rocm_name
        )
        node = dataclasses.replace(
            rig.node,
            port=amd.port,
            watch=AmdWatch(amd.processors, rig.hardware.process_user),
            inventory=lambda: inventory_take(host_simulated(NODE, 2), amd.port),
            handover=Handover(place.root, share=place.share, alone=place.alone),
            bookings=BookingFiles(place.root),
            place=place,
            suspender=None,
        )
        rig.agent = Agent(node, Clock(wall=rig.wall, steady=rig.steady))
        yield rig, amd


def a_part(name: str, part: int, count: int = 8) -> wire.DesiredAllocation:
    place = place_of(part, count)
    kind = {8: "cpx.24gb", 4: "qpx.48gb", 2: "dpx.96gb"}[count]
    return a_slice(
        name,
        profile=kind,
        profile_id=count,
        slot=place.slot,
        size=place.size,
        booking=f"BK-{part + 1}",
        starts=NOW,
        ends=NOW + HOUR,
    )


def variables(folder: Path, booking: str) -> dict[str, str]:
    lines = (folder / "bookings" / f"biology.{booking}" / "env").read_text().splitlines()
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)


def test_the_library_is_imported_only_where_it_is_asked_for() -> None:
    def absent(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}")

    def without_library(_: str) -> object:
        raise KeyError("libamd_smi.so")

    with pytest.raises(GpuError, match="ROCm"):
        library_load(absent)
    with pytest.raises(GpuError, match=r"libamd_smi\.so"):
        library_load(without_library)
    with pytest.raises(GpuError, match=f"has no {NAMES[0]}"):
        library_load(lambda _: types.ModuleType("amdsmi"))
    smi = SimulatedAmdSmi(Hardware(NODE, fleet_parse("mi300x:1"), state=None, clock=FakeTime()))
    assert library_load(lambda _: smi) is smi


@pytest.mark.parametrize(("partition", "count"), [("dpx", 2), ("qpx", 4), ("cpx", 8), ("spx", 0)])
def test_the_inventory_has_the_partitions_of_the_node_as_slices(
    partition: str, count: int, clock: FakeTime
) -> None:
    amd = an_amd(Hardware(NODE, fleet_parse("mi300x:2"), state=None, clock=clock), partition)
    first, second = amd.port.inventory()
    assert first.name == "AMD Instinct MI300X" + (f" ({partition.upper()})" if count else "")
    assert (first.memory_mb, first.mode, first.mig_capable) == (196_592, "whole", bool(count))
    assert len(first.placements) == count
    assert sum(place.size for place in first.placements) == (8 if count else 0)
    assert {place.max for place in first.placements} <= {count}
    assert (first.nvlink_domain, second.nvlink_domain) == (0, 0)
    assert [peer.index for peer in first.peers] == [1]
    assert amd.port.driver() == "amdgpu 6.14.14"


def test_gpus_of_six_dies_and_gpus_without_partitions(clock: FakeTime) -> None:
    assert [slots_of(count) for count in (1, 2, 3, 4, 6, 8)] == [8, 8, 6, 8, 6, 8]
    assert [place.start for place in placements_of("tpx", 3, 131_072)] == [0, 2, 4]
    assert placements_of("cpx", 6, 131_072)[0].profile == "cpx.21gb"
    amd = an_amd(Hardware(NODE, fleet_parse("mi210:1"), state=None, clock=clock))
    (only,) = amd.port.inventory()
    assert (only.name, only.placements, only.nvlink_domain) == ("AMD Instinct MI210", (), None)
    assert amd.port.truth(amd.gpu).mode == "whole"
    with pytest.raises(GpuError, match="can't do it"):
        amd.port.set_mode(amd.gpu, "sliced")


def test_an_agent_divides_a_gpu_hands_partitions_over_and_makes_it_whole_again(tmp_path: Path) -> None:
    with an_amd_rig(tmp_path) as (rig, amd):
        rig.desire(a_document({amd.gpu: [a_part("a1", 0), a_part("a2", 3)]}))
        assert rig.sent.states() == {"a1": "ready", "a2": "ready"}
        assert amd.smi.amdsmi_get_gpu_compute_partition(amd.processors.gpu(amd.gpu).first) == "CPX"
        reported = next(gpu for gpu in rig.sent.report().gpus if gpu.uuid == amd.gpu)
        assert [(each.profile, each.slot) for each in reported.instances] == [
            ("cpx.24gb", 0),
            ("cpx.24gb", 3),
        ]
        # Each partition has a name of its own for ROCm, and one device for HIP.
        found = [variables(tmp_path, booking) for booking in ("BK-1", "BK-4")]
        assert [each["HIP_VISIBLE_DEVICES"] for each in found] == ["0", "0"]
        assert len({each["ROCR_VISIBLE_DEVICES"] for each in found}) == 2
        assert not any("CUDA_VISIBLE_DEVICES" in each for each in found)
        nodes = AmdDeviceNodes(amd.processors)
        assert nodes.common() == ("/dev/kfd",)
        assert nodes.of(f"{amd.gpu}-cpx3") == ("/dev/dri/renderD131",)
        # The whole GPU is for the next booking, once the program of one partition has ended.
        pid = rig.hardware.process_start(f"{amd.gpu}-cpx3", label="a2")
        whole = a_whole("w1", booking="BK-9", starts=NOW + 60)
        rig.desire(
            a_document(
                {
                    amd.gpu: [
                        dataclasses.replace(a_part("a1", 0), state="release"),
                        dataclasses.replace(a_part("a2", 3), state="release"),
                        whole,
                    ]
                },
                generation=2,
                mode="whole",
            )
        )
        rig.later(61)
        assert pid not in rig.hardware.gpus[0].processes
        rig.later(1)
        assert rig.sent.states() == {"a1": "empty", "a2": "empty", "w1": "ready"}
        assert rig.hardware.gpus[0].instances == {}
        assert nodes.of(amd.gpu) == ("/dev/dri/renderD128",)
        with pytest.raises(GpuError, match="no device"):
            nodes.of(f"{amd.gpu}-cpx3")


def test_a_stubborn_program_keeps_its_partition_and_the_mode(tmp_path: Path) -> None:
    with an_amd_rig(tmp_path) as (rig, amd):
        rig.desire(a_document({amd.gpu: [a_part("a1", 5)]}))
        rig.hardware.process_start(f"{amd.gpu}-cpx5", label="a1", stubborn=True)
        rig.later(5)
        gone = dataclasses.replace(a_part("a1", 5), state="release")
        rig.desire(a_document({amd.gpu: [gone]}, generation=2, mode="whole"))
        assert rig.sent.states() == {"a1": "ending"}
        with pytest.raises(GpuError, match="still uses it: a1") as error:
            amd.port.set_mode(amd.gpu, "whole")
        assert error.value.fault == "in_use"
        rig.later(60)
        assert rig.sent.states() == {"a1": "empty"}
        assert amd.port.truth(amd.gpu).mode == "whole"


def test_a_restarted_agent_finds_its_partitions_in_use_and_idle(tmp_path: Path) -> None:
    with an_amd_rig(tmp_path) as (rig, amd):
        rig.desire(a_document({amd.gpu: [a_part("a1", 0), a_part("a2", 1)]}))
        rig.hardware.process_start(f"{amd.gpu}-cpx0", label="a1")
        rig.hardware.process_start(f"{amd.gpu}-cpx7", label="nobody")
        before = variables(tmp_path, "BK-1")
    with an_amd_rig(tmp_path) as (rig, amd):
        assert [each.id for each in amd.port.truth(amd.gpu).instances] == [0, 7]
        rig.desire(a_document({amd.gpu: [a_part("a1", 0), a_part("a2", 1)]}))
        rig.later(2)
        assert rig.sent.states() == {"a1": "ready", "a2": "ready"}
        assert variables(tmp_path, "BK-1") == before
        assert len(rig.hardware.gpus[0].processes) == 2
        # The partition with the program of nobody is not given.
        rig.desire(a_document({amd.gpu: [a_part("a1", 0), a_part("a3", 7)]}, generation=2))
        assert rig.sent.states()["a3"] == "preparing"


def test_what_stands_in_another_partition_is_changed_when_it_is_empty(amd: Amd) -> None:
    first = amd.processors.gpu(amd.gpu).first
    amd.smi.amdsmi_set_gpu_compute_partition(first, amd.smi.AmdSmiComputePartitionType.QPX)
    pid = amd.hardware.process_start(f"{amd.gpu}-qpx1", label="somebody")
    truth = amd.port.truth(amd.gpu)
    assert (truth.mode, [each.profile for each in truth.instances]) == ("sliced", ["qpx.48gb"])
    with pytest.raises(GpuError, match="somebody"):
        amd.port.create(amd.gpu, place_of(0, 8))
    with pytest.raises(GpuError, match="still uses"):
        amd.port.destroy(amd.gpu, 1)
    amd.port.end_processes(amd.gpu, 1, force=False, only=())
    assert amd.port.pids(amd.gpu, 1) == (pid,)
    amd.port.end_processes(amd.gpu, 1, force=True)
    amd.port.create(amd.gpu, place_of(0, 8))
    assert [each.uuid for each in amd.port.truth(amd.gpu).instances] == [f"{amd.gpu}-cpx0"]
    amd.port.destroy(amd.gpu, 0)
    assert amd.port.truth(amd.gpu).instances == ()
    assert amd.port.pids(amd.gpu, 9) == ()
    with pytest.raises(GpuError, match="no such place"):
        amd.port.create(amd.gpu, Place(8, 0, 8))


def test_nothing_seen_proves_nothing_while_files_are_hidden(amd: Amd) -> None:
    pid = amd.hardware.process_start(amd.gpu, label="w1")
    assert amd.port.truth(amd.gpu).processes == 1
    amd.files.hidden = {pid}
    # The driver lists it for the whole GPU.
    assert amd.port.truth(amd.gpu).processes == 1
    amd.hardware.use_as(pid, "file")
    assert amd.port.truth(amd.gpu).processes is None
    with pytest.raises(GpuError, match="can't be read"):
        amd.port.set_mode(amd.gpu, "sliced")
    amd.files.hidden = set()
    amd.hardware.process_signal(pid, force=True)
    amd.hardware.gpus[0].leaked_mb = 4000
    truth = amd.port.truth(amd.gpu)
    assert (truth.processes, truth.residue_mb) == (0, 4283)


def test_refusals_of_the_driver_become_faults_of_the_port(amd: Amd) -> None:
    amd.smi.is_root = False
    with pytest.raises(GpuError, match="only root"):
        amd.port.set_mode(amd.gpu, "sliced")
    amd.smi.is_root = True
    amd.port.set_mode(amd.gpu, "sliced")
    amd.smi.memory_partition = "NPS4"
    with pytest.raises(GpuError, match="no such value") as error:
        amd.port.set_mode(amd.gpu, "whole")
    assert error.value.fault == "invalid"
    amd.hardware.gpus[1].lost = True
    with pytest.raises(GpuError) as lost:
        amd.port.readings(amd.hardware.gpus[1].uuid)
    assert lost.value.fault == "lost"
    assert len(amd.port.inventory()) == 1
    amd.hardware.gpus[1].lost = False
    assert len(amd.port.inventory()) == 2
    with pytest.raises(GpuError, match="does not have it"):
        amd.port.truth("GPU-of-nobody")


def test_use_is_measured_of_gpus_and_of_partitions(amd: Amd, clock: FakeTime) -> None:
    amd.hardware.process_start(amd.gpu, label="train")
    clock.now += 100
    (whole,) = amd.port.readings(amd.gpu)
    assert (whole.utilisation or 0) > 0
    assert (whole.power_mw or 0) % 1000 == 0
    assert whole.memory_total_mb == 196_592
    assert None not in (whole.memory_used_mb, whole.temperature_c, whole.bandwidth, whole.sm_mhz)
    clock.now += 10
    (later,) = amd.port.readings(amd.gpu)
    joules = ((later.energy_mj or 0) - (whole.energy_mj or 0)) / 1000
    assert joules == pytest.approx(10 * (later.power_mw or 0) / 1000, rel=0.2)
    other = amd.hardware.gpus[1].uuid
    amd.port.set_mode(other, "sliced")
    amd.port.create(other, place_of(2, 8))
    amd.hardware.process_start(f"{other}-cpx2", label="train")
    clock.now += 100
    gpu, part = amd.port.readings(other)
    assert (gpu.utilisation, part.place, part.memory_total_mb) == (None, place_of(2, 8), 24_574)
    assert (part.utilisation or 0) > 0
    assert 0 < (part.memory_used_mb or 0) <= 24_574
    assert part.power_mw is None


def test_uncorrectable_errors_are_reported_once(amd: Amd) -> None:
    watch = AmdWatch(amd.processors, lambda pid: f"user {pid}")
    amd.smi.uncorrectable[amd.gpu] = 2
    assert watch.errors() == (), "those from before are old"
    amd.smi.uncorrectable[amd.gpu] = 3
    (error,) = watch.errors()
    assert (error.gpu, error.kind, error.code, error.instance) == (amd.gpu, "ecc", 2, None)
    assert watch.errors() == ()
    assert watch.users([7]) == ("user 7",)


def test_a_booking_of_several_devices_names_all_of_them(tmp_path: Path) -> None:
    with an_amd_rig(tmp_path) as (rig, amd):
        both = [dataclasses.replace(a_part(f"a{part}", part), booking="BK-1") for part in (0, 1)]
        rig.desire(a_document({amd.gpu: both}))
        found = variables(tmp_path, "BK-1")
        assert found["HIP_VISIBLE_DEVICES"] == "0,1"
        assert len(found["ROCR_VISIBLE_DEVICES"].split(",")) == 2
        assert found["PET_NPROC_PER_NODE"] == "2"
        amd.smi.one_name = True
        amd.processors.scan()
        rig.later(5)
        assert "ROCR_VISIBLE_DEVICES" not in variables(tmp_path, "BK-1"), "one name means several devices"


def test_a_share_is_refused_for_good(tmp_path: Path) -> None:
    with an_amd_rig(tmp_path) as (rig, amd):
        share = dataclasses.replace(a_whole("s1"), share=500)
        rig.desire(a_document({amd.gpu: [share]}, mode="shared"))
        assert rig.sent.states() == {"s1": "failed"}
        assert "MPS" in (rig.sent.report().allocations[0].error or "")


def test_the_platform_needs_device_permissions_and_one_kind_of_devices(tmp_path: Path) -> None:
    platform = simulated_platform("mi300x:2", "580")
    directory = AccountDirectory(tmp_path / "accounts.json")

    def opened(*words: str) -> str:
        options = options_parse(["--state", str(tmp_path), "--name", NODE, "--amd", "cpx", *words], {})
        with contextlib.ExitStack() as stack:
            machine = hardware_open(platform, options, directory, stack)
            return machine.inventory().gpus[0].name

    with pytest.raises(ValueError, match="--device-permissions"):
        opened()
    with pytest.raises(ValueError, match="not both"):
        opened("--device-permissions", "acl", "--device-list", "x")
    assert opened("--device-permissions", "acl") == "AMD Instinct MI300X (CPX)"
    with pytest.raises(ValueError, match="one maker"):
        simulated_platform("mi300x:1,h100:1", "580")
    with pytest.raises(ValueError, match="no simulated model"):
        simulated_platform("mi300x+mig:1", "580")


def test_open_files_of_amd_are_those_of_render_nodes(tmp_path: Path) -> None:
    folder = tmp_path / "4711" / "fd"
    folder.mkdir(parents=True)
    for number, target in enumerate(("/dev/kfd", "/dev/dri/renderD129", "/dev/dri/card1", "/dev/nvidia0")):
        (folder / str(number)).symlink_to(target)
    found = HostOpenFiles(tmp_path, pattern=AMD_FILE).openers()
    assert [each.pid for each in found.of("/dev/dri/renderD129")] == [4711]
    assert set(found.by_file) == {"renderD129"}


@pytest.mark.turn
def test_doctor_examines_the_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hardware = Hardware("doctor", fleet_parse("mi300x:2"), state=None, clock=FakeTime())
    smi = SimulatedAmdSmi(hardware)
    words = ["--json", "--state", str(tmp_path), "--amd"]

    def examined(partition: str, drivers: Drivers) -> dict[str, dict[str, str]]:
        doctor([*words, partition], {}, drivers)
        return {each["name"]: each for each in json.loads(capsys.readouterr().out)["checks"]}

    simulated = Drivers(amd=lambda: smi, is_simulated=True)
    found = examined("cpx", simulated)
    assert {name: found[name]["state"] for name in ("AMD's library", "AMD's GPUs", "partitions")} == {
        "AMD's library": "ok",
        "AMD's GPUs": "ok",
        "partitions": "ok",
    }
    assert "local NVMe" in found["storage"]["seen"]
    assert (found["memory partition"]["state"], found["measurements"]["state"]) == ("ok", "ok")
    assert not {"MIG mode", "NVML binding", "nvidia-persistenced", "cuda-checkpoint"} & found.keys()
    assert "2 × AMD Instinct MI300X (CPX)" in found["AMD's GPUs"]["seen"]
    assert examined("tpx", simulated)["partitions"]["state"] == "fail"
    smi.memory_partition = "NPS4"
    assert examined("cpx", simulated)["memory partition"]["state"] == "warn"
    # As on this machine, which has no such library.
    missing = examined("cpx", Drivers())
    assert (missing["AMD's library"]["state"], missing["partitions"]["state"]) == ("fail", "unknown")
    assert "6.4" in missing["AMD's library"]["do"]
    real_files = examined("cpx", Drivers(amd=lambda: smi))
    assert real_files["device files"]["state"] == "fail"


def test_the_agent_says_why_it_can_t_start_without_the_library(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = ["--state", str(tmp_path), "--amd", "cpx", "--device-permissions", "slice"]
    assert agent_main.main(words, {}) == 1
    assert "ROCm" in caplog.text
