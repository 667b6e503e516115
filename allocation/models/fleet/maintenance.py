"""Planned maintenance, and the history of nodes and GPUs."""

import uuid
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q, Value

from allocation.models.fleet.hardware import Gpu, Node
from allocation.models.fleet.zones import Rack
from allocation.words.fleet import FleetText, fleet_sentence


class Maintenance(models.Model):
    """A period [starts, ends) in which a rack, a node or a GPU takes no bookings.

    Each date of a repeated maintenance is a row; the rows share a `series`.
    """

    class Event(models.TextChoices):
        """What programs are notified of: `maintenance.planned` and so on."""

        PLANNED = "planned", "Planned"
        STARTED = "started", "Started"
        ENDED = "ended", "Ended"
        CANCELLED = "cancelled", "Cancelled"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    rack = models.ForeignKey(Rack, on_delete=models.PROTECT, null=True, blank=True)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, null=True, blank=True)
    gpu = models.ForeignKey(Gpu, on_delete=models.PROTECT, null=True, blank=True)
    starts = models.DateTimeField()
    ends = models.DateTimeField()
    drain_by = models.DateTimeField(help_text="When running work must have left.")
    reason = models.CharField(max_length=120)
    created = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT)
    ended_at = models.DateTimeField(
        null=True, blank=True, help_text="Set if it was cancelled or ended early."
    )

    revision = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Rises when its window or reason changes or it ends."
    )
    changed_at = models.DateTimeField(
        null=True, blank=True, help_text="Time of the last such change; null: none."
    )

    last_event = models.CharField(
        max_length=9,
        choices=Event,
        default=Event.PLANNED,
        db_default="planned",
        help_text="The last of its events that was sent to programs.",
    )

    # Repetition
    series = models.UUIDField(null=True, blank=True)
    rule = models.CharField(
        max_length=120, blank=True, db_default="", default="", help_text="RRULE, in local time."
    )
    zone = models.CharField(
        max_length=64, blank=True, db_default="", default="", help_text="Time zone of the rule."
    )
    skipped = models.JSONField(
        default=list,
        db_default=Value([], models.JSONField()),
        blank=True,
        help_text="Days of the rule that the calendar does not have.",
    )

    class Meta:
        ordering = ["starts", "id"]
        indexes = [
            models.Index(fields=["ends"], name="maintenance_open", condition=Q(ended_at=None)),
            models.Index(
                fields=["starts"],
                name="maintenance_to_announce",
                condition=Q(last_event__in=("planned", "started")),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(rack__isnull=False, node=None, gpu=None)
                | Q(rack=None, node__isnull=False, gpu=None)
                | Q(rack=None, node=None, gpu__isnull=False),
                name="maintenance_of_one_thing",
            ),
            models.CheckConstraint(
                condition=Q(starts__lt=F("ends"), drain_by__gte=F("starts")) & Q(drain_by__lte=F("ends")),
                name="maintenance_window_sane",
            ),
            models.CheckConstraint(
                condition=Q(series=None, rule="", zone="")
                | Q(Q(series__isnull=False), ~Q(rule=""), ~Q(zone="")),
                name="maintenance_repeats_by_a_rule",
            ),
            models.UniqueConstraint(fields=["series", "starts"], name="maintenance_once_a_date"),
        ]

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"

    @property
    def where(self) -> str:
        """The hardware in words: `rack a1`, `gpu-a1-01`, `GPU 3 of gpu-a1-01`."""
        if self.gpu is not None:
            return f"GPU {self.gpu.index} of {self.gpu.node.name}"
        return self.node.name if self.node is not None else f"rack {self.rack}"

    def covers(self, gpu: Gpu) -> bool:
        """Whether the GPU is part of it. The GPU's node must be loaded."""
        return gpu.id == self.gpu_id or gpu.node_id == self.node_id or gpu.node.rack_id == self.rack_id

    def stage(self, now: datetime) -> str:
        """Returns `planned`, `running`, `over` or `called_off`."""
        if self.ended_at is not None:
            return "called_off" if self.ended_at <= self.starts else "over"
        if now >= self.ends:
            return "over"
        return "running" if now >= self.starts else "planned"


class GpuEvent(models.Model):
    """A line in the history of a GPU, or of its node if `gpu` is null, for operators.

    An event of a kind in `LASTING` lasts from `at` until `until`, which is null while it lasts. All
    others are points in time.
    """

    class Kind(models.TextChoices):
        XID = "xid", "Error"
        ECC = "ecc", "Memory error"
        LOST = "lost", "Not found"
        DRIFT = "drift", "Slices made by hand"
        UNBOOKED = "unbooked", "Unbooked use"
        OUTSIDE = "outside", "Use outside the booking"
        HANG = "hang", "Driver hangs"
        UNREACHABLE = "unreachable", "Unreachable"
        SLOW = "slow", "Slow start"
        MODE = "mode", "Mode change"
        WARNED = "warned", "Users warned"
        ASKED = "asked", "Asked to end"
        KILLED = "killed", "Ended"
        CONFLICT = "conflict", "Contradiction"
        OPERATOR = "operator", "Operator"

    UNBOOKED_USE = (Kind.DRIFT.value, Kind.UNBOOKED.value, Kind.OUTSIDE.value)
    LASTING = (
        *UNBOOKED_USE,
        Kind.HANG.value,
        Kind.UNREACHABLE.value,
        Kind.SLOW.value,
        Kind.MODE.value,
    )

    id = models.BigAutoField(primary_key=True)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="events")
    gpu = models.ForeignKey(Gpu, on_delete=models.CASCADE, null=True, blank=True)
    kind = models.CharField(max_length=12, choices=Kind.choices)
    code = models.IntegerField(null=True, blank=True, help_text="XID or other error code.")
    instance = models.CharField(max_length=80, blank=True, help_text="UUID of the MIG instance.")
    slot = models.SmallIntegerField(null=True, blank=True, help_text="First slot of the instance.")
    at = models.DateTimeField()
    until = models.DateTimeField(null=True, blank=True)
    sentence = models.CharField(max_length=300)
    text = models.JSONField(
        null=True, blank=True, help_text="Code and facts of `sentence`; null in old rows."
    )

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["node", "-id"], name="gpu_event_of_node")]
        constraints = [
            # An agent repeats its latest errors in every report; each is stored once.
            models.UniqueConstraint(
                fields=["gpu", "kind", "code", "instance", "at"],
                condition=Q(kind__in=["xid", "ecc", "warned", "asked", "killed"]),
                name="gpu_error_once",
            ),
            models.UniqueConstraint(
                fields=["gpu", "kind", "slot"],
                condition=Q(kind__in=["drift", "unbooked", "outside", "hang"], until=None),
                nulls_distinct=False,
                name="gpu_condition_once",
            ),
            models.UniqueConstraint(
                fields=["node", "kind"],
                condition=Q(kind__in=["unreachable", "slow"], until=None),
                name="node_condition_once",
            ),
            models.UniqueConstraint(
                fields=["gpu"], condition=Q(kind="mode", until=None), name="gpu_mode_change_once"
            ),
        ]

    @staticmethod
    def text_columns(text: FleetText) -> dict[str, Any]:
        """The columns of a sentence."""
        return {"sentence": str(text)[:300], "text": text.data()}

    @property
    def words(self) -> str:
        """The sentence in the reader's language."""
        return fleet_sentence(self.text or self.sentence)

    @property
    def is_open(self) -> bool:
        """Whether it still lasts."""
        return self.kind in self.LASTING and self.until is None
