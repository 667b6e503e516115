"""Stops of new work: of a tenant, a tier, a GPU class, one booking, or the whole site."""

import uuid
from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from allocation.models.bookings import Booking
from tenants.models import GpuClass, Tenant, Tier

_NOTHING = Q(tenant=None, tier=None, gpu_class=None, booking=None)


class Stop(models.Model):
    """An operator's stop: new requests are refused, and what waits does not start.

    Running bookings continue. Rows with a tenant are visible to that tenant only. A stop of one
    booking belongs to its pause: the booking does not resume before the stop is over.
    """

    class Scope(models.TextChoices):
        SITE = "site", "The whole site"
        TENANT = "tenant", "A tenant"
        TIER = "tier", "A tier"
        GPU_CLASS = "class", "A GPU class"
        BOOKING = "booking", "One paused booking"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    scope = models.CharField(max_length=7, choices=Scope.choices)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True)
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, null=True, blank=True)
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT, null=True, blank=True)
    booking = models.ForeignKey(
        Booking,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="stops",
        db_constraint=False,
    )
    since = models.DateTimeField()
    until = models.DateTimeField(
        null=True, blank=True, help_text="Planned end; null: until an operator ends it."
    )
    reason = models.CharField(max_length=120, help_text="Shown to everybody who is stopped.")
    begun_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When an operator ended it.")

    class Meta:
        ordering = ["-since", "id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(_NOTHING, scope="site")
                | Q(scope="tenant", tenant__isnull=False, tier=None, gpu_class=None, booking=None)
                | Q(scope="tier", tenant=None, tier__isnull=False, gpu_class=None, booking=None)
                | Q(scope="class", tenant=None, tier=None, gpu_class__isnull=False, booking=None)
                | Q(
                    scope="booking",
                    tenant__isnull=False,
                    tier=None,
                    gpu_class=None,
                    booking__isnull=False,
                ),
                name="stop_names_its_scope",
            ),
            models.UniqueConstraint(
                fields=["scope", "tenant", "tier", "gpu_class", "booking"],
                condition=Q(ended_at=None),
                name="stop_open_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=Q(until=None) | Q(until__gt=F("since")), name="stop_window_sane"
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="stop_has_reason"),
        ]

    def __str__(self) -> str:
        return f"Stop of {self.of}"

    @property
    def name(self) -> str:
        """The slug of the tenant, tier or class, or the booking's id; empty for the site."""
        if self.booking_id is not None:
            return f"bk_{self.booking_id.hex}"
        if self.scope == self.Scope.TENANT and self.tenant is not None:
            return self.tenant.slug
        return self.tier_id or self.gpu_class_id or ""

    @property
    def of(self) -> str:
        """What is stopped, as in a sentence: `the tier Spot`."""
        if self.scope == self.Scope.SITE:
            return "the whole site"
        if self.booking is not None:
            return f"{self.booking.label} of {self.tenant}"
        if self.scope == self.Scope.TENANT:
            return f"the tenant {self.tenant}"
        if self.tier is not None:
            return f"the tier {self.tier.name}"
        return f"the class {self.gpu_class.label}" if self.gpu_class is not None else ""

    def is_in_force(self, now: datetime) -> bool:
        """Whether it has neither ended nor reached its planned end."""
        return self.ended_at is None and (self.until is None or now < self.until)
