"""Published events, the webhooks that receive them, and each delivery."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from tenants.models.organisations import Project, Tenant
from tenants.models.people import User
from tenants.models.tokens import ApiToken


class PublishedEvent(models.Model):
    """An event as programs see it. One publisher at a time inserts, so ids are in commit order."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(
        Tenant,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        help_text="Null: for the platform's own webhooks.",
    )
    key = models.UUIDField(unique=True, default=uuid.uuid4, help_text="The public id.")
    project = models.ForeignKey(
        Project,
        on_delete=models.PROTECT,
        null=True,
        db_constraint=False,
        help_text="Null: only admins and webhooks of the whole organisation get it.",
    )
    subject = models.UUIDField(help_text="The booking. Its events are delivered in order.")
    type = models.CharField(max_length=60)
    at = models.DateTimeField()
    data = models.JSONField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="event_id_in_tenant"),
        ]
        indexes = [models.Index(fields=["at"], name="event_age")]


class Webhook(models.Model):
    """An address that receives events. Its secrets are derived from salts and not stored."""

    class Kind(models.TextChoices):
        """What is sent: signed events, or calls of a tracker's REST API."""

        WEBHOOK = "webhook", "Webhook"
        JIRA = "jira", "Jira"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(
        Tenant,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        help_text="Null: of the platform, for its operators only.",
    )
    project = models.ForeignKey(
        Project,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        help_text="Events of this project only; without one, of the whole tenant.",
    )
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.WEBHOOK, db_default=Kind.WEBHOOK)
    name = models.CharField(max_length=80)
    url = models.CharField(max_length=500)
    events = ArrayField(models.CharField(max_length=60), help_text="Names, or `booking.*`.")
    labels = models.JSONField(
        default=dict,
        db_default=models.Value({}, output_field=models.JSONField()),
        blank=True,
        help_text="Events of bookings that have all of these labels; {}: all events.",
    )
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
        null=True, blank=True, help_text="Until then messages have the signature of both secrets."
    )

    # Health
    last_delivered = models.DateTimeField(null=True, blank=True)
    disabled_at = models.DateTimeField(null=True, blank=True)
    disabled_reason = models.CharField(max_length=200, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="webhook_id_in_tenant"),
            models.CheckConstraint(condition=Q(events__len__gte=1), name="webhook_has_events"),
            models.CheckConstraint(
                condition=Q(tenant__isnull=False) | Q(kind="webhook", project=None, labels={}),
                name="webhook_of_platform_is_plain",
            ),
            models.CheckConstraint(
                condition=Q(previous_salt=None, previous_until=None)
                | Q(previous_salt__isnull=False, previous_until__isnull=False),
                name="webhook_previous_secret_ends",
            ),
            models.CheckConstraint(
                condition=Q(disabled_at=None, disabled_reason="")
                | (Q(disabled_at__isnull=False) & ~Q(disabled_reason="")),
                name="webhook_disabled_for_a_reason",
            ),
        ]


class WebhookDelivery(models.Model):
    """A message to one webhook, with the log of its attempts."""

    class State(models.TextChoices):
        """Whether the message still has to be delivered."""

        PENDING = "pending", "Pending"
        DELIVERED = "delivered", "Delivered"
        FAILED = "failed", "Failed"
        DROPPED = "dropped", "Dropped"

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(
        Tenant,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        help_text="That of the webhook.",
    )
    webhook = models.ForeignKey(
        Webhook, on_delete=models.CASCADE, related_name="deliveries", db_constraint=False
    )
    event = models.ForeignKey(
        PublishedEvent,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        db_constraint=False,
        help_text="None for a test message.",
    )
    content = models.JSONField(
        null=True, blank=True, help_text="What a tracker is called with; null for events."
    )
    key = models.UUIDField(help_text="The header `webhook-id`: the same in every attempt.")
    type = models.CharField(max_length=60)
    subject = models.UUIDField(
        null=True, blank=True, help_text="Deliveries of one subject wait for each other."
    )
    created = models.DateTimeField()

    # Delivery
    state = models.CharField(max_length=10, choices=State, default=State.PENDING)
    due = models.DateTimeField(help_text="Time of the next attempt.")
    claimed_until = models.DateTimeField(
        null=True, blank=True, help_text="A sender works on it; later ones may after this time."
    )
    tries = models.PositiveSmallIntegerField(default=0)
    first_tried = models.DateTimeField(null=True, blank=True)
    attempts = models.JSONField(default=list, help_text="Time, status or error, milliseconds.")
    settled = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["webhook", "event", "type"],
                condition=Q(subject__isnull=False),
                name="webhook_event_queued_once",
            ),
            models.CheckConstraint(
                condition=Q(state="pending", settled=None) | (~Q(state="pending") & Q(settled__isnull=False)),
                name="webhook_delivery_settled",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "webhook", "-id"], name="webhook_log"),
            models.Index(fields=["due"], name="webhook_due", condition=Q(state="pending")),
            models.Index(
                fields=["webhook", "subject", "id"],
                name="webhook_order",
                condition=Q(state="pending"),
            ),
            models.Index(fields=["event"], name="webhook_of_event"),
        ]
