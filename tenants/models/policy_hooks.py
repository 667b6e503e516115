"""The policy hook of an organisation: an address that is asked about new requests, and its log."""

import uuid

from django.db import models
from django.db.models import Q

from tenants.models.organisations import Tenant
from tenants.models.people import User
from tenants.models.tokens import ApiToken

TIMEOUT_LEAST_MS, TIMEOUT_MOST_MS = 100, 2_000


class PolicyHook(models.Model):
    """What admits, changes or denies requests of one organisation. Its secrets are derived from
    salts and not stored."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.OneToOneField(Tenant, on_delete=models.PROTECT)
    url = models.CharField(max_length=500)
    timeout_ms = models.PositiveSmallIntegerField(
        help_text="Milliseconds from the look-up of the name to the end of the answer."
    )
    is_on = models.BooleanField(help_text="Whether it is asked.")
    is_fail_open = models.BooleanField(
        help_text="Whether a request is admitted without a valid answer; else it is refused."
    )
    is_dry_run = models.BooleanField(help_text="Whether answers are only logged.")
    created = models.DateTimeField()
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    secret: str | None = None
    """That of one whose secret was just made; it is not stored."""
    made_with = models.ForeignKey(
        ApiToken,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        related_name="+",
        help_text="The token that set its address, and with which it ends.",
    )

    # Secrets
    salt = models.BinaryField(max_length=32)
    previous_salt = models.BinaryField(max_length=32, null=True, blank=True)
    previous_until = models.DateTimeField(
        null=True, blank=True, help_text="Until then questions have the signature of both secrets."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="policy_hook_id_in_tenant"),
            models.CheckConstraint(
                condition=Q(timeout_ms__gte=TIMEOUT_LEAST_MS, timeout_ms__lte=TIMEOUT_MOST_MS),
                name="policy_hook_timeout",
            ),
            models.CheckConstraint(
                condition=Q(previous_salt=None, previous_until=None)
                | Q(previous_salt__isnull=False, previous_until__isnull=False),
                name="policy_hook_previous_secret_ends",
            ),
        ]


class PolicyHookHealth(models.Model):
    """The failures of a hook in a row. Apart from the hook, which web processes keep in memory."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    hook = models.OneToOneField(
        PolicyHook,
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="health",
        db_constraint=False,
    )
    failures = models.PositiveIntegerField(default=0, help_text="Since the last valid answer.")
    not_before = models.DateTimeField(
        null=True, blank=True, help_text="After too many failures it is asked again at this time."
    )


class PolicyHookCall(models.Model):
    """A question to a hook and its answer. The latest of each organisation are kept."""

    class Outcome(models.TextChoices):
        """What the hook said, or why it said nothing."""

        ADMITTED = "admitted", "Admitted"
        CHANGED = "changed", "Changed"
        DENIED = "denied", "Denied"
        FAILED = "failed", "No valid answer"
        SKIPPED = "skipped", "Not asked"

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    hook = models.ForeignKey(PolicyHook, on_delete=models.CASCADE, related_name="calls", db_constraint=False)
    key = models.UUIDField(help_text="The header `webhook-id`.")
    at = models.DateTimeField()
    act = models.CharField(max_length=20, help_text="What was asked for: `booking`, `batch`, …")
    asker = models.ForeignKey(User, on_delete=models.PROTECT)
    items = models.PositiveIntegerField(help_text="Number of requests in the question.")
    requests = models.JSONField(help_text="The first requests of the question.")
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    answer = models.TextField(
        blank=True, help_text="The beginning of the body, if it could be read as decisions."
    )
    milliseconds = models.PositiveIntegerField()
    outcome = models.CharField(max_length=10, choices=Outcome)
    error = models.CharField(max_length=300, blank=True)
    is_fail_open = models.BooleanField(help_text="The rule for failures at that time.")
    is_dry_run = models.BooleanField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(outcome__in=["failed", "skipped"], error__gt="")
                | Q(outcome__in=["admitted", "changed", "denied"], error=""),
                name="policy_hook_call_error",
            ),
        ]
        indexes = [models.Index(fields=["tenant", "-id"], name="policy_hook_log")]
