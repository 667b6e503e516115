"""The demo site's GPU models, tiers, speeds and prices, from the shipped catalogue."""

from datetime import datetime, timedelta

from allocation.agent.simulated.models import Model, models_load
from allocation.models import GpuModel, WorkSpeed
from allocation.rules.site.known_models import KnownModel, known_catalogue
from billing.models import PriceBook
from billing.services import price_book_publish
from tenants.models import GpuClass, Tier

# The models that the demo's nodes have; each gets a class of its own.
MODELS = ("h100-80gb", "a100-80gb", "a100-40gb", "l40s")


def catalogue_seed(now: datetime) -> None:
    """Creates missing classes, tiers, models, speeds of work and prices."""
    catalogue = known_catalogue()
    shipped = [catalogue.models[slug] for slug in MODELS]
    for order, model in enumerate(shipped):
        GpuClass.objects.get_or_create(
            slug=model.gpu_class, defaults={"label": model.label, "order": order}
        )
    for tier in catalogue.tiers.values():
        Tier.objects.get_or_create(slug=tier.slug, defaults=dict(tier.terms))
    simulated = {model.name: model for model in models_load().values()}
    for model in shipped:
        _model_seed(model, simulated[model.names[0]])
    if not WorkSpeed.objects.exists():
        speeds = catalogue.speeds(model.gpu_class for model in shipped)
        WorkSpeed.objects.bulk_create(
            WorkSpeed(workload=workload, gpu_class_id=slug, thousandths=thousandths)
            for workload, of_class in speeds.items()
            for slug, thousandths in of_class.items()
        )
    _prices_seed(shipped, now)


def _model_seed(known: KnownModel, model: Model) -> None:
    GpuModel.objects.get_or_create(
        slug=known.slug,
        defaults={
            "product_name": model.name,
            "gpu_class_id": known.gpu_class,
            "memory_mb": model.memory_mb,
            "mode_switch": known.mode_switch,
            "switch_seconds": known.reset_seconds,
        },
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
