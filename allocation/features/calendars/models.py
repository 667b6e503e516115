"""The table of calendars."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from tenants.models import ApiToken, GpuClass, Project, Tenant


class CalendarFeed(models.Model):
    """A calendar of the owner's bookings, of a project or of a class, for anybody with its address.

    It shows what the owner may see at the time of reading. Only the SHA-256 of the token in the
    address is stored; the address is shown once.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT, null=True, blank=True)
    digest = models.BinaryField(max_length=32, unique=True)
    made_with = models.ForeignKey(
        ApiToken,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        related_name="+",
        help_text="The token that made it, with which it ends; null: a browser.",
    )
    created = models.DateTimeField()
    revoked = models.DateTimeField(null=True, blank=True)
    address: str | None = None
    """Where a calendar that was just made is read; it is not stored."""

    class Meta:
        ordering = ["created", "id"]
        constraints = [
            models.CheckConstraint(condition=Q(project=None) | Q(gpu_class=None), name="feed_of_one_thing"),
        ]

    @property
    def name(self) -> str:
        """What calendar programs show; needs `project` and `gpu_class` loaded."""
        if self.project is not None:
            return f"GPU bookings of {self.project.name}"
        return f"{self.gpu_class.label} bookings" if self.gpu_class is not None else "My GPU bookings"
