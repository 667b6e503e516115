"""People who have left and projects that were closed, as long as something of theirs is open."""

from django.conf import settings
from django.db import models

from tenants.models.organisations import Project, Tenant


class Departure(models.Model):
    """Who may not book any more, or what was closed. Triggers write it with every change of rights;
    the next turn of the solver ends what is planned, and removes it when nothing is open."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="Null: everybody.",
    )
    project = models.ForeignKey(
        Project,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        db_constraint=False,
        help_text="Null: all projects of the organisation.",
    )
    is_seen = models.BooleanField(
        default=False, db_default=False, help_text="Whether a turn has ended what was planned."
    )

    class Meta:
        indexes = [models.Index(fields=["id"], name="departure_new", condition=models.Q(is_seen=False))]
