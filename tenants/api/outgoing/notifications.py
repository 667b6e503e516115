"""The caller's inbox, and how they want to be notified."""

from datetime import time
from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.models import NotificationSettings
from tenants.platform.errors import invalid
from tenants.platform.rest.fields import Flag, Strict, Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.queries import notification_settings_of, notifications_of, unread_count
from tenants.rules.notifications import MAIL_CHOICES, TYPES, Choice, choice_of
from tenants.services.notifications import (
    NotificationTerms,
    clock_read,
    notification_mark,
    notification_settings_set,
    notifications_mark_read,
)
from tenants.words import refusal_text

MOST_IDS = 200


class NotificationOut(serializers.Serializer[Any]):
    """An entry of the inbox."""

    id = serializers.UUIDField()
    event = serializers.CharField(source="kind")
    title = serializers.CharField()
    text = serializers.CharField(allow_blank=True)
    path = serializers.CharField(
        allow_blank=True, help_text="The page that it is about, below `/t/<tenant>/`."
    )
    at = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True, help_text="The deadline or start in it.")
    is_read = serializers.SerializerMethodField()

    def get_is_read(self, row: Any) -> bool:  # noqa: ANN401 (the framework's signature)
        """Whether it was marked as read."""
        return row.read is not None


class NotificationQuery(PageQuery):
    """Filters of the inbox."""

    unread = serializers.ChoiceField(choices=["true", "false"], required=False)


class NotificationChange(Strict):
    """Whether the entry is read."""

    is_read = Flag()


class NotificationsRead(Strict):
    """The entries to mark; without `ids`, all."""

    ids = serializers.ListField(
        child=serializers.UUIDField(), required=False, min_length=1, max_length=MOST_IDS
    )


class NotificationsMarked(serializers.Serializer[Any]):
    """How many entries were unread."""

    marked = serializers.IntegerField()


class UnreadOut(serializers.Serializer[Any]):
    """How many entries are unread."""

    unread = serializers.IntegerField(help_text="At most 100.")


class EventChoice(Strict):
    """How one type of event is notified."""

    event = serializers.ChoiceField(choices=list(TYPES))
    in_app = Flag()
    mail = serializers.ChoiceField(choices=list(MAIL_CHOICES))
    chat = Flag(required=False, help_text="To your chat channels; without it, it stays.")


class NotificationSettingsBody(Strict):
    """What changes; the rest keeps its values. Times are in the caller's time zone."""

    quiet_from = Text(required=False, allow_null=True, max_length=5, help_text="As in `22:00`.")
    quiet_until = Text(required=False, allow_null=True, max_length=5)
    daily_at = Text(required=False, max_length=5)
    events = EventChoice(many=True, required=False)


class EventChoiceOut(serializers.Serializer[Any]):
    """How one type of event is notified."""

    event = serializers.CharField()
    title = serializers.CharField()
    about = serializers.CharField()
    in_app = serializers.BooleanField()
    mail = serializers.ChoiceField(choices=list(MAIL_CHOICES))
    chat = serializers.BooleanField(help_text="To your chat channels, if you have any.")


class NotificationSettingsOut(serializers.Serializer[Any]):
    """The caller's settings in the token's tenant."""

    quiet_from = serializers.CharField(allow_null=True)
    quiet_until = serializers.CharField(allow_null=True)
    daily_at = serializers.CharField()
    events = EventChoiceOut(many=True)


