"""What is measured: by the same contract on simulated and real GPUs, and never zero for unknown."""

import dataclasses
from collections.abc import Iterator
from itertools import pairwise

import pynvml
import pytest

from agent.host.machine import process_signal
from agent.nvml.gpu import NvmlGpu
from agent.ports.gpu import GpuPort, Place, Reading
from devtools.simulated.hardware import gpu_load
from devtools.simulated.processes import kind_of, load_of
from devtools.simulated.sensors import SensorSymbols
from tests.agent.nvml.test_gpu import HARDWARE, Simulated, simulate

PERCENTS = ("utilisation", "bandwidth", "sm", "tensor")
LINKS = ("pcie_rx_kb", "pcie_tx_kb", "nvlink_rx_kb", "nvlink_tx_kb")


@pytest.fixture(params=HARDWARE)
def readable(request: pytest.FixtureRequest) -> Iterator[GpuPort]:
    if request.param == "simulated":
        with simulate("h100:1,a100:1,l40s:1") as found:
            yield found.port
        return
    port = NvmlGpu(process_signal)
    yield port
    port.close()


@pytest.fixture
def whole() -> Iterator[Simulated]:
    with simulate("h100:1") as found:
        yield found


def test_every_value_is_in_its_range_or_unknown(readable: GpuPort) -> None:
    for gpu in readable.inventory():
        for _ in range(3):
            for reading in readable.readings(gpu.uuid):
                for name in PERCENTS:
                    assert getattr(reading, name) is None or 0 <= getattr(reading, name) <= 100
                for name in (*LINKS, "sm_mhz", "throttle", "energy_mj", "power_mw"):
                    assert getattr(reading, name) is None or getattr(reading, name) >= 0


def test_energy_never_falls(readable: GpuPort) -> None:
    for gpu in readable.inventory():
        found = [readable.readings(gpu.uuid)[0].energy_mj for _ in range(3)]
        assert all(a is None or (b is not None and b >= a) for a, b in pairwise(found))


def rates(reading: Reading) -> dict[str, int | None]:
    return {name: getattr(reading, name) for name in ("bandwidth", "sm", "tensor", *LINKS)}


def test_a_whole_gpu_with_gpm_tells_bandwidth_tensor_cores_and_links(whole: Simulated) -> None:
    whole.hardware.process_start(whole.gpu, label="w", load=_load_of("training"))
    whole.clock.now += 60
    (first,) = whole.port.readings(whole.gpu)
    whole.clock.now += 10
    (second,) = whole.port.readings(whole.gpu)
    assert set(rates(first).values()) == {None}, "a rate needs two looks"
    assert all(value is not None and value > 0 for value in rates(second).values())
    assert second.sm_mhz is not None
    assert second.sm_mhz > 1000
    assert (second.energy_mj or 0) - (first.energy_mj or 0) == pytest.approx(
        10 * (second.power_mw or 0), rel=0.2
    )


def test_links_are_told_in_kib(whole: Simulated) -> None:
    seed = _load_of("input")
    whole.hardware.process_start(whole.gpu, label="w", load=seed)
    whole.clock.now += 60
    whole.port.readings(whole.gpu)
    (reading,) = whole.port.readings(whole.gpu)
    load = gpu_load(whole.hardware, whole.hardware.gpus[0])
    assert reading.pcie_rx_kb == load.pcie_mb * 1024


def test_a_slice_tells_its_own_and_no_links(whole: Simulated) -> None:
    whole.port.set_mode(whole.gpu, "sliced")
    whole.port.create(whole.gpu, Place(9, 0, 4))
    whole.hardware.process_start(
        str(whole.port.truth(whole.gpu).instances[0].uuid), label="s", load=_load_of("memory")
    )
    whole.clock.now += 60
    whole.port.readings(whole.gpu)
    total, part = whole.port.readings(whole.gpu)
    assert part.utilisation is not None
    assert part.bandwidth is not None
    assert part.bandwidth > 40
    assert [getattr(part, name) for name in LINKS] == [None] * 4
    assert (part.sm_mhz, part.energy_mj) == (None, None)
    assert set(rates(total).values()) == {None}


def test_without_gpm_bandwidth_and_links_are_unknown_and_not_zero() -> None:
    with simulate("l40s:1") as found:
        found.hardware.process_start(found.gpu, label="w")
        found.clock.now += 60
        found.port.readings(found.gpu)
        (reading,) = found.port.readings(found.gpu)
    assert set(rates(reading).values()) == {None}
    assert reading.utilisation is not None


def test_a_driver_without_a_symbol_leaves_its_value_unknown(whole: Simulated) -> None:
    old = "nvmlDeviceGetCurrentClocksThrottleReasons"
    for name in ("nvmlDeviceGetClockInfo", "nvmlDeviceGetCurrentClocksEventReasons", old):
        whole.driver.faults[name].append("NVML_ERROR_FUNCTION_NOT_FOUND")
    (reading,) = whole.port.readings(whole.gpu)
    assert (reading.sm_mhz, reading.throttle) == (None, None)
    assert reading.energy_mj is not None


def test_a_metric_that_can_not_be_told_is_unknown(whole: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.nvml.measure._METRICS", {"bandwidth": 9999})
    whole.port.readings(whole.gpu)
    (reading,) = whole.port.readings(whole.gpu)
    assert reading.bandwidth is None


def test_all_programs_of_a_booking_draw_the_same_curve_and_always_the_same() -> None:
    curves = []
    for label in ("a", "b"):
        with simulate("h100:1") as found:
            found.hardware.process_start(found.gpu, label=label, load="biology.BK-7")
            curve = []
            for _ in range(20):
                found.clock.now += 10
                curve.append(dataclasses.astuple(gpu_load(found.hardware, found.hardware.gpus[0])))
            curves.append(curve)
    assert curves[0] == curves[1]
    assert len(set(curves[0])) > 3


def test_there_are_programs_of_every_kind() -> None:
    assert {kind_of(seed) for seed in range(8)} == {
        "idle",
        "input",
        "memory",
        "communication",
        "training",
    }
    saw = [load_of(2, 60 + age).busy for age in range(90)]
    assert min(saw) < 20
    assert max(saw) > 70
    assert max(load_of(0, age).busy for age in range(200)) <= 1


def test_the_pointers_of_samples_are_given_back(whole: Simulated) -> None:
    whole.port.readings(whole.gpu)
    whole.port.close()
    (sensors,) = (each for each in whole.driver.symbols if isinstance(each, SensorSymbols))
    assert sensors._samples == {}
    pynvml.nvmlInit()


def _load_of(kind: str) -> str:
    """A name whose programs are of the kind."""
    with simulate("h100:1") as found:
        for number in range(100):
            pid = found.hardware.process_start(found.gpu, label="x", load=f"t.BK-{number}")
            if kind_of(found.hardware.gpus[0].processes[pid].seed) == kind:
                return f"t.BK-{number}"
    raise AssertionError(kind)
