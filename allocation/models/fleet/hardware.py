"""The fleet: nodes, GPUs, and the MIG geometry that NVML reported for each model."""

import uuid
from typing import Any

from django.db import models
from django.db.models import F, Q

from allocation.models.fleet.engines import EngineAgent
from allocation.models.fleet.zones import Rack
from allocation.words.fleet import FleetText, fleet_sentence, locked_out_text
from tenants.models import GpuClass

HARDWARE_MODES = [("whole", "Whole"), ("sliced", "Sliced")]


class Node(models.Model):
    """A machine with GPUs and an agent.

    The agent reconciles the node with the assignment of the newest `generation`. A node takes new
    work only if it is ready, reachable, has the right time and has seen the newest assignment.
    """

    class State(models.TextChoices):
        EXPECTED = "expected", "Expected"
        READY = "ready", "Ready"
        DRAINING = "draining", "Draining"
        QUARANTINED = "quarantined", "Quarantined"

    class Engine(models.TextChoices):
        DEVICE = "device", "Agent"
        SLURM = "slurm", "Slurm"
        KUBERNETES = "kubernetes", "Kubernetes"
        QUOTA = "quota", "Kubernetes without Kueue"
        VOLCANO = "volcano", "Kubernetes with Volcano"

    class Storage(models.TextChoices):
        UNKNOWN = "", "Not known"
        LOCAL = "local", "Local NVMe"
        SHARED = "shared", "Shared"
        NONE = "none", "None"

    STATE_FIELDS = ("state", "state_reason", "state_text")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.SlugField(max_length=60, unique=True)
    rack = models.ForeignKey(Rack, on_delete=models.PROTECT)

    # State
    state = models.CharField(max_length=12, choices=State.choices, default=State.EXPECTED)
    state_reason = models.CharField(max_length=200, blank=True)
    state_text = models.JSONField(
        null=True, blank=True, help_text="Code and facts of `state_reason`; null in old rows."
    )
    drain_by = models.DateTimeField(
        null=True, blank=True, help_text="When work must have left; null: it runs to its end."
    )

    pool = models.CharField(
        max_length=40,
        blank=True,
        default="",
        db_default="",
        help_text="Only bookings of the same pool are planned on it; empty: all others.",
    )

    # Machine, as the agent reported it
    cores = models.PositiveIntegerField(default=0)
    memory_mb = models.PositiveIntegerField(default=0)
    storage = models.CharField(
        max_length=6,
        choices=Storage.choices,
        blank=True,
        default=Storage.UNKNOWN,
        db_default=Storage.UNKNOWN,
        help_text="What its programs write to.",
    )
    scratch_gb = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Local space for programs in GB."
    )
    storage_by_operator = models.BooleanField(
        default=False, db_default=False, help_text="An operator has set the storage: reports don't change it."
    )
    reported_storage = models.CharField(
        max_length=6,
        choices=Storage.choices,
        blank=True,
        default=Storage.UNKNOWN,
        db_default=Storage.UNKNOWN,
        help_text="What its agent found; empty: no agent has looked.",
    )
    reported_scratch_gb = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Local space that its agent found, in GB."
    )
    driver = models.CharField(max_length=40, blank=True)
    agent_version = models.CharField(max_length=40, blank=True)
    boot_id = models.CharField(max_length=64, blank=True)
    engine = models.CharField(
        max_length=10,
        choices=Engine.choices,
        default=Engine.DEVICE,
        db_default=Engine.DEVICE,
        help_text="Who gives its GPUs to bookings: the agent itself, or another scheduler for it.",
    )
    engine_agent = models.ForeignKey(
        EngineAgent,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="nodes",
        help_text="Whose identity serves it, with the digest of its account; null: an agent of its own.",
    )
    host_name = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="As its engine's scheduler names it, where that is another name; else empty.",
    )
    engine_pool = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="The pool of which it is a slot: its engine chooses the host of each job; else empty.",
    )
    host_limits = models.CharField(
        max_length=8,
        choices=[("counted", "Counted"), ("enforced", "Enforced")],
        default="counted",
        db_default="counted",
        help_text="Whether the agent enforces host cores and memory of bookings.",
    )
    host_note = models.CharField(
        max_length=200, blank=True, default="", db_default="", help_text="Why it does not."
    )
    differences = models.JSONField(
        db_default=[],
        default=list,
        help_text="Texts of inventory changes that wait for an operator; sentences in old rows.",
    )

    # Keys
    link_digest = models.BinaryField(
        max_length=32,
        null=True,
        editable=False,
        help_text="SHA-256 of the agent's Redis password; null without an agent.",
    )
    key_version = models.PositiveIntegerField(default=1, help_text="Newest valid signing key.")
    key_confirmed = models.PositiveIntegerField(
        default=1, help_text="Oldest valid key: the one before, until the agent uses the newest."
    )

    # Assignment
    generation = models.BigIntegerField(default=0, help_text="Rises with every change.")
    published_generation = models.BigIntegerField(default=-1, help_text="Last sent to the agent.")
    observed_generation = models.BigIntegerField(default=-1, help_text="Last one that it acts on.")
    ahead_epoch = models.BigIntegerField(
        null=True,
        blank=True,
        help_text="Epoch of an assignment that a restored database does not know.",
    )

    # Messages: the newest number of each kind; older ones are dropped
    report_seq = models.BigIntegerField(default=0)
    heartbeat_seq = models.BigIntegerField(db_default=0, default=0)
    telemetry_seq = models.BigIntegerField(db_default=0, default=0)
    inventory_seq = models.BigIntegerField(db_default=0, default=0)
    heartbeat_at = models.DateTimeField(
        null=True, blank=True, help_text="When the last accepted heartbeat arrived."
    )
    last_seen = models.DateTimeField(null=True, blank=True, help_text="Last message of any kind.")
    stale_dropped = models.BigIntegerField(db_default=0, default=0, help_text="Old messages.")
    refused = models.BigIntegerField(db_default=0, default=0, help_text="Invalid messages.")
    throttled = models.BigIntegerField(
        db_default=0, default=0, help_text="Seconds in which the agent sent too much."
    )
    implausible = models.BigIntegerField(db_default=0, default=0, help_text="Readings that can't be true.")
    conflicts = models.BigIntegerField(
        db_default=0, default=0, help_text="Reports that contradict the portal's record of a run."
    )
    refunded_seconds = models.BigIntegerField(
        db_default=0, default=0, help_text="GPU time not charged because it reported a failure."
    )

    # Leases and reachability
    reported_lease_seconds = models.PositiveIntegerField(
        db_default=0, default=0, help_text="Remaining lease in the last heartbeat."
    )
    outage_lease_seconds = models.PositiveIntegerField(
        db_default=0, default=0, help_text="Longest lease of a planned outage that may still run."
    )
    outage_lease_seq = models.BigIntegerField(
        db_default=0, default=0, help_text="Heartbeat that the last such lease answered."
    )
    partitioned = models.BooleanField(
        db_default=False,
        default=False,
        help_text="A lease ran out, and the agent has not confirmed the newest assignment since.",
    )
    unreachable_since = models.DateTimeField(
        null=True, blank=True, help_text="Last answer of a node that does not answer."
    )
    long_unreachable = models.BooleanField(
        db_default=False, default=False, help_text="Planned work is placed elsewhere."
    )

    # Clock
    clock_skew_seconds = models.IntegerField(null=True, blank=True)
    clock_wrong = models.BooleanField(db_default=False, default=False)

    # Unbooked use: seconds after a process was first seen; null is never
    unbooked_warn_after = models.PositiveIntegerField(
        null=True, blank=True, help_text="When its user is warned."
    )
    unbooked_end_after = models.PositiveIntegerField(
        null=True, blank=True, help_text="When the process is ended."
    )
    unbooked_override = models.BooleanField(
        db_default=False, default=False, help_text="Set for this node, not by the policy."
    )

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
                condition=Q(storage="local") | Q(storage__in=["", "shared", "none"], scratch_gb=0),
                name="node_scratch_is_local",
            ),
            models.CheckConstraint(
                condition=Q(state_text__isnull=True) | ~Q(state_reason=""),
                name="node_state_text_is_reason",
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

    def state_set(self, state: str, why: FleetText | None) -> None:
        """Sets the state and its reason. Not saved; `STATE_FIELDS` names the columns."""
        self.state, self.state_reason = state, "" if why is None else str(why)[:200]
        self.state_text = None if why is None else why.data()

    @property
    def state_words(self) -> str:
        """The reason of the state in the reader's language. A drain does not hide a lock-out."""
        reason = fleet_sentence(self.state_text or self.state_reason)
        if self.is_locked_out and self.state == Node.State.DRAINING:
            return str(locked_out_text(reason))
        return reason

    @property
    def was_enrolled(self) -> bool:
        """Whether an agent was ever enrolled as this node: each enrolment makes a new key."""
        return self.key_version > 1

    @property
    def is_locked_out(self) -> bool:
        """Whether its agent's account was removed. Only a new enrolment makes another one."""
        return self.link_digest is None and self.was_enrolled

    @property
    def difference_words(self) -> tuple[str, ...]:
        """The differences in the reader's language."""
        return tuple(fleet_sentence(each) for each in self.differences)

    @property
    def takes_work(self) -> bool:
        """Whether new work may be placed on it."""
        return self.keeps_planned_work and self.unreachable_since is None

    @property
    def keeps_planned_work(self) -> bool:
        """Whether planned work may stay on it."""
        trusted = not (self.clock_wrong or self.partitioned or self.long_unreachable)
        reads_ours = self.ahead_epoch is None and not self.is_locked_out
        return self.state == Node.State.READY and trusted and reads_ours


class NodeInventory(models.Model):
    """The last inventory that a node's agent reported, as `wire.envelope.inventory_to_plain` writes it.

    GPUs of an unknown model are added from it when an operator names the model.
    """

    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="inventory")
    document = models.JSONField()
    at = models.DateTimeField()


