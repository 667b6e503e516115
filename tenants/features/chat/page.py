"""The page of chat channels, of a person and of projects, with their log."""

from datetime import datetime
from typing import Any

from tenants.access import Actor, led_projects
from tenants.features.chat.services import (
    PROJECT_TYPES,
    ChatChannelTerms,
    chat_channel_create,
    chat_channel_delete,
    chat_channel_test,
    chat_channels_of,
)
from tenants.models import ChatChannel, ChatMessage
from tenants.rules.chat import SERVICES
from tenants.rules.notifications import TYPES
from tenants.web.form_page import Act, form_page

LOG_ROWS = 50


def _shown(actor: Actor, now: datetime) -> dict[str, Any]:
    channels = list(chat_channels_of(actor))
    log = ChatMessage.objects.filter(tenant_id=actor.tenant_id, channel__in=[each.id for each in channels])
    return {
        "channels": [(each, _events_words(each.events)) for each in channels],
        "log": log.select_related("channel").order_by("-id")[:LOG_ROWS],
        "services": sorted({(each.name, each.example) for each in SERVICES.values()}),
    }


def _events_words(events: list[str]) -> str:
    return ", ".join(TYPES[name].label for name in events if name in TYPES)


def _add(*, actor: Actor, terms: ChatChannelTerms, now: datetime) -> ChatChannel:
    made = chat_channel_create(actor=actor, terms=terms, now=now)
    chat_channel_test(actor=actor, channel_id=made.id, now=now)
    return made


urlpatterns = [
    form_page(
        "settings/chat",
        "chat",
        "chat/page.html",
        _shown,
        Act(
            "create",
            _add,
            "{row.name} added. A test message is on its way; its outcome is in the log.",
            terms=ChatChannelTerms,
            choices={
                "project": lambda actor: [("", "Me"), *led_projects(actor, with_closed=True)],
                "events": lambda _: [(name, TYPES[name].label) for name in PROJECT_TYPES],
            },
            initial=lambda _: {"events": ("hardware", "refused", "budget")},
        ),
        Act(
            "test",
            chat_channel_test,
            "Test message queued. Its outcome is in the log.",
            key="channel",
            noun="chat channel",
        ),
        Act("delete", chat_channel_delete, "Channel deleted.", key="channel", noun="chat channel"),
    )
]
