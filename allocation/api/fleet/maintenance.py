"""Planned maintenance: hardware that is reserved for a period."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.bookings.requests import zone_check
from allocation.api.operators import OperatorView
from allocation.errors import AskError
from allocation.models import Maintenance
from allocation.rules.recurrence import recurrence_read
from allocation.services.operate.maintenance.change import (
    MaintenanceChange,
    maintenance_change,
    maintenance_change_preview,
)
from allocation.services.operate.maintenance.plan import (
    MaintenanceTerms,
    maintenance_end,
    maintenance_plan,
    maintenance_preview,
)
from allocation.words.refusals import coded_text
from tenants.api.base import list_response
from tenants.platform.costly import costly
from tenants.platform.errors import invalid, missing
from tenants.platform.rest.fields import Flag, Instant, Strict, Text, Whole
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.rules.operator_roles import Area

SHOWN_AFTER_END = timedelta(days=30)


class MaintenanceIn(Strict):
    """Maintenance of a rack, of a node, or of one GPU of a node."""

    rack = Text(max_length=40, required=False)
    node = Text(max_length=60, required=False)
    gpu = Whole(required=False, max_value=63, help_text="Index of a GPU of `node`.")
    starts = Instant()
    ends = Instant()
    drain_by = Instant(
        required=False,
        help_text="When running bookings are interrupted. Defaults to `starts`.",
    )
    reason = Text(max_length=120)
    rrule = Text(
        max_length=120,
        required=False,
        help_text="A recurrence with at most 60 dates: `FREQ=WEEKLY;BYDAY=TU;UNTIL=20270131`.",
    )
    zone = Text(
        max_length=64,
        required=False,
        help_text="IANA time zone in which `rrule` keeps its local time. Defaults to UTC.",
    )

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Requires an existing zone. Raises ValidationError."""
        zone_check(given.get("zone", "UTC"))
        return given


class MaintenanceChangeIn(Strict):
    """What becomes different; the rest stays."""

    starts = Instant(required=False)
    ends = Instant(required=False)
    drain_by = Instant(
        required=False,
        help_text="Without it, a deadline at the start moves with it, and another one stays.",
    )
    reason = Text(max_length=120, required=False)


class MaintenanceOut(serializers.Serializer[Any]):
    """Hardware that takes no bookings in [`starts`, `ends`)."""

    id = serializers.UUIDField()
    where = serializers.CharField()
    rack = serializers.CharField(source="rack.name", allow_null=True, default=None)
    node = serializers.CharField(source="node.name", allow_null=True, default=None)
    gpu = serializers.UUIDField(source="gpu_id", allow_null=True)
    starts = serializers.DateTimeField()
    ends = serializers.DateTimeField()
    drain_by = serializers.DateTimeField()
    reason = serializers.CharField()
    ended_at = serializers.DateTimeField(allow_null=True)
    series = serializers.UUIDField(allow_null=True, help_text="The same id for all dates of one recurrence.")
    rrule = serializers.CharField(source="rule")
    zone = serializers.CharField(help_text="Time zone of `rrule`.")
    skipped = serializers.ListField(
        child=serializers.CharField(), help_text="Days of `rrule` that do not exist."
    )


class MaintenanceEndIn(Strict):
    """Which dates of a recurrence end."""

    following = Flag(required=False, default=False, help_text="Also cancel all later dates.")


class MovedOut(serializers.Serializer[Any]):
    """A booking with another planned start. `after` is null if no other start exists."""

    booking = serializers.CharField(source="label")
    tenant = serializers.CharField()
    before = serializers.DateTimeField(allow_null=True)
    after = serializers.DateTimeField(allow_null=True)


class PreviewOut(serializers.Serializer[Any]):
    """The effect of maintenance: starts that would move and bookings that would be interrupted."""

    moved = MovedOut(many=True)
    running = serializers.ListField(child=serializers.CharField())
    skipped = serializers.ListField(
        child=serializers.CharField(), help_text="Days of `rrule` that do not exist."
    )


