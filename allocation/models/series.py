"""What repeats, and how fast work goes on each class."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from tenants.models import GpuClass, Project, Tenant


class Series(models.Model):
    """One wish for many dates: `rule` (RRULE) from `first` on, in wall clock time of `zone`.

    Its bookings point to it. With `is_partial` the dates are decided one by one; else all of them
    are had or none. `skipped` are dates that the calendar does not have; `failed` are those of a
    partial series that could not even be asked for: `{starts, code, sentence}`.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_constraint=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT)
    name = models.CharField(max_length=80, blank=True)
    rule = models.CharField(max_length=120)
    zone = models.CharField(max_length=64)
    first = models.DateTimeField()
    is_partial = models.BooleanField(default=False)
    skipped = models.JSONField(default=list)
    failed = models.JSONField(default=list)
    created = models.DateTimeField()

    class Meta:
        ordering = ["-created", "id"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="series_id_in_tenant"),
            models.CheckConstraint(
                condition=Q(is_partial=True) | Q(failed=[]), name="series_whole_has_no_failed"
            ),
        ]


class WorkSpeed(models.Model):
    """How fast a kind of work goes on a class, in thousandths of any one class that is 1000."""

    workload = models.SlugField(max_length=40)
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    thousandths = models.PositiveIntegerField()

    class Meta:
        ordering = ["workload", "gpu_class"]
        constraints = [
            models.UniqueConstraint(fields=["workload", "gpu_class"], name="work_speed_once"),
            models.CheckConstraint(
                condition=Q(thousandths__gte=1, thousandths__lte=1_000_000),
                name="work_speed_sane",
            ),
        ]
