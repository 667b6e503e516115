"""The models of simulated GPUs: memory, power and MIG profiles."""

import dataclasses
import json
from pathlib import Path
from typing import Any


class HardwareFault(Exception):
    """The hardware refuses; `symbol` is the name of an NVML error code."""

    def __init__(self, symbol: str) -> None:
        super().__init__(symbol)
        self.symbol = symbol


SM_PER_SLICE = 16
ALL_SLICES = 7
_NVIDIA = 0x10DE
# NVML's enumerators of compute profiles, by their size, and the second forms of two of them.
_FULL = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
_ONE_SLICE_REV1, _SEVEN_NVL = 7, 8


@dataclasses.dataclass(frozen=True, slots=True)
class Compute:
    """A compute profile of a GPU instance; its index is its id, too."""

    index: int
    slices: int
    multiprocessors: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One MIG profile of a model; `index` is NVML's enumerator, `id` what instances carry."""

    index: int
    id: int
    name: str
    compute: int
    starts: tuple[int, ...]
    size: int
    max: int
    memory_mb: int

    @property
    def computes(self) -> tuple["Compute", ...]:
        """The compute profiles that fill a GPU instance, or a part of it."""
        sm = SM_PER_SLICE * self.compute
        if self.compute == 1 and self.size == 2:
            # Only the second form has all multiprocessors of the wider instance.
            return Compute(0, 1, sm), Compute(_ONE_SLICE_REV1, 1, sm + 10)
        if self.compute == ALL_SLICES:
            return Compute(_FULL[7], 7, sm), Compute(_SEVEN_NVL, 7, sm)
        smaller = [n for n in (1, 2, 3) if n < self.compute]
        return (
            *(Compute(_FULL[n], n, SM_PER_SLICE * n) for n in smaller),
            Compute(_FULL[self.compute], self.compute, sm),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    name: str
    memory_mb: int
    reserved_mb: int
    compute: int
    mode_switch: str
    gpm: bool
    nvlinks: int
    nvlink_peer: str
    idle_mw: int
    max_mw: int
    idle_c: int
    max_c: int
    profiles: tuple[Profile, ...]
    pci: str
    subsystem: str = ""
    maker: str = "nvidia"

    def profile(self, profile_id: int) -> Profile:
        for profile in self.profiles:
            if profile.id == profile_id:
                return profile
        raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")


def pci_number(device: str) -> int:
    """Returns the id as NVML packs it, with the vendor in the lower half; 0 when unknown."""
    return int(device, 16) << 16 | _NVIDIA if device else 0


def models_load(file: str = "models.json") -> dict[str, Model]:
    """Returns NVIDIA's models by their name in `--simulate`."""
    raw = json.loads(Path(__file__).with_name(file).read_text())
    return {slug: _model(data) for slug, data in raw.items()}


def all_models_load() -> dict[str, Model]:
    """Returns the models of all makers."""
    return models_load() | models_load("models_amd.json")


def _model(data: dict[str, Any]) -> Model:
    profiles = tuple(Profile(**{**p, "starts": tuple(p["starts"])}) for p in data["profiles"])
    return Model(**{**data, "profiles": profiles})


MIG_SUFFIX = "+mig"
CORES, CORE_MB = "core", 4_096
"""The model of host cores for work without a GPU, and the memory of each in MiB."""


def fleet_parse(text: str) -> list[str]:
    """`h100:2,a100+mig:1` -> one model name per GPU. Raises ValueError.

    `+mig` is a GPU in MIG mode.
    """
    found: list[str] = []
    known = all_models_load()
    for part in text.split(","):
        slug, _, count = part.strip().partition(":")
        model = known.get(slug.removesuffix(MIG_SUFFIX))
        can_mig = model is not None and model.maker == "nvidia" and bool(model.profiles)
        if model is None or (slug.endswith(MIG_SUFFIX) and not can_mig):
            raise ValueError(f"{slug!r} is no simulated model; there are {sorted(known)}")
        if not count.isdecimal() or not 1 <= int(count) <= 64:
            raise ValueError(f"{part!r}: write the number of GPUs as {slug}:8")
        found += [slug] * int(count)
    if len({known[slug.removesuffix(MIG_SUFFIX)].maker for slug in found}) > 1:
        raise ValueError(f"{text!r}: a node has GPUs of one maker")
    return found
