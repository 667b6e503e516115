"""Defaults of a new site, from the shipped catalogue."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal

from django.db import transaction

from allocation.models import GpuModel
from allocation.queries.fleet.catalogue import work_speeds
from allocation.rules.site.known_models import KnownModel, known_catalogue
from allocation.services.operate.catalogue import ModelTerms, class_set, model_set
from allocation.services.record.workloads import speeds_set
from allocation.words.refusals import refusal_text
from billing.models import PriceBook
from billing.price_books import prices_of
from tenants.models import GpuClass, Tier, User
from tenants.platform.errors import invalid
from tenants.services import TierTerms, tier_set

Prices = dict[tuple[str, str], Decimal]


@transaction.atomic
def known_model_add(*, operator: User, slug: str, now: datetime) -> GpuModel:
    """Adds a shipped model with its class and typical speeds; existing values stay.

    Raises:
        Refused: `unknown_model`, or as class_set and model_set.
    """
    known = known_catalogue().models.get(slug)
    if known is None:
        raise invalid("unknown_model", refusal_text("model_not_shipped", slug=slug), "slug")
    if not GpuClass.objects.filter(slug=known.gpu_class).exists():
        class_set(operator=operator, slug=known.gpu_class, label=known.label, kind=known.kind, now=now)
    found = GpuModel.objects.filter(product_name__in=known.names).first()
    if found is None:
        found = model_set(operator=operator, slug=slug, terms=_terms(known), now=now)
    speeds_fill(operator=operator, now=now)
    return found


@transaction.atomic
def default_tiers_add(*, operator: User, now: datetime) -> list[Tier]:
    """Creates the shipped tiers that the site does not have; returns them."""
    there = set(Tier.objects.values_list("slug", flat=True))
    return [
        tier_set(operator=operator, slug=tier.slug, terms=TierTerms(**tier.terms), now=now)
        for tier in known_catalogue().tiers.values()
        if tier.slug not in there
    ]


def speeds_fill(*, operator: User, now: datetime) -> None:
    """Sets typical speeds for classes that have none for the shipped kinds of work."""
    stated = work_speeds()
    classes = GpuClass.objects.values_list("slug", flat=True)
    for workload, typical in known_catalogue().speeds(classes).items():
        speeds = {**typical, **stated.get(workload, {})}
        speeds_set(operator=operator, workload=workload, speeds=speeds, now=now)


def prices_proposed(
    classes: Iterable[str], tiers: Iterable[str], given: Mapping[tuple[str, str], Decimal], currency: str
) -> tuple[Prices, list[tuple[str, str]]]:
    """Prices for all classes in all tiers, and the pairs that have none: from the latest price
    book, else `given`, else the typical prices where they are in this currency."""
    catalogue = known_catalogue()
    latest = PriceBook.objects.order_by("-version").first()
    found: Prices = {**given, **(prices_of(latest) if latest else {})}
    missing = []
    tiers = list(tiers)
    for gpu_class in classes:
        known = catalogue.of_class(gpu_class)
        for tier in tiers:
            if (gpu_class, tier) in found:
                continue
            if known is None or currency != catalogue.currency:
                missing.append((gpu_class, tier))
            else:
                found[gpu_class, tier] = catalogue.price(known, tier)
    return found, missing


def _terms(known: KnownModel) -> ModelTerms:
    return ModelTerms(known.names[0], known.gpu_class, known.memory_mb, known.reset_seconds)
