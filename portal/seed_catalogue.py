"""The demo site's hardware and terms, from the shipped catalogue: what the simulated agents will
find, and what it costs."""

from datetime import datetime, timedelta

from allocation.agent.simulated_hardware import Hardware, Model, models_load
from allocation.models import Gpu, GpuModel, MigPlacement, Node, Rack, WorkSpeed
from allocation.rules.known_models import KnownModel, known_catalogue
from billing.models import PriceBook
from billing.services import price_book_publish
from tenants.models import GpuClass, Tier

# The models of the shipped catalogue that the demo's nodes have; each makes its class.
MODELS = ("h100-80gb", "a100-80gb", "a100-40gb", "l40s")
# Node -> (rack, model, GPUs, the indexes that are cut into slices).
NODES: dict[str, tuple[str, str, int, frozenset[int]]] = {
    "gpu-a1-01": ("a1", "h100-80gb", 8, frozenset()),
    "gpu-a2-01": ("a2", "a100-80gb", 8, frozenset({6, 7})),
    "gpu-b1-01": ("b1", "a100-40gb", 8, frozenset({4, 5, 6, 7})),
    "gpu-c1-01": ("c1", "l40s", 4, frozenset()),
}


def catalogue_seed(now: datetime) -> None:
    """Makes what is missing of classes, tiers, models, nodes, GPUs, prices and policy."""
    catalogue = known_catalogue()
    shipped = [catalogue.models[slug] for slug in MODELS]
    for order, model in enumerate(shipped):
        GpuClass.objects.get_or_create(
            slug=model.gpu_class, defaults={"label": model.label, "order": order}
        )
    for tier in catalogue.tiers.values():
        Tier.objects.get_or_create(slug=tier.slug, defaults=dict(tier.terms))
    simulated = {model.name: (key, model) for key, model in models_load().items()}
    for model in shipped:
        _model_seed(model, simulated[model.names[0]][1])
    for name in NODES:
        _node_seed(name, simulated)
    if not WorkSpeed.objects.exists():
        speeds = catalogue.speeds(model.gpu_class for model in shipped)
        WorkSpeed.objects.bulk_create(
            WorkSpeed(workload=workload, gpu_class_id=slug, thousandths=thousandths)
            for workload, of_class in speeds.items()
            for slug, thousandths in of_class.items()
        )
    _prices_seed(shipped, now)


def _model_seed(known: KnownModel, model: Model) -> None:
    row, is_new = GpuModel.objects.get_or_create(
        slug=known.slug,
        defaults={
            "product_name": model.name,
            "gpu_class_id": known.gpu_class,
            "memory_mb": model.memory_mb,
            "mode_switch": known.mode_switch,
            "switch_seconds": known.reset_seconds,
        },
    )
    if is_new:
        MigPlacement.objects.bulk_create(
            MigPlacement(
                model=row,
                profile=profile.name,
                profile_id=profile.id,
                start=start,
                size=profile.size,
                compute=profile.compute,
                limit=profile.max,
            )
            for profile in model.profiles
            for start in profile.starts
        )


def _node_seed(name: str, simulated: dict[str, tuple[str, Model]]) -> None:
    rack_name, model_slug, count, sliced = NODES[name]
    rack, _ = Rack.objects.get_or_create(name=rack_name)
    node, is_new = Node.objects.get_or_create(name=name, defaults={"rack": rack})
    if not is_new:
        return
    known = known_catalogue().models[model_slug]
    key, model = simulated[known.names[0]]
    first = Gpu.objects.count()
    # The same UUIDs as the simulated agent's, so that its node finds these rows when it enrols.
    hardware = Hardware(name, [key] * count, state=None, clock=lambda: 0.0)
    Gpu.objects.bulk_create(
        Gpu(
            number=first + gpu.index,
            node=node,
            index=gpu.index,
            uuid=gpu.uuid,
            model_id=model_slug,
            gpu_class_id=known.gpu_class,
            # All linked GPUs of a simulated node reach each other, which NVML calls one domain.
            domain=0 if model.nvlinks else None,
            numa=2 * gpu.index // count,
            mode=Gpu.Mode.SLICED if gpu.index in sliced else Gpu.Mode.WHOLE,
        )
        for gpu in hardware.gpus
    )


def _prices_seed(models: list[KnownModel], now: datetime) -> None:
    if PriceBook.objects.exists():
        return
    catalogue = known_catalogue()
    begin = (now - timedelta(days=62)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    price_book_publish(
        actor_id=None,
        valid_from=begin,
        prices={
            (model.gpu_class, tier): catalogue.price(model, tier)
            for model in models
            for tier in catalogue.tiers
        },
        note="The first price book",
        now=begin,
    )
