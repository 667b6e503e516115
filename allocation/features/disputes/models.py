"""Disputes of statements, which an operator answers once."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from allocation.models.bookings import Booking
from tenants.models import Project, Tenant

OPEN, ACCEPTED, DECLINED, WITHDRAWN = "open", "accepted", "declined", "withdrawn"


class StatementDispute(models.Model):
    """A note that a month's statement is wrong: of a project or of the whole organisation.

    It changes no charge. An operator who accepts it writes a correction.
    """

    class State(models.TextChoices):
        """`open` becomes one of the others, once."""

        OPEN = OPEN, "Open"
        ACCEPTED = ACCEPTED, "Accepted"
        DECLINED = DECLINED, "Declined"
        WITHDRAWN = WITHDRAWN, "Withdrawn"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(
        Project,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        help_text="Null: the statement of the whole organisation.",
    )
    month = models.DateField(help_text="The first day of the month.")
    booking = models.ForeignKey(
        Booking,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        related_name="+",
        help_text="The booking whose charges are disputed; null: the statement.",
    )
    note = models.CharField(max_length=1000)
    state = models.CharField(max_length=9, choices=State.choices, default=State.OPEN)
    raised_at = models.DateTimeField()
    raised_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    answer = models.CharField(max_length=1000, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True)
    answered_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    class Meta:
        ordering = ["-raised_at", "id"]
        indexes = [models.Index(fields=["tenant", "month"], name="dispute_month")]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="dispute_id_in_tenant"),
            models.UniqueConstraint(
                fields=["tenant", "project", "month", "booking"],
                condition=Q(state=OPEN),
                name="dispute_open_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=Q(state__in=[OPEN, WITHDRAWN], answer="", answered_by=None)
                | Q(
                    state__in=[ACCEPTED, DECLINED],
                    answered_by__isnull=False,
                    answered_at__gte=F("raised_at"),
                )
                & ~Q(answer=""),
                name="dispute_answered_by_somebody",
            ),
        ]
