"""The audit log, the seals that chain it, and the files of the archive."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from tenants.models.organisations import Tenant
from tenants.models.people import User


class AuditEntry(models.Model):
    """A line of the audit log, written in the transaction of the act and never changed.

    Without a tenant it is about the platform: sign-ins and acts of operators, with their address.
    It has no personal data but ids.
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
        indexes = [
            models.Index(fields=["tenant", "-at", "-id"], name="audit_newest"),
            models.Index(fields=["tenant", "actor", "-at", "-id"], name="audit_by_actor"),
            models.Index(fields=["tenant", "object_kind", "-at", "-id"], name="audit_by_kind"),
        ]


class AuditSeal(models.Model):
    """A link of a chain over rows of `source`. See `tenants.services.sealed_log.chain`."""

    id = models.BigAutoField(primary_key=True)
    source = models.CharField(max_length=20)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True)
    number = models.PositiveBigIntegerField(help_text="Position in the chain of the tenant.")
    entries = ArrayField(models.BigIntegerField(), help_text="Keys of the sealed rows.")
    marks = models.BinaryField(help_text="First bytes of each row's SHA-256.")
    previous = models.BinaryField(max_length=32, help_text="Digest of the seal before.")
    digest = models.BinaryField(max_length=32, help_text="Over the rows and the seal before.")
    through = models.BigIntegerField(help_text="Highest key that is sealed.")
    sealed = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["source", "tenant", "number"], name="audit_seal_once", nulls_distinct=False
            ),
        ]
        indexes = [models.Index(fields=["source", "sealed"], name="audit_seal_latest")]


class ArchiveFile(models.Model):
    """A file of rows that were moved out of the database. See `portal.storage.archive`."""

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=20)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True)
    name = models.CharField(max_length=120, unique=True)
    rows = models.PositiveIntegerField()
    last_seal = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Number of the last seal whose rows are in the file."
    )
    sha256 = models.BinaryField(max_length=32)
    written = models.DateTimeField()
