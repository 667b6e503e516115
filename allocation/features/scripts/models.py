"""The table of the scripts of bookings."""

from django.db import models
from django.db.models import PROTECT, Q
from django.db.models.functions import Length
from django.db.models.lookups import LessThanOrEqual

import wire
from allocation.models import Booking
from tenants.models import Tenant


class ScriptManager(models.Manager["BookingScript"]):
    """Lists leave out what is long; whoever needs it reads it by name."""

    def get_queryset(self) -> models.QuerySet["BookingScript"]:
        """All scripts, without their text and output."""
        return super().get_queryset().defer("text", "log")


class BookingScript(models.Model):
    """The script of a booking, and how it ended. Whoever has access to the booking reads it."""

    booking = models.OneToOneField(
        Booking, PROTECT, primary_key=True, db_constraint=False, related_name="script"
    )
    tenant = models.ForeignKey(Tenant, PROTECT, db_index=False)
    text = models.TextField(max_length=wire.SCRIPT_MAX_BYTES)
    log_file = models.CharField(max_length=300, blank=True, help_text="The file of its newest output.")
    log = models.TextField(max_length=wire.SCRIPT_LOG_LENGTH, blank=True, help_text="The end of its output.")
    exit_code = models.PositiveSmallIntegerField(null=True, blank=True)
    ended = models.CharField(
        max_length=300,
        blank=True,
        help_text="The engine's word for how it ended, or why it never ran.",
    )
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = ScriptManager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "booking"], name="script_in_tenant"),
            models.CheckConstraint(
                condition=Q(exit_code=None) | Q(ended_at__isnull=False), name="script_ended"
            ),
            models.CheckConstraint(
                condition=LessThanOrEqual(Length("text"), wire.SCRIPT_MAX_BYTES)
                & LessThanOrEqual(Length("log"), wire.SCRIPT_LOG_LENGTH),
                name="script_bounded",
            ),
        ]
