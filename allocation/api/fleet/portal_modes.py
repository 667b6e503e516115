"""Planned outages of the portal and freezes of its decisions (operators)."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.models import PortalMode
from allocation.queries.fleet.portal_modes import mode_in_force
from allocation.services.operate.portal_modes import (
    FREEZE,
    OUTAGE,
    freeze_begin,
    leases_of_nodes,
    mode_end,
    outage_begin,
    outage_close,
)
from tenants.api.base import ApiView
from tenants.models import User
from tenants.platform.fields import Duration, Strict, Text
from tenants.platform.schema import described
from tenants.platform.wall import operator_tx


class OutageIn(Strict):
    """For how long at most the portal will be away, from now on."""

    length = Duration(help_text="At least a minute, at most four hours, as in `PT20M`.")
    reason = Text(max_length=120, help_text="Everybody reads it.")


class FreezeIn(Strict):
    """Why nothing is decided, and for how long."""

    reason = Text(max_length=120, help_text="Everybody reads it.")
    length = Duration(
        required=False, help_text="It ends by itself then; else when somebody ends it."
    )


class ModeOut(serializers.Serializer[Any]):
    """A planned outage, or a freeze of decisions."""

    kind = serializers.ChoiceField(choices=PortalMode.Kind.choices)
    since = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True)
    closed_at = serializers.DateTimeField(
        allow_null=True, help_text="From then on members' changes are refused."
    )
    reason = serializers.CharField()
    ended_at = serializers.DateTimeField(allow_null=True)


class NodeLeaseOut(serializers.Serializer[Any]):
    """Whether the work of a node outlives the outage."""

    node = serializers.CharField()
    state = serializers.ChoiceField(
        choices=["confirmed", "waiting", "not_heard", "too_old", "cut_off"]
    )
    means = serializers.CharField()
    holds_work = serializers.BooleanField(help_text="It runs something on lease now.")
    is_safe = serializers.BooleanField(help_text="The outage ends nothing here.")


class OutageOut(serializers.Serializer[Any]):
    """The planned outage in force, if there is one, and the leases of all nodes."""

    outage = ModeOut(allow_null=True)
    nodes = NodeLeaseOut(many=True)


class FreezeOut(serializers.Serializer[Any]):
    """The freeze in force, if there is one."""

    freeze = ModeOut(allow_null=True)


def _acted(view: ApiView, act: Callable[[User, datetime], PortalMode]) -> HttpResponseBase:
    def work() -> Response:
        with operator_tx():
            operator = User.objects.get(id=view.actor.user_id)
            return Response(ModeOut(act(operator, view.now)).data)

    return view.once(work)


class PortalOutage(ApiView):
    """The planned outage."""

    @described(
        "get_portal_outage",
        "The planned outage, and which nodes hold a lease to its end (operators)",
        answer=OutageOut,
    )
    def get(self, request: Request) -> Response:
        """Stop programs once every node `is_safe`."""
        with self.tx():
            self.require_operator()
            with operator_tx():
                mode = mode_in_force(OUTAGE, self.now)
                nodes = leases_of_nodes(mode, self.now) if mode else []
                return Response(
                    {
                        "outage": ModeOut(mode).data if mode else None,
                        "nodes": NodeLeaseOut(nodes, many=True).data,
                    }
                )

    @described(
        "act_begin_outage",
        "Announce a planned outage: all leases are lengthened (operators)",
        answer=ModeOut,
        request=OutageIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """The outage. One that is announced already gets the new end."""
        sent = self.sent(OutageIn)
        self.require_operator()
        return _acted(
            self,
            lambda operator, now: outage_begin(
                operator=operator, length=sent["length"], reason=sent["reason"], now=now
            ),
        )


class PortalOutageClose(ApiView):
    """The next step of a planned outage."""

    @described(
        "act_close_outage",
        "Refuse members' changes until the outage is over (operators)",
        answer=ModeOut,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """The outage; changes are answered with 503 from now on."""
        self.require_operator()
        return _acted(self, lambda operator, now: outage_close(operator=operator, now=now))


class PortalOutageEnd(ApiView):
    """The end of a planned outage."""

    @described("act_end_outage", "End the planned outage now (operators)", answer=ModeOut)
    def post(self, request: Request) -> HttpResponseBase:
        """The outage; leases are granted with their usual length again."""
        self.require_operator()
        return _acted(self, lambda operator, now: mode_end(kind=OUTAGE, operator=operator, now=now))


class PortalFreeze(ApiView):
    """The freeze of decisions."""

    @described(
        "get_portal_freeze",
        "The freeze of decisions, if there is one (operators)",
        answer=FreezeOut,
    )
    def get(self, request: Request) -> Response:
        """Null without."""
        with self.tx():
            self.require_operator()
            with operator_tx():
                mode = mode_in_force(FREEZE, self.now)
                return Response({"freeze": ModeOut(mode).data if mode else None})

    @described(
        "act_begin_freeze",
        "Freeze decisions: nothing starts, nothing is paused or ended early (operators)",
        answer=ModeOut,
        request=FreezeIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """The freeze. One that is in force gets the new reason and end."""
        sent = self.sent(FreezeIn)
        self.require_operator()
        return _acted(
            self,
            lambda operator, now: freeze_begin(
                operator=operator, reason=sent["reason"], length=sent.get("length"), now=now
            ),
        )


class PortalFreezeEnd(ApiView):
    """The end of a freeze."""

    @described("act_end_freeze", "Let decisions be made again (operators)", answer=ModeOut)
    def post(self, request: Request) -> HttpResponseBase:
        """The freeze; the next decision is made at once."""
        self.require_operator()
        return _acted(self, lambda operator, now: mode_end(kind=FREEZE, operator=operator, now=now))
