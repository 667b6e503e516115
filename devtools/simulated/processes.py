"""Simulated programs and their load on a GPU: one of five kinds, by the booking of the program.

All programs of a booking have the same load, so that a gang looks like one.
"""

import dataclasses
import math
import uuid
from typing import Literal

NAMESPACE = uuid.UUID("6d1f8f5c-58c6-5b0a-9a39-2f1c7f0d7a11")
RAMP_S = 20
_PAGES_MB = 2
_SAW_S = 45
LoadKind = Literal["idle", "input", "memory", "communication", "training"]
Kind = Literal["compute", "graphics", "mps", "file"]
"""How a program uses a GPU, and so which of NVML's lists has it; `file` only has its device file
open, without a context, and is on no list."""
# An eighth holds its GPU and does next to nothing; a quarter waits for data again and again; an eighth has
# GPUs that wait for each other.
_KINDS: tuple[LoadKind, ...] = (
    "idle",
    "training",
    "input",
    "training",
    "memory",
    "training",
    "input",
    "communication",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A simulated program of a booking: it exists from `starts` on and makes the GPU busy.

    `stubborn` ones ignore TERM. A `frozen` one has released the device: its device memory is in the
    host's. The CUDA calls of a `locked` one wait: TERM has no effect. A `service` watches the GPU.
    """

    pid: int
    instance: int | None
    label: str
    starts: int
    stubborn: bool = False
    user: str = ""
    load: str = ""
    frozen: bool = False
    locked: bool = False
    kind: Kind = "compute"
    service: bool = False

    @property
    def seed(self) -> int:
        """The seed of its load: its booking, else its label."""
        return uuid.uuid5(NAMESPACE, self.load or self.label).int

    def memory_mb(self, now: float, available: int) -> int:
        """MiB in use at `now` out of what is `available` to it."""
        return int(available * memory_of(self.seed, now - self.starts)) // _PAGES_MB * _PAGES_MB


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """Percent, and MiB per second."""

    busy: int
    bandwidth: int
    tensor: int
    pcie_mb: int
    nvlink_mb: int


def kind_of(seed: int) -> LoadKind:
    return _KINDS[seed % len(_KINDS)]


def load_of(seed: int, age: float) -> Load:
    """Returns the load of a program `age` seconds after its start."""
    kind = kind_of(seed)
    if kind == "idle":
        return Load(busy=int(age) % 2, bandwidth=0, tensor=0, pcie_mb=0, nvlink_mb=0)
    grown = min(1.0, (age + 1) / RAMP_S)
    if kind == "input":
        # A batch is computed, then the next one has to come from the host.
        through = age % _SAW_S / _SAW_S
        busy = _percent(grown * (78 - 70 * through))
        return Load(busy, busy // 4, busy // 5, int(9000 * grown * (0.3 + through)), 0)
    wave = math.sin(2 * math.pi * age / (90 + seed % 240))
    busy = _percent((62 + seed % 31) * grown + 6 * wave)
    if kind == "memory":
        return Load(busy, _percent(busy * 1.05 + 5), busy // 12, 200, 0)
    if kind == "communication":
        # Kernels that wait for other GPUs count as busy.
        return Load(busy, busy // 5, busy // 6, 700, int(2_300 * busy * grown))
    return Load(busy, busy // 2, busy * 3 // 5, 400, int(900 * busy * grown))


def memory_of(seed: int, age: float) -> float:
    """Returns the part of its memory that a program uses."""
    return (35 + seed % 55) / 100 * min(1.0, (age + 1) / RAMP_S)


def _percent(value: float) -> int:
    return max(1, min(100, int(value)))
