"""Prices, budgets and a double-entry ledger.

A row of `Transfer` never changes. Only an AFTER INSERT trigger changes the balances of an
`Account`, and a CHECK prevents a limited account from being overspent.
"""

import uuid
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from billing.price_models import Price, PriceBook, PriceDraft
from billing.rules import BudgetOwner
from tenants.models import Lab, Project, Tenant, User
from tenants.platform.labels import labels_text

__all__ = [
    "MONEY",
    "Account",
    "Budget",
    "BudgetAlert",
    "Campaign",
    "ClosedMonth",
    "Guardrail",
    "Price",
    "PriceBook",
    "PriceDraft",
    "Transfer",
]

NO_LABELS = models.Value({}, output_field=models.JSONField())
NO_PEOPLE = models.Value([], output_field=ArrayField(models.IntegerField()))
MONEY: dict[str, Any] = {"max_digits": 20, "decimal_places": 6}


class Account(models.Model):
    """An account of a tenant: `source` of its money, `budget` of a project and period, or `spend`
    for what was charged. Both accounts of a transfer belong to the same tenant, or to none: those
    of a budget of the whole platform.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True)
    kind = models.CharField(max_length=8)
    currency = models.CharField(max_length=3, default="EUR")
    limited = models.BooleanField(default=False, help_text="Debits and pending can't exceed the credits.")
    credits = models.DecimalField(default=0, **MONEY)
    debits = models.DecimalField(default=0, **MONEY)
    pending = models.DecimalField(default=0, **MONEY, help_text="Sum of the open holds.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="account_id_in_tenant"),
            models.CheckConstraint(condition=Q(kind__in=["source", "budget", "spend"]), name="account_kind"),
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
                nulls_distinct=False,
                name="account_one_of_a_kind",
            ),
        ]


class Campaign(models.Model):
    """A named piece of a project's work. Its bookings can have a budget together."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_constraint=False)
    slug = models.SlugField(max_length=40)
    name = models.CharField(max_length=80)
    is_open = models.BooleanField(default=True, help_text="Whether new bookings can use it.")

    # Bookings without a campaign that match belong to it
    match_labels = models.JSONField(
        default=dict, db_default=NO_LABELS, blank=True, help_text="All of these labels; {}: none."
    )
    match_ref = models.CharField(
        max_length=500, blank=True, default="", db_default="", help_text="This ticket."
    )

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.CheckConstraint(condition=Q(match_ref__regex=r"^\S*$"), name="campaign_reference_sane"),
            models.UniqueConstraint(fields=["tenant", "id"], name="campaign_id_in_tenant"),
            models.UniqueConstraint(fields=["project", "slug"], name="campaign_slug_in_project"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def match_text(self) -> str:
        """What new bookings have that belong to it without naming it; empty for none."""
        return ", ".join(filter(None, (labels_text(self.match_labels), self.match_ref)))


class Transfer(models.Model):
    """A movement of money, or a hold. Kinds:

    - fund: source -> budget
    - hold: reserves money of a budget (`pending` rises)
    - settle: ends a hold and charges `amount` of it; the rest is free again
    - release: ends a hold without a charge
    - reverse: spend -> budget, an operator's refund or that of a late share that an undo gives
      back, or budget -> source, a withdrawal
    - charge: budget -> spend, an operator's later charge
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True)
    kind = models.CharField(max_length=8)
    debit = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+", db_constraint=False)
    credit = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+", db_constraint=False)
    amount = models.DecimalField(**MONEY)
    surcharge = models.DecimalField(
        **MONEY, default=0, db_default=0, help_text="The part of a charge that is for peak hours."
    )
    hold = models.OneToOneField(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="end",
        db_constraint=False,
    )
    reference = models.UUIDField(null=True, blank=True, help_text="The booking's id.")
    day = models.DateField(
        null=True, blank=True, help_text="UTC day by which the budgets of other levels count it."
    )
    person = models.ForeignKey(
        User, on_delete=models.PROTECT, null=True, blank=True, related_name="+", db_index=False
    )
    campaign = models.ForeignKey(
        Campaign,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        db_index=False,
    )
    at = models.DateTimeField()
    note = models.CharField(max_length=200, blank=True)
    fee = models.CharField(
        max_length=12,
        blank=True,
        db_default="",
        default="",
        help_text="What a charge is for that is for no GPU time: `late_share`, `no_show`, `setup`. "
        "Of a refund: the fee that it gives back.",
    )
    tier = models.CharField(
        max_length=40,
        blank=True,
        db_default="",
        default="",
        help_text="Of the booking when it was charged. A trigger writes it, and the class.",
    )
    gpu_class = models.CharField(max_length=40, blank=True, db_default="", default="")

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "reference"], name="transfer_reference"),
            models.Index(fields=["tenant", "at"], name="transfer_at"),
            models.Index(
                fields=["debit"],
                include=["amount"],
                condition=Q(kind="reverse"),
                name="transfer_reversed_debit",
            ),
            models.Index(
                fields=["credit"],
                include=["amount"],
                condition=Q(kind="reverse"),
                name="transfer_reversed_credit",
            ),
            models.Index(
                fields=["tenant", "at", "id"],
                include=["kind", "debit", "credit"],
                condition=Q(kind__in=["settle", "charge", "reverse"], reference__isnull=False),
                name="transfer_lines",
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="transfer_id_in_tenant"),
            models.CheckConstraint(
                condition=Q(kind__in=["fund", "hold", "settle", "release", "reverse", "charge"]),
                name="transfer_kind",
            ),
            models.CheckConstraint(condition=Q(amount__gt=0, amount__lt=10**12), name="transfer_amount_sane"),
            models.CheckConstraint(condition=~Q(debit=F("credit")), name="transfer_two_accounts"),
            models.CheckConstraint(
                condition=Q(surcharge=0) | Q(kind="settle", surcharge__gt=0, surcharge__lte=F("amount")),
                name="transfer_surcharge_in_charge",
            ),
            models.CheckConstraint(
                condition=Q(fee="") | Q(kind="settle", surcharge=0) | Q(kind="reverse", fee="late_share"),
                name="transfer_fee_in_charge",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["settle", "release"], hold__isnull=False)
                | (Q(hold=None) & ~Q(kind__in=["settle", "release"])),
                name="transfer_hold_fits_kind",
            ),
        ]


def _of(level: str, *named: str, tenant: bool = True) -> Q:
    """The condition of a budget's level: the named owners are set, and the others are not."""
    others = ("project", "campaign", "person", "lab")
    owners = {f"{each}__isnull": each not in named for each in others}
    return Q(level=level, tenant__isnull=not tenant, **owners)


_LEVELS = (
    _of("platform", tenant=False)
    | _of("tenant")
    | _of("lab", "lab")
    | _of("project", "project")
    | _of("campaign", "project", "campaign")
    | _of("person", "project", "person")
)


class Budget(models.Model):
    """An amount for a period [starts, ends) of UTC days, at one level of the tree.

    Money is held in the budget of a project. The budgets of the platform, of its tenant and lab, of
    a campaign and of a person in the project are limits: the ledger counts every hold and charge of
    a project in each of them that applies on the day of the transfer.
    """

    class Level(models.TextChoices):
        """The levels, in the order in which the ledger locks their accounts."""

        PLATFORM = "platform", "Platform"
        TENANT = "tenant", "Organisation"
        LAB = "lab", "Lab"
        PROJECT = "project", "Project"
        CAMPAIGN = "campaign", "Campaign"
        PERSON = "person", "Person"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, null=True, blank=True, help_text="Null: of the platform."
    )
    level = models.CharField(max_length=8, choices=Level.choices, default=Level.PROJECT, db_default="project")
    lab = models.ForeignKey(
        Lab, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False, related_name="+"
    )
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)
    campaign = models.ForeignKey(
        Campaign, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False
    )
    person = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    account = models.OneToOneField(Account, on_delete=models.PROTECT, db_constraint=False)
    starts = models.DateField()
    ends = models.DateField()
    warn_percent = models.PositiveSmallIntegerField(
        default=80, help_text="Share of spent and held money of the main alert; pages show it from there on."
    )
    repeat_amount = models.DecimalField(
        **MONEY, null=True, blank=True, help_text="The next period gets a budget of this amount."
    )
    rolls_over = models.BooleanField(
        db_default=False,
        default=False,
        help_text="What is left when the period ends is added to the next one.",
    )

    labels = models.JSONField(
        default=dict,
        db_default=NO_LABELS,
        blank=True,
        help_text="Key-value pairs, at most 32; what it pays has them, too.",
    )
    external_ref = models.CharField(
        max_length=500, blank=True, default="", db_default="", help_text="URL or key of a ticket."
    )

    # From when on spend is unusual: both thresholds have to be crossed
    variance_percent = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        default=50,
        db_default=50,
        help_text="More than expected, in percent; null: nobody is notified.",
    )
    variance_amount = models.DecimalField(
        **MONEY, default=20, db_default=20, help_text="The least difference that notifies."
    )

    # Forecast of what is spent at the end of the period; null with less than a week of history
    forecast = models.DecimalField(**MONEY, null=True, blank=True)
    forecast_low = models.DecimalField(**MONEY, null=True, blank=True)
    forecast_high = models.DecimalField(**MONEY, null=True, blank=True)
    forecast_at = models.DateTimeField(null=True, blank=True, help_text="When it was computed.")

    # The most that may be spent for so many units of progress; only of campaigns
    unit_most = models.DecimalField(**MONEY, null=True, blank=True)
    unit_count = models.PositiveIntegerField(null=True, blank=True, help_text="Of so many units.")
    unit = models.CharField(
        max_length=24,
        blank=True,
        default="",
        db_default="",
        help_text="What programs count, such as `epoch`.",
    )
    unit_cost = models.DecimalField(
        **MONEY, null=True, blank=True, help_text="What so many units have cost so far; null: not known."
    )
    unit_cost_at = models.DateTimeField(null=True, blank=True, help_text="When it was computed.")

    is_new = False
    """Whether this object has just been created."""

    class Meta:
        ordering = ["-starts"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="budget_id_in_tenant"),
            models.CheckConstraint(condition=Q(ends__gt=F("starts")), name="budget_period"),
            models.CheckConstraint(
                condition=Q(warn_percent__gte=1, warn_percent__lte=100), name="budget_warning"
            ),
            models.CheckConstraint(
                condition=Q(variance_percent=None) | Q(variance_percent__range=(1, 1000)),
                name="budget_variance_percent",
            ),
            models.CheckConstraint(condition=Q(external_ref__regex=r"^\S*$"), name="budget_reference_sane"),
            models.CheckConstraint(condition=Q(variance_amount__gte=0), name="budget_variance_amount"),
            models.CheckConstraint(condition=_LEVELS, name="budget_level"),
            models.CheckConstraint(
                condition=Q(unit_most=None, unit_count=None, unit="", unit_cost=None)
                | Q(Q(level="campaign", unit_most__gt=0, unit_count__gt=0), ~Q(unit="")),
                name="budget_unit_limit",
            ),
            models.CheckConstraint(
                condition=Q(unit_cost=None) | Q(unit_cost__gte=0), name="budget_unit_cost"
            ),
        ]

    @property
    def owner(self) -> BudgetOwner:
        """Whose budget it is."""
        return BudgetOwner(self.tenant_id, self.project_id, self.campaign_id, self.person_id, self.lab_id)


