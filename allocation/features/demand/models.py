"""Tables of demand: what each hour had, and the forecasts that were made. Neither names a tenant."""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from allocation.models import Gpu
from tenants.models import GpuClass


class DemandKind(models.TextChoices):
    """What is forecast of a class in an hour."""

    REQUESTED = "requested", "GPUs asked for"
    IN_USE = "in_use", "GPUs in use"
    WANTED = "wanted", "GPUs in use and waited for"


class DemandHour(models.Model):
    """What a class had in a full hour, of all organisations together. A slice counts by its size."""

    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    at = models.DateTimeField(help_text="The hour's begin.")
    requested = models.FloatField(help_text="GPUs that bookings asked for in it.")
    in_use = models.FloatField(help_text="GPUs that bookings had, on average.")
    wanted = models.FloatField(help_text="These, and the GPUs of bookings that waited.")

    class Meta:
        ordering: ClassVar = ["gpu_class", "at"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["gpu_class", "at"], name="demand_hour_once"),
            models.CheckConstraint(
                condition=Q(requested__gte=0, in_use__gte=0, wanted__gte=0), name="demand_hour_positive"
            ),
        ]


class DemandForecast(models.Model):
    """A forecast of the 336 hours from `at` on, as it was made then."""

    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    kind = models.CharField(max_length=12, choices=DemandKind.choices)
    at = models.DateTimeField(help_text="The first hour that it forecasts, in which it was made.")
    low = ArrayField(models.FloatField(), help_text="8 in 10 hours are expected between low and high.")
    middle = ArrayField(models.FloatField())
    high = ArrayField(models.FloatField())
    hits = models.JSONField(
        help_text="By hours ahead: how many hours of the last four weeks kept forecasts had in their bands,"
        " of how many, and how far off they were on average in GPUs."
    )

    class Meta:
        ordering: ClassVar = ["gpu_class", "kind", "-at"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["gpu_class", "kind", "at"], name="demand_forecast_once"),
        ]


class HeadroomHour(models.Model):
    """An hour in which GPUs of a class were kept free for starts at once, and what that gave and cost."""

    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    at = models.DateTimeField(help_text="The hour's begin.")
    gpus = models.PositiveIntegerField(help_text="GPUs that were kept free.")
    there = models.PositiveIntegerField(help_text="GPUs of the class.")
    counted = models.BooleanField(default=False, help_text="Whether the hour is over and counted.")
    served = models.PositiveIntegerField(
        default=0, help_text="Short bookings that started at once on GPUs that were kept free."
    )
    idle = models.FloatField(default=0, help_text="GPU-hours of them that nobody used.")
    waited = models.FloatField(default=0, help_text="Of these, while others waited for the class.")

    class Meta:
        ordering: ClassVar = ["gpu_class", "at"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["gpu_class", "at"], name="headroom_hour_once"),
            models.CheckConstraint(condition=Q(idle__gte=0, waited__gte=0), name="headroom_hour_positive"),
        ]


class SliceAhead(models.Model):
    """A slice that a node makes, or made, on an empty GPU ahead of a request that was expected."""

    gpu = models.ForeignKey(Gpu, on_delete=models.PROTECT)
    profile = models.CharField(max_length=24)
    profile_id = models.PositiveIntegerField()
    start = models.PositiveSmallIntegerField(help_text="Its first memory slot.")
    size = models.PositiveSmallIntegerField()
    ordered = models.DateTimeField()
    closed = models.DateTimeField(
        null=True, blank=True, help_text="When it was taken, or no longer expected."
    )
    taken = models.BooleanField(default=False, help_text="Whether a booking started on it.")
    reset_seconds = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Of the reset that its GPU needed first; 0: none."
    )
    ready_seconds = models.FloatField(
        null=True, blank=True, help_text="From the order to start that booking until its device was ready."
    )

    class Meta:
        ordering: ClassVar = ["ordered", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["gpu", "start"], condition=Q(closed=None), name="slice_ahead_once"
            ),
            models.CheckConstraint(
                condition=Q(closed=None, taken=False) | Q(closed__gte=models.F("ordered")),
                name="slice_ahead_closed",
            ),
        ]
