"""Common parts of results: percentiles, and the machine that was used."""

import json
import os
import platform
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def spread(values: Sequence[float]) -> dict[str, float]:
    """p50, p90, p99, max and mean of seconds, in milliseconds; empty without values."""
    if not values:
        return {}
    ordered = sorted(values)

    def rank(percent: int) -> float:
        # Nearest rank, so that each figure was really measured.
        return round(ordered[-(-len(ordered) * percent // 100) - 1] * 1000, 1)

    return {
        **{f"p{percent}_ms": rank(percent) for percent in (50, 90, 99)},
        "max_ms": round(ordered[-1] * 1000, 1),
        "mean_ms": round(sum(ordered) / len(ordered) * 1000, 1),
    }


def machine() -> dict[str, Any]:
    """Cores, processor, memory, kernel, and the current load of the machine."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _first("/proc/cpuinfo", "model name") or platform.machine(),
        "memory_mb": int((_first("/proc/meminfo", "MemTotal") or "0").split()[0]) // 1024,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def cpu_seconds() -> float:
    """Processor time of this process so far, to detect a client that is itself the bottleneck."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_of_machine() -> tuple[float, float]:
    """Seconds of all cores together since boot, as (busy, total)."""
    words = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:9]
    ticks = [int(word) for word in words]
    total, idle = sum(ticks), ticks[3] + ticks[4]
    per_second = os.sysconf("SC_CLK_TCK")
    return (total - idle) / per_second, total / per_second


def cpu_of_programs(folder: Path) -> dict[str, float]:
    """Processor seconds so far of a site's programs by name, with their child processes. `folder`
    has the launcher's file of each program's process id."""
    names = {json.loads(path.read_text(encoding="utf-8"))["pid"]: path.stem for path in folder.glob("*.pid")}
    parents, seconds = dict[int, int](), dict[int, float]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        process = int(path.parent.name)
        parents[process] = int(fields[1])
        # With that of children which have ended.
        seconds[process] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    used = dict.fromkeys(names.values(), 0.0)
    for process, time in seconds.items():
        above = process
        while above and above not in names:
            above = parents.get(above, 0)
        if above:
            used[names[above]] += time
    return used


def report(name: str, result: Mapping[str, Any], out: Path | None) -> None:
    """Prints the result as JSON, and writes `out`/`name`.json."""
    text = json.dumps(result, indent=1)
    print(text)  # noqa: T201 (a result, to stdout)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def _first(path: str, key: str) -> str | None:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None
