"""The fleet: racks, nodes, GPUs, and the geometry that NVML reported for each model."""

import uuid

from django.db import models
from django.db.models import F, Q

from tenants.models import GpuClass


class Rack(models.Model):
    """Where nodes stand together."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.SlugField(max_length=40, unique=True)

    def __str__(self) -> str:
        return self.name


class Node(models.Model):
    """A machine with GPUs and an agent.

    `generation` rises with every change of its assignment; `published_generation` is what was
    last written for the agent, `observed_generation` what the agent last said it acts on.
    `link_digest` is the SHA-256 of its password at Redis, None for a node that has no agent (any
    more). Keys `key_confirmed` … `key_version` are valid: two of them while a new one is handed
    over, until the agent has signed with it.
    """

    class State(models.TextChoices):
        EXPECTED = "expected", "Expected"
        READY = "ready", "Ready"
        DRAINING = "draining", "Draining"
        QUARANTINED = "quarantined", "Quarantined"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.SlugField(max_length=60, unique=True)
    rack = models.ForeignKey(Rack, on_delete=models.PROTECT)
    state = models.CharField(max_length=12, choices=State.choices, default=State.EXPECTED)
    state_reason = models.CharField(max_length=200, blank=True)
    cores = models.PositiveIntegerField(default=0)
    memory_mb = models.PositiveIntegerField(default=0)
    driver = models.CharField(max_length=40, blank=True)
    agent_version = models.CharField(max_length=40, blank=True)
    boot_id = models.CharField(max_length=64, blank=True)
    key_version = models.PositiveIntegerField(default=1)
    key_confirmed = models.PositiveIntegerField(default=1)
    link_digest = models.BinaryField(max_length=32, null=True, editable=False)
    generation = models.BigIntegerField(default=0)
    published_generation = models.BigIntegerField(default=-1)
    observed_generation = models.BigIntegerField(default=-1)
    report_seq = models.BigIntegerField(default=0)
    last_seen = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(key_confirmed=F("key_version")) | Q(key_confirmed=F("key_version") - 1),
                name="node_two_keys_at_most",
            )
        ]

    def __str__(self) -> str:
        return self.name


class EnrolmentToken(models.Model):
    """Lets one agent in, once, for 15 minutes. Only the SHA-256 is stored."""

    digest = models.BinaryField(primary_key=True, max_length=32)
    node = models.ForeignKey(Node, on_delete=models.CASCADE)
    expires = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)


class GpuModel(models.Model):
    """A kind of GPU with its MIG geometry. `mode_switch`: whether MIG mode changes need a reset."""

    slug = models.SlugField(primary_key=True, max_length=40)
    product_name = models.CharField(max_length=80, unique=True)
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    memory_mb = models.PositiveIntegerField()
    memory_slots = models.PositiveSmallIntegerField(default=8)
    compute_slices = models.PositiveSmallIntegerField(default=7)
    mode_switch = models.CharField(
        max_length=6, choices=[("online", "Online"), ("reset", "Needs a reset")], default="online"
    )

    def __str__(self) -> str:
        return self.slug


class MigPlacement(models.Model):
    """One legal place of a profile on a model, as NVML lists it. Never from code."""

    id = models.BigAutoField(primary_key=True)
    model = models.ForeignKey(GpuModel, on_delete=models.CASCADE, related_name="placements")
    profile = models.CharField(max_length=24)
    profile_id = models.PositiveSmallIntegerField()
    start = models.PositiveSmallIntegerField()
    size = models.PositiveSmallIntegerField()
    compute = models.PositiveSmallIntegerField()
    limit = models.PositiveSmallIntegerField()

    class Meta:
        ordering = ["model_id", "profile", "start"]
        constraints = [
            models.UniqueConstraint(
                fields=["model", "profile", "start", "size"], name="placement_once"
            ),
            models.CheckConstraint(
                condition=Q(start__lte=7, size__gte=1, size__lte=8), name="placement_in_gpu"
            ),
        ]


class Gpu(models.Model):
    """One device. `number` is its stretch [8·number, 8·number + 8) of the global slot line.

    `peers` are the node's other devices as [index, NVLinks, path over PCIe].
    """

    class Health(models.TextChoices):
        OK = "ok", "Healthy"
        DRAINING = "draining", "Draining"
        LOST = "lost", "Lost"

    class Mode(models.TextChoices):
        WHOLE = "whole", "Whole"
        SLICED = "sliced", "Sliced"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    number = models.BigIntegerField(unique=True)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="gpus")
    index = models.PositiveSmallIntegerField()
    uuid = models.CharField(max_length=80, unique=True)
    model = models.ForeignKey(GpuModel, on_delete=models.PROTECT)
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    domain = models.PositiveSmallIntegerField(null=True, blank=True)
    numa = models.SmallIntegerField(null=True, blank=True)
    peers = models.JSONField(default=list, db_default=[], blank=True)
    health = models.CharField(max_length=10, choices=Health.choices, default=Health.OK)
    health_reason = models.CharField(max_length=200, blank=True)
    mode = models.CharField(max_length=8, choices=Mode.choices, default=Mode.WHOLE)

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(fields=["node", "index"], name="gpu_index_on_node"),
            models.UniqueConstraint(fields=["id", "number", "model"], name="gpu_identity"),
        ]

    def __str__(self) -> str:
        return f"{self.node_id} GPU {self.index}"
