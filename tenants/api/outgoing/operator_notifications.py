"""The inbox of an operator: what tenants ask for, and what budgets of the platform say."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.api.outgoing.notifications import (
    NotificationChange,
    NotificationOut,
    NotificationQuery,
    NotificationsMarked,
    NotificationsRead,
    UnreadOut,
)
from tenants.platform.rest.pagination import page_of
from tenants.platform.rest.schema import described, page
from tenants.platform.wall import operator_tx
from tenants.queries import operator_notifications, operator_unread_count
from tenants.rules.operator_roles import Area
from tenants.services.notifications import (
    operator_notification_mark,
    operator_notifications_mark_read,
)


class OperatorNotificationOut(NotificationOut):
    """An entry of an operator's inbox. `path` is a page of operators."""

    tenant = serializers.CharField(
        source="tenant.slug", default=None, allow_null=True, help_text="Null: the platform."
    )


class OperatorNotifications(ApiView):
    """The inbox."""

    area = Area.OWN
    queries = {"GET": NotificationQuery}

    @described(
        "list_operator_notifications",
        "Your notifications as an operator",
        answer=page(OperatorNotificationOut),
        query=NotificationQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists notifications of all tenants and of the platform, newest first."""
        self.require_operator()
        with operator_tx():
            rows = operator_notifications(self.user.pk).select_related("tenant")
            if "unread" in self.query:
                rows = rows.filter(read__isnull=self.query["unread"] == "true")
            found, next_cursor = page_of(
                rows,
                keys=("-at", "-id"),
                query=self.query,
                scope=f"operator-notifications:{self.user.pk}",
            )
            return list_response(OperatorNotificationOut(found, many=True).data, next_cursor)


class OperatorNotificationCount(ApiView):
    """How many are unread."""

    area = Area.OWN

    @described("count_operator_notifications", "How many you have not read (operators)", answer=UnreadOut)
    def get(self, request: Request) -> Response:
        """Counts up to 100."""
        self.require_operator()
        with operator_tx():
            return Response({"unread": operator_unread_count(self.user.pk)})


class OperatorNotificationOne(ApiView):
    """One entry of the inbox."""

    area = Area.OWN

    @described(
        "set_operator_notification",
        "Mark a notification as read or unread (operators)",
        answer=OperatorNotificationOut,
        request=NotificationChange,
    )
    def put(self, request: Request, notification_id: UUID) -> Response:
        """Marks the entry; idempotent."""
        sent = self.sent(NotificationChange)
        self.require_operator()
        with operator_tx():
            found = operator_notification_mark(
                operator=self.user,
                notification_id=notification_id,
                is_read=sent["is_read"],
                now=self.now,
            )
            return Response(dict[str, Any](OperatorNotificationOut(found).data))


class OperatorNotificationsReadAll(ApiView):
    """Marks many entries."""

    area = Area.OWN

    @described(
        "act_read_operator_notifications",
        "Mark notifications as read (operators)",
        answer=NotificationsMarked,
        request=NotificationsRead,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Marks the given entries as read, or all; returns how many were unread."""
        sent = self.sent(NotificationsRead)

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                marked = operator_notifications_mark_read(
                    operator=self.user, now=self.now, only=sent.get("ids")
                )
            return Response({"marked": marked})

        return self.once(work)
