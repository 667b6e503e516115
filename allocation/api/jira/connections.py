"""Connections to Jira, the mapping of their projects, and the log of Jira's messages."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.models import JiraConnection, JiraMessage, JiraProject
from allocation.services.jira.connections import (
    COMMENTED,
    JIRA,
    ConnectionTerms,
    ProjectTerms,
    connection_change,
    connection_create,
    connection_delete,
    connection_one,
    connections_of,
    project_remove,
    project_set,
)
from allocation.services.jira.dry_run import dry_run
from tenants.api.base import ApiView, list_response
from tenants.features.webhooks.rest import DeliveryOut
from tenants.features.webhooks.services import (
    WebhookSwitchTerms,
    log_of,
    webhook_enabled_set,
    webhook_secret_rotate,
    webhook_test,
)
from tenants.platform.costly import costly
from tenants.platform.labels import Labels
from tenants.platform.rest.fields import Strict, Text, Whole
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.platform.rest.terms import body_of_terms


class JiraConnectionIn(Strict):
    """A Jira site and the account that comments."""

    name = Text(max_length=80)
    url = serializers.CharField(max_length=300, help_text="`https://example.atlassian.net`.")
    flavour = serializers.ChoiceField(choices=JiraConnection.Flavour.values)
    account = Text(max_length=254, required=False, default="", allow_blank=True, help_text="Cloud only.")
    token = serializers.CharField(
        max_length=1000,
        required=False,
        default="",
        allow_blank=True,
        help_text="Without one a change keeps the stored token, unless the address changes.",
    )
    events = serializers.ListField(
        child=serializers.CharField(max_length=60),
        required=False,
        default=list(COMMENTED),
        min_length=1,
        max_length=40,
        help_text="Events that issues get comments about.",
    )


class JiraProjectIn(Strict):
    """What issues and sprints of a Jira project ask for."""

    project = Text(max_length=40)
    owner = Text(max_length=150, help_text="Sign-in name of the person whose bookings they are.")
    tier = Text(max_length=40)
    act = serializers.ChoiceField(choices=JiraProject.Act.values)
    request = Text(max_length=200, help_text="`2 h100 6h`, or `{customfield_10050}`.")
    labels = Labels(required=False, default=dict)
    transitions = serializers.DictField(
        child=Text(max_length=60),
        required=False,
        default=dict,
        help_text="State of the booking to status of the issue: `active` to `In Progress`.",
    )
    board = Whole(required=False, allow_null=True, default=None)
    sprint_request = Text(max_length=200, required=False, default="", allow_blank=True)
    approver = Text(
        max_length=150,
        required=False,
        default="",
        allow_blank=True,
        help_text="Sign-in name of the lead or admin in whose name Jira decides approvals.",
    )
    approve_status = Text(
        max_length=60,
        required=False,
        default="",
        allow_blank=True,
        help_text="The status of an issue that approves its booking.",
    )
    decline_status = Text(max_length=60, required=False, default="", allow_blank=True)


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


@costly("preview", "GET", "HEAD", "POST")
class JiraDryRunIn(Strict):
    """A message as Jira sends it, without its signature."""

    message = serializers.DictField()


class JiraDryRunOut(serializers.Serializer[Any]):
    """What the message would lead to."""

    subject = serializers.CharField(source="said.subject")
    fields_read = serializers.DictField(source="said.fields")
    state = serializers.ChoiceField(choices=JiraMessage.State.values)
    answer = serializers.CharField()
    comment = serializers.CharField()


class JiraConnections(ApiView):
    """Connections of the tenant, for its admins."""

    queries = {"GET": PageQuery}

    @described(
        "list_jira_connections",
        "Connections to Jira (tenant admins)",
        answer=page(JiraConnectionOut),
        query=PageQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists connections."""
        with self.tx():
            rows, next_cursor = page_of(
                connections_of(self.actor),
                keys=("id",),
                query=self.query,
                scope=f"jira:{self.actor.tenant_id}",
            )
            return list_response([_shown(row) for row in rows], next_cursor)

    @described(
        "create_jira_connection",
        "Connect a Jira site (tenant admins)",
        answer=JiraConnectionMade,
        status=201,
        request=JiraConnectionIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Creates a connection; the answer shows the secret of its messages once."""
        terms = _terms(self.sent(JiraConnectionIn))

        def work() -> Response:
            made, secret = connection_create(actor=self.actor, terms=terms, now=self.now)
            return Response({**_shown(made), "secret": secret}, status=201)

        return self.once(work, secret=("secret",))


class JiraConnectionOne(ApiView):
    """One connection."""

    @described("get_jira_connection", "One connection to Jira", answer=JiraConnectionOut)
    def get(self, request: Request, connection_id: UUID) -> Response:
        """Describes the connection and its projects."""
        with self.tx():
            return Response(_shown(connection_one(self.actor, connection_id)))

    @described(
        "set_jira_connection",
        "Change a connection to Jira",
        answer=JiraConnectionOut,
        request=JiraConnectionIn,
    )
    def put(self, request: Request, connection_id: UUID) -> Response:
        """Changes the connection."""
        terms = _terms(self.sent(JiraConnectionIn))
        with self.tx():
            changed = connection_change(
                actor=self.actor, connection_id=connection_id, terms=terms, now=self.now
            )
            return Response(_shown(changed))

    @described("delete_jira_connection", "Delete a connection to Jira", status=204)
    def delete(self, request: Request, connection_id: UUID) -> Response:
        """Deletes the connection with its projects and logs."""
        with self.tx():
            connection_delete(actor=self.actor, connection_id=connection_id, now=self.now)
        return Response(status=204)


class JiraProjectOne(ApiView):
    """The mapping of a Jira project."""

    @described(
        "set_jira_project",
        "Map a Jira project",
        answer=JiraProjectOut,
        request=JiraProjectIn,
    )
    def put(self, request: Request, connection_id: UUID, jira_key: str) -> Response:
        """Creates or replaces the mapping."""
        terms = ProjectTerms(key=jira_key, **self.sent(JiraProjectIn))
        with self.tx():
            row = project_set(actor=self.actor, connection_id=connection_id, terms=terms, now=self.now)
            return Response(JiraProjectOut(row).data)

    @described("delete_jira_project", "Remove the mapping of a Jira project", status=204)
    def delete(self, request: Request, connection_id: UUID, jira_key: str) -> Response:
        """Removes the mapping. Bookings stay."""
        with self.tx():
            project_remove(actor=self.actor, connection_id=connection_id, key=jira_key, now=self.now)
        return Response(status=204)


class JiraEnabled(ApiView):
    """Whether a connection is on."""

    @described(
        "set_jira_enabled",
        "Switch a connection to Jira on or off",
        answer=JiraConnectionOut,
        request=body_of_terms(WebhookSwitchTerms),
    )
    def put(self, request: Request, connection_id: UUID) -> Response:
        """Switches it on or off. Calls that wait are dropped when it goes off."""
        sent = self.sent(body_of_terms(WebhookSwitchTerms))
        with self.tx():
            found = connection_one(self.actor, connection_id)
            webhook_enabled_set(
                actor=self.actor,
                webhook_id=found.receiver_id,
                is_enabled=sent.is_enabled,
                now=self.now,
                kind=JIRA,
            )
            return Response(_shown(connection_one(self.actor, connection_id)))


class JiraSecret(ApiView):
    """The secret of Jira's messages."""

    @described(
        "act_rotate_jira_secret",
        "Make a new secret for messages of Jira",
        answer=JiraConnectionMade,
    )
    def post(self, request: Request, connection_id: UUID) -> HttpResponseBase:
        """Makes a new secret. For 24 hours the previous one is valid, too."""

        def work() -> Response:
            found = connection_one(self.actor, connection_id)
            _, secret = webhook_secret_rotate(
                actor=self.actor, webhook_id=found.receiver_id, now=self.now, kind=JIRA
            )
            return Response({**_shown(found), "secret": secret})

        return self.once(work, secret=("secret",))


class JiraTest(ApiView):
    """A test of a connection."""

    @described("act_test_jira", "Test a connection to Jira", answer=DeliveryOut, status=202)
    def post(self, request: Request, connection_id: UUID) -> HttpResponseBase:
        """Queues a call that asks Jira for the account. Its answer is in the list of calls."""

        def work() -> Response:
            found = connection_one(self.actor, connection_id)
            delivery = webhook_test(actor=self.actor, webhook_id=found.receiver_id, now=self.now, kind=JIRA)
            return Response(DeliveryOut(delivery).data, status=202)

        return self.once(work)


class JiraDryRun(ApiView):
    """What a message would lead to."""

    @described(
        "act_try_jira_message",
        "Try a message of Jira",
        answer=JiraDryRunOut,
        request=JiraDryRunIn,
    )
    def post(self, request: Request, connection_id: UUID) -> HttpResponseBase:
        """Says what the message would lead to. Nothing is booked and nothing is sent."""
        sent = self.sent(JiraDryRunIn)
        with self.tx():
            found = connection_one(self.actor, connection_id)
            return Response(JiraDryRunOut(dry_run(found, sent["message"], self.now)).data)


class JiraLog(ApiView):
    """Messages of Jira."""

    queries = {"GET": PageQuery}

    @described("list_jira_messages", "Messages of Jira", answer=page(JiraLogOut), query=PageQuery)
    def get(self, request: Request, connection_id: UUID) -> Response:
        """Lists the messages of 30 days, the latest first, with what came of them."""
        with self.tx():
            found = connection_one(self.actor, connection_id)
            rows, next_cursor = page_of(
                found.messages.select_related("booking"),
                keys=("-id",),
                query=self.query,
                scope=f"jira-messages:{found.id}",
            )
            return list_response(JiraLogOut(rows, many=True).data, next_cursor)


class JiraCalls(ApiView):
    """Calls of Jira."""

    queries = {"GET": PageQuery}

    @described("list_jira_calls", "Calls of Jira", answer=page(JiraCallOut), query=PageQuery)
    def get(self, request: Request, connection_id: UUID) -> Response:
        """Lists the calls of 30 days with their attempts, the latest first."""
        with self.tx():
            found = connection_one(self.actor, connection_id)
            rows, next_cursor = page_of(
                log_of(found.receiver),
                keys=("-id",),
                query=self.query,
                scope=f"jira-calls:{found.id}",
            )
            return list_response(JiraCallOut(rows, many=True).data, next_cursor)


def _terms(sent: dict[str, Any]) -> ConnectionTerms:
    return ConnectionTerms(**{**sent, "events": tuple(sent["events"])})


def _shown(connection: JiraConnection) -> dict[str, Any]:
    return dict(JiraConnectionOut(connection).data)
