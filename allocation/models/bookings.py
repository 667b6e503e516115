"""Bookings and their history."""

import uuid
from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from allocation.models.arrays import BookingArray
from allocation.models.series import NO_LABELS, Series
from allocation.rules.states import State
from billing.models import MONEY, Campaign
from solver.reasons.catalogue import UNPROVEN
from tenants.models import Project, Tenant, Tier


def booking_states() -> list[tuple[str, str]]:
    """Returns the choices; as a callable, so that a new state needs no migration."""
    return [(state.value, state.value.replace("_", " ").capitalize()) for state in State]


def booking_label(number: int, index: int | None) -> str:
    """Returns the number that people use, `BK-2041` or `BK-2041[17]`."""
    return f"BK-{number}" if index is None else f"BK-{number}[{index}]"


def booking_node_name(number: int, index: int | None) -> str:
    """Returns the number that nodes use, `BK-2041` or `BK-2041_17`."""
    return f"BK-{number}" if index is None else f"BK-{number}_{index}"


class PlannedStrength(models.TextChoices):
    """What a planned start is worth: no booking delays a firm one, only its own organisation's a
    guaranteed one, and any booking ahead in the queue an expected one."""

    FIRM = "firm", "Firm"
    GUARANTEED = "guaranteed", "Guaranteed"
    EXPECTED = "expected", "Expected"


class WaitMode(models.TextChoices):
    """How a booking waits for a window that is full: it is booked as soon as there is room, with
    its money held, or a place is offered to its owner."""

    AUTO = "auto", "Book it"
    OFFER = "offer", "Offer it"


