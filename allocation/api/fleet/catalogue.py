"""The catalogue: GPU classes and GPU models."""

from typing import Any

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.models import GpuModel
from allocation.queries.fleet.reported import ReportedModel, reported_models
from allocation.rules.site.known_models import KnownModel, known_catalogue
from allocation.services.operate.catalogue import (
    ModelTerms,
    class_remove,
    class_set,
    model_remove,
    model_set,
)
from tenants.api.base import ApiView, list_response
from tenants.platform.rest.fields import Money, Strict, Text, Whole
from tenants.platform.rest.schema import described, page
from tenants.rules.operator_roles import Area


class ClassIn(Strict):
    """The label of a class and its position in lists."""

    label: Any = Text(max_length=80)  # Any: the base class has a property of this name
    order = Whole(required=False, max_value=1000, help_text="A new class goes last if this is omitted.")
    kind = serializers.ChoiceField(
        choices=["gpu", "host"],
        required=False,
        help_text="`host`: its units are cores of hosts, for work without a GPU. It never changes.",
    )


class ClassOut(serializers.Serializer[Any]):
    """The editable fields of a class. `GET /gpu-classes` also lists profiles and prices."""

    slug = serializers.CharField()
    label: Any = serializers.CharField()  # as above
    order = serializers.IntegerField()
    kind = serializers.CharField(help_text="What its units are: `gpu`, or `host` for cores of hosts.")


class SliceOut(serializers.Serializer[Any]):
    """A MIG profile. At most `most` slices of it fit on one GPU."""

    profile = serializers.CharField()
    most = serializers.IntegerField()


class ModelIn(Strict):
    """A GPU model. Drivers report its MIG geometry."""

    product_name = Text(max_length=80, help_text="The name that NVML reports.")
    gpu_class = Text(max_length=40)
    memory_mb = Whole(help_text="MiB. Replaced when a driver reports it.")
    switch_seconds = Whole(
        required=False,
        default=0,
        max_value=600,
        help_text="Duration of the GPU reset that changes the MIG mode. 0: no reset is needed.",
    )


class ModelOut(serializers.Serializer[Any]):
    """A GPU model of the site. `slices` is empty until a driver reports the MIG geometry."""

    slug = serializers.CharField()
    product_name = serializers.CharField()
    gpu_class = serializers.CharField(source="gpu_class_id")
    memory_mb = serializers.IntegerField()
    switch_seconds = serializers.IntegerField()
    gpus = serializers.SerializerMethodField()
    slices = serializers.SerializerMethodField()

    def get_gpus(self, model: GpuModel) -> int:
        """The number of GPUs of this model."""
        return len(model.gpu_set.all())

    @extend_schema_field(SliceOut(many=True))
    def get_slices(self, model: GpuModel) -> list[dict[str, Any]]:
        """The slices by profile."""
        most = {place.profile: place.limit for place in model.placements.all()}
        return [{"profile": profile, "most": most[profile]} for profile in sorted(most)]


class KnownModelOut(serializers.Serializer[Any]):
    """A model of the shipped catalogue, with typical values."""

    slug = serializers.CharField()
    product_names = serializers.ListField(child=serializers.CharField(), source="names")
    pci_device_ids = serializers.ListField(child=serializers.CharField(), source="pci")
    gpu_class = serializers.CharField()
    class_label = serializers.CharField(source="label")
    memory_mb = serializers.IntegerField()
    switch_seconds = serializers.IntegerField(source="reset_seconds")
    nvlinks = serializers.IntegerField()
    speeds = serializers.DictField(child=serializers.IntegerField())
    per_gpu_hour = Money(max_digits=10, decimal_places=4, source="price")
    slices = serializers.SerializerMethodField(
        help_text="Expected profiles. What a driver reports takes precedence."
    )

    @extend_schema_field(SliceOut(many=True))
    def get_slices(self, model: KnownModel) -> list[dict[str, Any]]:
        """The slices by profile."""
        return [{"profile": each.name, "most": each.limit} for each in model.profiles]


