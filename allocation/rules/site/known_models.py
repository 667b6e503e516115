"""The shipped catalogue: data-centre GPUs by their NVML names, and the tiers of a new site.

Its values are suggestions. What a driver reports takes precedence.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

WORKLOADS = ("training", "inference")
_CENT = Decimal("0.01")
_NVIDIA = "10de"
# Error correction takes a sixteenth of some memories, and drivers reserve a little.
_MEMORY_VARIES = 8


@dataclass(frozen=True, slots=True)
class KnownProfile:
    """An expected MIG profile of a model."""

    name: str
    compute: int
    size: int
    starts: tuple[int, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A shipped GPU model. `speeds` are in thousandths of an H100 by kind of work; those of kind "host",
    which are host cores, have none. `price` applies to the tier with factor 1."""

    slug: str
    names: tuple[str, ...]
    pci: tuple[str, ...]
    memory_mb: int
    gpu_class: str
    label: str
    reset_seconds: int
    nvlinks: int
    profiles: tuple[KnownProfile, ...]
    speeds: Mapping[str, int]
    price: Decimal
    kind: str = "gpu"

    @property
    def mode_switch(self) -> str:
        """The value of `GpuModel.mode_switch`."""
        return "reset" if self.reset_seconds else "online"


@dataclass(frozen=True, slots=True)
class KnownTier:
    """A shipped tier. `terms` are the fields of TierTerms."""

    slug: str
    price_factor: Decimal
    terms: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KnownCatalogue:
    """The shipped models, fastest first, and tiers, in the order of the file."""

    currency: str
    models: Mapping[str, KnownModel]
    tiers: Mapping[str, KnownTier]

    def by_name(self, name: str) -> KnownModel | None:
        """The model that NVML calls `name`."""
        return next((model for model in self.models.values() if name in model.names), None)

    def by_device(self, device_id: str, memory_mb: int) -> KnownModel | None:
        """The model with this PCI id ("10de:2330"). A device with another amount of memory is
        another product, such as a virtual GPU."""
        vendor, _, device = device_id.partition(":")
        if vendor != _NVIDIA:
            return None
        found = next((model for model in self.models.values() if device in model.pci), None)
        if found is None or abs(memory_mb - found.memory_mb) > found.memory_mb // _MEMORY_VARIES:
            return None
        return found

    def of_class(self, gpu_class: str) -> KnownModel | None:
        """The first model of a class. Its speeds and prices are typical for the class."""
        return next((model for model in self.models.values() if model.gpu_class == gpu_class), None)

    def price(self, model: KnownModel, tier: str) -> Decimal:
        """The typical price of a GPU-hour in a tier. Tiers that are not shipped have factor 1."""
        known = self.tiers.get(tier)
        factor = known.price_factor if known else Decimal(1)
        return (model.price * factor).quantize(_CENT, ROUND_HALF_UP)

    def speeds(self, gpu_classes: Iterable[str]) -> dict[str, dict[str, int]]:
        """Typical speeds in thousandths by kind of work and known class."""
        found = {slug: self.of_class(slug) for slug in gpu_classes}
        known = {slug: model for slug, model in found.items() if model is not None and model.speeds}
        return {
            workload: {slug: model.speeds[workload] for slug, model in known.items()}
            for workload in WORKLOADS
            if known
        }


@lru_cache(maxsize=1)
def known_catalogue() -> KnownCatalogue:
    """The shipped catalogue. Read once."""
    raw = tomllib.loads(Path(__file__).with_name("known_models.toml").read_text("utf-8"))
    return KnownCatalogue(
        currency=raw["currency"],
        models={slug: _model(slug, data, raw["geometry"]) for slug, data in raw["models"].items()},
        tiers={slug: _tier(slug, data) for slug, data in raw["tiers"].items()},
    )


def _model(slug: str, data: dict[str, Any], geometries: dict[str, Any]) -> KnownModel:
    geometry = geometries[data["mig"]]["profiles"] if "mig" in data else []
    return KnownModel(
        slug=slug,
        names=tuple(data["names"]),
        pci=tuple(data["pci"]),
        memory_mb=data["memory_mb"],
        gpu_class=data["gpu_class"],
        label=data["label"],
        reset_seconds=data["reset_seconds"],
        nvlinks=data["nvlinks"],
        profiles=tuple(
            KnownProfile(name, row["compute"], row["size"], tuple(row["starts"]), row["limit"])
            for name, row in zip(data.get("profiles", ()), geometry, strict=True)
        ),
        speeds={workload: data[workload] for workload in WORKLOADS if workload in data},
        price=Decimal(data["price"]),
        kind=data.get("kind", "gpu"),
    )


def _tier(slug: str, data: dict[str, Any]) -> KnownTier:
    terms = {name: value for name, value in data.items() if name != "price_factor"}
    return KnownTier(slug, Decimal(data["price_factor"]), terms)
