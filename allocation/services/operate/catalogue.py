"""The site's catalogue: GPU classes and models. Operators change it, in `operator_tx`.

Geometry and memory come from the drivers. The catalogue adds a model's name, its class, and how it
changes between whole GPU and slices.
"""

from dataclasses import asdict, dataclass
from datetime import datetime

from django.db import transaction

import wire
from allocation.models import Gpu, GpuModel, WorkSpeed
from allocation.services.nodes.inventories import waiting_gpus_add
from allocation.words.refusals import refusal_text
from billing.models import Price
from tenants.audit import platform_record
from tenants.models import GpuClass, Quota, User
from tenants.platform.errors import Refused, invalid, missing
from tenants.services.input_values import name_read, slug_read

MOST_ORDER = 1000
MOST_MEMORY_MB = 16 * 1024 * 1024
LONGEST_SWITCH = 600


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """An operator's description of a model. `switch_seconds`: duration of the reset that a change
    between whole GPU and slices needs; 0 if it needs none."""

    product_name: str
    gpu_class: str
    memory_mb: int
    switch_seconds: int = 0


@transaction.atomic
def class_set(
    *,
    operator: User,
    slug: str,
    label: str,
    order: int | None = None,
    kind: str | None = None,
    now: datetime,
) -> GpuClass:
    """Creates a class or changes its label and position in lists; without `order` it keeps its
    position, or comes last. Its kind, by default GPUs, never changes.

    Raises:
        Refused: `bad_slug`, `bad_name`, `label_taken`, `bad_order` or `kind_fixed`.
    """
    slug_read(slug)
    label = name_read(label, param="label")
    if GpuClass.objects.filter(label__iexact=label).exclude(slug=slug).exists():
        raise invalid("label_taken", refusal_text("class_label_taken"), "label")
    found = GpuClass.objects.select_for_update().filter(slug=slug).first()
    if order is None:
        last = GpuClass.objects.order_by("-order").first()
        order = found.order if found else last.order + 1 if last else 0
    if not 0 <= order <= MOST_ORDER:
        raise invalid("bad_order", refusal_text("bad_class_order", most_order=MOST_ORDER), "order")
    kept = found.kind if found else kind or GpuClass.Kind.GPU
    if kind not in (None, kept):
        raise invalid("kind_fixed", refusal_text("class_kind_fixed"), "kind")
    before = {"label": found.label, "order": found.order, "kind": found.kind} if found else None
    after = {"label": label, "order": order, "kind": kept}
    made, _ = GpuClass.objects.update_or_create(slug=slug, defaults=after)
    if before != after:
        platform_record(operator.id, "gpu_class.set", ("gpu_class", slug), now, before=before, after=after)
    return made


@transaction.atomic
def class_remove(*, operator: User, slug: str, now: datetime) -> None:
    """Removes an unused class.

    Raises:
        Refused: `not_found`, or `class_in_use`, which names the uses.
    """
    found = GpuClass.objects.select_for_update().filter(slug=slug).first()
    if found is None:
        raise missing("GPU class")
    uses = class_uses(slug)
    if uses:
        raise Refused(
            "class_in_use",
            refusal_text("class_in_use", found=found.label, uses=_listed(uses)),
            param="slug",
        )
    WorkSpeed.objects.filter(gpu_class_id=slug).delete()
    found.delete()
    before = {"label": found.label, "order": found.order}
    platform_record(operator.id, "gpu_class.removed", ("gpu_class", slug), now, before=before)


def class_uses(slug: str) -> list[str]:
    """Uses of a class, such as "2 models"; empty if it may be removed."""
    counts = (
        (GpuModel.objects.filter(gpu_class_id=slug).count(), "model", "models"),
        (Gpu.objects.filter(gpu_class_id=slug).count(), "GPU", "GPUs"),
        (Quota.objects.filter(gpu_class_id=slug).count(), "quota", "quotas"),
        (Price.objects.filter(gpu_class_id=slug).count(), "price", "prices"),
    )
    return [f"{count} {one if count == 1 else many}" for count, one, many in counts if count]