class Notifications(ApiView):
    """The inbox."""

    queries = {"GET": NotificationQuery}

    @described(
        "list_notifications",
        "Your notifications",
        answer=page(NotificationOut),
        query=NotificationQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists notifications, newest first."""
        with self.tx():
            rows = notifications_of(self.actor.tenant_id, self.actor.user_id)
            if "unread" in self.query:
                rows = rows.filter(read__isnull=self.query["unread"] == "true")
            found, next_cursor = page_of(
                rows,
                keys=("-at", "-id"),
                query=self.query,
                scope=f"notifications:{self.actor.tenant_id}:{self.actor.user_id}",
            )
            return list_response(NotificationOut(found, many=True).data, next_cursor)


class NotificationCount(ApiView):
    """How many are unread."""

    @described("count_notifications", "How many notifications you have not read", answer=UnreadOut)
    def get(self, request: Request) -> Response:
        """Counts up to 100, in the token's tenant."""
        with self.tx():
            return Response({"unread": unread_count(self.actor.tenant_id, self.actor.user_id)})


class NotificationOne(ApiView):
    """One entry of the inbox."""

    @described(
        "set_notification",
        "Mark a notification as read or unread",
        answer=NotificationOut,
        request=NotificationChange,
    )
    def put(self, request: Request, notification_id: UUID) -> Response:
        """Marks the entry; idempotent."""
        sent = self.sent(NotificationChange)
        with self.tx():
            found = notification_mark(
                actor=self.actor,
                notification_id=notification_id,
                is_read=sent["is_read"],
                now=self.now,
            )
            return Response(NotificationOut(found).data)


class NotificationsReadAll(ApiView):
    """Marks many entries."""

    @described(
        "act_read_notifications",
        "Mark notifications as read",
        answer=NotificationsMarked,
        request=NotificationsRead,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Marks the given entries as read, or all; returns how many were unread."""
        sent = self.sent(NotificationsRead)

        def work() -> Response:
            marked = notifications_mark_read(actor=self.actor, now=self.now, only=sent.get("ids"))
            return Response({"marked": marked})

        return self.once(work)


class MyNotificationSettings(ApiView):
    """How the caller wants to be notified."""

    @described(
        "get_notification_settings",
        "How you are notified",
        answer=NotificationSettingsOut,
    )
    def get(self, request: Request) -> Response:
        """Describes the choices per event, the quiet hours and the daily mail."""
        with self.tx():
            return Response(_shown(self._stored()))

    @described(
        "set_notification_settings",
        "Set how you are notified",
        answer=NotificationSettingsOut,
        request=NotificationSettingsBody,
    )
    def put(self, request: Request) -> Response:
        """Changes the given settings. Pause notices and no-show warnings are never delayed."""
        sent = self.sent(NotificationSettingsBody)
        with self.tx():
            row = self._stored()
            daily_at = _clock(sent, "daily_at", row.daily_at)
            if daily_at is None:
                raise invalid("bad_clock", refusal_text("clock_example"), "daily_at")
            chosen = {
                each["event"]: Choice(
                    each["in_app"],
                    each["mail"],
                    each.get("chat", choice_of(row.choices, each["event"]).chat),
                )
                for each in sent.get("events", [])
            }
            terms = NotificationTerms(
                choices=chosen,
                quiet_from=_clock(sent, "quiet_from", row.quiet_from),
                quiet_until=_clock(sent, "quiet_until", row.quiet_until),
                daily_at=daily_at,
            )
            stored = notification_settings_set(actor=self.actor, terms=terms, now=self.now)
            return Response(_shown(stored))

    def _stored(self) -> NotificationSettings:
        return notification_settings_of(self.actor.tenant_id, self.actor.user_id)


def _clock(sent: dict[str, Any], name: str, stored: time | None) -> time | None:
    return clock_read(sent[name] or "", name) if name in sent else stored


def _shown(row: NotificationSettings) -> dict[str, Any]:
    events = []
    for name, kind in TYPES.items():
        choice = choice_of(row.choices, name)
        events.append(
            {
                "event": name,
                "title": kind.label,
                "about": kind.about,
                "in_app": choice.in_app,
                "mail": choice.mail,
                "chat": choice.chat,
            }
        )
    return {
        "quiet_from": f"{row.quiet_from:%H:%M}" if row.quiet_from else None,
        "quiet_until": f"{row.quiet_until:%H:%M}" if row.quiet_until else None,
        "daily_at": f"{row.daily_at:%H:%M}",
        "events": events,
    }
