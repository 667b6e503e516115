"""Series of bookings, and the speed of workloads on each class."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from tenants.models import GpuClass, Project, Tenant

NO_LABELS = models.Value({}, output_field=models.JSONField())


class Series(models.Model):
    """A request for many dates. Each date is a booking."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_constraint=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT)
    name = models.CharField(max_length=80, blank=True)
    labels = models.JSONField(
        default=dict, db_default=NO_LABELS, blank=True, help_text="Those of its bookings."
    )
    external_ref = models.CharField(
        max_length=500, blank=True, default="", db_default="", help_text="URL or key of a ticket."
    )
    rule = models.CharField(max_length=120, help_text="RRULE, in local time.")
    zone = models.CharField(max_length=64, help_text="Time zone of the rule.")
    first = models.DateTimeField(help_text="Start of the first date.")
    is_partial = models.BooleanField(
        default=False, help_text="Dates are decided one by one; otherwise all or none."
    )
    keeps_end = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Each date ends at the same local time; otherwise each has the same length.",
    )
    skipped = models.JSONField(default=list, help_text="Dates that the calendar does not have.")
    failed = models.JSONField(
        default=list,
        help_text="Dates of a partial series that were refused: {starts, code, sentence}.",
    )
    created = models.DateTimeField()

    class Meta:
        ordering = ["-created", "id"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="series_id_in_tenant"),
            models.CheckConstraint(condition=Q(external_ref__regex=r"^\S*$"), name="series_reference_sane"),
            models.CheckConstraint(
                condition=Q(is_partial=True) | Q(failed=[]), name="series_whole_has_no_failed"
            ),
        ]


class WorkSpeed(models.Model):
    """The speed of a workload on a class, relative to its other classes."""

    workload = models.SlugField(max_length=40)
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    thousandths = models.PositiveIntegerField(help_text="1000 is the speed of a reference class.")

    class Meta:
        ordering = ["workload", "gpu_class"]
        constraints = [
            models.UniqueConstraint(fields=["workload", "gpu_class"], name="work_speed_once"),
            models.CheckConstraint(
                condition=Q(thousandths__gte=1, thousandths__lte=1_000_000),
                name="work_speed_sane",
            ),
        ]
