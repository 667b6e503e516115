"""How the spend of budgets differs from plan and from usual days, with causes."""

import uuid

from django.db import models
from django.db.models import F, Q

from billing.models import MONEY, Budget
from tenants.models import Tenant


class SpendVariance(models.Model):
    """The spend of a budget up to a day, compared once and stored with the causes that were found.

    `weekday` compares the day with the same weekday of the weeks before; `plan` compares the period
    until its end with an even share of the amount.
    """

    class Against(models.TextChoices):
        """What the spend is compared with."""

        WEEKDAY = "weekday", "The same weekday before"
        PLAN = "plan", "The plan"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(
        Tenant,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        help_text="Null: of a budget of the platform.",
    )
    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="+", db_constraint=False)
    day = models.DateField(help_text="The last day of UTC that counts.")
    against = models.CharField(max_length=7, choices=Against.choices)
    actual = models.DecimalField(**MONEY)
    expected = models.DecimalField(**MONEY)
    parts = models.JSONField(
        help_text="[{cause, amount, facts, bookings: [{booking, amount}]}]; amounts add up."
    )
    is_unusual = models.BooleanField(help_text="Whether it crossed the budget's thresholds.")
    at = models.DateTimeField()

    class Meta:
        ordering = ["-day", "against", "budget"]
        indexes = [models.Index(fields=["tenant", "-day"], name="variance_day")]
        constraints = [
            models.UniqueConstraint(fields=["budget", "day", "against"], name="variance_once"),
            models.CheckConstraint(condition=Q(against__in=["weekday", "plan"]), name="variance_against"),
            models.CheckConstraint(
                condition=Q(is_unusual=False) | Q(actual__gt=F("expected")),
                name="variance_unusual_is_more",
            ),
        ]
