"""What people asked for, what they were given, and what is really on the hardware."""

import uuid
from datetime import datetime

from django.conf import settings
from django.contrib.postgres.fields import BigIntegerRangeField, DateTimeRangeField
from django.db import models
from django.db.models import F, Q

from allocation.models.hardware import Gpu, GpuModel
from allocation.models.series import Series
from allocation.reasons.catalogue import UNPROVEN
from allocation.rules.states import State
from tenants.models import Project, Tenant, Tier


def booking_states() -> list[tuple[str, str]]:
    """Choices as a callable, so that a new state makes no migration."""
    return [(state.value, state.value.replace("_", " ").capitalize()) for state in State]


class Booking(models.Model):
    """The one object a person makes.

    `ask` is the canonical document (`allocation.rules.ask`). A fixed window has `starts` and
    `ends`; a flexible one `duration`, `not_before` and perhaps a `deadline`. The `planned_*`
    fields are the promise of the last cycle; `reasons` are that cycle's answer to "why not now".
    Of what it has or is promised `borrowed_units` lie above guarantees, and somebody who lends
    waits for them from `at_risk_from` on. `reclaims_from` makes this booking such a one.
    Money: `hold_amount` is the most that it can cost; of that `settled` was charged for earlier runs. What
    operators gave back or charged after its end is `corrected`, below zero for a refund. A
    run lasts from `ready_at` to `noticed_at` (told to pause) or `released_at`; its last save is
    `saved_at`.
    `class_durations` are (class, seconds) in order of cost, where time or price decides among classes.
    `first_planned_start` is the first start that was ever promised, at `first_planned_at`.
    It was begun anew elsewhere `replacement_count` times, after `used_seconds` that are charged in the end.
    Its run was last broken off by hardware, or for its maintenance, at `hardware_lost_at`.
    Pauses have credited `credited_seconds` in all; `redo_seconds` of them were not done again yet.
    `fee_seconds` are charged beyond its use. Nobody was seen in it for `absent_seconds`, counted
    until `absent_until`; its owner was warned `absence_warnings` times.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_constraint=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT)
    number = models.BigIntegerField()
    name = models.CharField(max_length=80, blank=True)
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT)
    ask = models.JSONField()
    request_text = models.CharField(max_length=200, blank=True)
    zone = models.CharField(max_length=64, default="UTC")

    duration_seconds = models.PositiveIntegerField()
    starts = models.DateTimeField(null=True, blank=True)
    not_before = models.DateTimeField()
    deadline = models.DateTimeField(null=True, blank=True)

    state = models.CharField(max_length=20, choices=booking_states, default=State.REQUESTED)
    outcome = models.CharField(max_length=20, blank=True)
    version = models.BigIntegerField(default=1)
    submitted = models.DateTimeField()
    decision = models.ForeignKey(
        "allocation.Decision", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    planned_starts = models.DateTimeField(null=True, blank=True)
    planned_ends = models.DateTimeField(null=True, blank=True)
    planned_class = models.CharField(max_length=40, blank=True)
    planned_places = models.JSONField(default=list)
    reasons = models.JSONField(default=list)
    alternatives = models.JSONField(default=list)
    borrowed_units = models.BigIntegerField(db_default=0, default=0)
    at_risk_from = models.DateTimeField(null=True, blank=True)
    reclaims_from = models.DateTimeField(null=True, blank=True)
    extension_until = models.DateTimeField(null=True, blank=True)
    class_durations = models.JSONField(default=list)
    first_planned_start = models.DateTimeField(null=True, blank=True)
    first_planned_at = models.DateTimeField(null=True, blank=True)
    series = models.ForeignKey(
        Series, on_delete=models.PROTECT, related_name="bookings", null=True, blank=True,
        db_constraint=False,
    )  # fmt: skip
    replacement_count = models.PositiveSmallIntegerField(db_default=0, default=0)
    used_seconds = models.PositiveIntegerField(db_default=0, default=0)
    redo_seconds = models.PositiveIntegerField(db_default=0, default=0)
    credited_seconds = models.PositiveIntegerField(db_default=0, default=0)
    fee_seconds = models.PositiveIntegerField(db_default=0, default=0)
    absent_seconds = models.PositiveIntegerField(db_default=0, default=0)
    absent_until = models.DateTimeField(null=True, blank=True)
    absence_warnings = models.PositiveSmallIntegerField(db_default=0, default=0)

    currency = models.CharField(max_length=3, default="EUR")
    price_version = models.PositiveIntegerField()
    price_per_hour = models.DecimalField(max_digits=20, decimal_places=6)
    hold_amount = models.DecimalField(max_digits=20, decimal_places=6)
    settled = models.DecimalField(max_digits=20, decimal_places=6, db_default=0, default=0)
    charged = models.DecimalField(max_digits=20, decimal_places=6, null=True, blank=True)
    corrected = models.DecimalField(max_digits=20, decimal_places=6, db_default=0, default=0)

    ready_at = models.DateTimeField(null=True, blank=True)
    saved_at = models.DateTimeField(null=True, blank=True)
    noticed_at = models.DateTimeField(null=True, blank=True)
    pause_count = models.PositiveSmallIntegerField(db_default=0, default=0)
    released_at = models.DateTimeField(null=True, blank=True)
    hardware_lost_at = models.DateTimeField(null=True, blank=True)
    checked_in_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-submitted", "id"]
        indexes = [
            models.Index(
                fields=["state"],
                name="booking_open",
                condition=~Q(
                    state__in=["ended", "refused", "rejected", "expired", "cancelled", "failed"]
                ),
            ),
            # They hold all that a search reads: behind row-level security no index serves words,
            # so a search walks one of these narrow ones instead of the wide rows.
            models.Index(
                fields=["tenant", "-submitted"],
                include=["id", "number", "name", "project", "owner"],
                name="booking_found",
            ),
            models.Index(
                fields=["tenant", "project", "-submitted"],
                include=["id", "number", "name", "owner"],
                name="booking_found_in_project",
            ),
            models.Index(
                fields=["tier", "-first_planned_start"],
                name="booking_promised",
                condition=Q(first_planned_start__isnull=False),
            ),
            models.Index(
                fields=["-ended_at"], name="booking_ran", condition=Q(ready_at__isnull=False)
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "number"], name="booking_number_in_tenant"),
            models.UniqueConstraint(fields=["tenant", "id"], name="booking_id_in_tenant"),
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
                condition=Q(settled__gte=0, settled__lte=F("hold_amount")),
                name="booking_settled_sane",
            ),
        ]

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """The human number, `BK-2041`, unique in its tenant."""
        return f"BK-{self.number}"

    @property
    def is_unplanned(self) -> bool:
        """No start could be planned: what is stored as one proves nothing and is not shown."""
        return bool(self.reasons) and self.reasons[0].get("code") in UNPROVEN

    @property
    def expected_start(self) -> datetime | None:
        """The planned start; None where nothing proves it."""
        return None if self.is_unplanned else self.planned_starts


class Allocation(models.Model):
    """Slots of one GPU for a period, given to a booking. Rows are plans, not yet reality.

    A row in the mode `shared` has `share` thousandths of the whole GPU, beside others; a trigger
    keeps their sum to a whole one at every instant, and leaves out a row that does not fit.

    `slots` is generated: [8·gpu_number + start, … + size) on the global slot line. The exclusion
    constraint over (slots, period) of live rows is the rule "no double booking"; the foreign keys
    to the GPU's identity and to the legal placements are the rule "only what hardware can do".
    `saved_at` and `suspended` are the agent's words: the owner's last save here, and that what ran
    here is frozen on the node and can go on there.

    A `leased` one is ended by its node when the portal is not heard from; `abandoned` is one whose
    booking went on without it, and that only waits for the proof that its device is empty; of the
    run that it broke off `counted_seconds` count.
    """

    class State(models.TextChoices):
        PLANNED = "planned", "Planned"
        STARTING = "starting", "Starting"
        ACTIVE = "active", "Active"
        RELEASING = "releasing", "Releasing"
        ENDED = "ended", "Ended"
        SUPERSEDED = "superseded", "Superseded"

    LIVE = ("planned", "starting", "active", "releasing")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_constraint=False)
    booking = models.ForeignKey(
        Booking, on_delete=models.PROTECT, related_name="allocations", db_constraint=False
    )
    gpu = models.ForeignKey(Gpu, on_delete=models.PROTECT)
    gpu_number = models.BigIntegerField()
    model = models.ForeignKey(GpuModel, on_delete=models.PROTECT)
    mode = models.CharField(max_length=8, choices=Gpu.Mode.choices)
    profile = models.CharField(max_length=24, null=True, blank=True)  # noqa: DJ001 a null profile switches the placement key off
    start = models.PositiveSmallIntegerField()
    size = models.PositiveSmallIntegerField()
    share = models.PositiveSmallIntegerField(null=True, blank=True)
    slots = models.GeneratedField(
        expression=models.Func(
            F("gpu_number") * 8 + F("start"),
            F("gpu_number") * 8 + F("start") + F("size"),
            function="int8range",
            output_field=BigIntegerRangeField(),
        ),
        output_field=BigIntegerRangeField(),
        db_persist=True,
    )
    units = models.BigIntegerField()
    period = DateTimeRangeField()
    state = models.CharField(max_length=12, choices=State.choices, default=State.PLANNED)
    devices = models.JSONField(default=list)
    error = models.CharField(max_length=200, blank=True)
    saved_at = models.DateTimeField(null=True, blank=True)
    suspended = models.BooleanField(db_default=False, default=False)
    leased = models.BooleanField(db_default=False, default=False)
    abandoned = models.BooleanField(db_default=False, default=False)
    counted_seconds = models.PositiveIntegerField(db_default=0, default=0)
    decision = models.ForeignKey(
        "allocation.Decision", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(mode="whole", profile=None, start=0, size=8, share=None)
                | Q(mode="sliced", profile__isnull=False, share=None)
                | Q(mode="shared", profile=None, start=0, size=8, share__gte=1, share__lte=999),
                name="allocation_mode_fits",
            ),
            models.CheckConstraint(condition=Q(units__gt=0), name="allocation_units"),
            models.CheckConstraint(
                condition=Q(abandoned=False) | Q(state__in=["releasing", "ended"]),
                name="allocation_abandoned_is_over",
            ),
        ]
        indexes = [
            models.Index(fields=["booking"], name="allocation_of_booking"),
        ]


class Occupancy(models.Model):
    """What is really on the hardware. Opened before a node is told to start, closed on proof.

    With `share` (thousandths) others may be there too, all together at most a whole GPU.
    """

    id = models.BigAutoField(primary_key=True)
    allocation = models.OneToOneField(Allocation, on_delete=models.PROTECT)
    gpu = models.ForeignKey(Gpu, on_delete=models.PROTECT)
    slots = BigIntegerRangeField()
    share = models.PositiveSmallIntegerField(null=True, blank=True)
    opened = models.DateTimeField()
    closed = models.DateTimeField(null=True, blank=True)


class BookingEvent(models.Model):
    """One line of a booking's history, written in the transaction that made it true."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    booking = models.ForeignKey(
        Booking, on_delete=models.PROTECT, related_name="events", db_constraint=False
    )
    at = models.DateTimeField()
    kind = models.CharField(max_length=40)
    state = models.CharField(max_length=20, choices=booking_states)
    sentence = models.CharField(max_length=300)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True
    )
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["tenant", "booking", "id"], name="event_of_booking")]

    @property
    def starts(self) -> datetime | None:
        """The start that the line speaks of, to be said in the reader's zone."""
        return self._moment("starts")

    @property
    def until(self) -> datetime | None:
        """The end that the line speaks of."""
        return self._moment("until")

    @property
    def at_risk_from(self) -> datetime | None:
        """The time from which what is borrowed may be asked for."""
        return self._moment("at_risk_from")

    def _moment(self, name: str) -> datetime | None:
        text = self.detail.get(name)
        return datetime.fromisoformat(text) if text else None
