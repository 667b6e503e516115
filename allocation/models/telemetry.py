"""What agents measured. Null is unknown, never zero."""

from django.db import models

from allocation.models.hardware import Gpu
from tenants.models import Tenant


class GpuSample(models.Model):
    """One reading of a GPU (slot null) or of one slice on it.

    `tenant` is whose allocation was measured: another tenant never sees how hard it works.
    """

    id = models.BigAutoField(primary_key=True)
    gpu = models.ForeignKey(Gpu, on_delete=models.CASCADE)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True)
    slot = models.PositiveSmallIntegerField(null=True, blank=True)
    allocation_id = models.UUIDField(null=True, blank=True)
    at = models.DateTimeField()
    utilisation = models.PositiveSmallIntegerField(null=True, blank=True)
    memory_used_mb = models.PositiveIntegerField(null=True, blank=True)
    memory_total_mb = models.PositiveIntegerField(null=True, blank=True)
    power_mw = models.PositiveIntegerField(null=True, blank=True)
    temperature_c = models.PositiveSmallIntegerField(null=True, blank=True)
    processes = models.PositiveSmallIntegerField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["gpu", "-at"], name="sample_latest"),
            models.Index(fields=["allocation_id", "-at"], name="sample_of_allocation"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(utilisation=None) | models.Q(utilisation__lte=100),
                name="sample_utilisation_percent",
            ),
        ]
