"""The fields of rows that a person of a tenant makes and somebody may end."""

import uuid
from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import PROTECT, F, Q

from tenants.models.organisations import Tenant

ENDED_BY_SOMEBODY = Q(ended=None, ended_by=None) | Q(ended__gte=F("created"), ended_by__isnull=False)


class EndedRow(models.Model):
    """A row with its maker, in force until somebody ends it; add ENDED_BY_SOMEBODY as a check."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, PROTECT)
    created = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, PROTECT, related_name="+")
    ended = models.DateTimeField(null=True, blank=True, help_text="When it was ended early.")
    ended_by = models.ForeignKey(settings.AUTH_USER_MODEL, PROTECT, null=True, blank=True, related_name="+")

    class Meta:
        abstract = True

    def end(self, actor_id: int, now: datetime) -> None:
        """Sets its end, never before it was made: times of REST are whole seconds, and a page's may be
        later in the same second."""
        self.ended, self.ended_by_id = max(now, self.created), actor_id
