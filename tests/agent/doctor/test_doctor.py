"""`doctor` says what works on a node, on any node, and always comes to an end."""

import json
import logging
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pynvml
import pytest

from agent import __main__ as agent
from agent.doctor import command
from agent.doctor.checks import Check, Finding, said
from agent.doctor.driver import _not_opened, driver_checks
from agent.doctor.host import HostOptions, host_checks
from devtools.simulated import __main__ as simulated
from devtools.simulated.drivers import DRIVERS
from devtools.simulated.platform import simulated_platform


def reported(state: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, dict[str, Any]]:
    run = simulated.main if more else agent.main
    run(["doctor", "--json", "--state", str(state), *more], {})
    checks = json.loads(capsys.readouterr().out)["checks"]
    found = {each["name"]: each for each in checks}
    assert len(found) == len(checks) >= 30
    return found


@pytest.fixture(autouse=True)
def _logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "disable", lambda _: None)


@pytest.mark.parametrize("branch", DRIVERS)
def test_every_driver_branch_is_examined_to_the_end(
    branch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = reported(tmp_path, capsys, "--simulate", "h100:2,l40s:1", "--simulate-driver", branch)
    assert found["driver"]["state"] == "ok"
    assert "simulated" in found["driver"]["seen"]
    assert found["GPUs"]["seen"].startswith("2 × NVIDIA H100")
    for name in ("state of each GPU", "MIG profiles", "measurements", "programs on GPUs"):
        assert found[name]["state"] == "ok", found[name]
    wrong = "warn" if branch == "535.54" else "ok"
    assert found["process ids of the driver"]["state"] == wrong
    assert found["driver's version"]["state"] == ("warn" if branch.startswith("535") else "ok")


def test_a_machine_without_a_gpu_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_library(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_library)
    found = reported(tmp_path, capsys)
    assert "no NVIDIA" in found["driver"]["seen"]
    assert found["GPUs"] | {"seconds": 0} == {
        "name": "GPUs",
        "state": "unknown",
        "seen": "no driver answers",
        "do": "",
        "seconds": 0,
        "seen_code": "no_driver",
        "do_code": "",
        "facts": {},
    }


def test_a_gpu_without_a_driver_is_a_failure(tmp_path: Path) -> None:
    device = tmp_path / "0000:41:00.0"
    device.mkdir()
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    assert _not_opened("no library", tmp_path).state == "fail"
    (device / "vendor").write_text("0x8086\n")
    assert _not_opened("no library", tmp_path).state == "unknown"


def results(checks: Sequence[Check], within: float = 5) -> dict[str, Finding]:
    return {each.name: each.finding for each in command.checks_run(checks, within)}


def test_a_call_that_hangs_keeps_back_only_what_would_hang_too() -> None:
    never = threading.Event()

    def hangs() -> Finding:
        never.wait(30)
        return Finding("ok", said("none_runs"))

    def fine() -> Finding:
        return Finding("ok", said("none_runs"))

    checks = [
        Check("a", hangs, "the driver", 0.1, said("fix_driver_hangs")),
        Check("b", fine, "the driver"),
        Check("c", fine, "kernel"),
        *(Check(f"d{n}", hangs, f"server {n}", 0.2) for n in range(9)),
    ]
    began = time.monotonic()
    found = results(checks, 0.5)
    assert time.monotonic() - began < 2
    never.set()
    assert (found["a"].state, found["a"].do) == ("fail", said("fix_driver_hangs"))
    assert found["b"] == Finding("unknown", said("hangs", asks="the driver", check="a"))
    assert found["c"].state == "ok"
    assert found["d8"] == Finding("unknown", said("out_of_time", within="0.5"))


def test_what_a_check_can_not_read_is_unknown_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text("no JSON")
    found = results(host_checks(HostOptions(tmp_path, proc=tmp_path / "none")))
    assert found["enrolment"].state == found["systemd"].state == "unknown"
    assert found["systemd"].seen.facts["name"] == "FileNotFoundError"


def test_a_driver_that_refuses_is_told_for_each_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    with ExitStack() as stack:
        checks = driver_checks(simulated_platform("h100:2", "580").driver, stack)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lost)
        found = results(checks)
    assert found["driver"].state == "ok"
    assert found["GPUs"].state == "fail"
    assert found["MIG mode"].state == "unknown"


def test_other_owners_and_driver_settings_are_seen(tmp_path: Path) -> None:
    for number, name in enumerate(("slurmd", "dcgm-exporter", "bash"), 10):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "comm").write_text(f"{name}\n")
    (tmp_path / "params").write_text("ModifyDeviceFiles: 0\nDeviceFileMode: 438\n")
    asked = HostOptions(tmp_path, proc=tmp_path, driver=tmp_path)
    found = results(host_checks(asked))
    assert str(found["other owners of the GPUs"].seen) == "slurmd"
    assert str(found["services that keep GPUs open"].seen) == "dcgm-exporter"
    assert found["mode of device files"].do == said("fix_modify")
    (tmp_path / "params").write_text("ModifyDeviceFiles: 1\nDeviceFileMode: 432\n")
    found = results(host_checks(asked))
    assert found["mode of device files"] == Finding("ok", said("parameters", mode="0660", modify="1"))


def test_the_exit_status_and_the_last_line_count_what_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["doctor", "--state", str(tmp_path), "--simulate", "h100:1"]
    closed = ["--portal", "http://127.0.0.1:1"]
    assert simulated.main([*arguments, *closed], {}) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("FAIL    portal: 127.0.0.1:1") for line in lines)
    count = sum(line.startswith("FAIL") for line in lines)
    assert f": {count} fail," in lines[-1]
