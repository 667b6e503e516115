"""Tables of notebooks, of the browsers that are let into them, and of what nodes offer."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import PROTECT, Q

from allocation.models import Booking, Node
from tenants.models import Tenant

SECRET_BYTES = 32


class NodeNotebooks(models.Model):
    """What a node offers, as its last message said."""

    node = models.OneToOneField(Node, models.CASCADE, primary_key=True, related_name="+")
    programs = models.JSONField(help_text="Names of the site's list on the node.")
    seq = models.PositiveBigIntegerField(help_text="The number of its last message.")


class Notebook(models.Model):
    """A program with a web page on a booking's node. Its owner's alone, and over with the booking."""

    class State(models.TextChoices):
        """Where it is on its way."""

        ASKED = "asked", "Asked"
        STARTING = "starting", "Starting"
        READY = "ready", "Ready"
        ENDED = "ended", "Ended"
        FAILED = "failed", "Failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, PROTECT)
    booking = models.ForeignKey(Booking, PROTECT, db_constraint=False, related_name="notebooks")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, PROTECT, related_name="+")
    node = models.ForeignKey(Node, PROTECT, related_name="+")
    program = models.CharField(max_length=40)
    label = models.CharField(max_length=24, unique=True, help_text="Its host's name below NOTEBOOK_URL's.")
    state = models.CharField(max_length=8, choices=State, default=State.ASKED)
    reason = models.CharField(max_length=300, blank=True, help_text="Why it ended or failed.")
    key = models.CharField(
        max_length=64, blank=True, help_text="SHA-256 of the secret of its tunnels; empty: none is known."
    )
    is_ordered = models.BooleanField(default=False, help_text="It stands in its node's document.")
    run = models.DateTimeField(help_text="When the run of the booking began, with which it ends.")
    asked_at = models.DateTimeField()
    ready_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-asked_at", "id"]
        indexes = [
            models.Index(fields=["node"], name="notebook_ordered", condition=Q(is_ordered=True)),
            models.Index(fields=["booking", "-asked_at"], name="notebook_of_booking"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="notebook_id_in_tenant"),
            models.UniqueConstraint(
                fields=["booking"], name="notebook_open_once", condition=Q(ended_at=None)
            ),
            models.CheckConstraint(
                condition=Q(ended_at=None, state__in=["asked", "starting", "ready"])
                | Q(ended_at__isnull=False, state__in=["ended", "failed"]),
                name="notebook_ended",
            ),
        ]


class NotebookEntry(models.Model):
    """A browser that is let into a notebook: first by a ticket, once, and then by a cookie.

    Both are stored as SHA-256. It ends with the session of the portal in which the ticket was made.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, PROTECT)
    notebook = models.ForeignKey(Notebook, models.CASCADE, db_constraint=False, related_name="entries")
    session = models.BinaryField(max_length=SECRET_BYTES, help_text="Digest of the portal's session.")
    ticket = models.BinaryField(max_length=SECRET_BYTES, unique=True)
    ticket_until = models.DateTimeField()
    cookie = models.BinaryField(max_length=SECRET_BYTES, unique=True, null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="notebook_entry_in_tenant"),
        ]
