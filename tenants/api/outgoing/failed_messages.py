"""Messages on which a program failed (operators): the list, another try, and the end of tries."""

from collections.abc import Callable
from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.platform.rest.schema import described, page
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area
from tenants.services.failed_messages import (
    Failed,
    failed_message_dismiss,
    failed_message_retry,
    failed_messages,
)


class FailedMessageOut(serializers.Serializer[Any]):
    """An entry of a queue on which a program failed. Others of its queue are handled."""

    id = serializers.IntegerField()
    queue = serializers.CharField(help_text="Such as `jira`, `outbox`, `mails` or `webhooks`.")
    key = serializers.CharField(help_text="The entry within its queue.")
    tenant = serializers.CharField(allow_null=True, help_text="Slug; null: of the platform.")
    error = serializers.CharField()
    tries = serializers.IntegerField()
    first_failed = serializers.DateTimeField()
    last_failed = serializers.DateTimeField()
    next_try = serializers.DateTimeField(allow_null=True, help_text="Null: it is parked.")
    is_parked = serializers.BooleanField()


class FailedMessages(ApiView):
    """Failed messages."""

    area = Area.SYSTEM

    @described(
        "list_failed_messages",
        "Messages on which a program of the portal failed (operators)",
        answer=page(FailedMessageOut),
    )
    def get(self, request: Request) -> Response:
        """Lists them, the newest failure first, until they succeed or are dismissed."""
        self.require_operator()
        with operator_tx():
            return list_response(FailedMessageOut(failed_messages(), many=True).data)


class FailedMessageView(ApiView):
    """A view of one failed message."""

    area = Area.SYSTEM

    def acted(self, work: Callable[..., Failed], failed_id: int) -> HttpResponseBase:
        """Acts on the message once, and answers with it."""

        def run() -> Response:
            self.require_operator()
            with operator_tx():
                found = work(operator=self.user, failed_id=failed_id, now=self.now)
                return Response(FailedMessageOut(found).data)

        return self.once(run)


class FailedMessageRetry(FailedMessageView):
    """Tries a failed message again."""

    @described(
        "act_retry_failed_message",
        "Try a failed message again (operators)",
        answer=FailedMessageOut,
    )
    def post(self, request: Request, failed_id: int) -> HttpResponseBase:
        """Its program tries it with the next run, within half a minute."""
        return self.acted(failed_message_retry, failed_id)


class FailedMessageDismiss(FailedMessageView):
    """Gives a failed message up."""

    @described(
        "act_dismiss_failed_message",
        "Give a failed message up (operators)",
        answer=FailedMessageOut,
    )
    def post(self, request: Request, failed_id: int) -> HttpResponseBase:
        """It is not tried again, and counts in no alarm."""
        return self.acted(failed_message_dismiss, failed_id)
