"""Workloads of the demo's past, one of each kind that advice is about.

What a reading shows follows from published figures: training that waits for its input (Mohan et al., VLDB
2021: 10 to 70 % of an epoch with few cores per GPU), decoding of language models that is limited by
memory bandwidth (Recasens et al., 2025), tensor parallel training whose collectives take 40 % of a step
(Wang et al., Domino, 2024), large training at half of the peak (Narayanan et al., SC 2021), and booked
GPUs without work (Jeon et al., ATC 2019). Notebooks and small models that leave most of a GPU unused are
our own estimate. A reading swings where work waits for its input, because it is a mean of ten seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from uuid import uuid5

from billing.rules import midnight
from devtools.demo.history import TimedAction
from devtools.demo.week import CRYO, FOLDING, NAMESPACE, WORDS, BookingText, People

GB = 1_000
# The nights of the past week in which they run, at an hour at which GPUs are free.
NIGHTS = range(-5, -1)
HOUR = timedelta(hours=1)


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
    "augment-train": Use(46, 62, 18, 12, 5_500_000, per_hour=(("a100", 310),)),
    "llm-decode": Use(93, 8, 78, 7, per_hour=(("l40s", 5_200),)),
    "sweep-notebook": Use(64, 30, 22, 10, idle=0.65),
    "embed-small": Use(11, 9, 5, 3, 90_000, memory=0.1, per_hour=(("h100", 2_400),)),
    "tensor-parallel": Use(97, 5, 24, 19, 17 << 20, memory=0.82, per_hour=(("a100", 41),)),
    "docking": Use(90, 8, 34, 52, per_hour=(("h100", 900), ("a100", 700))),
    "pretrain-7b": Use(95, 6, 41, 55, nvlink_kb=90_000_000, memory=0.97, per_hour=(("h100", 130),)),
    "protein-fold": Use(91, 8, 38, 47, nvlink_kb=40_000_000, per_hour=(("h100", 260),)),
    "rain-ensemble": Use(95, 6, 44, 1, per_hour=(("h100", 75),)),
}
# Workload, owner, project, tier, and what they book for how many hours, each in turn.
BOOKED = (
    ("augment-train", "ines", CRYO, "standard", (("1 a100-40", 2),)),
    ("llm-decode", "tomas", WORDS, "standard", (("1 l40s", 2),)),
    ("sweep-notebook", "mara", FOLDING, "standard", (("1 h100", 2),)),
    ("embed-small", "jonas", FOLDING, "standard", (("1 h100", 2),)),
    ("tensor-parallel", "tomas", WORDS, "standard", (("2 a100", 2),)),
    ("docking", "mara", WORDS, "standard", (("1 h100", 1),)),
    ("docking", "tomas", WORDS, "standard", (("1 a100", 1),)),
)


def workload_actions(people: People, today: date) -> Iterator[TimedAction]:
    """Yields the requests of the workloads, in the evening before the night in which they run."""
    for night in NIGHTS:
        day = today + timedelta(days=night)
        for number, (name, owner, project, tier, whats) in enumerate(BOOKED):
            what, hours = whats[night % len(whats)]
            cores = " 2 cores" if name == "augment-train" else ""
            text = f"{what} {hours}h at 01:30 on {day}{cores}"
            key = uuid5(NAMESPACE, f"{day}/workload/{number}")
            line = BookingText(key, f"{name}-{number}{6 + night}", owner, project, tier, text)
            yield TimedAction(midnight(day) - 2 * HOUR, partial(people.book, line))


def works_at(use: Use, since: datetime, ends: datetime, at: datetime) -> bool:
    """Whether it works at an instant of a run."""
    return at < ends - use.idle * (ends - since)
