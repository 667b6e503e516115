"""Tables of capacity: plans of projects, machines of providers, and what a provider cost in a month."""

import uuid
from decimal import Decimal
from typing import ClassVar, Literal

from django.conf import settings
from django.db import models
from django.db.models import PROTECT, F, Q

from allocation.models import Booking
from allocation.rules.pools import pool_name
from billing.models import MONEY
from tenants.models import ApiToken, GpuClass, Project, Tenant


class CapacityPlan(models.Model):
    """A project's plan to rent GPUs of a class in [starts, until), for at most so much money.

    The money is held while the plan is open. `committed` is what its machines cost until the end of
    their paid periods.
    """

    class Source(models.TextChoices):
        """What asked for it."""

        PERSON = "person", "A person"
        SPRINT = "sprint", "A sprint"
        BACKLOG = "backlog", "The backlog"
        FORECAST = "forecast", "The forecast"

    class State(models.TextChoices):
        """How far it is."""

        PROPOSED = "proposed", "Proposed"
        ACTIVE = "active", "Active"
        ENDED = "ended", "Ended"
        CANCELLED = "cancelled", "Cancelled"
        REFUSED = "refused", "Refused"

    OPEN = (State.PROPOSED, State.ACTIVE)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, PROTECT)
    project = models.ForeignKey(Project, PROTECT, db_constraint=False, help_text="Who pays and uses it.")
    gpu_class = models.ForeignKey(GpuClass, PROTECT)
    gpus = models.PositiveSmallIntegerField(help_text="GPUs at once.")
    starts = models.DateTimeField()
    until = models.DateTimeField(help_text="No machine is kept longer for new work.")
    most_cost = models.DecimalField(**MONEY)
    currency = models.CharField(max_length=3)
    source = models.CharField(max_length=8, choices=Source.choices)
    booking = models.ForeignKey(
        Booking,
        PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        related_name="+",
        help_text="The only booking that it is for; null: all of the project on the class.",
    )
    reference = models.CharField(
        max_length=500,
        blank=True,
        help_text="Address of the sprint, or `backlog:` or `forecast:` and the class.",
    )
    state = models.CharField(max_length=9, choices=State.choices)
    note = models.CharField(max_length=300, blank=True, help_text="Why it is in its state.")
    committed = models.DecimalField(**MONEY, default=Decimal(0), db_default=Decimal(0))
    charged = models.DecimalField(
        **MONEY,
        default=Decimal(0),
        db_default=Decimal(0),
        help_text="What its machines cost beyond what bookings on them paid.",
    )
    created = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, PROTECT, related_name="+")
    made_with = models.ForeignKey(
        ApiToken, PROTECT, null=True, blank=True, db_constraint=False, related_name="+"
    )
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, PROTECT, null=True, blank=True, related_name="+")
    ended = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created", "id"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="capacity_plan_in_tenant"),
            models.UniqueConstraint(fields=["booking"], name="capacity_plan_of_booking_once"),
            models.UniqueConstraint(
                fields=["project", "reference"],
                condition=Q(state__in=("proposed", "active")) & ~Q(reference=""),
                name="capacity_plan_of_sprint_once",
            ),
            models.CheckConstraint(condition=Q(gpus__gte=1), name="capacity_plan_has_gpus"),
            models.CheckConstraint(condition=Q(until__gt=F("starts")), name="capacity_plan_ends_later"),
            models.CheckConstraint(
                condition=Q(committed__gte=0, committed__lte=F("most_cost")),
                name="capacity_plan_within_money",
            ),
            models.CheckConstraint(
                condition=Q(charged__gte=0, charged__lte=F("committed")), name="capacity_plan_charges_cost"
            ),
            models.CheckConstraint(
                condition=Q(ended=None, state__in=("proposed", "active"))
                | Q(ended__isnull=False, state__in=("ended", "cancelled", "refused")),
                name="capacity_plan_ends_once",
            ),
        ]

    @property
    def pool(self) -> str:
        """The name of its nodes and bookings in snapshots."""
        return pool_name(self.id.hex[:12])

    @property
    def left(self) -> Decimal:
        """The money that is not committed."""
        return self.most_cost - self.committed


