"""What programs of the demo say: as many steps in an hour as the past of their workload has."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from devtools.demo.runs import STEPS, reports
from devtools.demo.uses import USES

READY = datetime(2026, 11, 30, 8, tzinfo=UTC)
HOUR = timedelta(hours=1)


def booking(number: int, workload: str, gpu_class: str, **ask: int) -> dict[str, Any]:
    """A run of two hours, as REST returns it."""
    return {
        "number": f"BK-{number}",
        "workload": workload,
        "ready_at": READY.isoformat(),
        "window": {"planned_ends": (READY + 2 * HOUR).isoformat()},
        "ask": {"count": 2, "profile": None, "share": 0, **ask},
        "allocations": [{"gpu_class": gpu_class}] * 2,
    }


@pytest.mark.parametrize("number", [3, 4, 5])
def test_a_run_has_the_rate_of_its_workload_on_its_class(number: int) -> None:
    """Whether its work is done at its end, before or after it, and not that of the booked time."""
    rates = dict(USES["tensor-parallel"].per_hour)
    for gpu_class, rate in rates.items():
        ((_, step, steps, _),) = reports([booking(number, "tensor-parallel", gpu_class)], READY + HOUR)
        assert step / 2 == pytest.approx(rate, rel=0.05)
        assert steps >= step


@pytest.mark.parametrize(
    "unknown",
    [booking(3, "new-idea", "h100"), booking(3, "docking", "l40s"), booking(3, "docking", "h100", share=250)],
)
def test_any_other_run_does_its_steps_in_its_time(unknown: dict[str, Any]) -> None:
    ((_, step, steps, _),) = reports([unknown], READY + HOUR)
    assert (step, steps) == (STEPS // 2, STEPS)
    ((_, done, _, _),) = reports([unknown], READY + 9 * HOUR)
    assert done == STEPS
