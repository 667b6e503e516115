"""What holds work up, from what was measured: one signature with its evidence.

A signature is a hint to the owner, never a reason to take anything back. Idle is said only when
every moment was measured: what is unknown is not idle.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "idle", "held_down", "memory_bound", "input_bound", "compute_bound", "steady", "unknown"
]

SHORTEST_S = 600
# Parts of the time that must have been measured: to say anything, and to call it idle.
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
    """One step: seconds that there were and that were measured, over all devices; percent of busy
    time (least, mean, most), of memory bandwidth and of tensor cores; KiB a second over PCIe;
    seconds with the clock held down by heat or power. None: not measured."""

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
    """`sentence` is for the owner; `evidence` the numbers it rests on, by name."""

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
    """The first that fits, the plainest first."""
    asked = sum(moment.seconds for moment in moments)
    known = [moment for moment in moments if moment.measured and moment.busy is not None]
    watched = sum(moment.measured for moment in known) / asked if asked else 0.0
    if asked < SHORTEST_S or watched < WATCHED:
        return Bottleneck("unknown", "Too little was measured to say what holds it up.")
    sums = _sums(known, watched)
    if sums.top < IDLE_BELOW:
        return _idle(sums, is_whole=len(known) == len(moments))
    for rule in (_held_down, _memory_bound, _input_bound, _compute_bound):
        found = rule(sums)
        if found is not None:
            return found
    return Bottleneck(
        "steady",
        f"Nothing stands out: {sums.busy:.0f} % busy on average.",
        (("busy", round(sums.busy, 1)),),
    )


def _idle(sums: _Sums, *, is_whole: bool) -> Bottleneck:
    if not is_whole or sums.watched < WATCHED_IDLE:
        return Bottleneck("unknown", "It was not busy while it was measured, which was not always.")
    return Bottleneck(
        "idle",
        f"Idle: it was never more than {sums.top:.0f} % busy. If you are done, release it.",
        (("busy_max", sums.top),),
    )


def _held_down(sums: _Sums) -> Bottleneck | None:
    if sums.held < HELD_FROM or sums.busy < WORKS_FROM:
        return None
    return Bottleneck(
        "held_down",
        f"Slowed down by heat or power for {100 * sums.held:.0f} % of the time: its clock is"
        " lower than the GPU's own.",
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
        f"Limited by the GPU's memory: {bandwidth:.0f} % of its bandwidth is in use. Fused"
        " kernels or smaller numbers help more than a faster GPU.",
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
        over = f" while {sums.pcie_gib:.1f} GiB/s come over PCIe"
        evidence.append(("pcie_gib", round(sums.pcie_gib, 2)))
    return Bottleneck(
        "input_bound",
        f"Waits for data again and again: it swings by {sums.swing:.0f} points{over} and is"
        f" {sums.busy:.0f} % busy. More loader processes or data nearer to it help.",
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


def _sums(known: Sequence[Moment], watched: float) -> _Sums:
    total = sum(moment.measured for moment in known)

    def mean(read: Callable[[Moment], float | None]) -> float | None:
        values = [(read(m), m.measured) for m in known]
        there = [(value, weight) for value, weight in values if value is not None]
        weights = sum(weight for _, weight in there)
        # Half of the time is not enough to speak for all of it.
        if weights < WATCHED * total:
            return None
        return sum(value * weight for value, weight in there) / weights

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
