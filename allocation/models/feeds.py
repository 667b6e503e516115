"""Calendars that programs subscribe to."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from tenants.models import GpuClass, Project, Tenant


class CalendarFeed(models.Model):
    """A calendar that whoever has its address may read: the owner's bookings, those of a project,
    or those of a class.

    Only the SHA-256 of the address' token is stored; the clear text is shown once. What is in it
    is what the owner may see when it is read.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False
    )
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT, null=True, blank=True)
    digest = models.BinaryField(max_length=32, unique=True)
    created = models.DateTimeField()
    revoked = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["created", "id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(project=None) | Q(gpu_class=None), name="feed_of_one_thing"
            ),
        ]
