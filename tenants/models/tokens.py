"""API tokens and their scopes."""

import uuid
from datetime import datetime

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from tenants.models.organisations import Project, Tenant
from tenants.models.people import User


class Scope(models.TextChoices):
    """What a token may do, of what its person may do."""

    READ = "read", "Read"
    BOOK = "book", "Book, change and end bookings"
    PROJECT = "project", "Manage projects, their people and webhooks"
    BUDGET = "budget", "Set budgets and prices"
    FLEET = "fleet", "Operate nodes, GPUs and maintenance"
    ADMIN = "admin", "Manage tenants, quotas, tiers, tokens and the account"


def all_scopes() -> list[str]:
    """The scopes of a token that may do everything that its person may."""
    return list(Scope.values)


class TokenLives(models.Func):
    """Whether a token is valid at a time, and so are all tokens before it: those that made it, and
    those that rotated themselves into it."""

    function = "portal_token_lives"
    output_field = models.BooleanField()

    def __init__(self, token: str, at: datetime) -> None:
        """Takes the name of the column with the token."""
        super().__init__(models.F(token), models.Value(at, output_field=models.DateTimeField()))


def set_by_valid_token(at: datetime, made_with: str = "made_with") -> Q:
    """Selects what was set in a browser, or with a token that is still valid."""
    return Q(**{made_with: None}) | Q(TokenLives(made_with, at))


class TokenManager(models.Manager["ApiToken"]):
    """Loads tokens without their hashes, which web processes may not read."""

    def get_queryset(self) -> models.QuerySet["ApiToken"]:
        """Returns the columns that a web process may read."""
        return super().get_queryset().defer("digest")


class ApiToken(models.Model):
    """An API token. Only its SHA-256 is stored; the clear text is shown once."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    user = models.ForeignKey(User, on_delete=models.PROTECT)
    name = models.CharField(max_length=80)
    digest = models.BinaryField(max_length=32, unique=True)
    prefix = models.CharField(max_length=16)
    created = models.DateTimeField()
    expires = models.DateTimeField()
    scopes = ArrayField(models.CharField(max_length=8), default=all_scopes)
    project = models.ForeignKey(
        Project,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        help_text="The only project in which the token works; none is all of the person's.",
    )
    last_used = models.DateTimeField(null=True, blank=True)
    last_address = models.GenericIPAddressField(null=True, blank=True)
    revoked = models.DateTimeField(null=True, blank=True)
    warned = models.DateTimeField(
        null=True, blank=True, help_text="When its person was notified that it expires soon."
    )
    made_with = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        help_text="The token that created this one, which ends no later.",
    )
    replaces = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        related_name="+",
        help_text="The token that rotated itself into this one: its revocation ends this one, too.",
    )
    follows = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        related_name="+",
        help_text="The token that was rotated into this one. What it depended on, this one does.",
    )

    objects = TokenManager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="apitoken_id_in_tenant"),
            models.CheckConstraint(
                condition=Q(scopes__contained_by=all_scopes()) & Q(scopes__len__gt=0),
                name="apitoken_scopes_known",
            ),
        ]
