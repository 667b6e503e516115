"""The demo site's hardware and terms: what the simulated agents will find, and what it costs."""

from datetime import datetime, timedelta
from decimal import Decimal

from allocation.agent.simulated_hardware import Hardware, Model, models_load
from allocation.models import Gpu, GpuModel, MigPlacement, Node, Rack, WorkSpeed
from billing.models import PriceBook
from billing.services import price_book_publish
from tenants.models import GpuClass, Tier

CLASSES = {
    "h100": "H100 80 GB",
    "a100": "A100 80 GB",
    "a100-40": "A100 40 GB",
    "l40s": "L40S 48 GB",
}
# Model -> (class, product name as NVML says it).
MODELS = {
    "h100-80gb": ("h100", "NVIDIA H100 80GB HBM3"),
    "a100-80gb": ("a100", "NVIDIA A100-SXM4-80GB"),
    "a100-40gb": ("a100-40", "NVIDIA A100-SXM4-40GB"),
    "l40s": ("l40s", "NVIDIA L40S"),
}
# Node -> (rack, model, GPUs, the indexes that are cut into slices).
NODES: dict[str, tuple[str, str, int, frozenset[int]]] = {
    "gpu-a1-01": ("a1", "h100-80gb", 8, frozenset()),
    "gpu-a2-01": ("a2", "a100-80gb", 8, frozenset({6, 7})),
    "gpu-b1-01": ("b1", "a100-40gb", 8, frozenset({4, 5, 6, 7})),
    "gpu-c1-01": ("c1", "l40s", 4, frozenset()),
}
TIERS = {
    "assured": Tier(
        slug="assured",
        name="Assured",
        priority=300,
        max_duration_seconds=14 * 86_400,
        description="Goes first and is never paused.",
    ),
    "standard": Tier(
        slug="standard",
        name="Standard",
        priority=200,
        pausable=True,
        grace_seconds=120,
        protected_seconds=3600,
        more_times=1,
        more_time_seconds=120,
        description="The everyday tier; borrowed time can be called back.",
    ),
    "spot": Tier(
        slug="spot",
        name="Spot",
        priority=100,
        pausable=True,
        grace_seconds=120,
        max_duration_seconds=86_400,
        counts_against_guarantee=False,
        replace_on_lost=True,
        description="Cheapest; may be paused, and begins anew when its node is lost.",
    ),
}
# How fast each kind of work goes, in thousandths of an H100.
SPEEDS = {
    "training": {"h100": 1000, "a100": 450, "a100-40": 430, "l40s": 300},
    "inference": {"h100": 1000, "a100": 550, "a100-40": 520, "l40s": 480},
}
# What a change between whole and slices takes where the GPU has to be reset.
RESET_SECONDS = 30
# Per GPU and hour in euro: (assured, standard, spot).
PRICES = {
    "h100": ("7.68", "4.80", "1.68"),
    "a100": ("3.36", "2.10", "0.74"),
    "a100-40": ("2.08", "1.30", "0.46"),
    "l40s": ("1.68", "1.05", "0.37"),
}


def catalogue_seed(now: datetime) -> None:
    """Makes what is missing of classes, tiers, models, nodes, GPUs, prices and policy."""
    for order, (slug, label) in enumerate(CLASSES.items()):
        GpuClass.objects.get_or_create(slug=slug, defaults={"label": label, "order": order})
    for slug, tier in TIERS.items():
        if not Tier.objects.filter(slug=slug).exists():
            tier.save(force_insert=True)
    known = {model.name: (key, model) for key, model in models_load().items()}
    for slug, (gpu_class, product) in MODELS.items():
        _model_seed(slug, gpu_class, known[product][1])
    for name in NODES:
        _node_seed(name, known)
    if not WorkSpeed.objects.exists():
        WorkSpeed.objects.bulk_create(
            WorkSpeed(workload=workload, gpu_class_id=slug, thousandths=thousandths)
            for workload, speeds in SPEEDS.items()
            for slug, thousandths in speeds.items()
        )
    _prices_seed(now)


def _model_seed(slug: str, gpu_class: str, model: Model) -> None:
    row, is_new = GpuModel.objects.get_or_create(
        slug=slug,
        defaults={
            "product_name": model.name,
            "gpu_class_id": gpu_class,
            "memory_mb": model.memory_mb,
            "mode_switch": "reset" if model.mode_switch == "reset" else "online",
            "switch_seconds": RESET_SECONDS if model.mode_switch == "reset" else 0,
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


def _node_seed(name: str, known: dict[str, tuple[str, Model]]) -> None:
    rack_name, model_slug, count, sliced = NODES[name]
    rack, _ = Rack.objects.get_or_create(name=rack_name)
    node, is_new = Node.objects.get_or_create(name=name, defaults={"rack": rack})
    if not is_new:
        return
    gpu_class, product = MODELS[model_slug]
    key, model = known[product]
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
            gpu_class_id=gpu_class,
            # All linked GPUs of a simulated node reach each other, which NVML calls one domain.
            domain=0 if model.nvlinks else None,
            numa=2 * gpu.index // count,
            mode=Gpu.Mode.SLICED if gpu.index in sliced else Gpu.Mode.WHOLE,
        )
        for gpu in hardware.gpus
    )


def _prices_seed(now: datetime) -> None:
    if PriceBook.objects.exists():
        return
    begin = (now - timedelta(days=62)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    price_book_publish(
        actor_id=None,
        valid_from=begin,
        prices={
            (gpu_class, tier): Decimal(price)
            for gpu_class, row in PRICES.items()
            for tier, price in zip(TIERS, row, strict=True)
        },
        note="The first price book",
        now=begin,
    )
