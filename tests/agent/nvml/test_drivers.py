"""The agent on every branch of the driver, and under any answer of it."""

from pathlib import Path

import pynvml
import pytest

import wire
from agent.ports.gpu import GpuError, Place
from devtools.simulated.drivers import DEFAULT, DRIVERS, driver_named
from tests.agent import driver_noise
from tests.agent.builders import Rig, a_document, a_rig, a_slice, a_whole

BRANCHES = sorted(DRIVERS)


def facts(rig: Rig) -> list[wire.InventoryGpu]:
    """What every branch reports alike."""
    return list(rig.node.port.inventory())


@pytest.mark.parametrize("branch", BRANCHES)
def test_every_branch_tells_the_same_gpus_and_slices_come_and_go(branch: str, tmp_path: Path) -> None:
    with a_rig(tmp_path / "0", simulate="h100:2,l40s:1") as rig:
        known = facts(rig)
    with a_rig(tmp_path / "1", simulate="h100:2,l40s:1", driver=branch) as rig:
        assert facts(rig) == known
        assert rig.node.port.driver() == DRIVERS[branch].version
        assert known[0].peers[0].nvlinks == 18
        rig.desire(a_document({rig.gpu: [a_slice()]}))
        assert rig.sent.states() == {"a1": "ready"}
        rig.desire(a_document({rig.gpu: [a_slice(state="release")]}, generation=2))
        assert (rig.sent.states(), rig.instances()) == ({"a1": "empty"}, [])
        (reading,) = rig.node.port.readings(rig.hardware.gpus[2].uuid)
        assert None not in (reading.temperature_c, reading.throttle, reading.memory_used_mb)


def test_a_branch_that_is_not_simulated_is_refused() -> None:
    with pytest.raises(ValueError, match="no simulated driver"):
        driver_named("470")


def test_old_drivers_call_the_binding_s_higher_indexes_invalid(tmp_path: Path) -> None:
    with a_rig(tmp_path, driver="535") as rig:
        handle = pynvml.nvmlDeviceGetHandleByUUID(rig.gpu)
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetNvLinkState(handle, 18)
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, 8)
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, 10)
        with pytest.raises(pynvml.NVMLError_FunctionNotFound):
            pynvml.nvmlDeviceGetTemperatureV(handle, 0)


def test_without_the_link_count_links_are_counted_one_by_one(rig: Rig) -> None:
    rig.driver.faults["nvmlDeviceGetFieldValues"] += ["NVML_ERROR_UNKNOWN"] * 2
    first, _ = rig.node.port.inventory()
    assert first.peers[0].nvlinks == 18


def test_of_two_compute_profiles_of_one_size_the_whole_one_is_made(rig: Rig) -> None:
    rig.node.port.set_mode(rig.gpu, "sliced")
    rig.node.port.create(rig.gpu, Place(15, 0, 2))
    (made,) = rig.hardware.gpus[0].instances.values()
    assert made.compute == pynvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1
    rig.node.port.destroy(rig.gpu, made.id)
    assert rig.hardware.gpus[0].instances == {}


def test_of_two_alike_the_driver_s_first_is_made(tmp_path: Path) -> None:
    with a_rig(tmp_path, driver="600") as rig:
        rig.node.port.set_mode(rig.gpu, "sliced")
        rig.node.port.create(rig.gpu, Place(0, 0, 8))
        (made,) = rig.hardware.gpus[0].instances.values()
        assert (made.id, made.compute) == (0, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE)


def test_a_compute_profile_that_is_refused_is_not_the_last_word(rig: Rig) -> None:
    rig.node.port.set_mode(rig.gpu, "sliced")
    symbol = "nvmlGpuInstanceCreateComputeInstance"
    rig.driver.faults[symbol] += ["NVML_ERROR_NOT_SUPPORTED"]
    rig.node.port.create(rig.gpu, Place(15, 0, 2))
    (made,) = rig.hardware.gpus[0].instances.values()
    assert made.compute == pynvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE


@pytest.mark.parametrize(
    "symbol",
    [
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetUtilizationRates",
        "nvmlGpmQueryDeviceSupport",
        "nvmlGpmSampleAlloc",
        "nvmlDeviceGetMemoryInfo",
    ],
)
@pytest.mark.parametrize("code", ["NVML_ERROR_UNKNOWN", "NVML_ERROR_NOT_READY"])
def test_a_reading_that_fails_is_one_value_less(rig: Rig, symbol: str, code: str) -> None:
    rig.driver.faults[symbol] += [code] * 2
    total = rig.node.port.readings(rig.gpu)[0]
    assert total.sm_mhz is not None
    assert total.processes == 0


def test_a_gpu_that_does_not_tell_its_name_leaves_the_others_served(tmp_path: Path) -> None:
    with a_rig(tmp_path, simulate="h100:2") as rig:
        rig.driver.faults["nvmlDeviceGetName"] += ["NVML_ERROR_UNKNOWN"] * 2
        assert [gpu.index for gpu in rig.node.port.inventory()] == [1]
        # One answer that was lost changes nothing.
        rig.driver.faults["nvmlDeviceGetName"] += ["NVML_ERROR_TIMEOUT"]
        assert [gpu.index for gpu in rig.node.port.inventory()] == [0, 1]


def test_a_gpu_in_slices_never_passes_for_a_whole_one(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    for code in ("NVML_ERROR_INVALID_ARGUMENT", "NVML_ERROR_NO_PERMISSION"):
        rig.driver.faults["nvmlDeviceGetMigMode"].append(code)
        with pytest.raises(GpuError):
            rig.node.port.truth(rig.gpu)


@pytest.mark.turn
def test_any_code_at_any_time_ends_no_agent() -> None:
    found = driver_noise.run(800)
    assert found["lives"] > 2


def test_the_mode_that_a_reboot_takes_is_made_again(tmp_path: Path) -> None:
    with a_rig(tmp_path, simulate="h100:1,a100:1") as rig:
        both = {gpu.uuid: [a_slice(f"a{gpu.index}")] for gpu in rig.hardware.gpus}
        rig.desire(a_document(both))
        assert set(rig.sent.states().values()) == {"ready"}
        rig.hardware.reboot()
        # A Hopper forgets its mode, an Ampere keeps it, and slices are gone on both.
        assert [(gpu.mig, gpu.instances) for gpu in rig.hardware.gpus] == [(False, {}), (True, {})]
        resets = list(rig.hardware.resets)
        rig.later(5)
        assert set(rig.sent.states().values()) == {"ready"}
        assert rig.hardware.resets == resets
        assert rig.sent.report().error is None


def test_the_default_branch_is_one_of_them(rig: Rig) -> None:
    assert rig.node.inventory().driver == DRIVERS[DEFAULT].version


def test_a_gpu_is_handed_over_when_its_fabric_is_complete(rig: Rig) -> None:
    device = rig.hardware.gpus[0]
    device.fabric = pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    (reported,) = rig.sent.report().allocations
    assert reported.state == "preparing"
    assert "fabric is being joined" in (reported.error or "")
    device.fabric = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED
    rig.later(5)
    assert rig.sent.states() == {"w1": "ready"}
