"""Single sign-on of a tenant by an OpenID Connect provider, and the people who use it."""

import uuid

from django.db import models
from django.db.models import Q

from tenants.models.organisations import Project, Role, Tenant
from tenants.models.people import User


class SignOnProvider(models.Model):
    """The OpenID Connect provider of a tenant. No web process reads it."""

    tenant = models.OneToOneField(Tenant, on_delete=models.PROTECT, primary_key=True)
    issuer = models.CharField(max_length=200)
    client_id = models.CharField(max_length=200)
    sealed_secret = models.TextField(help_text="The client secret, encrypted for this tenant.")
    groups_claim = models.CharField(max_length=80, default="groups")
    endpoints = models.JSONField(
        help_text="Addresses of the provider's endpoints, from its discovery document."
    )
    is_on = models.BooleanField(default=False)
    checked = models.DateTimeField(help_text="When the discovery document was last read.")


class SignOnGroup(models.Model):
    """The role that a group of the provider gives, in a project or, for admins, in the tenant."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    group = models.CharField(max_length=200, help_text="The name in the claim; * is everybody.")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)
    role = models.CharField(max_length=16, choices=Role.choices)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "group", "project"],
                name="sign_on_group_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=Q(role="tenant_admin", project=None)
                | (Q(role__in=["viewer", "researcher", "lead"]) & Q(project__isnull=False)),
                name="sign_on_group_role_fits",
            ),
            # Everybody at a provider can be anybody, so nobody administers by that alone.
            models.CheckConstraint(
                condition=~Q(group="*", role="tenant_admin"), name="sign_on_group_admin_named"
            ),
        ]


class SignOnIdentity(models.Model):
    """A person of a tenant's provider, and their account. Found by issuer and subject only."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    issuer = models.CharField(max_length=200)
    subject = models.CharField(max_length=255)
    email = models.EmailField(
        blank=True, db_default="", default="", help_text="As the provider has verified it."
    )
    created = models.DateTimeField()
    last_sign_in = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "issuer", "subject"], name="sign_on_identity_once"),
            models.UniqueConstraint(fields=["tenant", "user"], name="sign_on_identity_of_user"),
        ]


class SignOnAttempt(models.Model):
    """A sign-in that was sent to a provider. Its answer counts once, in the same browser."""

    digest = models.BinaryField(max_length=32, primary_key=True, help_text="SHA-256 of the state.")
    session = models.BinaryField(max_length=32, help_text="The digest of the browser's session.")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE)
    user = models.ForeignKey(
        User,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="The signed-in person who connects their account.",
    )
    nonce = models.CharField(max_length=64)
    verifier = models.CharField(max_length=64, help_text="The secret of PKCE.")
    after = models.CharField(max_length=500, help_text="The path that is opened afterwards.")
    expires = models.DateTimeField(db_index=True)
