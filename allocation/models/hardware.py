"""The fleet: racks, nodes, GPUs, and the geometry that NVML reported for each model."""

import uuid

from django.db import models
from django.db.models import F, Q

from tenants.models import GpuClass

HARDWARE_MODES = [("whole", "Whole"), ("sliced", "Sliced")]


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
    over, until the agent has signed with it. Work on a draining node has left by `drain_by`;
    without it, it goes on to its end.

    The newest number heard is kept per kind of message: what is not newer is dropped and counted,
    as is what was refused, and each second in which its agent said too much. `heartbeat_at` is
    when the last heartbeat that was accepted had arrived. It is `partitioned` from when a lease of its
    ran out until it has told that it acts on our newest word. Who does not answer is
    `unreachable_since` the last answer, until it has answered for a while, and `long_unreachable`
    once what is planned there is not kept. `ahead_epoch` is the epoch of a word that its agent has
    and this database does not: it was restored. It has said `conflicts` times what contradicts the
    portal's record of a run, and for `refunded_seconds` of GPU time nothing was charged because it
    said that hardware had failed. `differences` wait for an operator's approval. `host_limits`:
    whether its agent keeps bookings to their host cores and memory, or these are only counted, and
    with `host_note` why.

    Who uses what nobody gave them is told of always; their terminals are written to
    `unbooked_warn_after` seconds, and their programs end `unbooked_end_after` seconds after they
    were first seen, where these are set: by the policy, or `unbooked_override` for this node alone.
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
    drain_by = models.DateTimeField(null=True, blank=True)
    cores = models.PositiveIntegerField(default=0)
    memory_mb = models.PositiveIntegerField(default=0)
    host_limits = models.CharField(
        max_length=8,
        choices=[("counted", "Counted"), ("enforced", "Enforced")],
        default="counted",
        db_default="counted",
    )
    host_note = models.CharField(max_length=200, blank=True, default="", db_default="")
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
    heartbeat_seq = models.BigIntegerField(db_default=0, default=0)
    telemetry_seq = models.BigIntegerField(db_default=0, default=0)
    inventory_seq = models.BigIntegerField(db_default=0, default=0)
    # The seconds that its agent said last that its lease lasts. Of leases that were granted for a
    # planned outage and may still run: the longest, and the heartbeat that the last one answers.
    reported_lease_seconds = models.PositiveIntegerField(db_default=0, default=0)
    outage_lease_seconds = models.PositiveIntegerField(db_default=0, default=0)
    outage_lease_seq = models.BigIntegerField(db_default=0, default=0)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    last_seen = models.DateTimeField(null=True, blank=True)
    stale_dropped = models.BigIntegerField(db_default=0, default=0)
    refused = models.BigIntegerField(db_default=0, default=0)
    throttled = models.BigIntegerField(db_default=0, default=0)
    implausible = models.BigIntegerField(db_default=0, default=0)
    conflicts = models.BigIntegerField(db_default=0, default=0)
    refunded_seconds = models.BigIntegerField(db_default=0, default=0)
    clock_skew_seconds = models.IntegerField(null=True, blank=True)
    clock_wrong = models.BooleanField(db_default=False, default=False)
    partitioned = models.BooleanField(db_default=False, default=False)
    unreachable_since = models.DateTimeField(null=True, blank=True)
    long_unreachable = models.BooleanField(db_default=False, default=False)
    ahead_epoch = models.BigIntegerField(null=True, blank=True)
    differences = models.JSONField(db_default=[], default=list)
    unbooked_warn_after = models.PositiveIntegerField(null=True, blank=True)
    unbooked_end_after = models.PositiveIntegerField(null=True, blank=True)
    unbooked_override = models.BooleanField(db_default=False, default=False)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(key_confirmed=F("key_version")) | Q(key_confirmed=F("key_version") - 1),
                name="node_two_keys_at_most",
            ),
            models.CheckConstraint(
                condition=Q(drain_by=None) | Q(state="draining"), name="node_drain_by_drains"
            ),
            models.CheckConstraint(
                condition=Q(long_unreachable=False) | Q(unreachable_since__isnull=False),
                name="node_long_unreachable_is_unreachable",
            ),
            models.CheckConstraint(
                condition=Q(unbooked_end_after=None)
                | Q(
                    unbooked_warn_after__isnull=False,
                    unbooked_end_after__gte=F("unbooked_warn_after") + 60,
                ),
                name="node_warns_before_it_ends",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def takes_work(self) -> bool:
        """Whether anything new may be placed on it."""
        return self.keeps_planned_work and self.unreachable_since is None

    @property
    def keeps_planned_work(self) -> bool:
        """Whether what is planned on it may stay so."""
        trusted = not (self.clock_wrong or self.partitioned or self.long_unreachable)
        return self.state == Node.State.READY and trusted and self.ahead_epoch is None


class NodeInventory(models.Model):
    """What a node's agent reported last, as wire.inventory_to_plain writes it.

    Kept so that GPUs of a model that nobody had named are taken in as soon as somebody names it.
    """

    node = models.OneToOneField(
        Node, on_delete=models.CASCADE, primary_key=True, related_name="inventory"
    )
    document = models.JSONField()
    at = models.DateTimeField()


class NodeExamination(models.Model):
    """What `doctor` found on a node when its agent was begun last: `checks` are objects with
    `name`, `state`, `seen` and `do`. `seq` is the number of the message, `at` when it was made."""

    node = models.OneToOneField(
        Node, on_delete=models.CASCADE, primary_key=True, related_name="examination"
    )
    checks = models.JSONField()
    seq = models.BigIntegerField()
    at = models.DateTimeField()


class EnrolmentToken(models.Model):
    """Lets one agent in, once, for 15 minutes. Only the SHA-256 is stored."""

    digest = models.BinaryField(primary_key=True, max_length=32)
    node = models.ForeignKey(Node, on_delete=models.CASCADE)
    expires = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)


