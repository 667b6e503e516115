"""Chat channels of people and projects, and the messages to them."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from tenants.models.organisations import Project, Tenant
from tenants.models.people import User
from tenants.models.tokens import ApiToken
from tenants.rules.chat import SERVICES


class ChatChannel(models.Model):
    """A channel of a chat service, of one person or of one project."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)
    name = models.CharField(max_length=80)
    service = models.CharField(max_length=16, help_text="Scheme of its address.")
    sealed = models.TextField(help_text="The address, encrypted; it has secrets of the service.")
    events = ArrayField(
        models.CharField(max_length=20), default=list, help_text="Types, of a project's channel."
    )
    created = models.DateTimeField()
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    made_with = models.ForeignKey(
        ApiToken,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        related_name="+",
        help_text="The token that set it, with which it ends; null: a browser.",
    )

    # Health
    last_sent = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=200, blank=True, help_text="Of the newest attempt.")

    class Meta:
        ordering = ["created", "id"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="chat_channel_id_in_tenant"),
            models.CheckConstraint(
                condition=Q(user__isnull=False, project=None) | Q(user=None, project__isnull=False),
                name="chat_channel_of_one",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "user"], name="chat_of_user"),
            models.Index(fields=["tenant", "project"], name="chat_of_project"),
        ]

    @property
    def service_name(self) -> str:
        """The name of the service."""
        return SERVICES[self.service].name


class ChatMessage(models.Model):
    """A message to one channel, with the outcome of its attempts."""

    class State(models.TextChoices):
        """Whether the message still has to be sent."""

        PENDING = "pending", "Pending"
        SENT = "sent", "Sent"
        FAILED = "failed", "Failed"

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    channel = models.ForeignKey(
        ChatChannel, on_delete=models.CASCADE, related_name="messages", db_constraint=False
    )
    message = models.BigIntegerField(null=True, blank=True, help_text="The outbox message; null for a test.")
    kind = models.CharField(max_length=60)
    title = models.CharField(max_length=160)
    text = models.CharField(max_length=400, blank=True)
    path = models.CharField(max_length=200, blank=True)
    created = models.DateTimeField()

    # Delivery
    state = models.CharField(max_length=8, choices=State, default=State.PENDING)
    due = models.DateTimeField()
    tries = models.PositiveSmallIntegerField(default=0)
    settled = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["channel", "message"], name="chat_message_once"),
            models.CheckConstraint(
                condition=Q(state="pending", settled=None) | (~Q(state="pending") & Q(settled__isnull=False)),
                name="chat_message_settled",
            ),
        ]
        indexes = [
            models.Index(fields=["due", "id"], name="chat_due", condition=Q(state="pending")),
            models.Index(fields=["tenant", "channel", "-id"], name="chat_log"),
        ]
