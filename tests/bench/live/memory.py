"""Memory of a running site by program: `python -m tests.bench.live.memory`.

RSS counts shared pages once per process; PSS divides them, so that its sum is the memory that the
machine really uses. A program's figures include its whole process tree.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from tests.bench.machine import machine, report
from tests.bench.site import Site, site_of, site_options

_ROLLUP = re.compile(r"^(Rss|Pss):\s+(\d+) kB", re.MULTILINE)


def measure(site: Site) -> dict[str, Any]:
    """Megabytes of each program that the site's launcher has started, and of all together."""
    programs = {}
    for path in sorted((site.var / "pids").glob("*.pid")):
        tree = _tree(json.loads(path.read_text(encoding="utf-8"))["pid"])
        sizes = [_size(pid) for pid in tree]
        programs[path.stem] = {
            "processes": len(tree),
            "rss_mb": round(sum(size.get("Rss", 0) for size in sizes) / 1024, 1),
            "pss_mb": round(sum(size.get("Pss", 0) for size in sizes) / 1024, 1),
        }
    return {
        "bench": "memory",
        "programs": programs,
        "processes": sum(int(program["processes"]) for program in programs.values()),
        "pss_mb": round(sum(program["pss_mb"] for program in programs.values()), 1),
        "machine": machine(),
    }


def _tree(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        for path in Path(f"/proc/{found[-1]}/task").glob("*/children"):
            waiting += [int(word) for word in path.read_text(encoding="utf-8").split()]
    return found


def _size(pid: int) -> dict[str, int]:
    """Kilobytes; zero for a process that has just ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: int(size) for name, size in _ROLLUP.findall(text)}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    site_options(parser)
    options = parser.parse_args()
    with site_of(options) as site:
        result = measure(site)
    report("memory", result, options.out)


if __name__ == "__main__":
    main()
