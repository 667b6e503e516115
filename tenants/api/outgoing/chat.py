"""Chat channels over REST."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.models import ChatMessage
from tenants.platform.rest.fields import Strict, Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.rules.chat import URL_LENGTH_MAX
from tenants.services.outgoing.chat import (
    PROJECT_TYPES,
    ChatTerms,
    chat_channel_create,
    chat_channel_delete,
    chat_channel_one,
    chat_channel_test,
    chat_channels_of,
)


class ChatChannelIn(Strict):
    """A channel of a chat service."""

    name = Text(max_length=80, required=False, allow_blank=True, default="")
    url = serializers.CharField(
        max_length=URL_LENGTH_MAX, help_text="As `slack://TokenA/TokenB/TokenC/#channel`."
    )
    project = serializers.CharField(
        required=False,
        allow_null=True,
        default=None,
        max_length=40,
        help_text="A project that you lead; null: your own channel.",
    )
    events = serializers.ListField(
        child=serializers.ChoiceField(choices=list(PROJECT_TYPES)),
        required=False,
        default=list,
        help_text="What a project's channel gets; your own gets what you chose.",
    )


class ChatChannelOut(serializers.Serializer[Any]):
    """A channel without its address."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    service = serializers.CharField()
    project = serializers.CharField(source="project.slug", default=None, allow_null=True)
    events = serializers.ListField(child=serializers.CharField())
    created = serializers.DateTimeField()
    last_sent = serializers.DateTimeField(allow_null=True)
    last_error = serializers.CharField(help_text="Of the newest attempt; empty if it was sent.")


class ChatMessageOut(serializers.Serializer[Any]):
    """A message to a channel."""

    id = serializers.IntegerField()
    event = serializers.CharField(source="kind")
    title = serializers.CharField()
    state = serializers.ChoiceField(choices=ChatMessage.State.values)
    created = serializers.DateTimeField()
    due = serializers.DateTimeField(help_text="Time of the next attempt.")
    tries = serializers.IntegerField()
    settled = serializers.DateTimeField(allow_null=True)
    error = serializers.CharField()


class ChatChannels(ApiView):
    """Chat channels."""

    @described("list_chat_channels", "List your chat channels", answer=page(ChatChannelOut))
    def get(self, request: Request) -> Response:
        """Returns your own, and those of projects that you lead."""
        with self.tx():
            return list_response(ChatChannelOut(chat_channels_of(self.actor), many=True).data)

    @described(
        "create_chat_channel",
        "Add a chat channel",
        answer=ChatChannelOut,
        request=ChatChannelIn,
        status=201,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Stores the address encrypted; it is never returned."""
        terms = ChatTerms(**self.sent(ChatChannelIn))

        def work() -> Response:
            made = chat_channel_create(actor=self.actor, terms=terms, now=self.now)
            return Response(ChatChannelOut(made).data, status=201)

        return self.once(work)


class ChatChannelOne(ApiView):
    """One chat channel."""

    @described("delete_chat_channel", "Delete a chat channel", answer=None, status=204)
    def delete(self, request: Request, channel_id: UUID) -> Response:
        """Deletes the channel with its log."""
        with self.tx():
            chat_channel_delete(actor=self.actor, channel_id=channel_id, now=self.now)
        return Response(status=204)


class ChatChannelTest(ApiView):
    """A test message."""

    @described("act_test_chat_channel", "Send a test message", answer=ChatMessageOut, status=202)
    def post(self, request: Request, channel_id: UUID) -> HttpResponseBase:
        """Queues a message that is tried once."""

        def work() -> Response:
            made = chat_channel_test(actor=self.actor, channel_id=channel_id, now=self.now)
            return Response(ChatMessageOut(made).data, status=202)

        return self.once(work)


class ChatMessages(ApiView):
    """The log of a channel."""

    queries = {"GET": PageQuery}

    @described(
        "list_chat_messages",
        "Messages to a chat channel, the latest first; kept for 30 days",
        answer=page(ChatMessageOut),
        query=PageQuery,
    )
    def get(self, request: Request, channel_id: UUID) -> Response:
        """Lists messages with the outcome of their attempts."""
        with self.tx():
            channel = chat_channel_one(self.actor, channel_id)
            rows, next_cursor = page_of(
                channel.messages.filter(tenant_id=self.actor.tenant_id),
                keys=("-id",),
                query=self.query,
                scope=f"chat:{channel.id}",
            )
            return list_response(ChatMessageOut(rows, many=True).data, next_cursor)
