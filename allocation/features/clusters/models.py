"""Tables of observed clusters: what another system runs, as its own records say."""

from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from tenants.models import GpuClass, Project, Tenant


class ObservedCluster(models.Model):
    """A cluster whose jobs are read. The portal decides nothing on it."""

    slug = models.SlugField(primary_key=True, max_length=40)
    engine = models.CharField(
        max_length=12, choices=[("slurm", "Slurm"), ("kubernetes", "Kubernetes")], default="slurm"
    )
    created = models.DateTimeField()
    read_at = models.DateTimeField(help_text="When records were read last.")

    class Meta:
        ordering: ClassVar = ["slug"]


class ObservedAccount(models.Model):
    """An account of a cluster, and the project whose work its jobs are."""

    cluster = models.ForeignKey(ObservedCluster, on_delete=models.PROTECT)
    name = models.CharField(max_length=64)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)

    class Meta:
        ordering: ClassVar = ["cluster", "name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["cluster", "name"], name="observed_account_once"),
            models.CheckConstraint(
                condition=Q(tenant=None, project=None) | Q(tenant__isnull=False, project__isnull=False),
                name="observed_account_of_project",
            ),
        ]

    @property
    def path(self) -> str:
        """Its project with the organisation, such as helix/vision; empty: nobody's."""
        return f"{self.project.tenant.slug}/{self.project.slug}" if self.project else ""


class ObservedType(models.Model):
    """A type of GPU by the name that a cluster has for it, and the class that it is here."""

    cluster = models.ForeignKey(ObservedCluster, on_delete=models.PROTECT)
    name = models.CharField(max_length=64, blank=True, help_text="Empty: the cluster has no types.")
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT, null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["cluster", "name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["cluster", "name"], name="observed_type_once"),
        ]


class ObservedJob(models.Model):
    """A job with GPUs of one type, as the cluster's records say."""

    cluster = models.ForeignKey(ObservedCluster, on_delete=models.PROTECT)
    number = models.CharField(max_length=64)
    account = models.CharField(max_length=64, blank=True)
    tenant = models.ForeignKey(
        Tenant,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        help_text="The account's; null: operators' only.",
    )
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)
    gpu_type = models.CharField(max_length=64, blank=True)
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT, null=True, blank=True)
    gpus = models.PositiveIntegerField()
    person = models.CharField(max_length=64, blank=True, help_text="Its owner's account on the cluster.")
    partition = models.CharField(max_length=64, blank=True)
    state = models.CharField(max_length=24)
    nodes = models.TextField(blank=True)
    submitted = models.DateTimeField()
    eligible = models.DateTimeField()
    started = models.DateTimeField(null=True, blank=True)
    ended = models.DateTimeField(null=True, blank=True)
    limit_seconds = models.PositiveBigIntegerField(null=True, blank=True)
    is_booking = models.BooleanField(help_text="It holds the devices of a booking, which counts by itself.")
    read_at = models.DateTimeField(help_text="What runs then is known to run until then.")

    class Meta:
        ordering: ClassVar = ["cluster", "submitted", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "number", "submitted", "gpu_type"], name="observed_job_once"
            ),
            models.CheckConstraint(condition=Q(gpus__gt=0), name="observed_job_gpus"),
            models.CheckConstraint(
                condition=Q(eligible__gte=F("submitted"))
                & (Q(started=None) | Q(started__gte=F("submitted")))
                & (Q(ended=None) | Q(ended__gte=F("submitted")))
                & (Q(ended=None) | Q(started=None) | Q(ended__gte=F("started"))),
                name="observed_job_times",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["cluster", "started"], name="observed_job_started"),
            models.Index(fields=["read_at"], name="observed_job_read"),
        ]
