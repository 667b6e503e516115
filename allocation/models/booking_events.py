"""The history of bookings, and planned starts that became later."""

from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from allocation.models.bookings import Booking, PlannedStrength, booking_states
from allocation.words.events import event_sentence, until_label
from allocation.words.reasons import stored_sentence
from tenants.models import Tenant


class BookingEvent(models.Model):
    """A line of a booking's history, written in the transaction of the change."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    booking = models.ForeignKey(Booking, on_delete=models.PROTECT, related_name="events", db_constraint=False)
    at = models.DateTimeField()
    kind = models.CharField(max_length=40)
    state = models.CharField(max_length=20, choices=booking_states)
    sentence = models.CharField(max_length=300)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True)
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["tenant", "booking", "id"], name="event_of_booking")]

    @property
    def text(self) -> str:
        """The sentence in the reader's language; an old event has the one it was stored with."""
        stored = self.detail.get("text")
        return event_sentence(stored) if stored else self.sentence

    @property
    def starts(self) -> datetime | None:
        """The start in `detail`, for display in the reader's time zone."""
        return self._moment("starts")

    @property
    def latest(self) -> datetime | None:
        """The latest start in `detail`; `starts` is the earliest."""
        return self._moment("latest")

    @property
    def was(self) -> datetime | None:
        """The start in `detail` announced before; `was_latest` is its latest."""
        return self._moment("was")

    @property
    def was_latest(self) -> datetime | None:
        """The latest start in `detail` announced before."""
        return self._moment("was_latest")

    @property
    def until(self) -> datetime | None:
        """The second time in `detail`; `until_label` says what it is."""
        return self._moment("until")

    @property
    def until_label(self) -> str:
        """`End`, or what else happens at `until`."""
        return until_label(self.kind)

    @property
    def at_risk_from(self) -> datetime | None:
        """The time in `detail` from which borrowed quota can be reclaimed."""
        return self._moment("at_risk_from")

    @property
    def not_before(self) -> datetime | None:
        """The start of a window in `detail`."""
        return self._moment("not_before")

    @property
    def deadline(self) -> datetime | None:
        """The end of a window in `detail`."""
        return self._moment("deadline")

    def _moment(self, name: str) -> datetime | None:
        text = self.detail.get(name)
        return datetime.fromisoformat(text) if text else None


class MovedStart(models.Model):
    """A receipt: the planned start left the range that was announced, and a new one was announced.

    `decision` with `rule` says why. `claimant` is the booking that goes first, if it is of the same
    organisation and known; another organisation's is never stored.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    booking = models.ForeignKey(
        Booking,
        on_delete=models.PROTECT,
        related_name="moved_starts",
        db_constraint=False,
        db_index=False,
    )
    at = models.DateTimeField()
    decision = models.ForeignKey(
        "allocation.Decision", on_delete=models.PROTECT, related_name="+", db_index=False
    )

    # Ranges announced before and after
    was_from = models.DateTimeField()
    was_until = models.DateTimeField()
    now_from = models.DateTimeField()
    now_until = models.DateTimeField()
    strength = models.CharField(
        max_length=10, choices=PlannedStrength.choices, help_text="Of the start that was left."
    )

    # Cause
    rule = models.CharField(max_length=8)
    overtaken_by = models.CharField(
        max_length=10, blank=True, help_text="Key of the order by which another booking goes first."
    )
    is_own = models.BooleanField(help_text="The own organisation's work goes first.")
    claimant = models.ForeignKey(
        Booking,
        on_delete=models.PROTECT,
        related_name="+",
        null=True,
        blank=True,
        db_constraint=False,
    )
    reason = models.JSONField(help_text="The reason as the plan gives it.")

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(fields=["tenant", "booking", "id"], name="moved_start_of_booking"),
            models.Index(fields=["at"], name="moved_start_by_time"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(
                    was_until__gte=F("was_from"),
                    now_until__gte=F("now_from"),
                    now_from__gt=F("was_until"),
                ),
                name="moved_start_is_later",
            ),
            models.CheckConstraint(
                condition=Q(claimant=None) | Q(is_own=True), name="moved_start_names_own_only"
            ),
        ]

    @property
    def was(self) -> dict[str, datetime]:
        """The range that was announced before, as REST shows it."""
        return {"earliest": self.was_from, "latest": self.was_until}

    @property
    def sentence(self) -> str:
        """Why it moved, in the reader's language."""
        return stored_sentence(self.reason)