class GpuModel(models.Model):
    """A kind of GPU with its MIG geometry. `mode_switch`: whether changes between whole and slices
    need a reset, which takes `switch_seconds` of an empty GPU."""

    slug = models.SlugField(primary_key=True, max_length=40)
    product_name = models.CharField(max_length=80, unique=True)
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    memory_mb = models.PositiveIntegerField()
    memory_slots = models.PositiveSmallIntegerField(default=8)
    compute_slices = models.PositiveSmallIntegerField(default=7)
    mode_switch = models.CharField(
        max_length=6, choices=[("online", "Online"), ("reset", "Needs a reset")], default="online"
    )
    switch_seconds = models.PositiveSmallIntegerField(db_default=0, default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(mode_switch="online", switch_seconds=0)
                | Q(mode_switch="reset", switch_seconds__gte=1, switch_seconds__lte=600),
                name="model_reset_takes_time",
            )
        ]

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
    Work on one that is not healthy has left by `drain_by`; without it, it goes on to its end. What
    `needs_operator` is not healthy again before an operator says so, whatever the agent finds.
    `mode` is what its agent has read; its node was told to make it `mode_wanted` at
    `mode_wanted_at`, and an operator has pinned it to `mode_pinned`.
    """

    class Health(models.TextChoices):
        OK = "ok", "Healthy"
        DRAINING = "draining", "Draining"
        LOST = "lost", "Lost"

    class Mode(models.TextChoices):
        WHOLE = "whole", "Whole"
        SLICED = "sliced", "Sliced"
        SHARED = "shared", "Shared"

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
    drain_by = models.DateTimeField(null=True, blank=True)
    needs_operator = models.BooleanField(db_default=False, default=False)
    mode = models.CharField(max_length=8, choices=Mode.choices, default=Mode.WHOLE)
    mode_pinned = models.CharField(
        max_length=8, choices=HARDWARE_MODES, blank=True, default="", db_default=""
    )
    mode_wanted = models.CharField(
        max_length=8, choices=HARDWARE_MODES, blank=True, default="", db_default=""
    )
    mode_wanted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(fields=["node", "index"], name="gpu_index_on_node"),
            models.UniqueConstraint(fields=["id", "number", "model"], name="gpu_identity"),
            models.CheckConstraint(
                condition=Q(drain_by=None, needs_operator=False) | ~Q(health="ok"),
                name="gpu_in_service_is_healthy",
            ),
            models.CheckConstraint(
                condition=Q(mode_pinned__in=["", "whole", "sliced"]), name="gpu_mode_pinned_is_one"
            ),
            models.CheckConstraint(
                condition=Q(mode_wanted="", mode_wanted_at=None)
                | Q(mode_wanted__in=["whole", "sliced"], mode_wanted_at__isnull=False),
                name="gpu_mode_wanted_since",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.node_id} GPU {self.index}"
