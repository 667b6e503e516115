"""Roles of operators."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from tenants.models.people import User
from tenants.rules.operator_roles import ROLES

LIMITED = [name for name, role in ROLES.items() if role.names]


class OperatorRole(models.Model):
    """A role of an operator, in force from `since` until `ended`."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="operator_roles")
    role = models.CharField(max_length=10, choices=[(name, role.label) for name, role in ROLES.items()])
    names = ArrayField(
        models.CharField(max_length=60),
        default=list,
        help_text="Classes, or racks and pools, to which it is limited; empty for other roles.",
    )
    created = models.DateTimeField()
    created_by = models.ForeignKey(
        User,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="Null: the owner of the database, by a command.",
    )
    since = models.DateTimeField(null=True, blank=True, help_text="Null: it waits for a second operator.")
    approved_by = models.ForeignKey(
        User,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="The second operator, if one was needed.",
    )
    ended = models.DateTimeField(null=True, blank=True)
    ended_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True, related_name="+")

    class Meta:
        ordering = ["user__username", "role", "-created", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "role"], condition=Q(ended=None), name="operator_role_once"
            ),
            models.CheckConstraint(condition=Q(role__in=list(ROLES)), name="operator_role_known"),
            models.CheckConstraint(
                condition=Q(role__in=LIMITED, names__len__gt=0) | (~Q(role__in=LIMITED) & Q(names=[])),
                name="operator_role_names",
            ),
            models.CheckConstraint(
                condition=Q(approved_by=None)
                | (~Q(approved_by=F("created_by")) & ~Q(approved_by=F("user")) & Q(since__isnull=False)),
                name="operator_role_second_is_another",
            ),
        ]

    @staticmethod
    def in_force() -> Q:
        """Returns the filter of those that count."""
        return Q(since__isnull=False, ended=None, user__is_active=True, user__is_staff=True)
