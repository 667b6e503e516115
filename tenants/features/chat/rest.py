"""REST of chat channels."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers

from tenants.api.endpoints import Endpoint, Endpoints
from tenants.features.chat.services import (
    ChatChannelTerms,
    chat_channel_create,
    chat_channel_delete,
    chat_channel_one,
    chat_channel_test,
    chat_channels_of,
)
from tenants.models import ChatChannel, ChatMessage, Scope
from tenants.platform.rest.terms import Slug

rest = Endpoints(Scope.PROJECT, in_project=True)


class ChatChannelOut(serializers.Serializer[Any]):
    """A channel without its address."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    service = serializers.CharField()
    project = Slug()
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


@rest.list("chat-channels", "List your chat channels", ChatChannelOut)
def list_chat_channels(call: Endpoint) -> QuerySet[ChatChannel]:
    """Returns your own, and those of projects that you lead."""
    return chat_channels_of(call.actor)


@rest.post("chat-channels", "Add a chat channel", ChatChannelOut, terms=ChatChannelTerms, status=201)
def create_chat_channel(call: Endpoint, terms: ChatChannelTerms) -> ChatChannel:
    """Stores the address encrypted; it is never returned."""
    return chat_channel_create(actor=call.actor, terms=terms, now=call.now)


@rest.delete("chat-channels/<uuid:channel_id>", "Delete a chat channel")
def delete_chat_channel(call: Endpoint, channel_id: UUID) -> None:
    """Deletes the channel with its log."""
    chat_channel_delete(actor=call.actor, channel_id=channel_id, now=call.now)


@rest.post("chat-channels/<uuid:channel_id>/test", "Send a test message", ChatMessageOut, status=202)
def test_chat_channel(call: Endpoint, channel_id: UUID) -> ChatMessage:
    """Queues a message that is tried once."""
    return chat_channel_test(actor=call.actor, channel_id=channel_id, now=call.now)


@rest.list(
    "chat-channels/<uuid:channel_id>/messages",
    "Messages to a chat channel, the latest first; kept for 30 days",
    ChatMessageOut,
    order=("-id",),
)
def list_chat_messages(call: Endpoint, channel_id: UUID) -> QuerySet[ChatMessage]:
    """Lists messages with the outcome of their attempts."""
    return chat_channel_one(call.actor, channel_id).messages.filter(tenant_id=call.actor.tenant_id)


urlpatterns = rest.urls
