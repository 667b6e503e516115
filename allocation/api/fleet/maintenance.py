"""Planned maintenance, and what operators do about hardware that failed."""

from datetime import timedelta
from typing import Any
from uuid import UUID
from zoneinfo import available_timezones

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.errors import AskError
from allocation.models import Gpu, GpuEvent, Maintenance, Node
from allocation.rules.recurrence import recurrence_read
from allocation.services.operate.drain import gpu_return, hardware_fence
from allocation.services.operate.maintenance import (
    MaintenanceTerms,
    Preview,
    maintenance_end,
    maintenance_plan,
    maintenance_preview,
)
from tenants.api.base import ApiView, list_response
from tenants.models import User
from tenants.platform.errors import invalid, missing
from tenants.platform.fields import Flag, Instant, Strict, Text, Whole
from tenants.platform.pagination import PageQuery, page_of
from tenants.platform.schema import described, page
from tenants.platform.wall import operator_tx

OVER_SHOWN = timedelta(days=30)


class BlackoutIn(Strict):
    """Maintenance of a rack, or of a node, or of one GPU of that node by its index."""

    rack = Text(max_length=40, required=False)
    node = Text(max_length=60, required=False)
    gpu = Whole(required=False, max_value=63)
    starts = Instant()
    ends = Instant()
    drain_by = Instant(
        required=False, help_text="When running work has left; `starts` if not said."
    )
    reason = Text(max_length=120)
    rrule = Text(
        max_length=120,
        required=False,
        help_text="It repeats, as in `FREQ=WEEKLY;BYDAY=TU;UNTIL=20270131`: at most 60 dates.",
    )
    zone = Text(max_length=64, required=False, help_text="IANA zone of its wall clock; UTC.")

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        """The rule read, in a zone that exists. Raises ValidationError."""
        if given.get("zone", "UTC") not in available_timezones():
            raise serializers.ValidationError(
                {"zone": ["Choose an IANA zone, like Europe/Berlin."]}, code="bad_zone"
            )
        return given


class BlackoutOut(serializers.Serializer[Any]):
    """Hardware that is kept free of bookings in [starts, ends)."""

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
    series = serializers.UUIDField(
        allow_null=True, help_text="The same for all dates of what repeats."
    )
    rrule = serializers.CharField(source="rule")
    zone = serializers.CharField(help_text="Of the wall clock that `rrule` is meant on.")


class BlackoutEndIn(Strict):
    """Which of what repeats."""

    following = Flag(
        required=False, default=False, help_text="The dates that follow are called off, too."
    )


class MovedOut(serializers.Serializer[Any]):
    """A booking whose start would be another; `after` null: there would be no room for it."""

    booking = serializers.CharField(source="label")
    tenant = serializers.CharField()
    before = serializers.DateTimeField(allow_null=True)
    after = serializers.DateTimeField(allow_null=True)


class PreviewOut(serializers.Serializer[Any]):
    """What saving would do: starts that move, and running bookings that would be broken off."""

    moved = MovedOut(many=True)
    running = serializers.ListField(child=serializers.CharField())


class Blackouts(ApiView):
    """Planned maintenance."""

    queries = {"GET": PageQuery}

    @described(
        "list_blackouts",
        "Maintenance that runs, is planned, or was over within 30 days",
        answer=page(BlackoutOut),
        query=PageQuery,
    )
    def get(self, request: Request) -> Response:
        """A page by start."""
        with self.tx():
            rows, following = page_of(
                Maintenance.objects.filter(ends__gt=self.now - OVER_SHOWN).select_related(
                    "rack", "node", "gpu__node"
                ),
                keys=("starts", "id"),
                query=self.query,
                scope="blackouts",
            )
            return list_response(BlackoutOut(rows, many=True).data, following)

    @described(
        "create_blackout",
        "Plan maintenance (operators)",
        answer=BlackoutOut,
        status=201,
        request=BlackoutIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """The maintenance, the first date of what repeats; bookings in its way get other places by
        the next decision."""
        wish = _wish(self.sent(BlackoutIn))

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                made = maintenance_plan(operator=_operator(self), wish=wish, now=self.now)
                return Response(BlackoutOut(made).data, status=201)

        return self.once(work)


class BlackoutPreview(ApiView):
    """What maintenance would move."""

    @described(
        "act_preview_blackout",
        "What planned maintenance would move; nothing is saved (operators)",
        answer=PreviewOut,
        request=BlackoutIn,
    )
    def post(self, request: Request) -> Response:
        """Starts that would be others, and running bookings that would be broken off."""
        wish = _wish(self.sent(BlackoutIn))
        with self.tx():
            self.require_operator()
            with operator_tx():
                found = maintenance_preview(operator=_operator(self), wish=wish, now=self.now)
                return Response(_preview_data(found))


class BlackoutEnd(ApiView):
    """Ending maintenance early."""

    @described(
        "act_end_blackout",
        "End maintenance now, or call it off (operators)",
        answer=BlackoutOut,
        request=BlackoutEndIn,
    )
    def post(self, request: Request, blackout_id: UUID) -> HttpResponseBase:
        """The maintenance, with the time at which it ended."""
        sent = self.sent(BlackoutEndIn)

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                found = Maintenance.objects.filter(id=blackout_id).first()
                if found is None:
                    raise missing("maintenance")
                ended = maintenance_end(
                    operator=_operator(self),
                    blackout=found,
                    now=self.now,
                    following=sent["following"],
                )
                return Response(BlackoutOut(ended).data)

        return self.once(work)


class NoteIn(Strict):
    """What was done, for the history."""

    note = Text(max_length=120)


class FenceIn(NoteIn):
    """As `NoteIn`; with a `gpu` only that one, by its index, is said to be off."""

    gpu = Whole(required=False, max_value=63)


class ReturnedOut(serializers.Serializer[Any]):
    """A GPU after it was put back."""

    id = serializers.UUIDField()
    node = serializers.CharField(source="node.name")
    index = serializers.IntegerField()
    health = serializers.CharField()


class FencedOut(serializers.Serializer[Any]):
    """How many places came to count as empty."""

    node = serializers.CharField()
    closed = serializers.IntegerField()


class GpuEventOut(serializers.Serializer[Any]):
    """One line of a node's history; `until` null for what is still there, or was an instant."""

    at = serializers.DateTimeField()
    gpu = serializers.IntegerField(source="gpu.index", allow_null=True, default=None)
    kind = serializers.CharField()
    code = serializers.IntegerField(allow_null=True)
    instance = serializers.CharField()
    slot = serializers.IntegerField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True)
    sentence = serializers.CharField()


