"""The catalogue for requests: classes, slices, and the units of a request."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from django.db.models import Max

from allocation.models import Gpu, GpuModel, MigPlacement, WorkSpeed, Zone
from allocation.points import data_known
from allocation.rules.ask import AskDocument, Catalogue, ClassEntry, TierEntry
from allocation.rules.ask.words.names import gigabytes_labelled
from billing.price_books import currency_latest
from solver import Model, Placement, Shape, units_of
from tenants.models import GpuClass, Tier
from tenants.platform.reference import by_version

MAX_PIN_CHOICES = 256


def ask_catalogue(projects: Iterable[tuple[str, str]] = (), kinds: Iterable[str] = ()) -> Catalogue:
    """The names for the request grammar: classes in the operator's order, tiers, these projects as
    (slug, name), the kinds of work of the operator's table and these, and the data sets of nodes."""
    found = _catalogue()
    workloads = (*found.workloads, *(each for each in kinds if each not in found.workloads))
    return replace(found, projects=tuple(projects), workloads=workloads, data=data_known())


@by_version
def class_labels() -> dict[str, str]:
    """The label of each GPU class, as sentences and pages have it; requests and fields of REST have its
    slug."""
    return dict(GpuClass.objects.values_list("slug", "label"))


@by_version
def host_classes() -> frozenset[str]:
    """The classes whose units are cores of hosts: they count as no GPUs."""
    return frozenset(GpuClass.objects.filter(kind=GpuClass.Kind.HOST).values_list("slug", flat=True))


@by_version
def zone_labels() -> dict[str, str]:
    """The name of each zone, as sentences and pages have it; requests and fields of REST have its slug."""
    return dict(Zone.objects.values_list("slug", "name"))


def names_of_use() -> dict[str, dict[str, str]]:
    """The names of classes and tiers by slug, as pages show what was used."""
    tiers = dict(Tier.objects.values_list("slug", "name"))
    return {"class": class_labels(), "tier": tiers}


@by_version
def _catalogue() -> Catalogue:
    memory = dict(GpuModel.objects.values_list("gpu_class_id").annotate(largest=Max("memory_mb")))
    profiles: dict[str, set[str]] = defaultdict(set)
    for gpu_class, profile in MigPlacement.objects.values_list("model__gpu_class_id", "profile"):
        profiles[gpu_class].add(profile)
    aliases: dict[str, set[str]] = defaultdict(set)
    for gpu_class, model in GpuModel.objects.values_list("gpu_class_id", "slug"):
        aliases[gpu_class].add(model)
    entries: dict[str, list[ClassEntry]] = {"gpu": [], "host": []}
    for row in GpuClass.objects.filter(slug__in=list(memory)):
        entries[row.kind].append(
            ClassEntry(
                slug=row.slug,
                label=row.label,
                aliases=tuple(sorted(aliases[row.slug])),
                memory_mb=memory[row.slug],
                profiles=tuple(sorted(profiles[row.slug])),
            )
        )
    return Catalogue(
        classes=tuple(entries["gpu"]),
        hosts=tuple(entries["host"]),
        workloads=tuple(sorted(set(WorkSpeed.objects.values_list("workload", flat=True)))),
        tiers=tuple(TierEntry(row.slug, row.name, row.pausable) for row in Tier.objects.all()),
        zones=tuple(Zone.objects.filter(ended=None).values_list("slug", "name")),
        currency=currency_latest(),
    )


def class_gigabytes() -> dict[str, int]:
    """The memory of one whole GPU of each class, in GB."""
    rows = GpuModel.objects.values_list("gpu_class_id", "gpu_class__label")
    largest = rows.annotate(largest=Max("memory_mb")).order_by("gpu_class_id")
    return {slug: gigabytes_labelled(label, memory) for slug, label, memory in largest}


def pin_choices(classes: tuple[str, ...]) -> list[str]:
    """The first nodes with GPUs of these classes, and their GPUs, as values of a pin."""
    rows = Gpu.objects.filter(gpu_class__in=classes).order_by("node__name", "index")
    found: dict[str, list[str]] = {}
    for node, index in rows.values_list("node__name", "index")[:MAX_PIN_CHOICES]:
        found.setdefault(node, [node]).append(f"{node}/{index}")
    return [name for names in found.values() for name in names]


def work_speeds() -> dict[str, dict[str, int]]:
    """The relative speeds by kind of work and class, in thousandths."""
    found: dict[str, dict[str, int]] = {}
    rows = WorkSpeed.objects.order_by("workload", "gpu_class__order", "gpu_class")
    for workload, gpu_class, thousandths in rows.values_list("workload", "gpu_class_id", "thousandths"):
        found.setdefault(workload, {})[gpu_class] = thousandths
    return found


def ask_units(document: AskDocument) -> dict[str, int]:
    """The units of the whole request by class, in the order of the request: of each alternative, or
    of each group of a mixed request.

    Classes that do not exist or do not offer the profile are left out.
    """
    found: dict[str, int] = {}
    for part in document.parts:
        found |= _part_units(part)
    return found


def units_at_once(ask: Mapping[str, Any], units: Mapping[str, int]) -> int:
    """The most units of GPUs that a stored request uses at a time: of all groups, or of its largest
    alternative. Cores of hosts are none."""
    if ask.get("host"):
        return 0
    return sum(units.values()) if ask.get("groups") else max(units.values(), default=0)


def _part_units(document: AskDocument) -> dict[str, int]:
    found: dict[str, int] = {}
    models = _models_by_class()
    for gpu_class in document.classes:
        weights = [
            weight
            for model in models.get(gpu_class, ())
            if (weight := _units(model, document.shape)) is not None
        ]
        if weights:
            found[gpu_class] = max(weights) * document.count
    return found


def _units(model: Model, shape: Shape) -> int | None:
    if isinstance(shape, str) and all(place.profile != shape for place in model.placements):
        return None
    return units_of(model, shape)


_PLACES = tuple(
    f"placements__{name}" for name in ("profile", "start", "size", "compute", "profile_id", "limit")
)


@by_version
def _models_by_class() -> dict[str, list[Model]]:
    rows = GpuModel.objects.order_by("slug", *_PLACES)
    kinds: dict[tuple[str, str, int, int], list[Placement]] = {}
    for row in rows.values_list("gpu_class_id", "slug", "memory_slots", "compute_slices", *_PLACES):
        places = kinds.setdefault(row[:4], [])
        if row[4] is not None:
            places.append(Placement(*row[4:]))
    found: dict[str, list[Model]] = {}
    for (gpu_class, slug, slots, slices), places in kinds.items():
        model = Model(slug, slots, slices, "online", tuple(places))
        found.setdefault(gpu_class, []).append(model)
    return found