class ReportedOut(serializers.Serializer[Any]):
    """A model that agents have reported. `model` is its slug in the site's catalogue and `known` in
    the shipped one. Null means that it is missing there."""

    product_name = serializers.CharField(source="name")
    pci_device_id = serializers.CharField(
        source="device_id", help_text="`10de:2330`. Empty if no agent has reported it."
    )
    memory_mb = serializers.IntegerField()
    gpus = serializers.IntegerField()
    nodes = serializers.ListField(child=serializers.CharField())
    model = serializers.CharField(source="model.slug", default=None, allow_null=True)
    known = serializers.CharField(source="known.slug", default=None, allow_null=True)
    slices = serializers.SerializerMethodField()

    @extend_schema_field(SliceOut(many=True))
    def get_slices(self, reported: ReportedModel) -> list[dict[str, Any]]:
        """The slices by profile, as reported by the driver."""
        return [{"profile": name, "most": most} for name, most in reported.profiles]


class GpuClassOne(OperatorView):
    """One class, for operators."""

    area = Area.RULES

    @described(
        "set_gpu_class",
        "Create or update a GPU class (operators)",
        answer=ClassOut,
        request=ClassIn,
    )
    def put(self, request: Request, slug: str) -> Response:
        """Creates or updates a class and returns it."""
        self.require_operator()
        sent = self.sent(ClassIn)
        with self.operator_tx():
            made = class_set(
                operator=self.user,
                slug=slug,
                label=sent["label"],
                order=sent.get("order"),
                kind=sent.get("kind"),
                now=self.now,
            )
            return Response(ClassOut(made).data)

    @described("delete_gpu_class", "Delete a GPU class (operators)", status=204)
    def delete(self, request: Request, slug: str) -> HttpResponseBase:
        """Deletes a class that nothing uses. A refusal names what uses it."""
        self.require_operator()
        with self.operator_tx():
            class_remove(operator=self.user, slug=slug, now=self.now)
        return Response(status=204)


class GpuModels(ApiView):
    """The GPU models of the site."""

    @described("list_gpu_models", "List GPU models", answer=page(ModelOut))
    def get(self, request: Request) -> Response:
        """Returns the site's GPU models by slug."""
        with self.tx():
            return list_response(ModelOut(_models(), many=True).data)


class GpuModelOne(OperatorView):
    """One model, for operators."""

    area = Area.RULES

    @described(
        "set_gpu_model",
        "Create or update a GPU model (operators)",
        answer=ModelOut,
        request=ModelIn,
    )
    def put(self, request: Request, slug: str) -> Response:
        """Creates or updates a model and returns it. Reported GPUs of this model join the fleet."""
        self.require_operator()
        terms = ModelTerms(**self.sent(ModelIn))
        with self.operator_tx():
            model_set(operator=self.user, slug=slug, terms=terms, now=self.now)
            return Response(ModelOut(_models().get(slug=slug)).data)

    @described("delete_gpu_model", "Delete a GPU model (operators)", status=204)
    def delete(self, request: Request, slug: str) -> HttpResponseBase:
        """Deletes a model that has no GPUs."""
        self.require_operator()
        with self.operator_tx():
            model_remove(operator=self.user, slug=slug, now=self.now)
        return Response(status=204)


class KnownModels(ApiView):
    """The shipped catalogue."""

    @described("list_known_gpu_models", "List known GPU models", answer=page(KnownModelOut))
    def get(self, request: Request) -> Response:
        """Returns the models of the shipped catalogue, fastest first."""
        return list_response(KnownModelOut(known_catalogue().models.values(), many=True).data)


class ReportedModels(OperatorView):
    """Models that agents have reported."""

    area = Area.RULES

    @described(
        "list_reported_gpu_models",
        "List reported GPU models (operators)",
        answer=page(ReportedOut),
    )
    def get(self, request: Request) -> Response:
        """Returns the models that agents have reported, by NVML's name."""
        with self.operator_tx():
            return list_response(ReportedOut(reported_models(), many=True).data)


def _models() -> QuerySet[GpuModel]:
    return GpuModel.objects.order_by("slug").prefetch_related("placements", "gpu_set")
