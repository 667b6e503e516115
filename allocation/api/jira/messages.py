"""The address that Jira sends its messages to."""

from typing import Any
from uuid import UUID

from rest_framework import serializers
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.models import JiraMessage
from allocation.services.jira.intake import (
    Sent,
    WrongSignature,
    connection_known,
    message_take,
)
from tenants.api.base import ApiView
from tenants.platform.rest.schema import described
from tenants.platform.wall import tenant_tx

SENTENCE = "There is no such connection, or the message has no valid signature or secret."


class JiraMessageOut(serializers.Serializer[Any]):
    """A message that was taken. What comes of it is in the log of the connection."""

    id = serializers.IntegerField()
    subject = serializers.CharField(help_text="The issue, or `sprint:` and its number.")
    state = serializers.ChoiceField(choices=JiraMessage.State.values)
    is_new = serializers.BooleanField(help_text="False if the same message was taken before.")


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
