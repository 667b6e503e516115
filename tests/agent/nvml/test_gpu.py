"""The GPU port: the same contract for simulated and for real GPUs (the latter are only read)."""

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

import wire
from agent.host.machine import process_signal
from agent.nvml import calls, layout, measure, processes, watch
from agent.nvml import gpu as nvml_gpu
from agent.nvml.gpu import NvmlGpu
from agent.nvml.layout import slot_step
from agent.ports.gpu import Fault, GpuError, GpuPort, Place
from devtools.simulated.hardware import Hardware
from devtools.simulated.models import (
    ALL_SLICES,
    HardwareFault,
    Profile,
    fleet_parse,
    models_load,
)
from devtools.simulated.nvml import SimulatedNvml, installed
from devtools.simulated.programs import program_toggle, simulated_port
from tests.agent.builders import FakeTime, cases

MODELS = models_load()
NVML_MODULES = (
    calls,
    nvml_gpu,
    measure,
    layout,
    processes,
    watch,
)
TWELVE = {3: (0, 3, 6, 9), 6: (0, 6), 12: (0,)}
SLICED = sorted(slug for slug, model in MODELS.items() if model.compute == ALL_SLICES)


@dataclasses.dataclass
class Simulated:
    port: NvmlGpu
    hardware: Hardware
    driver: SimulatedNvml
    clock: FakeTime

    @property
    def gpu(self) -> str:
        return self.hardware.gpus[0].uuid

    def device(self) -> str:
        """The UUID of the only slice."""
        (found,) = self.port.truth(self.gpu).instances
        assert found.uuid is not None
        return found.uuid


@contextmanager
def simulate(models: str) -> Iterator[Simulated]:
    clock = FakeTime()
    hardware = Hardware("node-1", fleet_parse(models), state=None, clock=clock)
    with installed(hardware) as driver:
        port = simulated_port(hardware)
        yield Simulated(port, hardware, driver, clock)
        port.close()


@pytest.fixture
def whole() -> Iterator[Simulated]:
    with simulate("h100:1") as found:
        yield found


@pytest.fixture
def sliced(whole: Simulated) -> Simulated:
    whole.port.set_mode(whole.gpu, "sliced")
    return whole


HARDWARE = ["simulated", *(["real"] if Path("/dev/nvidiactl").exists() else [])]
"""Where a driver is, the same contract is tried on it too, read-only."""


@pytest.fixture(params=HARDWARE)
def readable(request: pytest.FixtureRequest) -> Iterator[GpuPort]:
    if request.param == "simulated":
        with simulate("h100:1,a100:1,l40s:1") as found:
            yield found.port
        return
    port = NvmlGpu(process_signal)
    yield port
    port.close()


def test_every_gpu_tells_who_it_is(readable: GpuPort) -> None:
    gpus = readable.inventory()

    assert readable.driver()
    assert gpus
    assert len({gpu.uuid for gpu in gpus}) == len({gpu.pci for gpu in gpus}) == len(gpus)
    for gpu in gpus:
        assert gpu.uuid.startswith("GPU-")
        assert re.fullmatch("10de:[0-9a-f]{4}", gpu.device_id)
        assert gpu.memory_mb > 1000
        assert gpu.mig_capable or not gpu.placements


def test_every_gpu_can_be_read_again_and_again(readable: GpuPort) -> None:
    for gpu in readable.inventory():
        truth = readable.truth(gpu.uuid)
        total, *slices = readable.readings(gpu.uuid)

        assert truth.mode == gpu.mode
        assert len(slices) == len(truth.instances)
        assert total.utilisation is None or 0 <= total.utilisation <= 100
        assert total.memory_total_mb == gpu.memory_mb


def test_a_gpu_that_is_not_there_is_lost(readable: GpuPort) -> None:
    with pytest.raises(GpuError) as refused:
        readable.truth("GPU-00000000-0000-0000-0000-000000000000")
    assert refused.value.fault == "lost"


def test_the_same_name_gives_the_same_hardware() -> None:
    first, again, other = (
        [gpu.uuid for gpu in Hardware(name, ["h100"] * 2, state=None, clock=FakeTime()).gpus]
        for name in ("n1", "n1", "n2")
    )

    assert first == again
    assert not {*first} & {*other}


