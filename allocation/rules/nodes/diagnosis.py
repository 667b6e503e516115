"""The bottleneck of running work, from utilisation readings.

A bottleneck is a hint to the owner and never a reason to take GPUs away. Work counts as idle only
if all of the period was measured: unknown is not idle.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["idle", "held_down", "memory_bound", "input_bound", "compute_bound", "steady", "unknown"]

SHORTEST_S = 600
# The measured fraction of the period that is required: for any result, and for idle.
WATCHED, WATCHED_IDLE = 0.8, 0.95
IDLE_BELOW = 5
WORKS_FROM = 50
HELD_FROM = 0.2
BANDWIDTH_FROM = 60
TENSOR_FROM = 40
SWINGS_FROM = 40
FULL_FROM = 85
GIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Moment:
    """One step: total and measured seconds over all devices; utilisation (lowest, mean, highest),
    memory bandwidth and tensor core activity in percent; KiB per second over PCIe; seconds of
    throttling by heat or power. None: not measured."""

    seconds: int
    measured: int
    busy_min: float | None = None
    busy: float | None = None
    busy_max: float | None = None
    bandwidth: float | None = None
    tensor: float | None = None
    pcie_kb: float | None = None
    throttled: int | None = None


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """A bottleneck with a sentence for the owner and its evidence: numbers by name."""

    kind: Kind
    sentence: str
    evidence: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class _Sums:
    watched: float
    busy: float
    top: float
    swing: float
    held: float
    bandwidth: float | None
    tensor: float | None
    pcie_gib: float | None


def bottleneck_of(moments: Sequence[Moment]) -> Bottleneck:
    """The first bottleneck that matches, in order of certainty."""
    asked = sum(moment.seconds for moment in moments)
    known = [moment for moment in moments if moment.measured and moment.busy is not None]
    watched = sum(moment.measured for moment in known) / asked if asked else 0.0
    if asked < SHORTEST_S or watched < WATCHED:
        return Bottleneck("unknown", "There are too few readings for a diagnosis.")
    sums = _sums(known, watched)
    if sums.top < IDLE_BELOW:
        return _idle(sums, is_whole=len(known) == len(moments))
    for rule in (_held_down, _memory_bound, _input_bound, _compute_bound):
        found = rule(sums)
        if found is not None:
            return found
    return Bottleneck(
        "steady",
        f"No bottleneck found: {sums.busy:.0f} % busy on average.",
        (("busy", round(sums.busy, 1)),),
    )


def _idle(sums: _Sums, *, is_whole: bool) -> Bottleneck:
    if not is_whole or sums.watched < WATCHED_IDLE:
        return Bottleneck("unknown", "It was idle in all readings, but readings are missing.")
    return Bottleneck(
        "idle",
        f"Idle: never more than {sums.top:.0f} % busy. If you are done, release the booking.",
        (("busy_max", sums.top),),
    )


def _held_down(sums: _Sums) -> Bottleneck | None:
    if sums.held < HELD_FROM or sums.busy < WORKS_FROM:
        return None
    return Bottleneck(
        "held_down",
        f"Throttled by heat or power for {100 * sums.held:.0f} % of the time.",
        (("held", round(sums.held, 3)), ("busy", round(sums.busy, 1))),
    )


def _memory_bound(sums: _Sums) -> Bottleneck | None:
    bandwidth = sums.bandwidth
    if bandwidth is None or bandwidth < BANDWIDTH_FROM or sums.busy < WORKS_FROM:
        return None
    if sums.tensor is not None and sums.tensor >= TENSOR_FROM:
        return None
    return Bottleneck(
        "memory_bound",
        f"Limited by memory bandwidth: {bandwidth:.0f} % is in use. Fused kernels or lower"
        " precision help more than a faster GPU.",
        (("bandwidth", round(bandwidth, 1)), ("busy", round(sums.busy, 1))),
    )


def _input_bound(sums: _Sums) -> Bottleneck | None:
    if sums.swing < SWINGS_FROM or sums.busy >= FULL_FROM:
        return None
    over = ""
    evidence = [("swing", round(sums.swing, 1)), ("busy", round(sums.busy, 1))]
    if sums.pcie_gib is not None:
        if sums.pcie_gib < 1:
            return None
        over = f" with {sums.pcie_gib:.1f} GiB/s over PCIe"
        evidence.append(("pcie_gib", round(sums.pcie_gib, 2)))
    return Bottleneck(
        "input_bound",
        f"Often waits for data: utilisation varies by {sums.swing:.0f} points{over} and averages"
        f" {sums.busy:.0f} %. More loader processes or local data help.",
        tuple(evidence),
    )


def _compute_bound(sums: _Sums) -> Bottleneck | None:
    tensor = sums.tensor or 0
    if tensor < TENSOR_FROM and sums.busy < FULL_FROM:
        return None
    words = f", tensor cores {tensor:.0f} %" if sums.tensor is not None else ""
    return Bottleneck(
        "compute_bound",
        f"Makes good use of the GPU: {sums.busy:.0f} % busy{words}.",
        (("busy", round(sums.busy, 1)), ("tensor", round(tensor, 1))),
    )


def measured_mean(values: Sequence[tuple[float | None, int]]) -> float | None:
    """The mean of values by the seconds for which each was measured, on pages and in a diagnosis.
    None if readings of a part of the measured period would stand for all of it."""
    there = [(value, seconds) for value, seconds in values if value is not None]
    measured = sum(seconds for _, seconds in there)
    if not measured or measured < WATCHED * sum(seconds for _, seconds in values):
        return None
    return sum(value * seconds for value, seconds in there) / measured


def _sums(known: Sequence[Moment], watched: float) -> _Sums:
    total = sum(moment.measured for moment in known)

    def mean(read: Callable[[Moment], float | None]) -> float | None:
        return measured_mean([(read(moment), moment.measured) for moment in known])

    pcie = mean(lambda moment: moment.pcie_kb)
    return _Sums(
        watched=watched,
        busy=mean(lambda moment: moment.busy) or 0.0,
        top=max(m.busy_max if m.busy_max is not None else m.busy or 0.0 for m in known),
        swing=mean(_swing) or 0.0,
        held=sum(moment.throttled or 0 for moment in known) / total,
        bandwidth=mean(lambda moment: moment.bandwidth),
        tensor=mean(lambda moment: moment.tensor),
        pcie_gib=None if pcie is None else pcie / GIB,
    )


def _swing(moment: Moment) -> float | None:
    if moment.busy_min is None or moment.busy_max is None:
        return None
    return moment.busy_max - moment.busy_min
