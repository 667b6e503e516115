"""The operator's catalogue: classes, models and unnamed models."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import GpuModel
from allocation.queries.fleet.catalogue import work_speeds
from allocation.queries.fleet.reported import ReportedModel, reported_models
from allocation.rules.site.known_models import known_catalogue
from allocation.services.operate.catalogue import (
    ModelTerms,
    class_remove,
    class_set,
    class_uses,
    model_remove,
    model_set,
)
from allocation.services.operate.site_defaults import known_model_add, speeds_fill
from allocation.words.refusals import refusal_text
from billing.price_books import current_prices
from billing.rules import money_text
from tenants.models import GpuClass, User
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.actions import FormAction, form_action_run
from tenants.queries import tiers_all
from tenants.rules.operator_roles import Area
from tenants.services import whole_read, whole_sent
from tenants.web.frame import operator_page
from tenants.web.parts import Field, counted


@dataclass(frozen=True, slots=True)
class FormView:
    """A form: its action, hidden values, inputs, and a refusal without a field."""

    key: str
    act: str
    hidden: tuple[tuple[str, str], ...]
    fields: tuple[Field, ...]
    refusal: Refused | None = None

    @property
    def failed(self) -> bool:
        """Returns whether the form was submitted and refused."""
        return self.refusal is not None or any(field.error for field in self.fields)

    @property
    def inputs(self) -> tuple[Field, ...]:
        """Returns the fields with ids that are unique on the page."""
        return tuple(replace(each, id=f"{self.key}-{each.name}") for each in self.fields)


@dataclass(frozen=True, slots=True)
class ClassRow:
    """A class with its models, current prices and speeds."""

    row: GpuClass
    models: tuple[GpuModel, ...]
    prices: tuple[tuple[str, str], ...]
    speeds: tuple[tuple[str, str], ...]
    uses: str
    form: FormView

    @property
    def model_names(self) -> str:
        """Returns the names of its models."""
        return ", ".join(model.product_name for model in self.models)


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model with the slices that its driver reports."""

    row: GpuModel
    gpus: int
    slices: tuple[tuple[str, int], ...]
    form: FormView


@dataclass(frozen=True, slots=True)
class RefusedForm:
    """A refused form, shown again as typed."""

    form: QueryDict
    refusal: Refused

    def into(self, shown: FormView) -> FormView:
        """Returns `shown` with the typed values if it is the submitted form."""
        is_same = self.form.get("act") == shown.act and all(
            self.form.get(name) == value for name, value in shown.hidden
        )
        if not is_same:
            return shown
        fields = tuple(
            replace(
                field,
                value=self.form.get(field.name, ""),
                error=self.refusal.sentence if field.name == self.refusal.param else "",
            )
            for field in shown.fields
        )
        stray = None if any(field.error for field in fields) else self.refusal
        return replace(shown, fields=fields, refusal=stray)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.RULES)
