"""The tables of limit cuts."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import PROTECT, F, Q

from allocation.models import Booking, Pause
from tenants.models import GpuClass, Lab, Project, Tenant

PERSON = settings.AUTH_USER_MODEL
_UNITS_OR_HOURS = Q(limit_units__isnull=False, limit_units__gte=0) | Q(
    limit_units=None, cap_gpu_hours__isnull=False
)


class LimitCut(models.Model):
    """A limit, or a guarantee, that is lower than what its owner's bookings have, until they fit it.

    The owner is a project, a lab, or else the tenant; with `of_persons` a person there, or everybody
    who has no limit of their own.
    """

    class Answer(models.TextChoices):
        """What happens to what is above the limit."""

        KEEP = "keep", "Keep"
        DRAIN = "drain", "Drain"
        PAUSE = "pause", "Pause"

    class Outcome(models.TextChoices):
        """Why it is over."""

        MET = "met", "Met"
        RAISED = "raised", "Raised"
        CANCELLED = "cancelled", "Cancelled"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, PROTECT)
    gpu_class = models.ForeignKey(GpuClass, PROTECT)

    # Owner
    project = models.ForeignKey(Project, PROTECT, null=True, blank=True, db_constraint=False)
    lab = models.ForeignKey(Lab, PROTECT, null=True, blank=True, db_constraint=False)
    of_persons = models.BooleanField(default=False, help_text="The limit is that of a person there.")
    person = models.ForeignKey(
        PERSON, PROTECT, null=True, blank=True, related_name="+", help_text="Null: everybody there."
    )

    # Limit
    limit_units = models.BigIntegerField(null=True, blank=True, help_text="Null: only the cap was cut.")
    cap_gpu_hours = models.PositiveIntegerField(null=True, blank=True)
    cap_days = models.PositiveSmallIntegerField(null=True, blank=True)
    cap_carries = models.BooleanField(default=False)
    of_guarantee = models.BooleanField(
        default=False, db_default=False, help_text="It is what the owner is guaranteed."
    )
    before_units = models.BigIntegerField(
        null=True, blank=True, help_text="What a guarantee was: what was above it is not concerned."
    )
    source = models.UUIDField(
        null=True, blank=True, help_text="The limit at some times, or guarantee between dates."
    )
    since = models.DateTimeField(null=True, blank=True, help_text="Of a guarantee between dates.")
    until = models.DateTimeField(null=True, blank=True)
    answer = models.CharField(max_length=5, choices=Answer.choices)

    created = models.DateTimeField()
    changed = models.DateTimeField(help_text="When the limit or the answer was last set.")
    changed_by = models.ForeignKey(PERSON, PROTECT, null=True, blank=True, related_name="+")
    ended = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(max_length=9, choices=Outcome.choices, blank=True, default="")

    class Meta:
        ordering = ["created", "id"]
        indexes = [models.Index(fields=["tenant", "-created"], name="limit_cut_by_tenant")]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="limit_cut_id_in_tenant"),
            models.UniqueConstraint(
                fields=[
                    *("tenant", "gpu_class", "project", "lab", "of_persons", "person"),
                    *("of_guarantee", "source"),
                ],
                condition=Q(ended=None),
                nulls_distinct=False,
                name="limit_cut_open_once",
            ),
            models.CheckConstraint(condition=Q(project=None) | Q(lab=None), name="limit_cut_of_one_owner"),
            models.CheckConstraint(
                condition=Q(of_persons=False, person=None) | Q(of_persons=True, lab=None),
                name="limit_cut_of_persons",
            ),
            models.CheckConstraint(condition=_UNITS_OR_HOURS, name="limit_cut_has_a_limit"),
            models.CheckConstraint(
                condition=Q(of_guarantee=False, before_units=None)
                | Q(
                    of_guarantee=True,
                    before_units__isnull=False,
                    limit_units__isnull=False,
                    of_persons=False,
                ),
                name="limit_cut_of_a_guarantee",
            ),
            models.CheckConstraint(
                condition=Q(answer__in=["keep", "drain", "pause"]), name="limit_cut_answer_known"
            ),
            models.CheckConstraint(
                condition=Q(ended=None, outcome="")
                | Q(ended__isnull=False, ended__gte=F("created"), outcome__in=["met", "raised", "cancelled"]),
                name="limit_cut_ended_with_an_outcome",
            ),
        ]


class KeptBooking(models.Model):
    """A booking that was there when a limit was cut, which the limit does not forbid anything."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, PROTECT)
    cut = models.ForeignKey(LimitCut, PROTECT, db_constraint=False, related_name="kept")
    booking = models.ForeignKey(Booking, PROTECT, db_constraint=False, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cut", "booking"], name="kept_booking_once")]


class CutPause(models.Model):
    """A pause that a cut asked for. It stands while the cut asks for pauses and has not released it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, PROTECT)
    cut = models.ForeignKey(LimitCut, PROTECT, db_constraint=False, related_name="pauses")
    pause = models.ForeignKey(Pause, PROTECT, db_constraint=False, related_name="+")
    released = models.DateTimeField(
        null=True, blank=True, help_text="When the booking fitted the limit again."
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["pause"], name="cut_pause_once")]