class NodeExamination(models.Model):
    """What `doctor` found on a node when its agent last started.

    Each check has `name`, `state`, `seen` and `do`.
    """

    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="examination")
    checks = models.JSONField()
    seq = models.BigIntegerField(help_text="Number of the message.")
    at = models.DateTimeField(help_text="When the message was made.")


class GpuModel(models.Model):
    """A model of GPU with its MIG geometry."""

    slug = models.SlugField(primary_key=True, max_length=40)
    product_name = models.CharField(max_length=80, unique=True)
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    memory_mb = models.PositiveIntegerField()
    memory_slots = models.PositiveSmallIntegerField(default=8)
    compute_slices = models.PositiveSmallIntegerField(default=7)
    mode_switch = models.CharField(
        max_length=6,
        choices=[("online", "Online"), ("reset", "Needs a reset")],
        default="online",
        help_text="How a GPU changes between whole and slices.",
    )
    switch_seconds = models.PositiveSmallIntegerField(
        db_default=0, default=0, help_text="Time that a reset takes on an empty GPU."
    )

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
    """A legal placement of a MIG profile on a model, as NVML lists it."""

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
            models.UniqueConstraint(fields=["model", "profile", "start", "size"], name="placement_once"),
            models.CheckConstraint(
                condition=Q(start__lte=7, size__gte=1, size__lte=8), name="placement_in_gpu"
            ),
        ]


