"""GPU classes and models for operators, with what is shipped and what agents have reported."""

from typing import Any

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

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
from tenants.models import User
from tenants.platform.fields import Money, Strict, Text, Whole
from tenants.platform.schema import described, page
from tenants.platform.wall import operator_tx


class ClassIn(Strict):
    """What a class is called, and its place in lists (left out: as it was, or last)."""

    label: Any = Text(max_length=80)  # Any: the base class has a property of this name
    order = Whole(required=False, max_value=1000)


class ClassOut(serializers.Serializer[Any]):
    """A class as operators change it; `list_gpu_classes` says what it offers."""

    slug = serializers.CharField()
    label: Any = serializers.CharField()  # as above
    order = serializers.IntegerField()


class SliceOut(serializers.Serializer[Any]):
    """A kind of slice, and how many of it fit on one GPU."""

    profile = serializers.CharField()
    most = serializers.IntegerField()


class ModelIn(Strict):
    """What an operator says of a model. Geometry is the drivers'."""

    product_name = Text(max_length=80, help_text="As NVML reports it.")
    gpu_class = Text(max_length=40)
    memory_mb = Whole(help_text="In MiB, until a driver reports it.")
    switch_seconds = Whole(
        required=False,
        default=0,
        max_value=600,
        help_text="What a change between whole and slices takes by a reset; 0: it needs none.",
    )


class ModelOut(serializers.Serializer[Any]):
    """A model as it stands. `slices` are what its driver reported, empty before that."""

    slug = serializers.CharField()
    product_name = serializers.CharField()
    gpu_class = serializers.CharField(source="gpu_class_id")
    memory_mb = serializers.IntegerField()
    switch_seconds = serializers.IntegerField()
    gpus = serializers.SerializerMethodField()
    slices = serializers.SerializerMethodField()

    def get_gpus(self, model: GpuModel) -> int:
        """How many there are."""
        return len(model.gpu_set.all())

    def get_slices(self, model: GpuModel) -> list[dict[str, Any]]:
        """By profile."""
        most = {place.profile: place.limit for place in model.placements.all()}
        return [{"profile": profile, "most": most[profile]} for profile in sorted(most)]


class KnownModelOut(serializers.Serializer[Any]):
    """A model of the shipped catalogue: typical values to begin with."""

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
    slices = serializers.SerializerMethodField(help_text="Expected; the driver's answer counts.")

    def get_slices(self, model: KnownModel) -> list[dict[str, Any]]:
        """By profile."""
        return [{"profile": each.name, "most": each.limit} for each in model.profiles]


class ReportedOut(serializers.Serializer[Any]):
    """A model that nodes have. `model` and `known` are short names in the site's and the shipped
    catalogue, null where it is not in there."""

    product_name = serializers.CharField(source="name")
    pci_device_id = serializers.CharField(
        source="device_id", help_text="As `10de:2330`; empty where no agent has told it."
    )
    memory_mb = serializers.IntegerField()
    gpus = serializers.IntegerField()
    nodes = serializers.ListField(child=serializers.CharField())
    model = serializers.CharField(source="model.slug", default=None, allow_null=True)
    known = serializers.CharField(source="known.slug", default=None, allow_null=True)
    slices = serializers.SerializerMethodField()

    def get_slices(self, reported: ReportedModel) -> list[dict[str, Any]]:
        """By profile, as the driver says."""
        return [{"profile": name, "most": most} for name, most in reported.profiles]


class GpuClassOne(ApiView):
    """One class, for operators."""

    @described(
        "set_gpu_class", "Make or change a GPU class (operators)", answer=ClassOut, request=ClassIn
    )
    def put(self, request: Request, slug: str) -> Response:
        """The class after the change."""
        self.require_operator()
        sent = self.sent(ClassIn)
        with operator_tx():
            made = class_set(
                operator=User.objects.get(id=self.actor.user_id),
                slug=slug,
                label=sent["label"],
                order=sent.get("order"),
                now=self.now,
            )
            return Response(ClassOut(made).data)

    @described("delete_gpu_class", "Remove a GPU class that nothing uses (operators)", status=204)
    def delete(self, request: Request, slug: str) -> HttpResponseBase:
        """Nothing; what uses it is named in a refusal."""
        self.require_operator()
        with operator_tx():
            operator = User.objects.get(id=self.actor.user_id)
            class_remove(operator=operator, slug=slug, now=self.now)
        return Response(status=204)


class GpuModels(ApiView):
    """All models of the site."""

    @described("list_gpu_models", "GPU models with what drivers report", answer=page(ModelOut))
    def get(self, request: Request) -> Response:
        """By short name."""
        with self.tx():
            return list_response(ModelOut(_models(), many=True).data)


class GpuModelOne(ApiView):
    """One model, for operators."""

    @described(
        "set_gpu_model",
        "Add or change a GPU model, and take in GPUs that wait for it (operators)",
        answer=ModelOut,
        request=ModelIn,
    )
    def put(self, request: Request, slug: str) -> Response:
        """The model after the change."""
        self.require_operator()
        terms = ModelTerms(**self.sent(ModelIn))
        with operator_tx():
            operator = User.objects.get(id=self.actor.user_id)
            model_set(operator=operator, slug=slug, terms=terms, now=self.now)
            return Response(ModelOut(_models().get(slug=slug)).data)

    @described("delete_gpu_model", "Remove a model without GPUs (operators)", status=204)
    def delete(self, request: Request, slug: str) -> HttpResponseBase:
        """Nothing."""
        self.require_operator()
        with operator_tx():
            operator = User.objects.get(id=self.actor.user_id)
            model_remove(operator=operator, slug=slug, now=self.now)
        return Response(status=204)


class KnownModels(ApiView):
    """The shipped catalogue."""

    @described(
        "list_known_gpu_models", "GPU models that the portal knows", answer=page(KnownModelOut)
    )
    def get(self, request: Request) -> Response:
        """The fastest first."""
        return list_response(KnownModelOut(known_catalogue().models.values(), many=True).data)


class ReportedModels(ApiView):
    """What agents have found."""

    @described(
        "list_reported_gpu_models",
        "GPU models that agents have reported, named or not (operators)",
        answer=page(ReportedOut),
    )
    def get(self, request: Request) -> Response:
        """By NVML's name."""
        self.require_operator()
        with operator_tx():
            return list_response(ReportedOut(reported_models(), many=True).data)


def _models() -> QuerySet[GpuModel]:
    return GpuModel.objects.order_by("slug").prefetch_related("placements", "gpu_set")
