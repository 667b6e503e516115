"""Allocations: planned and running time of a booking on GPUs, and what occupies the hardware."""

import uuid

from django.contrib.postgres.fields import BigIntegerRangeField, DateTimeRangeField
from django.db import models
from django.db.models import F, Q

from allocation.models.bookings import Booking
from allocation.models.fleet.hardware import Gpu, GpuModel
from tenants.models import Project, Tenant


class Allocation(models.Model):
    """A period on one GPU or a part of it, given to a booking. A plan, until it has started.

    The exclusion constraint over (slots, period) of live rows is the rule "no double booking"; the
    foreign keys to the GPU's identity and to the legal placements are the rule "only what the
    hardware can do". A row in the mode `shared` has `share`; a trigger keeps the sum of shares of a
    GPU within the whole at every instant and skips a row that does not fit.
    """

    class State(models.TextChoices):
        PLANNED = "planned", "Planned"
        STARTING = "starting", "Starting"
        ACTIVE = "active", "Active"
        RELEASING = "releasing", "Releasing"
        ENDED = "ended", "Ended"
        SUPERSEDED = "superseded", "Superseded"

    LIVE = ("planned", "starting", "active", "releasing")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    booking = models.ForeignKey(
        Booking, on_delete=models.PROTECT, related_name="allocations", db_constraint=False
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_constraint=False)
    decision = models.ForeignKey(
        "allocation.Decision", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    # Place
    gpu = models.ForeignKey(Gpu, on_delete=models.PROTECT)
    gpu_number = models.BigIntegerField()
    model = models.ForeignKey(GpuModel, on_delete=models.PROTECT)
    mode = models.CharField(max_length=8, choices=Gpu.Mode.choices)
    profile = models.CharField(max_length=24, null=True, blank=True)  # noqa: DJ001 a null profile switches the placement key off
    start = models.PositiveSmallIntegerField(help_text="First memory slot of the slice.")
    size = models.PositiveSmallIntegerField(help_text="Memory slots of the slice; 8 are a GPU.")
    share = models.PositiveSmallIntegerField(null=True, blank=True, help_text="Thousandths of a shared GPU.")
    slots = models.GeneratedField(
        expression=models.Func(
            F("gpu_number") * 8 + F("start"),
            F("gpu_number") * 8 + F("start") + F("size"),
            function="int8range",
            output_field=BigIntegerRangeField(),
        ),
        output_field=BigIntegerRangeField(),
        db_persist=True,
        help_text="[8 * gpu_number + start, + size): unique slots over all GPUs.",
    )
    units = models.BigIntegerField(help_text="Quota and price units of the place.")
    period = DateTimeRangeField()

    # Grant: who was first among equals
    granted_cycle = models.BigIntegerField(
        null=True, blank=True, help_text="The decision that wrote this row; null for older rows."
    )
    granted_position = models.PositiveIntegerField(
        null=True, blank=True, help_text="Its booking's place in the queue of that decision."
    )
    preemptor = models.BooleanField(
        db_default=False, default=False, help_text="Another booking was paused for this row."
    )
    extended_from = models.DateTimeField(
        null=True, blank=True, help_text="From here on the row has the grant of its extension."
    )
    extended_cycle = models.BigIntegerField(
        null=True, blank=True, help_text="The decision that granted the extension."
    )

    # Run
    state = models.CharField(max_length=12, choices=State.choices, default=State.PLANNED)
    devices = models.JSONField(default=list, help_text="Device names that the agent reported.")
    job = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Number of the job by which the node's engine holds the device."
    )
    host = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Where that job runs, if its node is a slot of a pool; else empty.",
    )
    agent_steps = models.JSONField(
        null=True,
        blank=True,
        help_text="Name, start and length in ms of what its agent did until it was ready; null "
        "unless traces are on, or data was fetched.",
    )
    error = models.CharField(max_length=200, blank=True, help_text="Why the agent failed to start.")
    saved_at = models.DateTimeField(
        null=True, blank=True, help_text="Last save here, as the agent reported it."
    )
    suspended = models.BooleanField(
        db_default=False, default=False, help_text="Its processes are suspended on the node."
    )
    leased = models.BooleanField(
        db_default=False, default=False, help_text="The node ends it when its lease runs out."
    )
    abandoned = models.BooleanField(
        db_default=False,
        default=False,
        help_text="The booking continues without it; only the proof of empty hardware is due.",
    )
    counted_seconds = models.PositiveIntegerField(
        db_default=0, default=0, help_text="Charged time of the run that was abandoned here."
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(mode="whole", profile=None, start=0, size=8, share=None)
                | Q(mode="sliced", profile__isnull=False, share=None)
                | Q(mode="shared", profile=None, start=0, size=8, share__gte=1, share__lte=999),
                name="allocation_mode_fits",
            ),
            models.CheckConstraint(condition=Q(units__gt=0), name="allocation_units"),
            models.CheckConstraint(
                condition=Q(abandoned=False) | Q(state__in=["releasing", "ended"]),
                name="allocation_abandoned_is_over",
            ),
            models.CheckConstraint(
                condition=Q(granted_cycle=None, granted_position=None)
                | Q(granted_cycle__isnull=False, granted_position__isnull=False),
                name="allocation_grant_whole",
            ),
            models.CheckConstraint(
                condition=Q(extended_from=None, extended_cycle=None)
                | Q(extended_from__isnull=False, extended_cycle__isnull=False),
                name="allocation_extension_whole",
            ),
        ]
        indexes = [
            models.Index(fields=["booking"], name="allocation_of_booking"),
        ]


class Occupancy(models.Model):
    """The real use of hardware: opened before a node starts a booking, closed on proof of empty."""

    id = models.BigAutoField(primary_key=True)
    allocation = models.OneToOneField(Allocation, on_delete=models.PROTECT)
    gpu = models.ForeignKey(Gpu, on_delete=models.PROTECT)
    slots = BigIntegerRangeField()
    share = models.PositiveSmallIntegerField(null=True, blank=True, help_text="Thousandths of a shared GPU.")
    opened = models.DateTimeField()
    closed = models.DateTimeField(null=True, blank=True)
