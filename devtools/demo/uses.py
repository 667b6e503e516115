"""What the work of the demo does with its GPUs, by workload. Pure.

What a reading shows follows from published figures: training that waits for its input (Mohan et al., VLDB
2021: 10 to 70 % of an epoch with few cores per GPU), decoding of language models that is limited by
memory bandwidth (Recasens et al., 2025), tensor parallel training whose collectives take 40 % of a step
(Wang et al., Domino, 2024), large training at half of the peak (Narayanan et al., SC 2021), and booked
GPUs without work (Jeon et al., ATC 2019). Notebooks and small models that leave most of a GPU unused are
our own estimate. A reading swings where work waits for its input, because it is a mean of ten seconds.

The rates of a class follow from what holds the work up. Training that waits for its input is as fast on
each class. Decoding is as fast as the memory: an A100 reads 2,039 GB a second and an L40S 864 (NVIDIA's
data sheets). Tensor parallel training over PCIe gains four fifths by an H100, not the three times of its
TFLOPS. Notebooks and small models use little of any GPU.
"""

from dataclasses import dataclass
from datetime import datetime
from math import sin


@dataclass(frozen=True, slots=True)
class Use:
    """What readings of a workload show: percent busy while it works and by how much that swings, percent of
    bandwidth and tensor time, KiB a second over links, the part of the memory in use at most, and the part of
    its time without work, at its end. `per_hour`: steps of a GPU, by the start of a class."""

    busy: float
    swing: float = 11
    bandwidth: float = 30
    tensor: float = 30
    pcie_kb: int = 400_000
    nvlink_kb: int = 0
    memory: float = 0.7
    idle: float = 0.0
    per_hour: tuple[tuple[str, float], ...] = ()


USES = {
    "augment-train": Use(46, 62, 18, 12, 5_500_000, per_hour=(("a100-40", 306), ("a100", 310))),
    "llm-decode": Use(93, 8, 78, 7, per_hour=(("l40s", 5_200), ("a100", 11_900))),
    "sweep-notebook": Use(64, 30, 22, 10, idle=0.65, per_hour=(("h100", 58), ("l40s", 49))),
    "embed-small": Use(11, 9, 5, 3, 90_000, memory=0.1, per_hour=(("h100", 2_400), ("l40s", 1_900))),
    "tensor-parallel": Use(97, 5, 24, 19, 17 << 20, memory=0.82, per_hour=(("h100", 74), ("a100", 41))),
    "docking": Use(90, 8, 34, 52, per_hour=(("h100", 900), ("a100", 700))),
    "pretrain-7b": Use(95, 6, 41, 55, nvlink_kb=90_000_000, memory=0.97, per_hour=(("h100", 130),)),
    "protein-fold": Use(91, 8, 38, 47, nvlink_kb=40_000_000, per_hour=(("h100", 260),)),
    "rain-ensemble": Use(95, 6, 44, 1, per_hour=(("h100", 75),)),
}


def rate_of(use: Use | None, gpu_class: str, number: int) -> float | None:
    """The steps of a GPU in an hour, in the run of a booking: runs differ by a few percent. None: its program
    says nothing."""
    rates = use.per_hour if use else ()
    rate = next((each for start, each in rates if gpu_class.startswith(start)), None)
    return None if rate is None else rate * (1 + 0.03 * sin(number))


def works_at(use: Use, since: datetime, ends: datetime, at: datetime) -> bool:
    """Whether it works at an instant of a run."""
    return at < ends - use.idle * (ends - since)
