"""REST of connections to Jira, the mapping of their projects, and the messages of Jira."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.urls import path
from rest_framework import serializers
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.features.jira.dry_run import DryRun, JiraDryRunTerms, dry_run
from allocation.features.jira.intake import Sent, WrongSignature, connection_known, message_take
from allocation.features.jira.models import JiraConnection, JiraMessage, JiraProject
from allocation.features.jira.services import (
    JiraConnectionTerms,
    JiraProjectTerms,
    connection_change,
    connection_create,
    connection_delete,
    connection_one,
    connections_of,
    of_receiver,
    project_remove,
    project_set,
)
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoint, Endpoints
from tenants.features.webhooks.rest import SECRET, DeliveryOut
from tenants.features.webhooks.services import (
    WebhookSwitchTerms,
    log_of,
    webhook_enabled_set,
    webhook_secret_rotate,
    webhook_test,
)
from tenants.models import Scope, WebhookDelivery
from tenants.platform.labels import Labels
from tenants.platform.rest.schema import described
from tenants.platform.wall import tenant_tx

rest = Endpoints(Scope.ADMIN)
SENTENCE = "There is no such connection, or the message has no valid signature or secret."


class JiraProjectOut(serializers.Serializer[Any]):
    """What issues and sprints of a Jira project ask for."""

    key = serializers.CharField()
    project = serializers.CharField(source="project.slug")
    owner = serializers.CharField(source="owner.username")
    tier = serializers.CharField(source="tier_id")
    act = serializers.ChoiceField(choices=JiraProject.Act.values)
    request = serializers.CharField()
    labels = Labels()
    transitions = serializers.DictField(child=serializers.CharField())
    board = serializers.IntegerField(allow_null=True)
    sprint_request = serializers.CharField()
    approver = serializers.CharField(source="approver.username", default=None, allow_null=True)
    approve_status = serializers.CharField()
    decline_status = serializers.CharField()


class JiraConnectionOut(serializers.Serializer[Any]):
    """A connection without its token and secret."""

    id = serializers.UUIDField()
    name = serializers.CharField(source="receiver.name")
    url = serializers.CharField(source="receiver.url")
    flavour = serializers.ChoiceField(choices=JiraConnection.Flavour.values)
    account = serializers.CharField()
    events = serializers.ListField(source="receiver.events", child=serializers.CharField())
    is_enabled = serializers.SerializerMethodField()
    disabled_reason = serializers.CharField(source="receiver.disabled_reason")
    last_delivered = serializers.DateTimeField(source="receiver.last_delivered", allow_null=True)
    projects = JiraProjectOut(many=True)

    def get_is_enabled(self, connection: JiraConnection) -> bool:
        """Returns whether messages are taken and calls are made."""
        return connection.receiver.disabled_at is None


class JiraConnectionMade(JiraConnectionOut):
    """A connection with the secret of its messages, which no other answer contains."""

    secret = serializers.CharField(
        source="receiver.secret",
        allow_null=True,
        help_text="`whsec_…`. Shown once; null when an Idempotency-Key is replayed.",
    )


class JiraLogOut(serializers.Serializer[Any]):
    """A message of Jira, and what came of it."""

    id = serializers.IntegerField()
    subject = serializers.CharField()
    at = serializers.DateTimeField()
    received = serializers.DateTimeField()
    state = serializers.ChoiceField(choices=JiraMessage.State.values)
    answer = serializers.CharField()
    booking = serializers.CharField(source="booking.label", default=None, allow_null=True)


class JiraCallOut(DeliveryOut):
    """A call of Jira with its attempts."""


class JiraDryRunOut(serializers.Serializer[Any]):
    """What the message would lead to."""

    subject = serializers.CharField(source="said.subject")
    fields_read = serializers.DictField(source="said.fields")
    state = serializers.ChoiceField(choices=JiraMessage.State.values)
    answer = serializers.CharField()
    comment = serializers.CharField()


class JiraMessageOut(serializers.Serializer[Any]):
    """A message that was taken. What comes of it is in the log of the connection."""

    id = serializers.IntegerField()
    subject = serializers.CharField(help_text="The issue, or `sprint:` and its number.")
    state = serializers.ChoiceField(choices=JiraMessage.State.values)
    is_new = serializers.BooleanField(help_text="False if the same message was taken before.")


@rest.list("jira", "Connections to Jira (tenant admins)", JiraConnectionOut, order=("id",))
def list_jira_connections(call: Endpoint) -> QuerySet[JiraConnection]:
    """Lists connections."""
    return connections_of(call.actor)


@rest.post(
    "jira",
    "Connect a Jira site (tenant admins)",
    JiraConnectionMade,
    terms=JiraConnectionTerms,
    status=201,
    secret=SECRET,
)
def create_jira_connection(call: Endpoint, terms: JiraConnectionTerms) -> JiraConnection:
    """Creates a connection; the answer shows the secret of its messages once."""
    made, secret = connection_create(actor=call.actor, terms=terms, now=call.now)
    made.receiver.secret = secret
    return made


@rest.get("jira/<uuid:connection_id>", "One connection to Jira", JiraConnectionOut)
def get_jira_connection(call: Endpoint, connection_id: UUID) -> JiraConnection:
    """Describes the connection and its projects."""
    return connection_one(call.actor, connection_id)


@rest.put(
    "jira/<uuid:connection_id>",
    "Change a connection to Jira",
    JiraConnectionOut,
    terms=JiraConnectionTerms,
)
def set_jira_connection(call: Endpoint, terms: JiraConnectionTerms, connection_id: UUID) -> JiraConnection:
    """Changes the connection."""
    return connection_change(actor=call.actor, connection_id=connection_id, terms=terms, now=call.now)


@rest.delete("jira/<uuid:connection_id>", "Delete a connection to Jira")
def delete_jira_connection(call: Endpoint, connection_id: UUID) -> None:
    """Deletes the connection with its projects and logs."""
    connection_delete(actor=call.actor, connection_id=connection_id, now=call.now)


@rest.put(
    "jira/<uuid:connection_id>/projects/<str:jira_key>",
    "Map a Jira project",
    JiraProjectOut,
    terms=JiraProjectTerms,
)
def set_jira_project(
    call: Endpoint, terms: JiraProjectTerms, connection_id: UUID, jira_key: str
) -> JiraProject:
    """Creates or replaces the mapping."""
    return project_set(actor=call.actor, connection_id=connection_id, key=jira_key, terms=terms, now=call.now)


@rest.delete("jira/<uuid:connection_id>/projects/<str:jira_key>", "Remove the mapping of a Jira project")
def delete_jira_project(call: Endpoint, connection_id: UUID, jira_key: str) -> None:
    """Removes the mapping. Bookings stay."""
    project_remove(actor=call.actor, connection_id=connection_id, key=jira_key, now=call.now)


@rest.put(
    "jira/<uuid:connection_id>/enabled",
    "Switch a connection to Jira on or off",
    JiraConnectionOut,
    terms=WebhookSwitchTerms,
)
def set_jira_enabled(call: Endpoint, terms: WebhookSwitchTerms, connection_id: UUID) -> JiraConnection:
    """Switches it on or off. Calls that wait are dropped when it goes off."""
    switch = of_receiver(webhook_enabled_set, is_enabled=terms.is_enabled)
    switch(actor=call.actor, connection_id=connection_id, now=call.now)
    return connection_one(call.actor, connection_id)


@rest.post(
    "jira/<uuid:connection_id>/secret",
    "Make a new secret for messages of Jira",
    JiraConnectionMade,
    secret=SECRET,
)
def rotate_jira_secret(call: Endpoint, connection_id: UUID) -> JiraConnection:
    """Makes a new secret. For 24 hours the previous one is valid, too."""
    rotate = of_receiver(webhook_secret_rotate)
    _, secret = rotate(actor=call.actor, connection_id=connection_id, now=call.now)
    found = connection_one(call.actor, connection_id)
    found.receiver.secret = secret
    return found


@rest.post("jira/<uuid:connection_id>/test", "Test a connection to Jira", DeliveryOut, status=202)
def test_jira(call: Endpoint, connection_id: UUID) -> WebhookDelivery:
    """Queues a call that asks Jira for the account. Its answer is in the list of calls."""
    made: WebhookDelivery = of_receiver(webhook_test)(
        actor=call.actor, connection_id=connection_id, now=call.now
    )
    return made


@rest.post(
    "jira/<uuid:connection_id>/dry-run",
    "Try a message of Jira",
    JiraDryRunOut,
    terms=JiraDryRunTerms,
    kind="preview",
)
def try_jira_message(call: Endpoint, terms: JiraDryRunTerms, connection_id: UUID) -> DryRun:
    """Says what the message would lead to. Nothing is booked and nothing is sent."""
    return dry_run(actor=call.actor, connection_id=connection_id, terms=terms, now=call.now)


@rest.list("jira/<uuid:connection_id>/messages", "Messages of Jira", JiraLogOut, order=("-id",))
def list_jira_messages(call: Endpoint, connection_id: UUID) -> QuerySet[JiraMessage]:
    """Lists the messages of 30 days, the latest first, with what came of them."""
    return connection_one(call.actor, connection_id).messages.select_related("booking")


@rest.list("jira/<uuid:connection_id>/calls", "Calls of Jira", JiraCallOut, order=("-id",))
def list_jira_calls(call: Endpoint, connection_id: UUID) -> QuerySet[WebhookDelivery]:
    """Lists the calls of 30 days with their attempts, the latest first."""
    return log_of(connection_one(call.actor, connection_id).receiver)


class JiraMessages(ApiView):
    """Takes messages of Jira's webhooks and of its automation."""

    authentication_classes = ()
    permission_classes = ()

    @described(
        "create_jira_message",
        "Take a message of Jira (called by Jira)",
        answer=JiraMessageOut,
        status=202,
        request={"application/json": {"type": "object"}},
        public=True,
    )
    def post(self, request: Request, tenant_id: UUID, connection_id: UUID) -> Response:
        """Takes a webhook with the header `X-Hub-Signature`, or a web request of an automation rule
        with `Authorization: Bearer whsec_…`. A message that comes twice is taken once."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        sent = Sent(headers, self.body.raw, self.body.data)
        try:
            with tenant_tx(tenant_id):
                connection = connection_known(tenant_id, connection_id, self.now)
                message, is_new = message_take(connection, sent, self.now)
        except WrongSignature:
            raise AuthenticationFailed(SENTENCE, code="bad_token") from None
        shown = {"id": message.id, "subject": message.subject, "state": message.state}
        return Response(JiraMessageOut({**shown, "is_new": is_new}).data, status=202)


urlpatterns = [
    *rest.urls,
    path(
        "jira/<uuid:tenant_id>/<uuid:connection_id>/messages",
        JiraMessages.as_view(),
        name="api-jira-intake",
    ),
]