class MaintenanceList(OperatorView):
    """Planned maintenance."""

    area = Area.NODES
    queries = {"GET": PageQuery}

    @described("list_maintenance", "List maintenance", answer=page(MaintenanceOut), query=PageQuery)
    def get(self, request: Request) -> Response:
        """Returns planned, current and recent maintenance by start. Maintenance is listed for 30
        days after its end."""
        with self.tx():
            rows, next_cursor = page_of(
                Maintenance.objects.filter(ends__gt=self.now - SHOWN_AFTER_END).select_related(
                    "rack", "node", "gpu__node"
                ),
                keys=("starts", "id"),
                query=self.query,
                scope="maintenance",
            )
            return list_response(MaintenanceOut(rows, many=True).data, next_cursor)

    @described(
        "create_maintenance",
        "Plan maintenance (operators)",
        answer=MaintenanceOut,
        status=201,
        request=MaintenanceIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Plans maintenance and returns it, or the first date of a recurrence. The next decision
        moves the bookings that are in the way."""
        terms = _terms(self.sent(MaintenanceIn))
        return self.operate(
            lambda: maintenance_plan(operator=self.user, terms=terms, now=self.now),
            MaintenanceOut,
            status=201,
        )


@costly("preview", "GET", "HEAD", "POST")
class MaintenancePreview(OperatorView):
    """The effect of maintenance."""

    area = Area.NODES

    @described(
        "act_preview_maintenance",
        "Preview maintenance (operators)",
        answer=PreviewOut,
        request=MaintenanceIn,
    )
    def post(self, request: Request) -> Response:
        """Returns the starts that would move and the running bookings that would be interrupted.
        Nothing is saved."""
        terms = _terms(self.sent(MaintenanceIn))
        with self.tx(), self.operator_tx():
            preview = maintenance_preview(operator=self.user, terms=terms, now=self.now)
            running = [booking.label for booking in preview.running]
            found = {"moved": preview.moved, "running": running, "skipped": preview.skipped}
            return Response(PreviewOut(found).data)


class MaintenanceOne(OperatorView):
    """One maintenance, or one date of a recurrence."""

    area = Area.NODES

    @described("get_maintenance", "Retrieve maintenance", answer=MaintenanceOut)
    def get(self, request: Request, maintenance_id: UUID) -> Response:
        """Returns the maintenance."""
        with self.tx():
            return Response(MaintenanceOut(_found(maintenance_id)).data)

    @described(
        "update_maintenance",
        "Change maintenance (operators)",
        answer=MaintenanceOut,
        request=MaintenanceChangeIn,
    )
    def patch(self, request: Request, maintenance_id: UUID) -> HttpResponseBase:
        """Changes the window, the deadline or the reason, and returns the maintenance. Of a
        recurrence only this date changes. The next decision moves the bookings that are in the way,
        and owners of running work are notified. After its start, `starts` can't change (409
        `maintenance_running`)."""
        change = MaintenanceChange(**self.sent(MaintenanceChangeIn))
        return self.operate(
            lambda: maintenance_change(
                operator=self.user, maintenance=_found(maintenance_id), change=change, now=self.now
            ),
            MaintenanceOut,
        )


@costly("preview", "GET", "HEAD", "POST")
class MaintenanceChangePreview(OperatorView):
    """The effect of a change of maintenance."""

    area = Area.NODES

    @described(
        "act_preview_maintenance_change",
        "Preview a change of maintenance (operators)",
        answer=PreviewOut,
        request=MaintenanceChangeIn,
    )
    def post(self, request: Request, maintenance_id: UUID) -> Response:
        """Returns the starts that would move and the running bookings that would be interrupted.
        Nothing is saved."""
        change = MaintenanceChange(**self.sent(MaintenanceChangeIn))
        with self.tx(), self.operator_tx():
            preview = maintenance_change_preview(
                maintenance=_found(maintenance_id), change=change, now=self.now
            )
            running = [booking.label for booking in preview.running]
            found = {"moved": preview.moved, "running": running, "skipped": preview.skipped}
            return Response(PreviewOut(found).data)


class MaintenanceEnd(OperatorView):
    """Ends or cancels maintenance."""

    area = Area.NODES

    @described(
        "act_end_maintenance",
        "End or cancel maintenance (operators)",
        answer=MaintenanceOut,
        request=MaintenanceEndIn,
    )
    def post(self, request: Request, maintenance_id: UUID) -> HttpResponseBase:
        """Ends the maintenance now, or cancels it before its start, and returns it with
        `ended_at`."""
        sent = self.sent(MaintenanceEndIn)

        def work() -> Maintenance:
            return maintenance_end(
                operator=self.user,
                maintenance=_found(maintenance_id),
                now=self.now,
                following=sent["following"],
            )

        return self.operate(work, MaintenanceOut)


def _found(maintenance_id: UUID) -> Maintenance:
    """The maintenance. Raises Refused `not_found`."""
    rows = Maintenance.objects.select_related("rack", "node", "gpu__node")
    found = rows.filter(id=maintenance_id).first()
    if found is None:
        raise missing("maintenance")
    return found


def _terms(sent: dict[str, Any]) -> MaintenanceTerms:
    """The terms of a validated `MaintenanceIn`. Raises Refused `not_a_rule` or `no_end`."""
    rule = sent.pop("rrule", None)
    try:
        return MaintenanceTerms(**sent, repeat=recurrence_read(rule, "rrule") if rule else None)
    except AskError as error:
        raise invalid(error.code, coded_text(error.text), "rrule") from error
