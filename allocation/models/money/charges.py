"""Sums of charges, kept by the database."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from billing.models import MONEY, Account, Campaign
from tenants.models import Tenant


class ChargeSum(models.Model):
    """What a budget was charged on a UTC day, with corrections, for bookings with the same facts.

    A trigger of the ledger adds every charge, so that pages read few rows instead of all transfers.
    The facts are those of the booking at the time of the charge.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    account = models.ForeignKey(
        Account,
        on_delete=models.PROTECT,
        related_name="+",
        db_constraint=False,
        db_index=False,
        help_text="The account of the project's budget that paid.",
    )
    day = models.DateField()
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_index=False,
    )
    tier = models.CharField(max_length=40, blank=True)
    gpu_class = models.CharField(max_length=40, blank=True)
    campaign = models.ForeignKey(
        Campaign,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    lines = models.PositiveIntegerField()
    corrections = models.PositiveIntegerField()
    exact = models.DecimalField(**MONEY, help_text="As the ledger has it.")
    amount = models.DecimalField(
        max_digits=20, decimal_places=2, help_text="Of the lines, each rounded half-even to cents."
    )

    class Meta:
        indexes = [models.Index(fields=["tenant", "day"], name="charge_sum_day")]
        constraints = [
            models.UniqueConstraint(
                fields=["account", "day", "owner", "tier", "gpu_class", "campaign"],
                name="charge_sum_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=Q(corrections__lte=models.F("lines")), name="charge_sum_corrections"
            ),
        ]
