"""Prices, budgets and a double-entry ledger.

A row of `Transfer` never changes. Only an AFTER INSERT trigger changes the balances of an
`Account`, and a CHECK prevents a limited account from being overspent.
"""

import uuid
from typing import Any

from django.db import models
from django.db.models import F, Q

from tenants.models import GpuClass, Project, Tenant, Tier

MONEY: dict[str, Any] = {"max_digits": 20, "decimal_places": 6}


class PriceBook(models.Model):
    """A version of all prices, valid until the next version."""

    version = models.PositiveIntegerField(primary_key=True)
    valid_from = models.DateTimeField(unique=True)
    currency = models.CharField(max_length=3, default="EUR")
    note = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["-valid_from"]


class Price(models.Model):
    """The price of a whole GPU of a class in a tier for an hour. Slices cost by their units."""

    id = models.BigAutoField(primary_key=True)
    book = models.ForeignKey(PriceBook, on_delete=models.PROTECT, related_name="prices")
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT)
    per_gpu_hour = models.DecimalField(max_digits=12, decimal_places=4)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["book", "gpu_class", "tier"], name="price_once"),
            models.CheckConstraint(
                condition=Q(per_gpu_hour__gte=0, per_gpu_hour__lt=1_000_000), name="price_sane"
            ),
        ]


class Account(models.Model):
    """An account of a tenant: `source` of its money, `budget` of a project and period, or `spend`
    for what was charged. Both accounts of a transfer belong to the same tenant.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    kind = models.CharField(max_length=8)
    currency = models.CharField(max_length=3, default="EUR")
    limited = models.BooleanField(
        default=False, help_text="Debits and pending can't exceed the credits."
    )
    credits = models.DecimalField(default=0, **MONEY)
    debits = models.DecimalField(default=0, **MONEY)
    pending = models.DecimalField(default=0, **MONEY, help_text="Sum of the open holds.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="account_id_in_tenant"),
            models.CheckConstraint(
                condition=Q(kind__in=["source", "budget", "spend"]), name="account_kind"
            ),
            models.CheckConstraint(
                condition=Q(credits__gte=0, debits__gte=0, pending__gte=0),
                name="account_never_negative",
            ),
            models.CheckConstraint(
                condition=Q(limited=False) | Q(credits__gte=F("debits") + F("pending")),
                name="account_never_overspent",
            ),
            models.UniqueConstraint(
                fields=["tenant", "kind", "currency"],
                condition=Q(kind__in=["source", "spend"]),
                name="account_one_of_a_kind",
            ),
        ]


class Transfer(models.Model):
    """A movement of money, or a hold. Kinds:

    - fund: source -> budget
    - hold: reserves money of a budget (`pending` rises)
    - settle: ends a hold and charges `amount` of it; the rest is free again
    - release: ends a hold without a charge
    - reverse: spend -> budget, an operator's refund, or budget -> source, a withdrawal
    - charge: budget -> spend, an operator's later charge
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    kind = models.CharField(max_length=8)
    debit = models.ForeignKey(
        Account, on_delete=models.PROTECT, related_name="+", db_constraint=False
    )
    credit = models.ForeignKey(
        Account, on_delete=models.PROTECT, related_name="+", db_constraint=False
    )
    amount = models.DecimalField(**MONEY)
    hold = models.OneToOneField(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="end",
        db_constraint=False,
    )
    reference = models.UUIDField(null=True, blank=True, help_text="The booking's id.")
    at = models.DateTimeField()
    note = models.CharField(max_length=200, blank=True)

    class Meta:
        indexes = [models.Index(fields=["tenant", "reference"], name="transfer_reference")]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="transfer_id_in_tenant"),
            models.CheckConstraint(
                condition=Q(kind__in=["fund", "hold", "settle", "release", "reverse", "charge"]),
                name="transfer_kind",
            ),
            models.CheckConstraint(
                condition=Q(amount__gt=0, amount__lt=10**12), name="transfer_amount_sane"
            ),
            models.CheckConstraint(condition=~Q(debit=F("credit")), name="transfer_two_accounts"),
            models.CheckConstraint(
                condition=Q(kind__in=["settle", "release"], hold__isnull=False)
                | (Q(hold=None) & ~Q(kind__in=["settle", "release"])),
                name="transfer_hold_fits_kind",
            ),
        ]


class Budget(models.Model):
    """The money of a project for a period [starts, ends) of UTC days."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_constraint=False)
    account = models.OneToOneField(Account, on_delete=models.PROTECT, db_constraint=False)
    starts = models.DateField()
    ends = models.DateField()
    warn_percent = models.PositiveSmallIntegerField(
        default=80, help_text="Share of spent and held money that warns."
    )

    class Meta:
        ordering = ["-starts"]
        constraints = [
            models.CheckConstraint(condition=Q(ends__gt=F("starts")), name="budget_period"),
            models.CheckConstraint(
                condition=Q(warn_percent__gte=1, warn_percent__lte=100), name="budget_warning"
            ),
        ]
