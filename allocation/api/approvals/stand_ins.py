"""Stand-ins of approvers."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.services.approvals.stand_ins import (
    StandInTerms,
    stand_in_end,
    stand_in_set,
    stand_ins_visible,
)
from tenants.api.base import ApiView, list_response
from tenants.platform.rest.fields import Instant, Strict, Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page


class StandInOut(serializers.Serializer[Any]):
    """Somebody who decides requests for an approver in [starts, until)."""

    id = serializers.UUIDField()
    approver = serializers.CharField(source="approver.get_username")
    person = serializers.CharField(source="person.get_username")
    project = serializers.CharField(
        source="project.slug",
        default=None,
        allow_null=True,
        help_text="Requests of this project only; null: all that the approver decides.",
    )
    starts = serializers.DateTimeField()
    until = serializers.DateTimeField()
    ended = serializers.DateTimeField(allow_null=True)


class StandInIn(Strict):
    """A stand-in for yourself, for at most 90 days."""

    person = Text(max_length=150, help_text="Sign-in name of a member of your organisation.")
    project = Text(required=False, max_length=40, default="")
    starts = Instant(required=False, allow_null=True, default=None, help_text="Null: now.")
    until = Instant()


class StandIns(ApiView):
    """Stand-ins."""

    queries = {"GET": PageQuery}

    @described("list_stand_ins", "List stand-ins", answer=page(StandInOut))
    def get(self, request: Request) -> Response:
        """Returns those that you named or are; tenant admins see all."""
        with self.tx():
            found, following = page_of(
                stand_ins_visible(self.actor),
                keys=("-starts", "-id"),
                query=self.query,
                scope=f"stand-ins:{self.actor.tenant_id}:{self.actor.user_id}",
            )
            return list_response(StandInOut(found, many=True).data, following)

    @described(
        "create_stand_in",
        "Name who decides for you",
        answer=StandInOut,
        request=StandInIn,
        status=201,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """The person decides what you may decide, but neither their own requests nor yours."""
        sent = self.sent(StandInIn)

        def work() -> Response:
            row = stand_in_set(actor=self.actor, terms=StandInTerms(**sent), now=self.now)
            return Response(StandInOut(row).data, status=201)

        return self.once(work)


class StandInEnd(ApiView):
    """Ends a stand-in."""

    @described("act_end_stand_in", "End a stand-in", answer=StandInOut)
    def post(self, request: Request, stand_in_id: UUID) -> HttpResponseBase:
        """Ends it now. Decisions that were made stay."""

        def work() -> Response:
            row = stand_in_end(actor=self.actor, stand_in_id=stand_in_id, now=self.now)
            return Response(StandInOut(row).data)

        return self.once(work)
