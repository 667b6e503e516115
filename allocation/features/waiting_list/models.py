"""The waiting list: bookings that wait for a window, and the places that are offered to them."""

import uuid
from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from allocation.features.waiting_list.rules import MOST_EXPIRED
from allocation.models import Booking, Decision, WaitMode
from allocation.rules.changes import MOST_WAITING
from billing.models import MONEY
from tenants.models import Tenant


class WaitEntry(models.Model):
    """What a booking on the waiting list waits for. The database closes it (`slot` is null) when
    its booking leaves the list."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    booking = models.OneToOneField(
        Booking, on_delete=models.PROTECT, related_name="wait_entry", db_constraint=False
    )
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    mode = models.CharField(max_length=5, choices=WaitMode.choices)
    slot = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="1 to 5: each person has so many entries; null: closed."
    )
    windows = models.JSONField(help_text="[from, until] in which all of its time must be.")
    until = models.DateTimeField(help_text="Its last possible start: after that it expires.")
    cost = models.DecimalField(**MONEY, help_text="The most that it can cost, held or not.")
    expired_count = models.PositiveSmallIntegerField(
        default=0, help_text="Offers in a row that nobody answered; after two it gets none."
    )
    quiet_until = models.DateTimeField(
        null=True, blank=True, help_text="It is night for its owner: no offer before this time."
    )
    created_at = models.DateTimeField()
    any_of = models.UUIDField(
        null=True, blank=True, help_text="Entries with the same one exclude each other."
    )
    is_met = models.BooleanField(default=False, db_default=False, help_text="Its booking got a place.")

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [
            models.Index(fields=["until"], name="wait_entry_due", condition=Q(slot__isnull=False)),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "owner", "slot"],
                name="wait_entries_of_a_person",
                condition=Q(slot__isnull=False),
            ),
            models.UniqueConstraint(fields=["tenant", "id"], name="wait_entry_in_tenant"),
            models.UniqueConstraint(fields=["any_of"], name="wait_entry_met_once", condition=Q(is_met=True)),
            models.CheckConstraint(
                condition=Q(slot=None) | Q(slot__gte=1, slot__lte=MOST_WAITING),
                name="wait_entry_slot_sane",
            ),
            models.CheckConstraint(
                condition=Q(mode__in=WaitMode.values, cost__gte=0), name="wait_entry_sane"
            ),
        ]

    @property
    def times(self) -> list[tuple[datetime, datetime]]:
        """Its windows as times."""
        parse = datetime.fromisoformat
        return [(parse(since), parse(until)) for since, until in self.windows]

    @property
    def is_dormant(self) -> bool:
        """Whether it gets no more offers, because two in a row had no answer."""
        return self.expired_count >= MOST_EXPIRED


class WaitOffer(models.Model):
    """A place that is offered to an entry until a time. Its rows are on the calendar meanwhile."""

    class State(models.TextChoices):
        """What became of it."""

        OPEN = "open", "Open"
        ACCEPTED = "accepted", "Accepted"
        DECLINED = "declined", "Declined"
        EXPIRED = "expired", "Expired"
        WITHDRAWN = "withdrawn", "Withdrawn"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    booking = models.ForeignKey(
        Booking, on_delete=models.PROTECT, related_name="wait_offers", db_constraint=False
    )
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    gpu_class = models.CharField(max_length=40)
    starts = models.DateTimeField()
    ends = models.DateTimeField()
    made_at = models.DateTimeField()
    until = models.DateTimeField(help_text="It can be accepted before this time.")
    decision = models.ForeignKey(Decision, on_delete=models.PROTECT, related_name="+")

    # Outcome
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    decided_at = models.DateTimeField(null=True, blank=True)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    class Meta:
        ordering = ["-made_at", "id"]
        indexes = [
            models.Index(fields=["until"], name="wait_offer_due", condition=Q(state="open")),
            models.Index(fields=["tenant", "owner", "-made_at"], name="wait_offers_of_a_person"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="wait_offer_in_tenant"),
            models.UniqueConstraint(
                fields=["booking"], name="wait_offer_one_open", condition=Q(state="open")
            ),
            models.UniqueConstraint(
                fields=["tenant", "owner", "gpu_class"],
                name="wait_offer_one_of_a_class",
                condition=Q(state="open"),
            ),
            models.CheckConstraint(
                condition=Q(made_at__lt=F("until"), until__lte=F("starts"), starts__lt=F("ends")),
                name="wait_offer_times_sane",
            ),
            models.CheckConstraint(
                condition=Q(state="open", decided_at=None, decided_by=None)
                | Q(
                    state__in=["accepted", "declined"],
                    decided_at__gte=F("made_at"),
                    decided_at__lt=F("until"),
                    decided_by__isnull=False,
                )
                | Q(state="expired", decided_at__gte=F("until"), decided_by=None)
                | Q(state="withdrawn", decided_at__isnull=False),
                name="wait_offer_decided_in_time",
            ),
        ]
