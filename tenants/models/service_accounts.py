"""Accounts of programs, which belong to a project and not to a person."""

import uuid

from django.db import models

from tenants.models.organisations import Project, Tenant
from tenants.models.people import User


class ServiceAccount(models.Model):
    """An account without sign-in that works in one project, by its tokens only."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_constraint=False)
    user = models.OneToOneField(
        User,
        on_delete=models.PROTECT,
        related_name="service_account",
        help_text="Owns what the program books. It has no password.",
    )
    name = models.CharField(max_length=80)
    created = models.DateTimeField()
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    closed = models.DateTimeField(null=True, blank=True)
