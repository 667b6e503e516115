"""Stops of new work (operators); everybody reads those that concern them."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.models import Stop
from allocation.queries.fleet.stops import stops_in_force
from allocation.services.operate.stops import StopTerms, stop_begin, stop_effect, stop_end
from tenants.api.base import list_response
from tenants.platform.costly import costly
from tenants.platform.rest.fields import Duration, Strict, Text
from tenants.platform.rest.schema import described, page
from tenants.rules.operator_roles import Area

# A stop of one booking begins with its pause.
SCOPES = [each for each in Stop.Scope.values if each != Stop.Scope.BOOKING]


class StopIn(Strict):
    """What to stop, why, and for how long."""

    scope = serializers.ChoiceField(choices=SCOPES)
    name = Text(
        required=False,
        allow_blank=True,
        default="",
        max_length=40,
        help_text="Slug of the tenant, tier or class; empty for the site.",
    )
    reason = Text(max_length=120, help_text="Shown to everybody who is stopped.")
    length = Duration(required=False, help_text="Without it the stop lasts until an operator ends it.")


class StopOut(serializers.Serializer[Any]):
    """A stop of new work."""

    id = serializers.UUIDField()
    scope = serializers.ChoiceField(choices=Stop.Scope.values)
    name = serializers.CharField(help_text="Slug of the tenant, tier or class, or id of the paused booking.")
    since = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField()
    ended_at = serializers.DateTimeField(allow_null=True)


class StopEffectOut(serializers.Serializer[Any]):
    """Numbers of bookings that a stop would cover."""

    waiting = serializers.IntegerField(help_text="They wait until it is over.")
    planned = serializers.IntegerField(help_text="They keep their place and do not start.")
    running = serializers.IntegerField(help_text="They continue.")
    paused = serializers.IntegerField(help_text="They do not resume.")


class Stops(OperatorView):
    """Stops of new work."""

    area = Area.RULES

    @described("list_stops", "List the current stops", answer=page(StopOut))
    def get(self, request: Request) -> Response:
        """Returns the stops of the caller's tenant and of all; operators get every tenant's."""
        if self.is_for_operator():
            with self.operator_tx():
                return list_response(StopOut(stops_in_force(self.now), many=True).data)
        with self.tx():
            return list_response(StopOut(stops_in_force(self.now), many=True).data)

    @described("act_begin_stop", "Stop new work (operators)", answer=StopOut, request=StopIn, status=201)
    def post(self, request: Request) -> HttpResponseBase:
        """Begins a stop: new requests are refused, and what waits does not start. Running bookings
        continue. A stop of the same scope and name gets the new reason and end."""
        terms = _terms(self.sent(StopIn))
        return self.operate(lambda: stop_begin(operator=self.user, terms=terms, now=self.now), StopOut, 201)


@costly("preview", "GET", "HEAD", "POST")
class StopPreview(OperatorView):
    """The effect of a stop."""

    area = Area.RULES

    @described(
        "preview_stop",
        "Count what a stop would cover (operators)",
        answer=StopEffectOut,
        request=StopIn,
    )
    def post(self, request: Request) -> Response:
        """Counts bookings, and changes nothing."""
        terms = _terms(self.sent(StopIn))
        with self.operator_tx():
            return Response(StopEffectOut(stop_effect(terms=terms)).data)


class StopEnd(OperatorView):
    """Ends a stop."""

    area = Area.RULES

    @described("act_end_stop", "End a stop (operators)", answer=StopOut)
    def post(self, request: Request, stop_id: UUID) -> HttpResponseBase:
        """Ends the stop and returns it. The next decision follows at once."""
        return self.operate(lambda: stop_end(operator=self.user, stop_id=stop_id, now=self.now), StopOut)


def _terms(sent: dict[str, Any]) -> StopTerms:
    return StopTerms(sent["scope"], sent["name"], sent["reason"], sent.get("length"))
