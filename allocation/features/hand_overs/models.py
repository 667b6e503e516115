"""The table of hand-overs."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import PROTECT, F, Q

from allocation.models import Booking
from tenants.models import ApiToken, Tenant

PERSON = settings.AUTH_USER_MODEL


class HandOver(models.Model):
    """An offer of a booking to a colleague. Only an accepted one lets the booking change its owner:
    a trigger compares the transaction."""

    class State(models.TextChoices):
        """Where the offer is."""

        OPEN = "open", "Open"
        ACCEPTED = "accepted", "Accepted"
        DECLINED = "declined", "Declined"
        WITHDRAWN = "withdrawn", "Withdrawn"
        EXPIRED = "expired", "Expired"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, PROTECT)
    booking = models.ForeignKey(Booking, PROTECT, db_constraint=False, related_name="hand_overs")
    revision = models.PositiveIntegerField(help_text="Of the booking's request, as it is offered.")
    giver = models.ForeignKey(PERSON, PROTECT, related_name="+", help_text="The owner.")
    taker = models.ForeignKey(PERSON, PROTECT, related_name="+", help_text="Who may accept it.")
    note = models.CharField(max_length=200, blank=True, help_text="What the taker reads.")
    created = models.DateTimeField()
    created_by = models.ForeignKey(
        PERSON, PROTECT, related_name="+", help_text="The owner, or a lead of the project."
    )
    made_with = models.ForeignKey(
        ApiToken,
        PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        related_name="+",
        help_text="The token that offered it, with which it ends; null: a browser.",
    )
    until = models.DateTimeField()
    state = models.CharField(max_length=9, choices=State, default=State.OPEN)
    answered = models.DateTimeField(null=True, blank=True)
    answered_by = models.ForeignKey(
        PERSON, PROTECT, null=True, blank=True, related_name="+", help_text="Null: nobody, it expired."
    )
    accepted_in = models.BigIntegerField(
        null=True, blank=True, help_text="The transaction of the acceptance; a trigger writes it."
    )

    class Meta:
        ordering = ["-created", "id"]
        indexes = [
            models.Index(fields=["tenant", "taker", "-created"], name="hand_over_by_taker"),
            models.Index(fields=["tenant", "giver", "-created"], name="hand_over_by_giver"),
            models.Index(fields=["until"], name="hand_over_open", condition=Q(state="open")),
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="hand_over_id_in_tenant"),
            models.UniqueConstraint(
                fields=["booking"], name="hand_over_open_once", condition=Q(state="open")
            ),
            models.CheckConstraint(condition=~Q(giver=F("taker")), name="hand_over_to_another"),
            models.CheckConstraint(condition=Q(until__gt=F("created")), name="hand_over_ends_later"),
            models.CheckConstraint(
                condition=Q(state="open", answered=None, answered_by=None)
                | Q(state="expired", answered__isnull=False, answered_by=None)
                | Q(
                    state__in=["declined", "withdrawn"],
                    answered__isnull=False,
                    answered_by__isnull=False,
                )
                | Q(
                    state="accepted",
                    answered__isnull=False,
                    answered__lt=F("until"),
                    answered_by__isnull=False,
                    answered_by=F("taker"),
                ),
                name="hand_over_answered",
            ),
            models.CheckConstraint(
                condition=Q(state="accepted", accepted_in__isnull=False)
                | (~Q(state="accepted") & Q(accepted_in=None)),
                name="hand_over_accepted_in",
            ),
        ]

    @property
    def parties(self) -> set[int]:
        """The people who get its notices: who gives it, who offered it, and who gets it."""
        return {self.giver_id, self.created_by_id, self.taker_id}