class Gpu(models.Model):
    """A GPU of a node."""

    class Health(models.TextChoices):
        OK = "ok", "Healthy"
        DRAINING = "draining", "Draining"
        LOST = "lost", "Lost"

    class Mode(models.TextChoices):
        WHOLE = "whole", "Whole"
        SLICED = "sliced", "Sliced"
        SHARED = "shared", "Shared"

    HEALTH_FIELDS = ("health", "health_reason", "health_text")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    number = models.BigIntegerField(
        unique=True, help_text="Its slots are [8 * number, 8 * number + 8) among all slots."
    )
    uuid = models.CharField(max_length=80, unique=True, help_text="As NVML reports it.")
    model = models.ForeignKey(GpuModel, on_delete=models.PROTECT)
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)

    # Position
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="gpus")
    index = models.PositiveSmallIntegerField()
    domain = models.PositiveSmallIntegerField(null=True, blank=True, help_text="NVLink domain.")
    numa = models.SmallIntegerField(null=True, blank=True, help_text="NUMA node.")
    peers = models.JSONField(
        default=list,
        db_default=[],
        blank=True,
        help_text="Other GPUs of the node: [index, NVLinks, PCIe path].",
    )

    # Health
    health = models.CharField(max_length=10, choices=Health.choices, default=Health.OK)
    health_reason = models.CharField(max_length=200, blank=True)
    health_text = models.JSONField(
        null=True, blank=True, help_text="Code and facts of `health_reason`; null in old rows."
    )
    drain_by = models.DateTimeField(
        null=True, blank=True, help_text="When work must have left; null: it runs to its end."
    )
    needs_operator = models.BooleanField(
        db_default=False, default=False, help_text="Only an operator can make it healthy again."
    )

    # Mode
    mode = models.CharField(
        max_length=8, choices=Mode.choices, default=Mode.WHOLE, help_text="As the agent read it."
    )
    mode_wanted = models.CharField(
        max_length=8,
        choices=HARDWARE_MODES,
        blank=True,
        default="",
        db_default="",
        help_text="Mode that the node was asked to set.",
    )
    mode_wanted_at = models.DateTimeField(null=True, blank=True)
    mode_pinned = models.CharField(
        max_length=8,
        choices=HARDWARE_MODES,
        blank=True,
        default="",
        db_default="",
        help_text="Mode that an operator fixed.",
    )

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
                condition=Q(health_text__isnull=True) | ~Q(health_reason=""),
                name="gpu_health_text_is_reason",
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

    @staticmethod
    def health_columns(health: str, why: FleetText | None = None) -> dict[str, Any]:
        """The columns of a health and its reason."""
        reason = "" if why is None else str(why)[:200]
        text = None if why is None else why.data()
        return {"health": health, "health_reason": reason, "health_text": text}

    def health_set(self, health: str, why: FleetText | None = None) -> None:
        """Sets the health and its reason. Not saved; `HEALTH_FIELDS` names the columns."""
        for name, value in self.health_columns(health, why).items():
            setattr(self, name, value)

    @property
    def health_words(self) -> str:
        """The reason of the health in the reader's language."""
        return fleet_sentence(self.health_text or self.health_reason)