class CapacityMachine(models.Model):
    """A machine of a provider.

    Its `name` is made before the provider is asked, so that a machine is found again if the portal
    was killed between the request and its record.
    """

    class State(models.TextChoices):
        """How far it is. An orphan is at the provider and belongs to no plan."""

        REQUESTED = "requested", "Requested"
        BOOTING = "booting", "Booting"
        READY = "ready", "Ready"
        DRAINING = "draining", "Draining"
        RELEASING = "releasing", "Releasing"
        RELEASED = "released", "Released"
        LOST = "lost", "Lost"
        ORPHAN = "orphan", "Orphan"

    OPEN = (State.REQUESTED, State.BOOTING, State.READY, State.DRAINING, State.RELEASING)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, PROTECT, null=True, blank=True)
    plan = models.ForeignKey(
        CapacityPlan, PROTECT, null=True, blank=True, db_constraint=False, related_name="machines"
    )
    provider = models.CharField(max_length=40)
    offer = models.CharField(max_length=40, blank=True)
    name = models.CharField(max_length=60, help_text="Of the machine at its provider.")
    node = models.CharField(max_length=60, blank=True, help_text="Name of its node in the fleet.")
    slot = models.PositiveSmallIntegerField(null=True, blank=True)
    most = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Machines that its provider may have at once."
    )
    gpu_class = models.ForeignKey(GpuClass, PROTECT, null=True, blank=True)
    gpus = models.PositiveSmallIntegerField(default=0)
    zone = models.CharField(max_length=40, blank=True)
    interruptible = models.BooleanField(default=False)
    price = models.DecimalField(**MONEY, default=Decimal(0), help_text="Of the machine in an hour.")
    currency = models.CharField(max_length=3, blank=True)
    least_seconds = models.PositiveIntegerField(default=0, help_text="The first paid period.")
    period_seconds = models.PositiveIntegerField(default=0, help_text="Every later one.")
    provider_id = models.CharField(max_length=120, blank=True, help_text="Empty until it is known.")
    state = models.CharField(max_length=9, choices=State.choices)
    note = models.CharField(max_length=300, blank=True, help_text="What is wrong, or why it left.")
    requested = models.DateTimeField()
    asked = models.DateTimeField(null=True, blank=True, help_text="When the provider was last asked for it.")
    due = models.DateTimeField(null=True, blank=True, help_text="It is late after this time.")
    came = models.DateTimeField(null=True, blank=True, help_text="When the provider first listed it.")
    ready = models.DateTimeField(null=True, blank=True, help_text="When bookings could use it.")
    paid_until = models.DateTimeField(null=True, blank=True, help_text="End of its paid period.")
    leaves = models.DateTimeField(
        null=True, blank=True, help_text="When its provider takes it back, by its own notice."
    )
    released = models.DateTimeField(null=True, blank=True, help_text="When the provider listed it no more.")
    cost = models.DecimalField(
        **MONEY, default=Decimal(0), db_default=Decimal(0), help_text="Until the end of its paid period."
    )

    class Meta:
        ordering = ["-requested", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "name"], condition=~Q(state="orphan"), name="capacity_machine_named_once"
            ),
            models.UniqueConstraint(
                fields=["provider", "provider_id"],
                condition=~Q(provider_id=""),
                name="capacity_machine_known_once",
            ),
            models.UniqueConstraint(
                fields=["provider", "slot"],
                condition=Q(state__in=("requested", "booting", "ready", "draining", "releasing")),
                name="capacity_machine_in_slot",
            ),
            models.CheckConstraint(
                condition=Q(plan=None) | Q(slot__isnull=False, slot__gte=1, slot__lte=F("most")),
                name="capacity_machine_within_cap",
            ),
            models.CheckConstraint(
                condition=Q(state="orphan", plan=None, tenant=None)
                | (~Q(state="orphan") & Q(plan__isnull=False, tenant__isnull=False))
                | Q(state="released", plan=None, tenant=None),
                name="capacity_machine_has_plan",
            ),
            models.CheckConstraint(condition=Q(cost__gte=0), name="capacity_machine_cost_positive"),
        ]

    @property
    def is_open(self) -> bool:
        """Whether it may cost money."""
        return self.state in self.OPEN