class Guardrail(models.Model):
    """A rung of a budget's ladder: what happens while a share of the amount is used.

    It acts from the moment that the share is reached and stops by itself when the share is lower. The
    spend per unit of progress is a share of the budget's `unit_most`.
    """

    class Measure(models.TextChoices):
        """What is compared with the amount."""

        SPENT = "spent", "Spent"
        COMMITTED = "committed", "Spent and held"
        FORECAST = "forecast", "Forecast at the end of the period"
        UNIT_COST = "unit_cost", "Spend per unit of progress"

    class Action(models.TextChoices):
        """What happens, from the mildest to the strongest. Every one notifies, too."""

        NOTIFY = "notify", "Notify"
        APPROVAL = "approval", "Ask for an approval of new bookings"
        CHEAPER = "cheaper", "Finish waiting work on the cheapest of its classes"
        NO_BORROWING = "no_borrowing", "Start nothing on borrowed GPUs"
        NO_BOOKINGS = "no_bookings", "Take no new bookings"
        DRAIN = "drain", "Start nothing new"
        PAUSE = "pause", "Pause what runs, after its notice"

    class Audience(models.TextChoices):
        """The notified roles. A budget of the organisation always notifies its admins."""

        LEADS = "leads", "Project leads"
        ADMINS = "admins", "Tenant admins"
        BOTH = "both", "Project leads and tenant admins"
        PEOPLE = "people", "Only the people named"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True)
    budget = models.ForeignKey(
        Budget, on_delete=models.PROTECT, related_name="guardrails", db_constraint=False
    )
    measure = models.CharField(max_length=10, choices=Measure.choices)
    percent = models.PositiveSmallIntegerField()
    action = models.CharField(max_length=12, choices=Action.choices)
    audience = models.CharField(max_length=8, choices=Audience.choices, default=Audience.BOTH)
    people = ArrayField(
        models.IntegerField(),
        default=list,
        db_default=NO_PEOPLE,
        help_text="Accounts that are notified, too.",
    )
    reached_at = models.DateTimeField(
        null=True, blank=True, help_text="Since when it acts; null while it does not."
    )

    class Meta:
        ordering = ["percent", "measure", "action"]
        constraints = [
            models.UniqueConstraint(fields=["budget", "measure", "percent", "action"], name="guardrail_once"),
            models.CheckConstraint(condition=Q(percent__gte=1, percent__lte=200), name="guardrail_percent"),
            models.CheckConstraint(
                condition=Q(measure__in=["spent", "committed", "forecast", "unit_cost"])
                & Q(
                    action__in=[
                        "notify",
                        "approval",
                        "cheaper",
                        "no_borrowing",
                        "no_bookings",
                        "drain",
                        "pause",
                    ]
                )
                & Q(audience__in=["leads", "admins", "both", "people"]),
                name="guardrail_choices",
            ),
            # What decides new bookings compares money alone, under the lock of its account.
            models.CheckConstraint(
                condition=~Q(measure="unit_cost") | Q(action__in=["notify", "pause"]),
                name="guardrail_of_units",
            ),
        ]