def test_linked_gpus_share_a_domain_and_others_have_none() -> None:
    with simulate("h100:2,a100-40:2,l40s:1") as node:
        domains = [gpu.nvlink_domain for gpu in node.port.inventory()]

    assert domains == [0, 0, 1, 1, None]


def test_boards_are_told_by_the_halves_of_their_pci_numbers() -> None:
    with simulate("h100:1,l40s:1") as node:
        reported = [(gpu.device_id, gpu.subsystem_id) for gpu in node.port.inventory()]
    assert reported == [("10de:2330", "10de:16c1"), ("10de:26b9", "")]


def test_a_lost_gpu_is_left_out_of_the_inventory() -> None:
    with simulate("h100:2") as node:
        node.hardware.gpus[0].lost = True

        assert [gpu.index for gpu in node.port.inventory()] == [1]
        with pytest.raises(GpuError) as refused:
            node.port.truth(node.gpu)
    assert refused.value.fault == "lost"


def test_a_slice_is_usable_as_soon_as_it_exists(sliced: Simulated) -> None:
    sliced.port.create(sliced.gpu, Place(14, 2, 2))

    (found,) = sliced.port.truth(sliced.gpu).instances
    assert (found.profile, found.place, found.processes) == ("2g.20gb", Place(14, 2, 2), 0)
    assert sliced.device().startswith("MIG-")


def test_a_failed_second_step_leaves_no_half_made_slice(sliced: Simulated) -> None:
    sliced.driver.faults["nvmlGpuInstanceCreateComputeInstance"].append("NVML_ERROR_UNKNOWN")

    with pytest.raises(GpuError):
        sliced.port.create(sliced.gpu, Place(14, 2, 2))
    assert sliced.port.truth(sliced.gpu).instances == ()


@pytest.mark.parametrize(
    ("place", "fault"),
    cases(
        {
            "over another slice": (Place(19, 5, 1), "no_room"),
            "more of a profile than the model has": (Place(20, 3, 1), "no_room"),
            "at a start that is not legal": (Place(14, 1, 2), "invalid"),
            "of a size that is not the profile's": (Place(19, 2, 2), "invalid"),
            "of an unknown profile": (Place(77, 2, 1), "unsupported"),
        }
    ),
)
def test_the_hardware_has_no_place_for_a_slice(place: Place, fault: Fault, sliced: Simulated) -> None:
    sliced.port.create(sliced.gpu, Place(9, 4, 4))
    sliced.port.create(sliced.gpu, Place(20, 0, 1))

    with pytest.raises(GpuError) as refused:
        sliced.port.create(sliced.gpu, place)
    assert refused.value.fault == fault


def test_a_gpu_in_whole_mode_has_no_slices(whole: Simulated) -> None:
    with pytest.raises(GpuError) as refused:
        whole.port.create(whole.gpu, Place(14, 0, 2))
    assert refused.value.fault == "unsupported"


def test_a_slice_with_a_process_stays_until_the_process_ends(sliced: Simulated) -> None:
    sliced.port.create(sliced.gpu, Place(14, 0, 2))
    sliced.hardware.process_start(sliced.device(), label="a1")
    (found,) = sliced.port.truth(sliced.gpu).instances

    with pytest.raises(GpuError) as refused:
        sliced.port.destroy(sliced.gpu, found.id)
    assert refused.value.fault == "in_use"
    assert found.processes == 1

    sliced.port.end_processes(sliced.gpu, found.id, force=False)
    sliced.port.destroy(sliced.gpu, found.id)
    assert sliced.port.truth(sliced.gpu).instances == ()


def test_a_stubborn_process_ends_only_by_force(whole: Simulated) -> None:
    whole.hardware.process_start(whole.gpu, label="w1", stubborn=True)

    whole.port.end_processes(whole.gpu, None, force=False)
    assert whole.port.truth(whole.gpu).processes == 1
    whole.port.end_processes(whole.gpu, None, force=True)
    assert whole.port.truth(whole.gpu).processes == 0


