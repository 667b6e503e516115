"""The table of stand-ins."""

from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import PROTECT, F, Q

from tenants.models import ApiToken, Project, set_by_valid_token
from tenants.models.rows import ENDED_BY_SOMEBODY, EndedRow

PERSON = settings.AUTH_USER_MODEL


class StandIn(EndedRow):
    """A person who decides requests for another one inside [starts, until).

    Only the rights that the approver has at the time of a decision count.
    """

    approver = models.ForeignKey(PERSON, PROTECT, related_name="+")
    person = models.ForeignKey(PERSON, PROTECT, related_name="+", help_text="Who decides for the approver.")
    project = models.ForeignKey(
        Project,
        PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        help_text="Requests of this project only; null: all that the approver decides.",
    )
    made_with = models.ForeignKey(
        ApiToken,
        PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        related_name="+",
        help_text="The token that named them, with which it ends; null: a browser.",
    )
    starts = models.DateTimeField()
    until = models.DateTimeField()

    class Meta:
        ordering = ["starts", "id"]
        indexes = [
            models.Index(fields=["tenant", each], name=f"stand_in_by_{each}", condition=Q(ended=None))
            for each in ("person", "approver")
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="stand_in_id_in_tenant"),
            models.CheckConstraint(condition=~Q(person=F("approver")), name="stand_in_is_another"),
            models.CheckConstraint(condition=Q(until__gt=F("starts")), name="stand_in_ends_later"),
            models.CheckConstraint(condition=ENDED_BY_SOMEBODY, name="stand_in_ended_by_somebody"),
        ]

    @staticmethod
    def in_force(now: datetime) -> Q:
        """Returns the filter of those that count at this instant."""
        return Q(starts__lte=now) & StandIn.still_open(now)

    @staticmethod
    def still_open(now: datetime) -> Q:
        """Returns the filter of those that count now or later."""
        return Q(until__gt=now, ended=None) & set_by_valid_token(now)
