"""The directory of a tenant, which creates, changes and removes its people by SCIM 2.0."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Lower

from tenants.models.organisations import Tenant
from tenants.models.people import User


class DirectoryToken(models.Model):
    """The bearer token of a tenant's directory, stored as SHA-256. No web process reads it."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, primary_key=True)
    digest = models.BinaryField(max_length=32, unique=True)
    prefix = models.CharField(max_length=16)
    created = models.DateTimeField()
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    last_used = models.DateTimeField(null=True, blank=True)
    last_address = models.GenericIPAddressField(null=True, blank=True)


def _external_id_once(name: str) -> models.UniqueConstraint:
    """A directory finds people and groups by it; two would be found, and one switched off."""
    return models.UniqueConstraint(
        fields=["tenant", "external_id"], condition=~models.Q(external_id=""), name=name
    )


class DirectoryGroup(models.Model):
    """A group that the tenant's directory keeps. Its name is mapped to roles as for sign-on."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    name = models.CharField(max_length=200, help_text="`displayName` of the directory.")
    external_id = models.CharField(max_length=255, blank=True, help_text="`externalId`.")
    members = ArrayField(models.BigIntegerField(), help_text="Ids of accounts.")
    created = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(Lower("name"), "tenant", name="directory_group_once"),
            _external_id_once("directory_group_external_id_once"),
            models.UniqueConstraint(fields=["tenant", "id"], name="directory_group_id_in_tenant"),
        ]

    def __str__(self) -> str:
        return self.name


class DirectoryPerson(models.Model):
    """A person whose account the tenant's directory created."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    user = models.OneToOneField(User, on_delete=models.PROTECT, related_name="directory_person")
    user_name = models.CharField(max_length=150, help_text="`userName` of the directory.")
    external_id = models.CharField(
        max_length=255, blank=True, help_text="`externalId`: the subject at the provider."
    )
    created = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(Lower("user_name"), "tenant", name="directory_user_name_once"),
            _external_id_once("directory_external_id_once"),
        ]