def test_only_the_processes_that_are_meant_are_named_and_ended(sliced: Simulated) -> None:
    for slot in (0, 2):
        sliced.port.create(sliced.gpu, Place(14, slot, 2))
    one, two = sliced.port.truth(sliced.gpu).instances
    mine = [sliced.hardware.process_start(one.uuid or "", label=n) for n in ("a", "b")]
    other = sliced.hardware.process_start(two.uuid or "", label="c")

    assert sorted(sliced.port.pids(sliced.gpu, one.id)) == mine
    sliced.port.end_processes(sliced.gpu, one.id, force=True, only=mine[:1])
    assert sliced.port.pids(sliced.gpu, one.id) == (mine[1],)
    assert sliced.port.pids(sliced.gpu, two.id) == (other,)
    assert sliced.port.pids(sliced.gpu, 99) == ()


def test_what_is_frozen_is_on_no_device_until_it_goes_on(whole: Simulated) -> None:
    pid = whole.hardware.process_start(whole.gpu, label="w1")
    program_toggle(whole.hardware, pid)
    assert whole.port.truth(whole.gpu).processes == 0
    whole.port.set_mode(whole.gpu, "sliced")
    with pytest.raises(HardwareFault):
        program_toggle(whole.hardware, pid)
    whole.port.set_mode(whole.gpu, "whole")
    program_toggle(whole.hardware, pid)
    assert whole.port.pids(whole.gpu, None) == (pid,)


def test_the_mode_changes_only_on_an_empty_gpu(whole: Simulated) -> None:
    whole.hardware.process_start(whole.gpu, label="w1")
    with pytest.raises(GpuError) as refused:
        whole.port.set_mode(whole.gpu, "sliced")
    assert refused.value.fault == "in_use"

    whole.port.end_processes(whole.gpu, None, force=True)
    whole.port.set_mode(whole.gpu, "sliced")
    whole.port.create(whole.gpu, Place(14, 0, 2))
    with pytest.raises(GpuError):
        whole.port.set_mode(whole.gpu, "whole")
    assert whole.port.truth(whole.gpu).mode == "sliced"


@pytest.mark.parametrize(
    ("model", "fault"),
    cases({"has no MIG": ("l40s", "unsupported")}),
)
def test_a_mode_that_a_model_can_not_change_to(model: str, fault: Fault) -> None:
    with simulate(f"{model}:1") as node:
        with pytest.raises(GpuError) as refused:
            node.port.set_mode(node.gpu, "sliced")
        assert refused.value.fault == fault
        assert node.port.truth(node.gpu).mode == "whole"


def test_a_slice_is_measured_where_the_model_can_and_is_unknown_elsewhere(
    sliced: Simulated,
) -> None:
    sliced.port.create(sliced.gpu, Place(9, 0, 4))
    sliced.hardware.process_start(sliced.device(), label="busy")
    sliced.clock.now += 60
    _, before = sliced.port.readings(sliced.gpu)
    total, after = sliced.port.readings(sliced.gpu)

    assert before.utilisation is None
    assert after.utilisation is not None
    assert after.utilisation > 40
    assert after.processes == 1
    assert (total.utilisation, total.processes) == (None, None)
    assert after.power_mw is None
    assert total.power_mw is not None
    assert after.memory_total_mb == 40448


def test_a_model_without_sampling_has_no_utilisation_of_slices() -> None:
    with simulate("a100:1") as node:
        node.hardware.gpus[0].mig = True
        node.port.create(node.gpu, Place(9, 0, 4))
        node.port.readings(node.gpu)
        _, found = node.port.readings(node.gpu)

    assert found.utilisation is None
    assert found.memory_used_mb is not None


@pytest.mark.parametrize("slug", SLICED)
def test_no_set_of_disjoint_legal_places_ever_needs_more_compute_than_there_is(slug: str) -> None:
    model = MODELS[slug]
    found = list(_layouts(model.profiles, taken=0, after=0))

    assert max(sum(p.compute for p in layout) for layout in found) <= model.compute
    without_me = [layout for layout in found if not any(p.name.endswith("+me") for p in layout)]
    # The number of layouts that the published placement tables give, the empty one included.
    assert len(without_me) == 723


def _layouts(profiles: tuple[Profile, ...], *, taken: int, after: int) -> Iterator[tuple[Profile, ...]]:
    yield ()
    for start in range(after, 8):
        for profile in profiles:
            mask = ((1 << profile.size) - 1) << start
            if start in profile.starts and not taken & mask:
                rest = _layouts(profiles, taken=taken | mask, after=start + 1)
                yield from ((profile, *layout) for layout in rest)