def ops_catalogue(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows all classes and models with their forms; POST changes one."""
    refusal = None
    if request.method == "POST":
        refusal = form_action_run(request, catalogue_acts(operator))
        if refusal is None:
            return redirect("ops-catalogue")
    sent = RefusedForm(request.POST, refusal) if refusal else None
    waiting, classes, models = unnamed_model_forms(sent), _class_rows(sent), _model_rows(sent)
    new_class, new_model = _shown(_new_class_form(), sent), _shown(_new_model_form(), sent)
    forms = [
        *(form for _, form in waiting),
        *(row.form for row in classes),
        *(row.form for row in models),
    ]
    context = {
        "waiting": waiting,
        "many_known": are_many_known(waiting),
        "shipped": shipped_choices(),
        "classes": classes,
        "models": models,
        "new_class": new_class,
        "new_model": new_model,
        # A refusal without a form, such as of a removal, is shown at the top.
        "refusal": None if any(f.failed for f in (*forms, new_class, new_model)) else refusal,
    }
    return render(request, "allocation/ops_catalogue.html", context, status=422 if refusal else 200)


def catalogue_acts(operator: User) -> Mapping[str, FormAction]:
    """Returns the actions of the class and model forms."""

    def do(work: Callable[[User, QueryDict], str]) -> FormAction:
        return lambda form: work(operator, form)

    return {
        "models-known": do(_known_add),
        "model-shipped": do(_shipped_add),
        "model-name": do(_model_name),
        "model-set": do(_model_set),
        "model-remove": do(_model_remove),
        "class-set": do(_class_set),
        "class-remove": do(_class_remove),
    }


def unnamed_model_forms(sent: RefusedForm | None) -> list[tuple[ReportedModel, FormView]]:
    """Returns the unnamed models that nodes report, each with its form."""
    return [(each, _shown(_naming_form(each), sent)) for each in reported_models() if each.model is None]


def are_many_known(waiting: Iterable[tuple[ReportedModel, FormView]]) -> bool:
    """Returns whether several waiting models are in the built-in catalogue."""
    return sum(each.known is not None for each, _ in waiting) > 1


def shipped_choices() -> list[tuple[str, str]]:
    """Returns the built-in models that the site lacks: short name and NVML's name."""
    there = set(GpuModel.objects.values_list("product_name", flat=True))
    return [
        (model.slug, model.names[0])
        for model in known_catalogue().models.values()
        if not there.intersection(model.names)
    ]


def _known_add(operator: User, form: QueryDict) -> str:
    known = [each.known for each in reported_models() if each.model is None and each.known]
    with transaction.atomic():
        for model in known:
            known_model_add(operator=operator, slug=model.slug, now=timezone.now())
    return f"{counted(len(known), 'model')} added. You can now approve the nodes that have them."


def _shipped_add(operator: User, form: QueryDict) -> str:
    model = known_model_add(operator=operator, slug=form.get("slug", ""), now=timezone.now())
    return f"{model.product_name} was added to the catalogue."


def _model_name(operator: User, form: QueryDict) -> str:
    """Adds a model, and its class if that is new."""
    now, slug = timezone.now(), form.get("gpu_class", "").strip()
    with transaction.atomic():
        if not GpuClass.objects.filter(slug=_safe(slug)).exists():
            try:
                class_set(operator=operator, slug=slug, label=form.get("label", ""), now=now)
            except Refused as refusal:
                raise replace(
                    refusal, param="gpu_class" if refusal.param == "slug" else refusal.param
                ) from None
        model = model_set(operator=operator, slug=form.get("slug", ""), terms=_terms(form), now=now)
        speeds_fill(operator=operator, now=now)
    return f"{model.product_name} was added to the catalogue."


def _model_set(operator: User, form: QueryDict) -> str:
    model = model_set(operator=operator, slug=form.get("slug", ""), terms=_terms(form), now=timezone.now())
    return f"{model.product_name} saved."


def _model_remove(operator: User, form: QueryDict) -> str:
    model_remove(operator=operator, slug=_safe(form.get("slug", "")), now=timezone.now())
    return "Model removed."


def _class_set(operator: User, form: QueryDict) -> str:
    slug, now = form.get("slug", "").strip(), timezone.now()
    if "is_new" in form and GpuClass.objects.filter(slug=_safe(slug)).exists():
        raise invalid("slug_taken", refusal_text("class_slug_taken"), "slug")
    order = whole_sent(form, "order")
    made = class_set(operator=operator, slug=slug, label=form.get("label", ""), order=order, now=now)
    return f"{made.label} saved."


def _class_remove(operator: User, form: QueryDict) -> str:
    class_remove(operator=operator, slug=_safe(form.get("slug", "")), now=timezone.now())
    return "Class removed."


def _terms(form: QueryDict) -> ModelTerms:
    return ModelTerms(
        product_name=form.get("product_name", ""),
        gpu_class=_safe(form.get("gpu_class", "").strip()),
        memory_mb=whole_read(form.get("memory_mb", ""), param="memory_mb"),
        switch_seconds=whole_read(form.get("switch_seconds", "") or "0", param="switch_seconds"),
    )


def _safe(text: str) -> str:
    """PostgreSQL rejects text with a NUL."""
    return text.replace("\x00", "\ufffd")


def _shown(form: FormView, sent: RefusedForm | None) -> FormView:
    return sent.into(form) if sent else form


def _naming_form(each: ReportedModel) -> FormView:
    known = each.known
    slug = known.slug if known else ""
    return FormView(
        key=f"name-{slug or each.nodes[0]}",
        act="model-name",
        hidden=(("product_name", each.name), ("memory_mb", str(each.memory_mb))),
        fields=(
            Field("slug", "Short name of the model", slug, "Lowercase letters, digits and hyphens."),
            Field(
                "gpu_class",
                "Class",
                known.gpu_class if known else "",
                "What people type in a request, as in “2 h100 6h”.",
            ),
            Field("label", "Name of the class", known.label if known else "", "Only for a new class."),
            _switch_field(known.reset_seconds if known else 0),
        ),
    )


def _switch_field(seconds: int) -> Field:
    hint = "Time to reset the GPU when it switches between whole and sliced. 0 if no reset is needed."
    return Field("switch_seconds", "Reset time in seconds", str(seconds), hint)


def _new_class_form() -> FormView:
    hint = "Lowercase letters, digits and hyphens. Can't be changed later."
    return FormView(
        key="new-class",
        act="class-set",
        hidden=(("is_new", "1"),),
        fields=(Field("slug", "Short name", hint=hint), Field("label", "Name")),
    )


def _new_model_form() -> FormView:
    return FormView(
        key="new-model",
        act="model-name",
        hidden=(("by_hand", "1"),),
        fields=(
            Field(
                "slug",
                "Short name",
                hint="Lowercase letters, digits and hyphens. Can't be changed later.",
            ),
            Field("product_name", "Product name", hint="As printed by nvidia-smi -L."),
            Field("gpu_class", "Class"),
            Field("label", "Name of the class", hint="Only for a new class.", required=False),
            Field("memory_mb", "Memory in MiB", hint="Used until a driver reports it."),
            _switch_field(0),
        ),
    )


def _class_rows(sent: RefusedForm | None) -> list[ClassRow]:
    models: dict[str, list[GpuModel]] = {}
    for model in GpuModel.objects.order_by("slug"):
        models.setdefault(model.gpu_class_id, []).append(model)
    prices, speeds, tiers = current_prices(timezone.now()), work_speeds(), list(tiers_all())
    return [
        ClassRow(
            row=row,
            models=tuple(models.get(row.slug, ())),
            prices=tuple(
                (tier.name, money_text(price.per_gpu_hour, price.currency))
                for tier in tiers
                if (price := prices.get((row.slug, tier.slug)))
            ),
            speeds=tuple(
                (workload, f"{of_class[row.slug] / 1000:g}")
                for workload, of_class in speeds.items()
                if row.slug in of_class
            ),
            uses=", ".join(class_uses(row.slug)),
            form=_shown(_class_form(row), sent),
        )
        for row in GpuClass.objects.all()
    ]


def _class_form(row: GpuClass) -> FormView:
    return FormView(
        key=f"class-{row.slug}",
        act="class-set",
        hidden=(("slug", row.slug),),
        fields=(
            Field("label", "Name", row.label),
            Field("order", "Sort order", str(row.order)),
        ),
    )


def _model_rows(sent: RefusedForm | None) -> list[ModelRow]:
    rows = GpuModel.objects.select_related("gpu_class").prefetch_related("placements", "gpu_set")
    return [
        ModelRow(
            row=row,
            gpus=len(row.gpu_set.all()),
            slices=_slices(row.placements.all()),
            form=_shown(_model_form(row, is_used=bool(row.gpu_set.all())), sent),
        )
        for row in rows.order_by("gpu_class__order", "slug")
    ]


def _slices(placements: Iterable[Any]) -> tuple[tuple[str, int], ...]:
    found = {place.profile: (place.size, place.limit) for place in placements}
    return tuple((name, found[name][1]) for name in sorted(found, key=lambda n: (found[n][0], n)))


def _model_form(row: GpuModel, *, is_used: bool) -> FormView:
    own = (
        ("product_name", row.product_name),
        ("gpu_class", row.gpu_class_id),
        ("memory_mb", str(row.memory_mb)),
    )
    editable = (
        Field("product_name", "Product name", row.product_name, "As printed by nvidia-smi -L."),
        Field("gpu_class", "Class", row.gpu_class_id),
        Field("memory_mb", "Memory in MiB", str(row.memory_mb), "Used until a driver reports it."),
    )
    return FormView(
        key=f"model-{row.slug}",
        act="model-set",
        hidden=(("slug", row.slug), *(own if is_used else ())),
        fields=(*(() if is_used else editable), _switch_field(row.switch_seconds)),
    )


urlpatterns = [path("ops/catalogue", ops_catalogue, name="ops-catalogue")]
