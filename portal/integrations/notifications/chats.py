"""Messages to chat channels: of the people who chose them, and of projects."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from portal.integrations.notifications.recipients import Recipient
from tenants.models import ChatChannel, ChatMessage, NotificationSettings, User
from tenants.platform.database.compiled import Compiled
from tenants.rules.notifications import TYPE_OF_KIND, MailTimes, choice_of, mail_due
from tenants.web.frame import zone_of

Place = tuple[UUID, int]
_channels = Compiled(lambda _, keys: ChatChannel.objects.filter(tenant_id__in=keys))


def chat_messages(
    recipients: Sequence[Recipient],
    people: Mapping[Place, User],
    chosen: Mapping[Place, NotificationSettings],
    now: datetime,
) -> list[ChatMessage]:
    """Returns the messages, not saved; a channel gets each message once."""
    tenants = {each.message.owner for each in recipients}
    channels = _channels(now, tenants)
    if not channels:
        return []
    own: dict[Place, list[ChatChannel]] = {}
    shared: dict[UUID, list[ChatChannel]] = {}
    for channel in channels:
        if channel.user_id is not None:
            own.setdefault((channel.tenant_id, channel.user_id), []).append(channel)
        elif channel.project_id is not None:
            shared.setdefault(channel.project_id, []).append(channel)
    found = {
        (row.channel_id, row.message): row
        for row in (
            *_own(recipients, own, people, chosen, now),
            *_shared(recipients, shared, now),
        )
    }
    return list(found.values())


def _own(
    recipients: Sequence[Recipient],
    channels: Mapping[Place, Sequence[ChatChannel]],
    people: Mapping[Place, User],
    chosen: Mapping[Place, NotificationSettings],
    now: datetime,
) -> Iterator[ChatMessage]:
    """Yields messages of people, after their quiet hours unless they are urgent."""
    for each in recipients:
        place = each.message.owner, each.user_id
        settings = chosen.get(place)
        stored = settings.choices if settings else {}
        if place not in channels or not choice_of(stored, TYPE_OF_KIND[each.kind].name).chat:
            continue
        times = MailTimes()
        if settings is not None:
            times = MailTimes(settings.quiet_from, settings.quiet_until, settings.daily_at)
        zone = zone_of(people[place].time_zone)
        due = mail_due(now, zone, "now", times, can_wait=each.can_wait) or now
        for channel in channels[place]:
            yield _message(each, channel, due)


def _shared(
    recipients: Sequence[Recipient], channels: Mapping[UUID, Sequence[ChatChannel]], now: datetime
) -> Iterator[ChatMessage]:
    """Yields messages of projects, at once."""
    for each in recipients:
        for channel in channels.get(each.project, ()) if each.project else ():
            if TYPE_OF_KIND[each.kind].name in channel.events:
                yield _message(each, channel, now)


def _message(each: Recipient, channel: ChatChannel, due: datetime) -> ChatMessage:
    return ChatMessage(
        tenant_id=each.message.owner,
        channel=channel,
        message=each.message.id,
        kind=each.message.kind,
        title=each.title[:160],
        text=each.text[:400],
        path=each.path,
        created=each.message.created,
        due=due,
    )
