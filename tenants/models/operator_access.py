"""Access of operators to the data of a tenant, for a while and for a reason."""

import uuid
from datetime import datetime

from django.db import models
from django.db.models import F, Q

from tenants.models.organisations import Tenant
from tenants.models.people import User


class OperatorAccess(models.Model):
    """An operator reads the pages of a tenant, as one of its people or as an admin would.

    It only reads. It ends at `until`, or when an operator ends it.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    operator = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    person = models.ForeignKey(
        User,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="Whose pages are shown; null: those of an admin.",
    )
    reason = models.CharField(max_length=200, help_text="The tenant's admins read it.")
    opened = models.DateTimeField()
    until = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-opened", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["operator", "tenant"],
                condition=Q(ended_at=None),
                name="operator_access_one_open",
            ),
            models.CheckConstraint(condition=Q(until__gt=F("opened")), name="operator_access_window_sane"),
            models.CheckConstraint(condition=~Q(reason=""), name="operator_access_has_reason"),
        ]
        indexes = [
            models.Index(fields=["until"], name="operator_access_open", condition=Q(ended_at=None)),
        ]

    def is_open(self, now: datetime) -> bool:
        """Whether it still shows anything."""
        return self.ended_at is None and now < self.until
