"""Hardware: classes and what they offer, nodes, GPUs, and what operators do with nodes."""

from collections import defaultdict
from typing import Any
from uuid import UUID

from django.db.models import Count
from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.models import Gpu, GpuModel, Node
from allocation.services.nodes.fleet import (
    node_approve,
    node_key_rotate,
    node_revoke,
)
from allocation.services.nodes.gpu_modes import mode_pin
from allocation.services.operate.drain import node_drain
from allocation.solver.fleet.mig_geometry import units_of
from allocation.solver.model.inputs import Model, Placement
from billing.queries import current_prices
from tenants.api.base import ApiView, list_response
from tenants.models import GpuClass, User
from tenants.platform.errors import missing
from tenants.platform.fields import Instant, Money, Strict, Text
from tenants.platform.pagination import PageQuery, page_of
from tenants.platform.schema import described, page
from tenants.platform.wall import operator_tx


class ProfileOut(serializers.Serializer[Any]):
    """A MIG profile of a class; `units` of 56,000 is what a slice counts and costs."""

    profile = serializers.CharField()
    model = serializers.CharField()
    memory_slots = serializers.IntegerField()
    compute_slices = serializers.IntegerField()
    units = serializers.IntegerField()


class TierPrice(serializers.Serializer[Any]):
    """A whole GPU for an hour, in a tier, now."""

    tier = serializers.CharField()
    currency = serializers.CharField()
    per_gpu_hour = Money(max_digits=12, decimal_places=4)


class GpuClassOut(serializers.Serializer[Any]):
    """The name under which GPUs are asked for, priced and put under quota."""

    slug = serializers.CharField()
    label: Any = serializers.CharField()  # Any: the base class has a property of this name
    gpus = serializers.IntegerField()
    models = serializers.ListField(child=serializers.CharField())
    memory_mb = serializers.IntegerField(allow_null=True)
    profiles = ProfileOut(many=True)
    prices = TierPrice(many=True)


