"""REST of stand-ins."""

from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from rest_framework import serializers

from allocation.features.stand_ins.models import StandIn
from allocation.features.stand_ins.services import (
    StandInTerms,
    stand_in_end,
    stand_in_set,
    stand_ins_visible,
)
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.rest.terms import Slug, Username

rest = Endpoints(Scope.PROJECT, in_project=True)


class StandInOut(serializers.Serializer[Any]):
    """Somebody who decides requests for an approver in [starts, until)."""

    id = serializers.UUIDField()
    approver = Username()
    person = Username()
    project = Slug(help_text="Requests of this project only; null: all that the approver decides.")
    starts = serializers.DateTimeField()
    until = serializers.DateTimeField()
    ended = serializers.DateTimeField(allow_null=True)


@rest.list("stand-ins", "List stand-ins", StandInOut, order=("-starts", "-id"))
def list_stand_ins(call: ApiView) -> QuerySet[StandIn]:
    """Returns those that you named or are; tenant admins see all. None whose token has ended."""
    over = Q(until__lte=call.now) | Q(ended__isnull=False)
    return stand_ins_visible(call.actor).filter(StandIn.still_open(call.now) | over)


@rest.post("stand-ins", "Name who decides for you", StandInOut, terms=StandInTerms, status=201)
def create_stand_in(call: ApiView, terms: StandInTerms) -> StandIn:
    """The person decides what you may decide, but neither their own requests nor yours, and as long
    as the token that names them is valid."""
    return stand_in_set(actor=call.actor, terms=terms, now=call.now)


@rest.post("stand-ins/<uuid:stand_in_id>/end", "End a stand-in", StandInOut)
def end_stand_in(call: ApiView, stand_in_id: UUID) -> StandIn:
    """Ends it now. Decisions that were made stay."""
    return stand_in_end(actor=call.actor, stand_in_id=stand_in_id, now=call.now)


urlpatterns = rest.urls
