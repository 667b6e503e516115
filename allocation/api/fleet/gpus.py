"""GPUs and their classes: what can be requested, at which prices, and the state of each device."""

from collections import defaultdict
from typing import Any
from uuid import UUID

from django.db.models import Count
from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.models import Gpu, GpuModel
from allocation.services.nodes.gpu_modes import mode_pin
from allocation.services.operate.drain import gpu_return
from billing.price_books import current_prices
from solver.fleet.mig_geometry import units_of
from solver.model.inputs import Model, Placement
from tenants.api.base import ApiView, list_response
from tenants.models import GpuClass
from tenants.platform.errors import missing
from tenants.platform.rest.fields import Money, Strict, Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.rules.operator_roles import Area


class ProfileOut(serializers.Serializer[Any]):
    """A MIG profile of a class. A slice counts and costs `units` of the 56,000 of a whole GPU."""

    profile = serializers.CharField()
    model = serializers.CharField()
    memory_slots = serializers.IntegerField()
    compute_slices = serializers.IntegerField()
    units = serializers.IntegerField()


class TierPrice(serializers.Serializer[Any]):
    """The current price of a whole GPU for one hour in a tier."""

    tier = serializers.CharField()
    currency = serializers.CharField()
    per_gpu_hour = Money(max_digits=12, decimal_places=4)


class GpuClassOut(serializers.Serializer[Any]):
    """A class of GPUs. Requests, prices and quotas name classes."""

    slug = serializers.CharField()
    label: Any = serializers.CharField()  # Any: the base class has a property of this name
    kind = serializers.CharField(help_text="`gpu`, or `host`: its units are cores of hosts.")
    gpus = serializers.IntegerField()
    models = serializers.ListField(child=serializers.CharField())
    memory_mb = serializers.IntegerField(allow_null=True)
    profiles = ProfileOut(many=True)
    prices = TierPrice(many=True)


class GpuClasses(ApiView):
    """The GPU classes of the site."""

    @described("list_gpu_classes", "List GPU classes", answer=page(GpuClassOut))
    def get(self, request: Request) -> Response:
        """Returns every GPU class with its MIG profiles and current prices."""
        with self.tx():
            classes = list(GpuClass.objects.all())
            counts = dict(Gpu.objects.order_by().values_list("gpu_class_id").annotate(count=Count("id")))
            models: dict[str, list[GpuModel]] = defaultdict(list)
            for model in GpuModel.objects.order_by("slug").prefetch_related("placements"):
                models[model.gpu_class_id].append(model)
            prices = current_prices(self.now)
        return list_response(
            GpuClassOut(
                {
                    "slug": row.slug,
                    "label": row.label,
                    "kind": row.kind,
                    "gpus": counts.get(row.slug, 0),
                    "models": [model.slug for model in models[row.slug]],
                    "memory_mb": min((model.memory_mb for model in models[row.slug]), default=None),
                    "profiles": [one for model in models[row.slug] for one in _profiles(model)],
                    "prices": [
                        {
                            "tier": tier,
                            "currency": price.currency,
                            "per_gpu_hour": price.per_gpu_hour,
                        }
                        for (gpu_class, tier), price in sorted(prices.items())
                        if gpu_class == row.slug
                    ],
                }
            ).data
            for row in classes
        )


class GpuOut(serializers.Serializer[Any]):
    """One GPU."""

    id = serializers.UUIDField()
    uuid = serializers.CharField()
    node = serializers.CharField(source="node.name")
    index = serializers.IntegerField()
    gpu_class = serializers.CharField(source="gpu_class_id")
    model = serializers.CharField(source="model_id")
    mode = serializers.CharField(help_text="The current mode, as reported by the node's agent.")
    mode_pinned = serializers.CharField(
        help_text="`whole` or `sliced` if an operator pinned the mode. Empty: bookings decide."
    )
    mode_changes_to = serializers.CharField(
        source="mode_wanted",
        help_text="The mode that the node is changing to. Empty when the change is proven.",
    )
    health = serializers.CharField()
    health_reason = serializers.CharField(source="health_words")
    drain_by = serializers.DateTimeField(allow_null=True)
    nvlink_domain = serializers.IntegerField(source="domain", allow_null=True)


