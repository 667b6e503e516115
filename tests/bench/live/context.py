"""What the tenant's context costs: `python -m tests.bench.live.context --rounds 5000`.

A web process reads one row in a transaction of a tenant, and the same row in a plain transaction.
Rounds take turns, so that other load on the machine meets both.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.bench.live.telemetry import database
from tests.bench.machine import machine, report

if TYPE_CHECKING:
    from uuid import UUID

GOAL_MS = 0.1


def measure(rounds: int) -> dict[str, Any]:
    """Times both transactions, and their difference."""
    with database():
        from django.db import transaction  # noqa: PLC0415 (Django is there only now)

        from tenants.models import GpuClass  # noqa: PLC0415
        from tenants.platform.wall import tenant_tx  # noqa: PLC0415
        from tests import builders  # noqa: PLC0415

        tenant: UUID = builders.a_tenant("helix").id
        builders.a_gpu_class("h100")

        def walled() -> None:
            with tenant_tx(tenant):
                GpuClass.objects.get(slug="h100")

        def plain() -> None:
            with transaction.atomic():
                GpuClass.objects.get(slug="h100")

        times: dict[str, list[float]] = {"walled": [], "plain": []}
        for _ in range(rounds):
            times["walled"].append(_timed(walled))
            times["plain"].append(_timed(plain))
    found = {f"{name}_ms": round(median(each) * 1000, 3) for name, each in times.items()}
    pairs = [one - other for one, other in zip(times["walled"], times["plain"], strict=True)]
    # On a shared machine: the tenth that waited least for a core.
    tenths = [sorted(each)[len(each) // 10] for each in (times["walled"], times["plain"])]
    return {
        "bench": "context",
        "rounds": rounds,
        "goal_ms": GOAL_MS,
        **found,
        "context_ms": round(median(pairs) * 1000, 3),
        "context_of_the_fastest_tenth_ms": round((tenths[0] - tenths[1]) * 1000, 3),
        "machine": machine(),
    }


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.context", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=None, help="folder for context.json")
    options = parser.parse_args()
    report("context", measure(options.rounds), options.out)


if __name__ == "__main__":
    main()