@pytest.mark.parametrize("slug", SLICED)
def test_the_driver_tells_the_placements_of_the_published_tables(slug: str) -> None:
    with simulate(f"{slug}:1") as node:
        (gpu,) = node.port.inventory()

    reported = {(p.profile_id, p.start, p.size, p.compute, p.max) for p in gpu.placements}
    table = {
        (19, 1, 1, 7): range(7),
        (20, 1, 1, 1): range(7),
        (15, 2, 1, 4): (0, 2, 4, 6),
        (14, 2, 2, 3): (0, 2, 4),
        (9, 4, 3, 2): (0, 4),
        (5, 4, 4, 1): (0,),
        (0, 8, 7, 1): (0,),
    }
    assert reported == {
        (number, start, size, compute, most)
        for (number, size, compute, most), starts in table.items()
        for start in starts
    }


def test_a_driver_that_numbers_twelve_slots_is_told_and_asked_in_steps_of_three() -> None:
    with simulate("rtx-pro-6000:1") as node:
        (gpu,) = node.port.inventory()
        reported = {(p.profile, p.start, p.size, p.compute, p.max) for p in gpu.placements}
        assert reported == {
            *(("1g.24gb", start, 1, 1, 4) for start in range(4)),
            *(("2g.48gb", start, 2, 2, 2) for start in (0, 2)),
            ("4g.96gb", 0, 4, 4, 1),
        }
        node.port.set_mode(node.gpu, "sliced")
        small, half = Place(14, 1, 1), Place(5, 2, 2)
        for place in (small, half):
            node.port.create(node.gpu, place)
        made = node.hardware.gpus[0].instances.values()
        assert [(each.start, each.profile.size) for each in made] == [(3, 3), (6, 6)]
        found = node.port.truth(node.gpu).instances
        assert {each.place for each in found} == {small, half}
        assert node.port.readings(node.gpu)[1].memory_total_mb in (24_192, 48_512)


def test_a_part_of_the_drivers_answers_gives_the_same_step() -> None:
    whole = [(start, size, size // 3) for size, starts in TWELVE.items() for start in starts]
    for some in (whole, *([each] for each in whole if each[0] + each[1] > wire.SLOTS)):
        assert slot_step([(SimpleNamespace(sliceCount=c), a, b) for a, b, c in some]) == 3
    assert slot_step([]) == slot_step([(SimpleNamespace(sliceCount=7), 0, 8)]) == 1


def test_the_simulator_has_every_symbol_that_the_agent_uses() -> None:
    used = {
        node.attr
        for module in NVML_MODULES
        for node in ast.walk(ast.parse(Path(inspect.getfile(module)).read_text()))
        if isinstance(node, ast.Attribute) and re.match("nvml[A-Z]", node.attr)
    }
    symbols = {s for name in used if hasattr(pynvml, name) for s in _symbols(name)}

    assert len(symbols) > 25
    # Older forms, which pynvml only names for callers that ask for them.
    old = {
        "nvmlDeviceGetGpuInstanceProfileInfo",
        "nvmlGpuInstanceGetComputeInstanceProfileInfo",
    }
    driver = SimulatedNvml(Hardware("n1", ["h100"], state=None, clock=lambda: 0.0))
    assert {s for s in symbols if not hasattr(driver, s)} <= old


def _symbols(name: str) -> set[str]:
    """The C symbols behind a function of pynvml, through the wrappers it calls."""
    function = inspect.unwrap(getattr(pynvml, name))
    if not inspect.isfunction(function):
        return set()
    source = inspect.getsource(function)
    direct = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', source))
    called = set(re.findall(r"\b(nvml[A-Z]\w+)\(", source)) - {name}
    through = (_symbols(each) for each in called if hasattr(pynvml, each))
    return direct.union(*through)


def test_a_symbol_nobody_implements_is_not_found_as_on_an_old_driver(whole: Simulated) -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        pynvml.nvmlDeviceGetFanSpeed(handle)


def test_a_fleet_is_written_as_models_with_numbers() -> None:
    assert fleet_parse("h100:2,l40s:1") == ["h100", "h100", "l40s"]
    assert fleet_parse("a100+mig:1") == ["a100+mig"]


@pytest.mark.parametrize("text", ["", "h100", "h100:0", "h100:x", "v100:1", "h100:65", "l40s+mig:1"])
def test_a_fleet_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"simulated model|number of GPUs"):
        fleet_parse(text)
