"""Labs, which group the projects of a tenant, and limits of labs, of persons and at times."""

import uuid

from django.db import models
from django.db.models import F, Q

from tenants.models.organisations import GpuClass, Lab, Project, Tenant
from tenants.models.people import User


class LabLead(models.Model):
    """A person who sets the quotas of a lab's projects inside what the lab has."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    lab = models.ForeignKey(Lab, on_delete=models.PROTECT, db_constraint=False)
    user = models.ForeignKey(User, on_delete=models.PROTECT)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["lab", "user"], name="lab_lead_once")]


class LabQuota(models.Model):
    """Units of a class that all projects of a lab may use together at any instant, as in `Quota`.

    The guarantee is part of the tenant's and covers what the lab's projects are guaranteed.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    lab = models.ForeignKey(Lab, on_delete=models.PROTECT, db_constraint=False)
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    guaranteed_units = models.BigIntegerField(default=0)
    borrow_limit_units = models.BigIntegerField(
        null=True, blank=True, help_text="Most units above the guarantee; null is no limit."
    )
    lend_limit_units = models.BigIntegerField(
        null=True, blank=True, help_text="Most idle units that others may borrow; null is all."
    )

    # In a period
    cap_gpu_hours = models.PositiveIntegerField(null=True, blank=True)
    cap_days = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Any such number of days in a row; null is a UTC month."
    )
    cap_carries = models.BooleanField(
        db_default=False, default=False, help_text="Adds the unused hours of the month before."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["lab", "gpu_class"], name="lab_quota_once"),
            models.CheckConstraint(
                condition=Q(cap_gpu_hours=None, cap_days=None, cap_carries=False)
                | Q(cap_gpu_hours__gt=0, cap_days=None)
                | Q(cap_gpu_hours__gt=0, cap_days__gte=1, cap_days__lte=31, cap_carries=False),
                name="lab_quota_cap_fits",
            ),
            models.CheckConstraint(
                condition=Q(guaranteed_units__gte=0)
                & (Q(borrow_limit_units=None) | Q(borrow_limit_units__gte=0))
                & (Q(lend_limit_units=None) | Q(lend_limit_units__gte=0)),
                name="lab_quota_never_negative",
            ),
        ]

    @property
    def limit_units(self) -> int | None:
        """The most units at any instant: guarantee + borrow limit; None without a limit."""
        if self.borrow_limit_units is None:
            return None
        return self.guaranteed_units + self.borrow_limit_units


class PersonQuota(models.Model):
    """The most units of a class that a person uses at once in a project, or in the whole tenant.

    Without a person it is the limit of everybody who has none of their own there.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)
    user = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True)
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    limit_units = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "project", "user", "gpu_class"],
                name="person_quota_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(condition=Q(limit_units__gte=0), name="person_quota_never_negative"),
        ]


class QuotaWindow(models.Model):
    """Another limit of a tenant, lab or project at some times: between dates, at hours of the day.

    It replaces guarantee + borrow limit as the most units at once; guarantees stay. Where several
    apply the lowest counts. Days and hours are by the clocks of the zone. With a person it is the
    limit of that person in the project, or in the whole tenant.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    lab = models.ForeignKey(Lab, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)
    user = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    limit_units = models.BigIntegerField()

    # When
    first_day = models.DateField(null=True, blank=True)
    last_day = models.DateField(null=True, blank=True, help_text="The last day on which it begins.")
    weekdays = models.JSONField(default=list, help_text="Monday is 0; empty is every day.")
    first_hour = models.PositiveSmallIntegerField(default=0)
    end_hour = models.PositiveSmallIntegerField(
        default=24, help_text="Not later than the first hour: on the next day."
    )
    zone = models.CharField(max_length=64, default="UTC")

    created = models.DateTimeField()
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    class Meta:
        ordering = ["gpu_class", "created", "id"]
        constraints = [
            models.CheckConstraint(condition=Q(limit_units__gte=0), name="quota_window_never_negative"),
            models.CheckConstraint(condition=Q(lab=None) | Q(project=None), name="quota_window_of_one_owner"),
            models.CheckConstraint(
                condition=Q(user=None) | Q(lab=None), name="quota_window_no_person_of_a_lab"
            ),
            models.CheckConstraint(
                condition=Q(first_hour__lte=23, end_hour__gte=1, end_hour__lte=24),
                name="quota_window_hours",
            ),
            models.CheckConstraint(
                condition=Q(first_day=None) | Q(last_day=None) | Q(first_day__lte=F("last_day")),
                name="quota_window_days",
            ),
        ]

    @property
    def is_of_tenant(self) -> bool:
        """Whether it limits the whole tenant: its operators set it."""
        return self.project_id is None and self.lab_id is None and self.user_id is None


class TierGuarantee(models.Model):
    """Units of a tenant's guarantee of a class that count for bookings of some tiers only.

    Bookings of other tiers use what the guarantee has above that, at each instant.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    units = models.BigIntegerField()
    tiers = models.JSONField(help_text="Slugs, in order.")
    changed = models.DateTimeField()
    changed_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    class Meta:
        ordering = ["gpu_class", "id"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "gpu_class"], name="tier_guarantee_once"),
            models.CheckConstraint(condition=Q(units__gt=0), name="tier_guarantee_positive"),
        ]


class DatedGuarantee(models.Model):
    """Another guarantee of a tenant, lab or project between two instants, in place of that of its quota.

    With a borrow limit the most units at once rise and fall with it. Those of an owner and class that
    have not ended do not overlap; the migration has the constraint.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    lab = models.ForeignKey(Lab, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    guaranteed_units = models.BigIntegerField()
    starts = models.DateTimeField()
    ends = models.DateTimeField()

    created = models.DateTimeField()
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    ended = models.DateTimeField(null=True, blank=True, help_text="When somebody ended it early.")
    ended_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True, related_name="+")

    class Meta:
        ordering = ["starts", "id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(guaranteed_units__gte=0), name="dated_guarantee_never_negative"
            ),
            models.CheckConstraint(
                condition=Q(lab=None) | Q(project=None), name="dated_guarantee_of_one_owner"
            ),
            models.CheckConstraint(condition=Q(starts__lt=F("ends")), name="dated_guarantee_lasts"),
            models.CheckConstraint(
                condition=Q(ended=None, ended_by=None)
                | Q(ended__isnull=False, ended_by__isnull=False, ended__gte=F("created")),
                name="dated_guarantee_ended_by_somebody",
            ),
        ]

    @property
    def is_of_tenant(self) -> bool:
        """Whether the whole tenant is guaranteed it: its operators set it."""
        return self.project_id is None and self.lab_id is None

    @property
    def owner_id(self) -> uuid.UUID:
        """Whose guarantee it is: the project, the lab, or else the tenant."""
        return self.project_id or self.lab_id or self.tenant_id

    @property
    def owner_name(self) -> str:
        """The name of the project, the lab, or else the tenant."""
        return (self.project or self.lab or self.tenant).name
