"""Chat services that messages can go to, and what their addresses may contain. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tenants.platform.coded import CodedError

URL_LENGTH_MAX = 500
# Minutes until the next try; then a message is given up.
RETRY_MINUTES = (1, 5, 30, 120, 360)
_SCHEME = re.compile(r"([a-z][a-z0-9]{1,15})://", re.IGNORECASE)
_VISIBLE = re.compile(r"[!-~]+")
# Parameters that would switch off checks of certificates, or set times of our connections.
_FORBIDDEN = re.compile(r"[?&](verify|cto|rto|redirect|store|attach)=", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ChatService:
    """A service: its name, and an example of an address. `is_own`: people run its servers."""

    name: str
    example: str
    is_own: bool = False


# Schemes of `apprise`. Each sends by HTTP only, so that all of its connections are checked.
SERVICES: Mapping[str, ChatService] = {
    "slack": ChatService("Slack", "slack://TokenA/TokenB/TokenC/#channel"),
    "msteams": ChatService("Microsoft Teams", "msteams://TokenA/TokenB/TokenC/TokenD"),
    "workflows": ChatService("Power Automate", "workflows://host:443/workflow/signature"),
    "discord": ChatService("Discord", "discord://WebhookId/WebhookToken"),
    "gchat": ChatService("Google Chat", "gchat://workspace/key/token"),
    "tgram": ChatService("Telegram", "tgram://BotToken/ChatId"),
    "wxteams": ChatService("Webex", "wxteams://token"),
    "zulip": ChatService("Zulip", "zulip://bot@organisation/token/stream"),
    "pover": ChatService("Pushover", "pover://UserKey@Token"),
    "mmosts": ChatService("Mattermost", "mmosts://chat.example.org/token", is_own=True),
    "mmost": ChatService("Mattermost", "mmost://chat.example.org/token", is_own=True),
    "rockets": ChatService("Rocket.Chat", "rockets://webhook@chat.example.org", is_own=True),
    "rocket": ChatService("Rocket.Chat", "rocket://webhook@chat.example.org", is_own=True),
    "matrixs": ChatService("Matrix", "matrixs://user:password@example.org/#room", is_own=True),
    "matrix": ChatService("Matrix", "matrix://user:password@example.org/#room", is_own=True),
    "ntfys": ChatService("ntfy", "ntfys://ntfy.example.org/topic", is_own=True),
    "ntfy": ChatService("ntfy", "ntfy://ntfy.example.org/topic", is_own=True),
    "gotifys": ChatService("Gotify", "gotifys://gotify.example.org/token", is_own=True),
    "gotify": ChatService("Gotify", "gotify://gotify.example.org/token", is_own=True),
}


class BadChatUrl(CodedError):
    """A channel may not have this address; the message is a sentence for people."""


def scheme_read(url: str) -> str:
    """Returns the scheme of an address. Raises BadChatUrl."""
    if len(url) > URL_LENGTH_MAX or not _VISIBLE.fullmatch(url):
        raise BadChatUrl("chat_address_long", most=URL_LENGTH_MAX)
    found = _SCHEME.match(url)
    if found is None or found[1].lower() not in SERVICES:
        known = ", ".join(sorted({each.name for each in SERVICES.values()}))
        raise BadChatUrl("chat_service", known=known)
    if forbidden := _FORBIDDEN.search(url):
        raise BadChatUrl("chat_forbidden", name=forbidden[1])
    return found[1].lower()


def next_chat_try(tries: int, now: datetime) -> datetime | None:
    """Returns when a message is tried again after `tries` attempts; None when it is given up."""
    if tries > len(RETRY_MINUTES):
        return None
    return now + timedelta(minutes=RETRY_MINUTES[tries - 1])
