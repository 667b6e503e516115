"""The tables of connections to Jira, their projects, and the messages that Jira sent."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from allocation.models import Booking
from tenants.models import ApiToken, Project, Tenant, Tier, Webhook


class JiraConnection(models.Model):
    """A Jira site. Its receiver has the address, the queue of calls and the secret of messages."""

    class Flavour(models.TextChoices):
        """Which REST API and which sign-in."""

        CLOUD = "cloud", "Cloud"
        DATA_CENTER = "data_center", "Data Center"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    receiver = models.OneToOneField(
        Webhook, on_delete=models.CASCADE, related_name="jira", db_constraint=False
    )
    flavour = models.CharField(max_length=20, choices=Flavour)
    account = models.CharField(
        max_length=254, blank=True, help_text="E-mail address of the account; of Cloud only."
    )
    sealed_token = models.TextField(help_text="API token or personal access token, encrypted.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="jira_connection_in_tenant"),
            models.CheckConstraint(
                condition=~Q(flavour="cloud") | ~Q(account=""), name="jira_cloud_has_account"
            ),
        ]


class JiraProject(models.Model):
    """What an issue or a sprint of a Jira project asks for, and whose bookings they are."""

    class Act(models.TextChoices):
        """What a message about an issue leads to."""

        BOOK = "book", "Book"
        QUOTE = "quote", "Quote"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    connection = models.ForeignKey(
        JiraConnection, on_delete=models.CASCADE, related_name="projects", db_constraint=False
    )
    key = models.CharField(max_length=20, help_text="Key of the Jira project, such as GPU.")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_constraint=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, help_text="Whose bookings they are."
    )
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT)
    act = models.CharField(max_length=10, choices=Act)
    request = models.CharField(max_length=200, help_text="With fields: {customfield_10050}.")
    labels = models.JSONField(default=dict)
    transitions = models.JSONField(default=dict, help_text="State of the booking to status of the issue.")
    approver = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="In whose name the statuses below decide; null: none does.",
    )
    approve_status = models.CharField(
        max_length=60, blank=True, db_default="", default="", help_text="Approves the booking."
    )
    decline_status = models.CharField(
        max_length=60, blank=True, db_default="", default="", help_text="Declines the booking."
    )
    board = models.BigIntegerField(null=True, blank=True, help_text="Whose sprints are booked.")
    sprint_request = models.CharField(max_length=200, blank=True)
    made_with = models.ForeignKey(
        ApiToken,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        related_name="+",
        help_text="The token that set it, with which it ends; null: a browser.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["connection", "key"], name="jira_project_once"),
            models.UniqueConstraint(
                fields=["connection", "board"],
                condition=Q(board__isnull=False),
                name="jira_board_once",
            ),
            models.CheckConstraint(
                condition=Q(board=None, sprint_request="") | (Q(board__isnull=False) & ~Q(sprint_request="")),
                name="jira_board_has_request",
            ),
            models.CheckConstraint(
                condition=Q(approver=None, approve_status="", decline_status="")
                | (Q(approver__isnull=False) & ~Q(approver=F("owner"))),
                name="jira_approver_is_another",
            ),
        ]


class JiraMessage(models.Model):
    """A message of Jira whose signature was right, and what came of it."""

    class State(models.TextChoices):
        """What came of it."""

        RECEIVED = "received", "Received"
        DONE = "done", "Done"
        REFUSED = "refused", "Refused"
        IGNORED = "ignored", "Ignored"

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    connection = models.ForeignKey(
        JiraConnection, on_delete=models.CASCADE, related_name="messages", db_constraint=False
    )
    delivery = models.CharField(max_length=100, help_text="The same when it is sent again.")
    subject = models.CharField(max_length=80, help_text="`GPU-7` or `sprint:12`.")
    at = models.DateTimeField(help_text="When it happened in Jira.")
    received = models.DateTimeField()
    content = models.JSONField(help_text="What was read from the message.")
    state = models.CharField(max_length=10, choices=State, default=State.RECEIVED)
    answer = models.CharField(max_length=500, blank=True)
    booking = models.ForeignKey(
        Booking,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        related_name="+",
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["connection", "delivery"], name="jira_message_once")]
        indexes = [
            models.Index(fields=["tenant", "connection", "-id"], name="jira_message_log"),
            models.Index(fields=["connection", "subject", "-at"], name="jira_message_subject"),
            models.Index(fields=["id"], name="jira_message_waiting", condition=Q(state="received")),
        ]
