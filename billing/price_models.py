"""Price books, and drafts of the next one."""

import uuid
from decimal import Decimal

from django.db import models
from django.db.models import F, Q

from billing.rates import PeakHours, peak_hours
from tenants.models import GpuClass, Tier, User


class PriceBook(models.Model):
    """A version of all prices, valid until the next version."""

    version = models.PositiveIntegerField(primary_key=True)
    valid_from = models.DateTimeField(unique=True)
    currency = models.CharField(max_length=3, default="EUR")
    note = models.CharField(max_length=200, blank=True)
    published_at = models.DateTimeField(
        null=True, help_text="Quotes of before it don't know it; null: from `valid_from` on."
    )
    peak_zone = models.CharField(
        max_length=64, default="UTC", db_default="UTC", help_text="Whose clocks the peak hours are."
    )
    peak_weekly = models.JSONField(
        default=list,
        db_default=[],
        help_text="Peak hours: [weekday, first hour, hour of the end], Monday is 0.",
    )
    setup_fees = models.JSONField(
        default=dict,
        db_default=models.Value({}, output_field=models.JSONField()),
        help_text="What the first start of a booking costs, by tier; none: nothing.",
    )

    class Meta:
        ordering = ["-valid_from"]

    @property
    def hours(self) -> PeakHours:
        """The peak hours."""
        return peak_hours(self.peak_zone, self.peak_weekly)

    @property
    def setups(self) -> dict[str, Decimal]:
        """The set-up fees by tier."""
        return {tier: Decimal(fee) for tier, fee in self.setup_fees.items()}


class Price(models.Model):
    """The price of a whole GPU of a class in a tier for an hour, or of one slice of a profile.

    A slice whose profile has no price of its own costs by its units.
    """

    id = models.BigAutoField(primary_key=True)
    book = models.ForeignKey(PriceBook, on_delete=models.PROTECT, related_name="prices")
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT)
    profile = models.CharField(
        max_length=40,
        blank=True,
        default="",
        db_default="",
        help_text="Of the slices that this is the price of one of; empty: a whole GPU.",
    )
    per_gpu_hour = models.DecimalField(max_digits=12, decimal_places=4)
    peak_per_gpu_hour = models.DecimalField(
        max_digits=12, decimal_places=4, null=True, help_text="In peak hours; null: the same."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["book", "gpu_class", "tier", "profile"], name="price_once"),
            models.CheckConstraint(
                condition=Q(per_gpu_hour__gte=0, per_gpu_hour__lt=1_000_000), name="price_sane"
            ),
            models.CheckConstraint(
                condition=Q(peak_per_gpu_hour=None)
                | Q(peak_per_gpu_hour__gte=F("per_gpu_hour"), peak_per_gpu_hour__lt=1_000_000),
                name="price_peak_not_lower",
            ),
        ]


class PriceDraft(models.Model):
    """The content of a next price book. Its author changes it, and another operator publishes it,
    if there is one: a trigger refuses its author then.

    Quotes never read it: only `PriceBook` has prices that count.
    """

    class State(models.TextChoices):
        """What became of it."""

        OPEN = "open", "Open"
        PUBLISHED = "published", "Published"
        DISCARDED = "discarded", "Discarded"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    author = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    state = models.CharField(max_length=9, choices=State.choices, default=State.OPEN)
    revision = models.PositiveIntegerField(
        default=1, help_text="Counts changes. Publishing names the revision that was read."
    )
    base = models.ForeignKey(
        PriceBook,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        help_text="The latest version when the draft was written or rebased.",
    )
    valid_from = models.DateTimeField(null=True, help_text="Null: from its publication on.")
    note = models.CharField(max_length=200, blank=True)
    content = models.JSONField(help_text="Prices and peak hours, as `BookContent` writes them.")
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    decided_by = models.ForeignKey(
        User,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        help_text="Who published or discarded it.",
    )
    decided_at = models.DateTimeField(null=True)
    book = models.OneToOneField(
        PriceBook,
        on_delete=models.PROTECT,
        null=True,
        related_name="draft",
        help_text="The version that it became.",
    )

    class Meta:
        ordering = ["-changed_at", "id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state="open", decided_by=None, decided_at=None, book=None)
                | Q(state="discarded", decided_by__isnull=False, decided_at__isnull=False, book=None)
                | Q(
                    state="published",
                    decided_by__isnull=False,
                    decided_at__isnull=False,
                    book__isnull=False,
                ),
                name="price_draft_decided",
            ),
        ]
