"""Planned outages of the portal, and decision freezes (operators)."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
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
from tenants.platform.rest.fields import Duration, Strict, Text
from tenants.platform.rest.schema import described
from tenants.rules.operator_roles import Area


class OutageIn(Strict):
    """The longest possible duration of an outage that starts now."""

    length = Duration(help_text="Between one minute and four hours: `PT20M`.")
    reason = Text(max_length=120, help_text="Shown to everyone.")


class FreezeIn(Strict):
    """The reason and duration of a freeze."""

    reason = Text(max_length=120, help_text="Shown to everyone.")
    length = Duration(required=False, help_text="Without it the freeze lasts until an operator ends it.")


class ModeOut(serializers.Serializer[Any]):
    """A planned outage or a decision freeze."""

    kind = serializers.ChoiceField(choices=PortalMode.Kind.choices)
    since = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True)
    closed_at = serializers.DateTimeField(
        allow_null=True, help_text="Time from which changes by members are refused."
    )
    reason = serializers.CharField()
    ended_at = serializers.DateTimeField(allow_null=True)


class NodeLeaseOut(serializers.Serializer[Any]):
    """Whether the work on a node survives the outage."""

    node = serializers.CharField()
    state = serializers.ChoiceField(choices=["confirmed", "waiting", "not_heard", "too_old", "cut_off"])
    means = serializers.CharField(help_text="What the state means.")
    holds_work = serializers.BooleanField(help_text="True if bookings run here.")
    is_safe = serializers.BooleanField(help_text="True if the outage interrupts nothing here.")


class OutageOut(serializers.Serializer[Any]):
    """The current planned outage, if any, and the leases of all nodes."""

    outage = ModeOut(allow_null=True)
    nodes = NodeLeaseOut(many=True)


class FreezeOut(serializers.Serializer[Any]):
    """The current freeze, if any."""

    freeze = ModeOut(allow_null=True)


class PortalOutage(OperatorView):
    """The planned outage."""

    area = Area.SYSTEM

    @described("get_portal_outage", "Retrieve the planned outage (operators)", answer=OutageOut)
    def get(self, request: Request) -> Response:
        """Returns the planned outage and the lease of every node. Stop the portal's processes only
        when `is_safe` is true for every node."""
        with self.operator_tx():
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
        "Announce a planned outage (operators)",
        answer=ModeOut,
        request=OutageIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Announces an outage and extends the leases of all nodes to its end. If an outage is
        announced already, its end changes."""
        sent = self.sent(OutageIn)
        return self.operate(
            lambda: outage_begin(
                operator=self.user, length=sent["length"], reason=sent["reason"], now=self.now
            ),
            ModeOut,
        )


class PortalOutageClose(OperatorView):
    """Closes the portal for a planned outage."""

    area = Area.SYSTEM

    @described(
        "act_close_outage",
        "Refuse changes by members during the outage (operators)",
        answer=ModeOut,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Refuses changes by members with 503 until the outage ends, and returns the outage."""
        return self.operate(lambda: outage_close(operator=self.user, now=self.now), ModeOut)


class PortalOutageEnd(OperatorView):
    """Ends a planned outage."""

    area = Area.SYSTEM

    @described("act_end_outage", "End the planned outage (operators)", answer=ModeOut)
    def post(self, request: Request) -> HttpResponseBase:
        """Ends the outage and returns it. New leases have their usual length again."""
        return self.operate(lambda: mode_end(kind=OUTAGE, operator=self.user, now=self.now), ModeOut)


class PortalFreeze(OperatorView):
    """The decision freeze."""

    area = Area.SYSTEM

    @described("get_portal_freeze", "Retrieve the decision freeze (operators)", answer=FreezeOut)
    def get(self, request: Request) -> Response:
        """Returns the current freeze, or null."""
        with self.operator_tx():
            mode = mode_in_force(FREEZE, self.now)
            return Response({"freeze": ModeOut(mode).data if mode else None})

    @described("act_begin_freeze", "Freeze decisions (operators)", answer=ModeOut, request=FreezeIn)
    def post(self, request: Request) -> HttpResponseBase:
        """Starts a freeze and returns it. During a freeze nothing starts, and nothing is paused or
        ended early. If there is a freeze already, its reason and end change."""
        sent = self.sent(FreezeIn)
        return self.operate(
            lambda: freeze_begin(
                operator=self.user,
                reason=sent["reason"],
                length=sent.get("length"),
                now=self.now,
            ),
            ModeOut,
        )


class PortalFreezeEnd(OperatorView):
    """Ends a decision freeze."""

    area = Area.SYSTEM

    @described("act_end_freeze", "End the decision freeze (operators)", answer=ModeOut)
    def post(self, request: Request) -> HttpResponseBase:
        """Ends the freeze and returns it. The next decision follows at once."""
        return self.operate(lambda: mode_end(kind=FREEZE, operator=self.user, now=self.now), ModeOut)
