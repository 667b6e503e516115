"""Measurements by agents: readings for two days, five-minute rows for 90 days, sums by hour for 400. Null
is unknown, never zero."""

from typing import TYPE_CHECKING, Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from allocation.models.fleet.hardware import Gpu
from tenants.models import Tenant

if TYPE_CHECKING:
    _Float = models.FloatField[float, float]
else:
    _Float = models.FloatField  # It is generic in its stubs only.


def _small() -> "models.PositiveSmallIntegerField[int | None, int | None]":
    return models.PositiveSmallIntegerField(null=True, blank=True)


def _number() -> "models.PositiveIntegerField[int | None, int | None]":
    return models.PositiveIntegerField(null=True, blank=True)


def _large() -> "models.PositiveBigIntegerField[int | None, int | None]":
    return models.PositiveBigIntegerField(null=True, blank=True)


class GpuSample(models.Model):
    """One reading of a GPU (`slot` null) or of a slice, visible to the tenant of the allocation.

    Utilisation, memory bandwidth, SM and tensor activity are percentages; PCIe and NVLink are KiB per
    second. `throttle` has NVML's reasons for a reduced clock as bits. `energy_mj` counts since the
    driver was loaded.
    """

    id = models.BigAutoField(primary_key=True)
    gpu = models.ForeignKey(Gpu, on_delete=models.CASCADE)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True)
    slot = _small()
    allocation_id = models.UUIDField(null=True, blank=True)
    at = models.DateTimeField()
    utilisation = _small()
    memory_used_mb = _number()
    memory_total_mb = _number()
    power_mw = _number()
    temperature_c = _small()
    processes = _small()
    bandwidth = _small()
    tensor = _small()
    sm_mhz = _number()
    throttle = _large()
    pcie_rx_kb = _number()
    pcie_tx_kb = _number()
    nvlink_rx_kb = _number()
    nvlink_tx_kb = _number()
    energy_mj = _large()
    sm = _small()

    class Meta:
        indexes = [
            models.Index(fields=["at"], name="sample_age"),
            models.Index(fields=["allocation_id", "-at"], name="sample_of_allocation"),
        ]
        constraints = [
            # Times are rounded down to five seconds, so a repeated reading is one row.
            models.UniqueConstraint(fields=["gpu", "at", "slot"], name="sample_once", nulls_distinct=False),
            models.CheckConstraint(
                condition=Q(utilisation=None) | Q(utilisation__lte=100),
                name="sample_utilisation_percent",
            ),
            models.CheckConstraint(
                condition=(Q(bandwidth=None) | Q(bandwidth__lte=100)) & (Q(tensor=None) | Q(tensor__lte=100)),
                name="sample_percents",
            ),
            models.CheckConstraint(condition=Q(sm=None) | Q(sm__lte=100), name="sample_sm_percent"),
            models.CheckConstraint(
                condition=Q(tenant=None, allocation_id=None)
                | Q(tenant__isnull=False, allocation_id__isnull=False),
                name="sample_whose",
            ),
        ]


class GpuUse(models.Model):
    """Five minutes from `at` of a GPU or a slice under one allocation, or without one.

    Readings cover `seconds`, and `measured` of them include the utilisation. Averages are weighted
    by time. `pcie_kb` and `nvlink_kb` are KiB per second in both directions together; `energy_mj`
    is the energy of the five minutes; `throttled` are seconds with a clock reduced by heat or
    power.
    """

    id = models.BigAutoField(primary_key=True)
    gpu = models.ForeignKey(Gpu, on_delete=models.CASCADE, db_index=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True, db_index=False)
    slot = _small()
    allocation_id = models.UUIDField(null=True, blank=True)
    at = models.DateTimeField()
    seconds = models.PositiveSmallIntegerField()
    measured = models.PositiveSmallIntegerField()
    busy_min = _small()
    busy_avg = models.FloatField(null=True, blank=True)
    busy_max = _small()
    memory_avg_mb = _number()
    memory_max_mb = _number()
    memory_total_mb = _number()
    power_avg_mw = _number()
    power_max_mw = _number()
    temperature_max_c = _small()
    processes_max = _small()
    bandwidth_avg = models.FloatField(null=True, blank=True)
    tensor_avg = models.FloatField(null=True, blank=True)
    pcie_kb = _number()
    nvlink_kb = _number()
    throttled = _small()
    energy_mj = _large()
    sm_avg = models.FloatField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["at"], name="use_age"),
            models.Index(
                fields=["allocation_id", "at"],
                name="use_of_allocation",
                condition=Q(allocation_id__isnull=False),
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["gpu", "at", "slot", "allocation_id"],
                name="use_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=Q(measured__lte=models.F("seconds")) & Q(seconds__lte=300),
                name="use_seconds",
            ),
            models.CheckConstraint(
                condition=Q(measured=0, busy_avg=None)
                | Q(measured__gt=0, busy_avg__gte=0, busy_avg__lte=100),
                name="use_measured_or_null",
            ),
            models.CheckConstraint(
                condition=Q(tenant=None, allocation_id=None)
                | Q(tenant__isnull=False, allocation_id__isnull=False),
                name="use_whose",
            ),
        ]


class RealField(_Float):
    """A number of four bytes, exact to 24 bits."""

    def db_type(self, connection: Any) -> str:  # noqa: ANN401 (Django's)
        """As PostgreSQL names it."""
        return "real"


def _seconds() -> "ArrayField[list[int], list[int]]":
    return ArrayField(models.PositiveSmallIntegerField())


def _sums() -> "ArrayField[list[float], list[float]]":
    return ArrayField(RealField())


class GpuUseDay(models.Model):
    """The five-minute rows of an allocation on a UTC day, summed up by hour.

    Each list has a value for each of `hours`, those with rows. `seconds`, `unused`, `measured` and `with_…`
    are seconds; other sums are percent times seconds, and `tensor_mj` and `link_kib` are of the
    seconds with a reading of tensor cores. Days are summed up in their order, when their rows are final.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    allocation_id = models.UUIDField()
    day = models.DateField()
    hours = _seconds()
    seconds = _seconds()
    unused = _seconds()
    measured = _seconds()
    busy = _sums()
    energy_mj = ArrayField(models.BigIntegerField())
    with_energy = _seconds()
    with_bandwidth = _seconds()
    bandwidth = _sums()
    with_tensor = _seconds()
    tensor = _sums()
    link_kib = _sums()
    tensor_with_energy = _sums()
    tensor_mj = _sums()
    with_sm = _seconds()
    sm = _sums()

    class Meta:
        indexes = [models.Index(fields=["tenant", "day"], name="use_day_of_tenant")]
        constraints = [
            models.UniqueConstraint(fields=["day", "allocation_id"], name="use_day_once"),
        ]


class EventCounter(models.Model):
    """A counter since the installation of the portal, for monitoring."""

    name = models.CharField(max_length=80, primary_key=True)
    count = models.PositiveBigIntegerField(default=0)
