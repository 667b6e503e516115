"""Readings of a booking's use as the steps of a diagnosis."""

from allocation.queries.fleet.telemetry import UseCurve
from allocation.rules.nodes.diagnosis import Moment


def moments_of(curve: UseCurve) -> list[Moment]:
    """Returns all steps. The first and the last are incomplete: they count as far as they were
    measured."""
    seconds, last = int(curve.step.total_seconds()) * curve.devices, len(curve.points) - 1
    return [
        Moment(
            seconds=seconds if 0 < number < last else point.measured,
            measured=point.measured,
            busy_min=point.busy_min,
            busy=point.busy,
            busy_max=point.busy_max,
            bandwidth=point.bandwidth,
            tensor=point.tensor,
            pcie_kb=point.pcie_kb,
            throttled=point.throttled,
            nvlink_kb=point.nvlink_kb,
        )
        for number, point in enumerate(curve.points)
        if 0 < number < last or point.measured
    ]