class GpuClasses(ApiView):
    """What may be asked for."""

    @described("list_gpu_classes", "GPU classes with profiles and prices", answer=page(GpuClassOut))
    def get(self, request: Request) -> Response:
        """All of them."""
        with self.tx():
            classes = list(GpuClass.objects.all())
            counts = dict(
                Gpu.objects.order_by().values_list("gpu_class_id").annotate(count=Count("id"))
            )
            models: dict[str, list[GpuModel]] = defaultdict(list)
            for model in GpuModel.objects.order_by("slug").prefetch_related("placements"):
                models[model.gpu_class_id].append(model)
            prices = current_prices(self.now)
        return list_response(
            GpuClassOut(
                {
                    "slug": row.slug,
                    "label": row.label,
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


class NodeOut(serializers.Serializer[Any]):
    """A machine with GPUs and an agent."""

    name = serializers.CharField()
    rack = serializers.CharField(source="rack.name")
    state = serializers.CharField()
    state_reason = serializers.CharField()
    drain_by = serializers.DateTimeField(allow_null=True)
    gpus = serializers.IntegerField(source="gpu_count")
    cores = serializers.IntegerField()
    memory_mb = serializers.IntegerField()
    host_limits = serializers.CharField(
        help_text="Host cores and memory of bookings are `counted` in plans, or `enforced`, too."
    )
    host_note = serializers.CharField(help_text="Why they are only counted.")
    driver = serializers.CharField()
    agent_version = serializers.CharField()
    generation = serializers.IntegerField()
    observed_generation = serializers.IntegerField()
    last_seen = serializers.DateTimeField(allow_null=True)
    takes_work = serializers.BooleanField(help_text="Whether anything new may be placed there.")
    differences = serializers.ListField(
        child=serializers.CharField(), help_text="What waits for an operator's approval."
    )
    clock_skew_seconds = serializers.IntegerField(
        allow_null=True, help_text="Its clock less the portal's; null before its first heartbeat."
    )
    restored = serializers.SerializerMethodField(
        help_text="It follows a newer word than the portal has; see `manage.py epoch_raise`."
    )
    stale_dropped = serializers.IntegerField(help_text="Old messages that were dropped.")
    refused = serializers.IntegerField(help_text="Messages that were not believed.")
    throttled = serializers.IntegerField(help_text="Seconds in which it said too much.")
    implausible = serializers.IntegerField(
        help_text="Readings whose values can't be true together; nothing is charged by readings."
    )

    def get_restored(self, node: Node) -> bool:
        """Whether its agent is ahead of this database."""
        return node.ahead_epoch is not None


class GpuOut(serializers.Serializer[Any]):
    """One device."""

    id = serializers.UUIDField()
    uuid = serializers.CharField()
    node = serializers.CharField(source="node.name")
    index = serializers.IntegerField()
    gpu_class = serializers.CharField(source="gpu_class_id")
    model = serializers.CharField(source="model_id")
    mode = serializers.CharField(help_text="As its agent has read it.")
    mode_pinned = serializers.CharField(
        help_text="`whole` or `sliced`, as an operator has pinned it; empty: as bookings need it."
    )
    mode_changes_to = serializers.CharField(
        source="mode_wanted",
        help_text="What its node was told to change it to and has not proven yet, or empty.",
    )
    health = serializers.CharField()
    health_reason = serializers.CharField()
    drain_by = serializers.DateTimeField(allow_null=True)
    nvlink_domain = serializers.IntegerField(source="domain", allow_null=True)


class Nodes(ApiView):
    """All nodes."""

    queries = {"GET": PageQuery}

    @described("list_nodes", "Nodes of the fleet", answer=page(NodeOut), query=PageQuery)
    def get(self, request: Request) -> Response:
        """A page by name."""
        with self.tx():
            nodes, next_cursor = page_of(
                Node.objects.select_related("rack").annotate(gpu_count=Count("gpus")),
                keys=("name",),
                query=self.query,
                scope="nodes",
            )
            return list_response(NodeOut(nodes, many=True).data, next_cursor)


class Gpus(ApiView):
    """All GPUs."""

    queries = {"GET": PageQuery}

    @described("list_gpus", "GPUs of the fleet", answer=page(GpuOut), query=PageQuery)
    def get(self, request: Request) -> Response:
        """A page by number."""
        with self.tx():
            gpus, next_cursor = page_of(
                Gpu.objects.select_related("node"),
                keys=("number",),
                query=self.query,
                scope="gpus",
            )
            return list_response(GpuOut(gpus, many=True).data, next_cursor)


class GpuIn(Strict):
    """How a GPU is to be given."""

    mode_pinned = serializers.ChoiceField(
        choices=["whole", "sliced"], allow_blank=True, help_text="Empty: as bookings need it."
    )
    note = Text(max_length=120, required=False, help_text="Why, for the node's history.")


class GpuOne(ApiView):
    """One GPU."""

    @described("get_gpu", "A GPU of the fleet", answer=GpuOut)
    def get(self, request: Request, gpu_id: UUID) -> Response:
        """The GPU."""
        with self.tx():
            return Response(GpuOut(_gpu(gpu_id)).data)

    @described(
        "update_gpu", "Pin the mode of a GPU, or unpin it (operators)", answer=GpuOut, request=GpuIn
    )
    def put(self, request: Request, gpu_id: UUID) -> HttpResponseBase:
        """The GPU; what is planned on it in the other mode is placed elsewhere."""
        sent = self.sent(GpuIn)

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                mode_pin(
                    operator=User.objects.get(id=self.actor.user_id),
                    gpu=_gpu(gpu_id),
                    mode=sent["mode_pinned"],
                    note=sent.get("note", ""),
                    now=self.now,
                )
                return Response(GpuOut(_gpu(gpu_id)).data)

        return self.once(work)


def _gpu(gpu_id: UUID) -> Gpu:
    found = Gpu.objects.select_related("node").filter(id=gpu_id).first()
    if found is None:
        raise missing("GPU")
    return found


class DrainIn(Strict):
    """Why a node is taken out."""

    reason = Text(max_length=120)
    by = Instant(required=False, help_text="When running work has left; else it goes to its end.")


class NodeDrain(ApiView):
    """Taking a node out of planning."""

    @described("act_drain_node", "Drain a node (operators)", answer=NodeOut, request=DrainIn)
    def post(self, request: Request, name: str) -> HttpResponseBase:
        """The node; what runs there goes on to its end, or until `by`."""
        sent = self.sent(DrainIn)

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                node_drain(
                    operator=User.objects.get(id=self.actor.user_id),
                    node=node_by_name(name),
                    reason=sent["reason"],
                    now=self.now,
                    by=sent.get("by"),
                )
                return Response(NodeOut(node_by_name(name)).data)

        return self.once(work)


class NodeReady(ApiView):
    """Putting a node back."""

    @described(
        "act_ready_node",
        "Put a drained or quarantined node back (operators)",
        answer=NodeOut,
        request=None,
    )
    def post(self, request: Request, name: str) -> HttpResponseBase:
        """The node, in planning again."""
        self.sent(Strict)

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                operator = User.objects.get(id=self.actor.user_id)
                node_approve(operator=operator, node=node_by_name(name), now=self.now)
                return Response(NodeOut(node_by_name(name)).data)

        return self.once(work)


class NodeRevoke(ApiView):
    """Locking an agent out."""

    @described(
        "act_revoke_node", "Lock a node's agent out (operators)", answer=NodeOut, request=None
    )
    def post(self, request: Request, name: str) -> HttpResponseBase:
        """The node, in quarantine; its agent comes back by a new enrolment only."""
        self.sent(Strict)

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                operator = User.objects.get(id=self.actor.user_id)
                node_revoke(operator=operator, node=node_by_name(name), now=self.now)
                return Response(NodeOut(node_by_name(name)).data)

        return self.once(work)


class NodeKeyRotate(ApiView):
    """Changing an agent's signing key."""

    @described(
        "act_rotate_node_key",
        "Give a node's agent a new signing key (operators)",
        answer=NodeOut,
        request=None,
    )
    def post(self, request: Request, name: str) -> HttpResponseBase:
        """The node; its old key is good until the agent signs with the new one."""
        self.sent(Strict)

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                operator = User.objects.get(id=self.actor.user_id)
                node_key_rotate(operator=operator, node=node_by_name(name), now=self.now)
                return Response(NodeOut(node_by_name(name)).data)

        return self.once(work)


def node_by_name(name: str) -> Node:
    """With its rack and its number of GPUs. Refused: `not_found`."""
    node = (
        Node.objects.filter(name=name)
        .select_related("rack")
        .annotate(gpu_count=Count("gpus"))
        .first()
    )
    if node is None:
        raise missing("node")
    return node


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
