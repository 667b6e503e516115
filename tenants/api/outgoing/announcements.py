"""Announcements of operators: read by everybody, written by operators."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.models import Announcement, Tenant
from tenants.platform.rest.fields import Instant, Strict, Text
from tenants.platform.rest.schema import described, page
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area
from tenants.services.announcements import (
    OPEN_MOST,
    TEXT_MOST,
    AnnouncementTerms,
    announcement_dismiss,
    announcement_publish,
    announcement_withdraw,
    dismissed_of,
)


class AnnouncementIn(Strict):
    """What to announce, to which tenants, and when."""

    text = Text(max_length=TEXT_MOST)
    level = serializers.ChoiceField(choices=Announcement.Level.values)
    starts = Instant(required=False, help_text="Now without it.")
    until = Instant(help_text="At most 90 days after the start.")
    tenants = serializers.ListField(
        child=serializers.CharField(max_length=40),
        required=False,
        default=list,
        max_length=1000,
        help_text="Slugs of the tenants that see it; empty: everybody.",
    )


class AnnouncementOut(serializers.Serializer[Any]):
    """An announcement."""

    id = serializers.UUIDField()
    text = serializers.CharField()
    level = serializers.ChoiceField(choices=Announcement.Level.values)
    starts = serializers.DateTimeField()
    until = serializers.DateTimeField()
    withdrawn_at = serializers.DateTimeField(allow_null=True)
    is_shown = serializers.BooleanField(help_text="Whether pages show it now.")
    is_dismissed = serializers.BooleanField(help_text="Whether the caller has closed its banner.")
    tenants = serializers.ListField(
        child=serializers.CharField(), help_text="Who sees it; for operators only, else empty."
    )


class Announcements(ApiView):
    """Announcements."""

    area = Area.PEOPLE

    @described(
        "list_announcements",
        "List what operators announce, now and later",
        answer=page(AnnouncementOut),
    )
    def get(self, request: Request) -> Response:
        """Returns those for the caller's tenant; operators get those of every tenant."""
        if self.is_for_operator():
            with operator_tx():
                return self._list()
        with self.tx():
            return self._list()

    @described(
        "act_publish_announcement",
        "Publish an announcement (operators)",
        answer=AnnouncementOut,
        request=AnnouncementIn,
        status=201,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Shows the text on every page from `starts` until `until`, and adds it to inboxes."""
        terms = AnnouncementTerms(**{"starts": self.now, **self.sent(AnnouncementIn)})

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                made = announcement_publish(operator=self.user, terms=terms, now=self.now)
                return Response(self._shown([made])[0], status=201)

        return self.once(work)

    def _list(self) -> Response:
        rows = Announcement.objects.filter(until__gt=self.now, withdrawn_at=None)
        return list_response(self._shown(list(rows.order_by("starts", "id")[:OPEN_MOST])))

    def _shown(self, rows: list[Announcement]) -> list[dict[str, Any]]:
        return shown(self, rows)


class AnnouncementWithdraw(ApiView):
    """Withdraws an announcement."""

    area = Area.PEOPLE

    @described(
        "act_withdraw_announcement",
        "Withdraw an announcement (operators)",
        answer=AnnouncementOut,
    )
    def post(self, request: Request, announcement_id: UUID) -> HttpResponseBase:
        """Takes it off all pages; entries of inboxes stay."""

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                found = announcement_withdraw(
                    operator=self.user, announcement_id=announcement_id, now=self.now
                )
                return Response(shown(self, [found])[0])

        return self.once(work)


class AnnouncementDismiss(ApiView):
    """Closes the banner of an announcement."""

    @described(
        "act_dismiss_announcement",
        "Close the banner of an announcement",
        answer=None,
        status=204,
    )
    def post(self, request: Request, announcement_id: UUID) -> HttpResponseBase:
        """Pages show it no longer to the caller; idempotent."""

        def work() -> Response:
            announcement_dismiss(user_id=self.user.pk, announcement_id=announcement_id, now=self.now)
            return Response(status=204)

        return self.once(work)


def shown(view: ApiView, rows: list[Announcement]) -> list[dict[str, Any]]:
    """Returns the announcements as the caller may see them."""
    closed = dismissed_of(view.user.pk, [row.id for row in rows])
    is_operator = view.is_for_operator()
    slugs = dict(Tenant.objects.values_list("id", "slug")) if is_operator else {}
    return [
        dict(
            AnnouncementOut(
                {
                    "id": row.id,
                    "text": row.text,
                    "level": row.level,
                    "starts": row.starts,
                    "until": row.until,
                    "withdrawn_at": row.withdrawn_at,
                    "is_shown": row.is_shown(view.now),
                    "is_dismissed": row.id in closed,
                    "tenants": [slugs[each] for each in row.tenants if each in slugs],
                }
            ).data
        )
        for row in rows
    ]
