"""What was done, sealed in chains, and the files into which old lines move."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from tenants.models.organisations import Tenant, User


class AuditEntry(models.Model):
    """Who did what to what. Written with the work, never changed; no personal data but ids.

    Without a tenant it is about the platform: sign-ins, and every act of operators, with the
    address that it came from.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True)
    at = models.DateTimeField()
    actor = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True)
    action = models.CharField(max_length=60)
    object_kind = models.CharField(max_length=40)
    object_id = models.CharField(max_length=64)
    detail = models.JSONField(default=dict)

    class Meta:
        indexes = [models.Index(fields=["tenant", "-at"], name="audit_latest")]


class AuditSeal(models.Model):
    """One link of a chain over rows of `source`: tenants.services.audit_chain.

    `entries` are the keys of its rows, `marks` the first bytes of each row's SHA-256, and `digest`
    is over all of them and the `previous` seal.
    """

    id = models.BigAutoField(primary_key=True)
    source = models.CharField(max_length=20)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True)
    number = models.PositiveBigIntegerField()
    entries = ArrayField(models.BigIntegerField())
    marks = models.BinaryField()
    previous = models.BinaryField(max_length=32)
    digest = models.BinaryField(max_length=32)
    through = models.BigIntegerField()
    sealed = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["source", "tenant", "number"], name="audit_seal_once", nulls_distinct=False
            ),
        ]
        indexes = [models.Index(fields=["source", "sealed"], name="audit_seal_latest")]


class ArchiveFile(models.Model):
    """A file of rows that left the database: portal.storage.archive.

    A file of the log holds rows of one chain up to `last_seal`.
    """

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=20)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True)
    name = models.CharField(max_length=120, unique=True)
    rows = models.PositiveIntegerField()
    last_seal = models.PositiveBigIntegerField(null=True, blank=True)
    sha256 = models.BinaryField(max_length=32)
    written = models.DateTimeField()