class Gpus(ApiView):
    """The GPUs of the fleet."""

    queries = {"GET": PageQuery}

    @described("list_gpus", "List GPUs", answer=page(GpuOut), query=PageQuery)
    def get(self, request: Request) -> Response:
        """Returns the GPUs of the fleet in a stable order."""
        with self.tx():
            gpus, next_cursor = page_of(
                Gpu.objects.select_related("node"),
                keys=("number",),
                query=self.query,
                scope="gpus",
            )
            return list_response(GpuOut(gpus, many=True).data, next_cursor)


class GpuIn(Strict):
    """The mode of a GPU."""

    mode_pinned = serializers.ChoiceField(
        choices=["whole", "sliced"], allow_blank=True, help_text="Empty: bookings decide."
    )
    note = Text(max_length=120, required=False, help_text="Shown in the node's history.")


class GpuOne(OperatorView):
    """One GPU."""

    area = Area.NODES

    @described("get_gpu", "Retrieve a GPU", answer=GpuOut)
    def get(self, request: Request, gpu_id: UUID) -> Response:
        """Returns a GPU of the fleet."""
        with self.tx():
            return Response(GpuOut(_gpu(gpu_id)).data)

    @described("update_gpu", "Pin the mode of a GPU (operators)", answer=GpuOut, request=GpuIn)
    def put(self, request: Request, gpu_id: UUID) -> HttpResponseBase:
        """Pins the GPU to one mode, or unpins it, and returns it. Bookings that were planned on it
        in the other mode move to other GPUs."""
        sent = self.sent(GpuIn)

        def work() -> Gpu:
            mode_pin(
                operator=self.user,
                gpu=_gpu(gpu_id),
                mode=sent["mode_pinned"],
                note=sent.get("note", ""),
                now=self.now,
            )
            return _gpu(gpu_id)

        return self.operate(work, GpuOut)


class GpuReturnIn(Strict):
    """What was repaired."""

    note = Text(max_length=120, help_text="Shown in the node's history.")


class GpuReturn(OperatorView):
    """Returns a GPU to service."""

    area = Area.NODES

    @described(
        "act_return_gpu",
        "Return a GPU to service (operators)",
        answer=GpuOut,
        request=GpuReturnIn,
    )
    def post(self, request: Request, gpu_id: UUID) -> HttpResponseBase:
        """Returns a failed GPU to service and to planning."""
        sent = self.sent(GpuReturnIn)

        def work() -> Gpu:
            gpu_return(operator=self.user, gpu=_gpu(gpu_id), note=sent["note"], now=self.now)
            return _gpu(gpu_id)

        return self.operate(work, GpuOut)


def _gpu(gpu_id: UUID) -> Gpu:
    gpu = Gpu.objects.select_related("node").filter(id=gpu_id).first()
    if gpu is None:
        raise missing("GPU")
    return gpu


def _profiles(model: GpuModel) -> list[dict[str, Any]]:
    rows = sorted(model.placements.all(), key=lambda row: (row.profile_id, row.profile, row.start))
    geometry = Model(
        slug=model.slug,
        memory_slots=model.memory_slots,
        compute_slices=model.compute_slices,
        mode_switch="online",
        placements=tuple(
            Placement(row.profile, row.start, row.size, row.compute, row.profile_id, row.limit)
            for row in rows
        ),
    )
    first = {row.profile: row for row in reversed(rows)}
    return [
        {
            "profile": profile,
            "model": model.slug,
            "memory_slots": first[profile].size,
            "compute_slices": first[profile].compute,
            "units": units_of(geometry, profile),
        }
        for profile in sorted(first, key=lambda name: (first[name].profile_id, name))
    ]