class Booking(models.Model):
    """A person's request for GPUs, what the solver plans for it, its run and its price.

    A fixed window has `starts` and `ends`; a flexible one has a duration, `not_before` and perhaps
    a deadline. `services.runs.transition` is the only writer of `state`.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    number = models.BigIntegerField(help_text="Unique in the tenant: 2041 is shown as BK-2041.")
    name = models.CharField(max_length=80, blank=True)
    labels = models.JSONField(
        default=dict, db_default=NO_LABELS, blank=True, help_text="Key-value pairs, at most 32."
    )
    external_ref = models.CharField(
        max_length=500, blank=True, default="", db_default="", help_text="URL or key of a ticket."
    )

    # Owner
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_constraint=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT)
    campaign = models.ForeignKey(
        Campaign,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        help_text="The campaign whose budget counts it, too.",
    )

    # Request
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT)
    series = models.ForeignKey(
        Series,
        on_delete=models.PROTECT,
        related_name="bookings",
        null=True,
        blank=True,
        db_constraint=False,
        help_text="The series that this booking is one date of.",
    )
    array = models.ForeignKey(
        BookingArray,
        on_delete=models.PROTECT,
        related_name="elements",
        null=True,
        blank=True,
        db_constraint=False,
        help_text="The array that this booking is one element of.",
    )
    array_index = models.PositiveIntegerField(
        null=True, blank=True, help_text="Its index in the array, from 1."
    )
    ask = models.JSONField(help_text="The request as `allocation.rules.ask` writes it.")
    request_text = models.CharField(max_length=200, blank=True, help_text="As it was typed.")
    zone = models.CharField(max_length=64, default="UTC", help_text="Time zone of the request.")
    submitted = models.DateTimeField()
    starts = models.DateTimeField(
        null=True, blank=True, help_text="Start of a fixed window; null for a flexible request."
    )
    not_before = models.DateTimeField(help_text="Earliest start.")
    deadline = models.DateTimeField(null=True, blank=True, help_text="Latest end.")
    duration_seconds = models.PositiveIntegerField(help_text="Length on the class that was chosen.")
    class_durations = models.JSONField(
        default=list, help_text="[class, seconds], cheapest first, where classes differ in speed."
    )
    extension_until = models.DateTimeField(
        null=True, blank=True, help_text="End that the owner asked to extend to; not yet decided."
    )
    waitlist = models.CharField(
        max_length=5,
        choices=WaitMode.choices,
        blank=True,
        db_default="",
        default="",
        help_text="How it waits if its window is full; empty: it is refused.",
    )

    # State
    state = models.CharField(max_length=20, choices=booking_states, default=State.REQUESTED)
    outcome = models.CharField(max_length=20, blank=True, help_text="How an ended booking ended.")
    awaits_parents = models.BooleanField(
        default=False, db_default=False, help_text="It depends on bookings that are not over."
    )
    result = models.CharField(
        max_length=8,
        blank=True,
        default="",
        db_default="",
        choices=[("success", "Success"), ("failure", "Failure")],
        help_text="What its program has reported.",
    )
    version = models.BigIntegerField(default=1, help_text="Rises with every change.")
    changed_at = models.DateTimeField(
        null=True, blank=True, help_text="Time of the last change; null: none since submission."
    )
    revision = models.PositiveIntegerField(
        db_default=1, default=1, help_text="Of the request: rises with each change of it."
    )
    ranked_at = models.DateTimeField(
        null=True, blank=True, help_text="Its place in line, if a change has given it another."
    )

    # Approval
    approved_hash = models.CharField(
        max_length=64, blank=True, db_default="", help_text="Digest that was approved; empty: none."
    )
    place_from = models.DateTimeField(
        null=True, blank=True, help_text="Earliest start of the place that is kept until then."
    )
    place_until = models.DateTimeField(
        null=True, blank=True, help_text="How long its place is kept while it awaits an approval."
    )

    has_override = models.BooleanField(
        db_default=False, default=False, help_text="A limit does not count it, or forbids it nothing."
    )
    is_drained = models.BooleanField(
        default=False,
        db_default=False,
        help_text="A stop or a budget's ladder keeps it from starting; it has no planned start.",
    )
    may_borrow = models.BooleanField(
        default=True,
        db_default=True,
        help_text="False while the ladder of a budget keeps it within guarantees.",
    )
    on_cheapest = models.BooleanField(
        default=False,
        db_default=False,
        help_text="The ladder of a budget wants the cheapest of its classes, not the first end.",
    )

    by_cost = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Its project lets the portal take the class that costs least, not the first end.",
    )

    pool = models.CharField(
        max_length=40,
        blank=True,
        default="",
        db_default="",
        help_text="The pool whose nodes it is planned on; empty: nodes of none.",
    )

    # Plan of the last cycle
    decision = models.ForeignKey(
        "allocation.Decision",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="The decision that last planned or placed it.",
    )
    planned_starts = models.DateTimeField(null=True, blank=True)
    planned_ends = models.DateTimeField(null=True, blank=True)
    planned_strength = models.CharField(  # noqa: DJ001 null is of no plan, or of one without it
        max_length=10,
        choices=PlannedStrength.choices,
        null=True,
        blank=True,
        help_text="Who may still delay the planned start; null if that is not known.",
    )
    announced_from = models.DateTimeField(
        null=True, blank=True, help_text="Start of the range that was last announced to the owner."
    )
    announced_until = models.DateTimeField(
        null=True, blank=True, help_text="Latest start that was announced to the owner."
    )
    planned_class = models.CharField(max_length=40, blank=True)
    planned_places = models.JSONField(default=list, help_text="{gpu, profile, start, size, share}.")
    reasons = models.JSONField(default=list, help_text="Why it does not start now.")
    alternatives = models.JSONField(default=list, help_text="Other ways to serve the request.")
    first_planned_start = models.DateTimeField(
        null=True, blank=True, help_text="The first planned start that was ever shown."
    )
    first_planned_at = models.DateTimeField(
        null=True, blank=True, help_text="When the first planned start was decided."
    )

    # Quota
    borrowed_units = models.BigIntegerField(
        db_default=0, default=0, help_text="Units above guarantees, of what it has or is planned."
    )
    at_risk_from = models.DateTimeField(
        null=True, blank=True, help_text="When a lender starts to wait for the borrowed units."
    )
    reclaims_from = models.DateTimeField(
        null=True, blank=True, help_text="When this booking starts to wait for units that are lent."
    )

    claimed_from = models.DateTimeField(
        null=True, blank=True, help_text="When it first waited for units that are lent."
    )

    # Money, in `currency`
    currency = models.CharField(max_length=3, default="EUR")
    price_version = models.PositiveIntegerField(help_text="The price book that was in force.")
    price_per_hour = models.DecimalField(**MONEY, help_text="Of the whole booking.")
    price_lines = models.JSONField(
        default=list,
        help_text="[{seconds, per_hour}] in order, if parts of its time have different prices.",
    )
    peak_surcharge = models.DecimalField(
        **MONEY, db_default=0, default=0, help_text="More per hour in peak hours."
    )
    peak_zone = models.CharField(max_length=64, blank=True, db_default="", default="")
    peak_weekly = models.JSONField(
        default=list, db_default=[], help_text="Peak hours, as its price book has them."
    )
    late_refunded = models.DecimalField(
        **MONEY, db_default=0, default=0, help_text="Late shares that an undo has given back."
    )
    hold_amount = models.DecimalField(**MONEY, help_text="The most that it can cost.")
    settled = models.DecimalField(
        **MONEY, db_default=0, default=0, help_text="Charged for earlier runs, out of the hold."
    )
    charged = models.DecimalField(
        **MONEY, null=True, blank=True, help_text="Charged in all; null until it is over."
    )
    corrected = models.DecimalField(
        **MONEY, db_default=0, default=0, help_text="Operators' later corrections; refunds are < 0."
    )
    fee_seconds = models.PositiveIntegerField(
        db_default=0, default=0, help_text="Charged beyond the use: a no-show's fee."
    )
    notice_seconds = models.PositiveIntegerField(
        db_default=0, default=0, help_text="As its tier had it when it was booked or changed."
    )
    late_share = models.PositiveSmallIntegerField(
        db_default=0, default=0, help_text="Percent of the price of time that is given up late."
    )
    setup_fee = models.DecimalField(
        **MONEY, db_default=0, default=0, help_text="Charged once, at the first start."
    )
    setup_paid = models.DecimalField(
        **MONEY, db_default=0, default=0, help_text="What of it is charged, a part of `settled`."
    )
    late_fees = models.DecimalField(
        **MONEY, db_default=0, default=0, help_text="Charged for late time, a part of `settled`."
    )
    cooling_until = models.DateTimeField(
        null=True,
        blank=True,
        help_text="It was cancelled after others had notice for it: until then nobody is paused "
        "for its owner on its class.",
    )

    # Current run
    ready_at = models.DateTimeField(null=True, blank=True, help_text="When its GPUs were ready.")
    checked_in_at = models.DateTimeField(null=True, blank=True, help_text="First sign of use.")
    saved_at = models.DateTimeField(null=True, blank=True, help_text="Last save of the work.")
    notified_at = models.DateTimeField(
        null=True, blank=True, help_text="When the notice of a pause was given."
    )
    released_at = models.DateTimeField(null=True, blank=True, help_text="When its run ended.")
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When the booking was over.")
    hardware_lost_at = models.DateTimeField(
        null=True, blank=True, help_text="When hardware or its maintenance last broke a run."
    )

    # Earlier runs
    pause_count = models.PositiveSmallIntegerField(db_default=0, default=0)
    replacement_count = models.PositiveSmallIntegerField(
        db_default=0, default=0, help_text="How often it was restarted on other nodes."
    )
    used_seconds = models.PositiveIntegerField(
        db_default=0, default=0, help_text="Of earlier runs that still have to be charged."
    )
    used_peak_seconds = models.PositiveIntegerField(
        db_default=0, default=0, help_text="Those of `used_seconds` that were in peak hours."
    )
    redo_seconds = models.PositiveIntegerField(
        db_default=0, default=0, help_text="Credited by pauses and not done again yet."
    )
    credited_seconds = models.PositiveIntegerField(
        db_default=0, default=0, help_text="Credited by pauses in all."
    )

    # Idle GPUs
    idle_seconds = models.PositiveIntegerField(
        db_default=0, default=0, help_text="Time with all GPUs idle without a break."
    )
    idle_counted_at = models.DateTimeField(
        null=True, blank=True, help_text="Until when `idle_seconds` are counted."
    )
    idle_veto_until = models.DateTimeField(
        null=True, blank=True, help_text="Until then its warned owner can say it is still needed."
    )
    idle_vetoes = models.PositiveSmallIntegerField(
        db_default=0, default=0, help_text="How often in a row the owner said so."
    )
    awaits_check_in = models.BooleanField(
        db_default=False,
        default=False,
        help_text="Paused because its GPUs were idle; it resumes only after a check-in.",
    )

    # Absence, for the no-show rule
    absent_seconds = models.PositiveIntegerField(
        db_default=0, default=0, help_text="Time without any sign of use, up to `absent_until`."
    )
    absent_until = models.DateTimeField(null=True, blank=True)
    absence_warnings = models.PositiveSmallIntegerField(
        db_default=0, default=0, help_text="Warnings sent to the owner."
    )

    class Meta:
        ordering = ["-submitted", "id"]
        indexes = [
            models.Index(
                fields=["state", "planned_starts"],
                name="booking_open",
                condition=~Q(state__in=["ended", "refused", "rejected", "expired", "cancelled", "failed"]),
            ),
            # Rows that each turn of the solver asks for; there are few, or none.
            models.Index(fields=["has_override"], name="booking_overridden", condition=Q(has_override=True)),
            models.Index(
                fields=["state"],
                name="booking_borrowing",
                condition=Q(borrowed_units__gt=0)
                | Q(at_risk_from__isnull=False)
                | Q(reclaims_from__isnull=False),
            ),
            models.Index(
                fields=["state"],
                name="booking_extended",
                condition=Q(extension_until__isnull=False),
            ),
            models.Index(fields=["state"], name="booking_with_data", condition=Q(ask__has_key="data")),
            models.Index(fields=["tenant"], name="booking_drained", condition=Q(is_drained=True)),
            models.Index(
                fields=["cooling_until"],
                name="booking_cooling",
                condition=Q(cooling_until__isnull=False),
            ),
            models.Index(fields=["tenant"], name="booking_kept_within", condition=Q(may_borrow=False)),
            models.Index(fields=["tenant"], name="booking_on_cheapest", condition=Q(on_cheapest=True)),
            # A text index can't be used behind row-level security, so a search scans one of these,
            # which hold every column that it reads.
            models.Index(
                fields=["tenant", "-submitted"],
                include=["id", "number", "name", "project", "owner"],
                name="booking_search",
            ),
            models.Index(
                fields=["tenant", "project", "-submitted"],
                include=["id", "number", "name", "owner"],
                name="booking_search_in_project",
            ),
            models.Index(
                fields=["tenant", "external_ref"],
                name="booking_by_reference",
                condition=~Q(external_ref=""),
            ),
            models.Index(
                fields=["tier", "-first_planned_start"],
                name="booking_first_planned",
                condition=Q(first_planned_start__isnull=False),
            ),
            models.Index(
                fields=["-ended_at"],
                name="booking_finished_runs",
                condition=Q(ready_at__isnull=False),
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "number", "array_index"],
                name="booking_number_in_tenant_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=Q(array=None, array_index=None)
                | Q(array__isnull=False, array_index__isnull=False, array_index__gte=1),
                name="booking_index_of_an_array",
            ),
            models.UniqueConstraint(fields=["tenant", "id"], name="booking_id_in_tenant"),
            models.CheckConstraint(condition=Q(external_ref__regex=r"^\S*$"), name="booking_reference_sane"),
            models.CheckConstraint(
                condition=Q(duration_seconds__gte=60, duration_seconds__lte=90 * 86_400),
                name="booking_duration_sane",
            ),
            models.CheckConstraint(
                condition=Q(hold_amount__gte=0, price_per_hour__gte=0)
                & (Q(charged=None) | Q(charged__gte=0, charged__lte=F("hold_amount"))),
                name="booking_money_sane",
            ),
            models.CheckConstraint(
                condition=Q(corrected=0)
                | Q(
                    charged__isnull=False,
                    corrected__gte=-F("charged"),
                    corrected__lte=F("hold_amount") - F("charged"),
                ),
                name="booking_correction_sane",
            ),
            models.CheckConstraint(
                condition=Q(late_refunded__gte=0, late_refunded__lte=F("late_fees")),
                name="booking_refund_within_late_fees",
            ),
            models.CheckConstraint(
                condition=Q(settled__gte=0, settled__lte=F("hold_amount")),
                name="booking_settled_sane",
            ),
            models.CheckConstraint(
                condition=Q(planned_strength=None)
                | Q(planned_strength__in=PlannedStrength.values, planned_starts__isnull=False),
                name="booking_strength_of_a_start",
            ),
            models.CheckConstraint(
                condition=Q(announced_from=None, announced_until=None)
                | Q(
                    announced_from__isnull=False,
                    announced_until__isnull=False,
                    announced_until__gte=F("announced_from"),
                    planned_starts__isnull=False,
                ),
                name="booking_announced_range_sane",
            ),
        ]

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """The number that people use, `BK-2041` or `BK-2041[17]`; unique in the tenant."""
        return booking_label(self.number, self.array_index)

    @property
    def node_name(self) -> str:
        """The same on nodes, where it is a part of paths: `BK-2041_17`."""
        return booking_node_name(self.number, self.array_index)

    @property
    def is_unplanned(self) -> bool:
        """Whether no start could be planned; the stored one is then not shown."""
        return bool(self.reasons) and self.reasons[0].get("code") in UNPROVEN

    @property
    def has_expected_start(self) -> bool:
        """Whether any booking ahead in the queue may delay its planned start."""
        return self.planned_strength in (None, PlannedStrength.EXPECTED)

    @property
    def expected_start(self) -> datetime | None:
        """The planned start, or None if no start could be planned."""
        return None if self.is_unplanned else self.planned_starts