class BudgetAlert(models.Model):
    """A crossing: the time during which a rung of a budget was reached, with the figures of its beginning.

    It names the rung by its values, because a rung can be removed.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True)
    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="alerts", db_constraint=False)
    measure = models.CharField(max_length=10, choices=Guardrail.Measure.choices)
    percent = models.PositiveSmallIntegerField()
    action = models.CharField(max_length=12, choices=Guardrail.Action.choices)
    audience = models.CharField(max_length=8, choices=Guardrail.Audience.choices)
    people = ArrayField(models.IntegerField(), help_text="Accounts that were notified, too.")
    reached_at = models.DateTimeField()
    cleared_at = models.DateTimeField(
        null=True, blank=True, help_text="When the share was lower, or the rung was removed."
    )
    amount = models.DecimalField(**MONEY)
    spent = models.DecimalField(**MONEY)
    held = models.DecimalField(**MONEY)
    forecast = models.DecimalField(**MONEY, null=True, blank=True)
    unit_cost = models.DecimalField(**MONEY, null=True, blank=True)
    unit_most = models.DecimalField(**MONEY, null=True, blank=True)

    class Meta:
        ordering = ["-reached_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["budget", "measure", "percent", "action"],
                condition=Q(cleared_at=None),
                name="budget_alert_once",
            ),
            models.CheckConstraint(
                condition=Q(cleared_at=None) | Q(cleared_at__gte=F("reached_at")), name="budget_alert_time"
            ),
        ]


class ClosedMonth(models.Model):
    """A month of a tenant into which the ledger takes no more transfers."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    starts = models.DateField()
    ends = models.DateField()
    closed_at = models.DateTimeField()
    closed_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    class Meta:
        ordering = ["-starts"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "starts"], name="month_closed_once"),
            models.CheckConstraint(condition=Q(ends__gt=F("starts")), name="month_period"),
        ]
