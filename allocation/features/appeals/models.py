"""The table of appeals against pauses."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import PROTECT, F, Q

from allocation.models import Booking, Pause
from tenants.models import Tenant

PERSON = settings.AUTH_USER_MODEL
MOST_TEXT = 500


class PauseAppeal(models.Model):
    """A person's objection to a pause, once for each pause, and its answer."""

    class State(models.TextChoices):
        """`open` becomes one of the others, once."""

        OPEN = "open", "Open"
        ACCEPTED = "accepted", "Accepted"
        DECLINED = "declined", "Declined"

    class Decider(models.TextChoices):
        """Who answers: admins of the organisation where its own rule or work caused the pause."""

        ADMIN = "admin", "The organisation's admins"
        OPERATOR = "operator", "The operators"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, PROTECT)
    booking = models.ForeignKey(Booking, PROTECT, db_constraint=False, related_name="+")
    pause = models.OneToOneField(Pause, PROTECT, db_constraint=False, related_name="appeal")
    reason = models.CharField(max_length=MOST_TEXT)
    decider = models.CharField(max_length=8, choices=Decider)
    raised = models.DateTimeField()
    raised_by = models.ForeignKey(PERSON, PROTECT, related_name="+")
    state = models.CharField(max_length=8, choices=State, default=State.OPEN)
    answer = models.CharField(max_length=MOST_TEXT, blank=True)
    answered = models.DateTimeField(null=True, blank=True)
    answered_by = models.ForeignKey(PERSON, PROTECT, null=True, blank=True, related_name="+")

    class Meta:
        ordering = ["-raised", "id"]
        indexes = [
            models.Index(fields=["tenant", "-raised"], name="pause_appeal_of_tenant"),
            models.Index(fields=["raised"], name="pause_appeal_open", condition=Q(state="open")),
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="pause_appeal_id_in_tenant"),
            models.CheckConstraint(condition=~Q(reason=""), name="pause_appeal_has_a_reason"),
            models.CheckConstraint(
                condition=Q(decider__in=["admin", "operator"]), name="pause_appeal_decider_known"
            ),
            models.CheckConstraint(
                condition=Q(state="open", answer="", answered=None, answered_by=None)
                | Q(
                    state__in=["accepted", "declined"],
                    answered__isnull=False,
                    answered__gte=F("raised"),
                    answered_by__isnull=False,
                )
                & ~Q(answer="")
                & ~Q(answered_by=F("raised_by")),
                name="pause_appeal_answered_by_another",
            ),
        ]