@transaction.atomic
def model_set(*, operator: User, slug: str, terms: ModelTerms, now: datetime) -> GpuModel:
    """Creates or changes a model, and adds the reported GPUs that waited for it.

    Quarantined nodes stay so until approved.

    Raises:
        Refused: `bad_slug`, `bad_name`, `bad_model`, `product_name_taken`, `not_found` (class) or
            `model_in_use` (GPUs of it keep their product name, class and memory).
    """
    slug_read(slug)
    values = _values(terms)
    other = GpuModel.objects.filter(product_name=values["product_name"]).exclude(slug=slug).first()
    if other is not None:
        raise invalid(
            "product_name_taken",
            refusal_text("product_name_taken", other=other.slug),
            "product_name",
        )
    found = GpuModel.objects.select_for_update().filter(slug=slug).first()
    before = {field: getattr(found, field) for field in values} if found else None
    if found is not None and found.gpu_set.exists():
        _unchanged_or_refuse(found, values)
    model, _ = GpuModel.objects.update_or_create(slug=slug, defaults=values)
    if before != values:
        platform_record(operator.id, "gpu_model.set", ("gpu_model", slug), now, before=before, after=values)
    waiting_gpus_add(now)
    return model


@transaction.atomic
def model_remove(*, operator: User, slug: str, now: datetime) -> None:
    """Removes a model without GPUs.

    Raises:
        Refused: `not_found` or `model_in_use`.
    """
    found = GpuModel.objects.select_for_update().filter(slug=slug).first()
    if found is None:
        raise missing("GPU model")
    count = found.gpu_set.count() + found.allocation_set.count()
    if count:
        raise Refused(
            "model_in_use",
            refusal_text("model_in_use", product_name=found.product_name, count=found.gpu_set.count()),
            param="slug",
        )
    found.delete()
    platform_record(
        operator_id=operator.id,
        action="gpu_model.removed",
        target=("gpu_model", slug),
        now=now,
        before=asdict(_terms_of(found)),
    )


def _values(terms: ModelTerms) -> dict[str, object]:
    of_class = GpuClass.objects.filter(slug=terms.gpu_class).first()
    if of_class is None:
        raise missing("GPU class", "gpu_class")
    if (of_class.kind == GpuClass.Kind.HOST) != (terms.product_name.strip() == wire.HOST_CORE):
        raise invalid("bad_model", refusal_text("model_of_other_kind"), "gpu_class")
    if not 1 <= terms.memory_mb <= MOST_MEMORY_MB:
        raise invalid("bad_model", refusal_text("bad_model_memory"), "memory_mb")
    if not 0 <= terms.switch_seconds <= LONGEST_SWITCH:
        sentence = refusal_text("bad_model_reset", longest_switch=LONGEST_SWITCH)
        raise invalid("bad_model", sentence, "switch_seconds")
    return {
        "product_name": name_read(terms.product_name, param="product_name"),
        "gpu_class_id": terms.gpu_class,
        "memory_mb": terms.memory_mb,
        "mode_switch": "reset" if terms.switch_seconds else "online",
        "switch_seconds": terms.switch_seconds,
    }


def _unchanged_or_refuse(model: GpuModel, values: dict[str, object]) -> None:
    params = {"product_name": "product_name", "gpu_class_id": "gpu_class", "memory_mb": "memory_mb"}
    for field, param in params.items():
        if getattr(model, field) != values[field]:
            raise Refused(
                "model_in_use",
                refusal_text("model_fixed", product_name=model.product_name),
                param=param,
            )


def _terms_of(model: GpuModel) -> ModelTerms:
    return ModelTerms(model.product_name, model.gpu_class_id, model.memory_mb, model.switch_seconds)


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
