"""Moving running work together: proposals, and orders to carry them out (operators)."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.models import CompactionOrder
from allocation.services.decide.compaction import compaction_order, compaction_proposals
from tenants.api.base import ApiView, list_response
from tenants.models import User
from tenants.platform.fields import Strict, Text
from tenants.platform.pagination import PageQuery, page_of
from tenants.platform.schema import described, page
from tenants.platform.wall import operator_tx


class MoveOut(serializers.Serializer[Any]):
    """A running booking that would be paused and go on elsewhere."""

    booking = serializers.CharField(source="booking.label")
    tenant = serializers.CharField(source="booking.tenant.slug")
    source: Any = serializers.CharField()  # Any: the base class has an attribute of this name
    target = serializers.CharField()
    lost = serializers.CharField(help_text="Work that is done again, as in `2h2m`.")


class ProposalOut(serializers.Serializer[Any]):
    """After `notice`, `booking` could start, `sooner` than planned."""

    proposal = serializers.CharField(source="key", help_text="Order it by this.")
    booking = serializers.CharField(source="booking.label")
    tenant = serializers.CharField(source="booking.tenant.slug")
    places = serializers.ListField(child=serializers.CharField())
    notice = serializers.CharField()
    sooner = serializers.CharField()
    lost = serializers.CharField()
    proven = serializers.BooleanField()
    moves = MoveOut(many=True)


class ProposalsOut(serializers.Serializer[Any]):
    """The proposals of this moment, the best first."""

    items = ProposalOut(many=True)


class OrderIn(Strict):
    """Which proposal."""

    proposal = Text(max_length=40)


class OrderOut(serializers.Serializer[Any]):
    """An order. The next decision answers it: `declined` is empty when it was carried out."""

    id = serializers.UUIDField()
    booking = serializers.CharField(source="beneficiary.label")
    created = serializers.DateTimeField()
    decided_at = serializers.DateTimeField(allow_null=True)
    decision_id = serializers.IntegerField(allow_null=True)
    declined = serializers.CharField()


class CompactionProposals(ApiView):
    """What could be moved."""

    @described(
        "list_compaction_proposals",
        "Moves of running work that would let others start sooner (operators)",
        answer=ProposalsOut,
    )
    def get(self, request: Request) -> Response:
        """All of them; none is done by itself."""
        with self.tx():
            self.require_operator()
            with operator_tx():
                found = compaction_proposals(self.now)
                return Response({"items": ProposalOut(found, many=True).data})


class CompactionOrders(ApiView):
    """What was ordered to be moved."""

    queries = {"GET": PageQuery}

    @described(
        "list_compaction_orders",
        "Orders to move running work, and what became of them (operators)",
        answer=page(OrderOut),
        query=PageQuery,
    )
    def get(self, request: Request) -> Response:
        """A page, the latest first."""
        with self.tx():
            self.require_operator()
            with operator_tx():
                rows, next_cursor = page_of(
                    CompactionOrder.objects.select_related("beneficiary"),
                    keys=("-created", "-id"),
                    query=self.query,
                    scope="compaction-orders",
                )
                return list_response(OrderOut(rows, many=True).data, next_cursor)

    @described(
        "create_compaction_order",
        "Have a proposal carried out: its bookings are paused and go on elsewhere (operators)",
        answer=OrderOut,
        status=201,
        request=OrderIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """The order; 409 `order_stale` when the proposal is none any more."""
        sent = self.sent(OrderIn)

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                operator = User.objects.get(id=self.actor.user_id)
                made = compaction_order(operator=operator, key=sent["proposal"], now=self.now)
                return Response(OrderOut(made).data, status=201)

        return self.once(work)
