"""Tables of workloads: which advice was shown, and what a project lets the portal do by itself."""

from django.conf import settings
from django.db import models
from django.db.models import PROTECT, Q

from tenants.models import Project, Tenant


class AdviceShown(models.Model):
    """How often quotes of a workload have shown an advice."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, PROTECT, db_index=False)
    project = models.ForeignKey(Project, PROTECT, db_constraint=False, related_name="+", db_index=False)
    workload = models.CharField(max_length=63)
    code = models.CharField(max_length=16)
    shown = models.PositiveIntegerField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "workload", "code"], name="advice_shown_once"),
        ]


class Diversion(models.Model):
    """What a project lets the portal do with its classes: for all of its workloads (`workload` empty), or
    for one from `since` on, when somebody lets it divert again."""

    class Mode(models.TextChoices):
        OFF = "off", "Off"
        SUGGEST = "suggest", "Suggest"
        AUTOMATIC = "automatic", "Automatic"

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, PROTECT, db_index=False)
    project = models.ForeignKey(Project, PROTECT, db_constraint=False, related_name="+", db_index=False)
    workload = models.CharField(max_length=63, blank=True)
    mode = models.CharField(max_length=9, choices=Mode.choices)
    since = models.DateTimeField()
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, PROTECT, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "workload"], name="diversion_once"),
            models.CheckConstraint(
                condition=Q(mode__in=("off", "suggest", "automatic")), name="diversion_mode_known"
            ),
        ]