class CapacitySpend(models.Model):
    """What machines that were requested in a month cost at a provider; never more than its most."""

    id = models.BigAutoField(primary_key=True)
    provider = models.CharField(max_length=40)
    month = models.DateField()
    committed = models.DecimalField(**MONEY, default=Decimal(0), db_default=Decimal(0))
    most = models.DecimalField(**MONEY)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["provider", "month"], name="capacity_spend_once"),
            models.CheckConstraint(
                condition=Q(committed__gte=0, committed__lte=F("most")), name="capacity_spend_within_most"
            ),
        ]


class RuleMode(models.TextChoices):
    """What a started sprint, a wait that is too long, or an expected shortage leads to."""

    OFF = "off", "Nothing"
    PROPOSE = "propose", "A plan that a lead approves"
    RENT = "rent", "A plan that is active"


class SprintRule(models.Model):
    """What sprints of a project rent beyond its own GPUs, and whether it is asked first."""

    Mode = RuleMode

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, PROTECT, db_index=False)
    project = models.ForeignKey(Project, PROTECT, db_constraint=False, related_name="+", db_index=False)
    mode = models.CharField(max_length=7, choices=Mode.choices)
    gpu_class = models.ForeignKey(GpuClass, PROTECT)
    gpus = models.PositiveSmallIntegerField()
    most_cost = models.DecimalField(**MONEY, help_text="Of each sprint.")
    issue = models.CharField(max_length=40, blank=True, help_text="It gets comments, such as GPU-1.")
    changed = models.DateTimeField()
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, PROTECT, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project"], name="sprint_rule_once"),
            models.CheckConstraint(
                condition=Q(mode__in=("off", "propose", "rent")), name="sprint_rule_mode_known"
            ),
            models.CheckConstraint(condition=Q(gpus__gte=1, most_cost__gt=0), name="sprint_rule_has_bounds"),
        ]


class RentingRule(models.Model):
    """What a project rents of a class by itself, for at most so much money in a month."""

    Mode = RuleMode
    SOURCE: ClassVar[Literal["backlog", "forecast"]]

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, PROTECT, db_index=False)
    project = models.ForeignKey(Project, PROTECT, db_constraint=False, related_name="+", db_index=False)
    gpu_class = models.ForeignKey(GpuClass, PROTECT)
    mode = models.CharField(max_length=7, choices=Mode.choices)
    gpus = models.PositiveSmallIntegerField()
    most_cost = models.DecimalField(**MONEY, help_text="Of its plans of a calendar month (UTC).")
    note = models.CharField(max_length=300, blank=True, help_text="Why it could make no plan.")
    changed = models.DateTimeField()
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, PROTECT, related_name="+")

    class Meta:
        abstract = True

    @property
    def reference(self) -> str:
        """What its plans refer to, so that only one of them is open at a time."""
        return f"{self.SOURCE}:{self.gpu_class_id}"


class BacklogRule(RentingRule):
    """What a project rents of a class when its bookings would wait for too long, and whether it is asked
    first."""

    wait_minutes = models.PositiveSmallIntegerField(
        help_text="Longest wait from when a booking could begin to its expected start."
    )
    hours = models.PositiveSmallIntegerField(help_text="That a plan is open.")

    SOURCE = "backlog"

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "gpu_class"], name="backlog_rule_once"),
            models.CheckConstraint(
                condition=Q(mode__in=("off", "propose", "rent")), name="backlog_rule_mode_known"
            ),
            models.CheckConstraint(
                condition=Q(gpus__gte=1, hours__gte=1, most_cost__gt=0, wait_minutes__gte=10),
                name="backlog_rule_has_bounds",
            ),
        ]


class ForecastRule(RentingRule):
    """What a project rents of a class for hours in which more GPUs are expected to be needed than the site
    has, and whether it is asked first."""

    hours = models.PositiveSmallIntegerField(help_text="So many hours have to be short at least.")
    days = models.PositiveSmallIntegerField(help_text="Of the coming days that are looked at.")
    checked = models.DateTimeField(null=True, blank=True, help_text="When it last read the forecast.")

    SOURCE = "forecast"

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "gpu_class"], name="forecast_rule_once"),
            models.CheckConstraint(
                condition=Q(mode__in=("off", "propose", "rent")), name="forecast_rule_mode_known"
            ),
            models.CheckConstraint(
                condition=Q(gpus__gte=1, hours__gte=1, most_cost__gt=0, days__gte=1, days__lte=14),
                name="forecast_rule_has_bounds",
            ),
        ]