class GpuReturn(ApiView):
    """Putting a GPU back into service."""

    @described(
        "act_return_gpu",
        "Put a GPU back into service (operators)",
        answer=ReturnedOut,
        request=NoteIn,
    )
    def post(self, request: Request, gpu_id: UUID) -> HttpResponseBase:
        """The GPU, in planning again."""
        sent = self.sent(NoteIn)

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                found = Gpu.objects.select_related("node").filter(id=gpu_id).first()
                if found is None:
                    raise missing("GPU")
                gpu_return(operator=_operator(self), gpu=found, note=sent["note"], now=self.now)
                found.refresh_from_db()
                return Response(ReturnedOut(found).data)

        return self.once(work)


class NodeFence(ApiView):
    """Stating that hardware is off."""

    @described(
        "act_fence_node",
        "State that a node, or one GPU of it, is switched off (operators)",
        answer=FencedOut,
        request=FenceIn,
    )
    def post(self, request: Request, name: str) -> HttpResponseBase:
        """Its places count as empty from now on. The statement has to be true."""
        sent = self.sent(FenceIn)

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                node = _node(name)
                closed = hardware_fence(
                    operator=_operator(self),
                    node=node,
                    gpu=_gpu(node, sent.get("gpu")),
                    note=sent["note"],
                    now=self.now,
                )
                return Response(FencedOut({"node": name, "closed": closed}).data)

        return self.once(work)


class NodeEvents(ApiView):
    """What went wrong on a node."""

    queries = {"GET": PageQuery}

    @described(
        "list_node_events",
        "History of a node's hardware (operators)",
        answer=page(GpuEventOut),
        query=PageQuery,
    )
    def get(self, request: Request, name: str) -> Response:
        """A page, the newest first."""
        with self.tx():
            self.require_operator()
            with operator_tx():
                rows, following = page_of(
                    GpuEvent.objects.filter(node=_node(name)).select_related("gpu"),
                    keys=("-id",),
                    query=self.query,
                    scope="node-events",
                )
                return list_response(GpuEventOut(rows, many=True).data, following)


def _wish(sent: dict[str, Any]) -> MaintenanceTerms:
    """What was sent. Raises Refused: `not_a_rule`, `no_end`."""
    rule = sent.pop("rrule", None)
    try:
        return MaintenanceTerms(**sent, repeat=recurrence_read(rule, "rrule") if rule else None)
    except AskError as error:
        raise invalid(error.code, error.sentence, "rrule") from error


def _operator(view: ApiView) -> User:
    return User.objects.get(id=view.actor.user_id)


def _node(name: str) -> Node:
    found = Node.objects.filter(name=name).first()
    if found is None:
        raise missing("node")
    return found


def _gpu(node: Node, index: int | None) -> Gpu | None:
    if index is None:
        return None
    found = Gpu.objects.select_related("node").filter(node=node, index=index).first()
    if found is None:
        raise missing("GPU", "gpu")
    return found


def _preview_data(found: Preview) -> dict[str, Any]:
    labels = [booking.label for booking in found.running]
    return {"moved": MovedOut(found.moved, many=True).data, "running": labels}
