"""Compaction: moves of running bookings that let waiting ones start earlier (operators)."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.models import CompactionOrder
from allocation.services.decide.compaction import compaction_order, compaction_proposals
from tenants.api.base import list_response
from tenants.platform.costly import costly
from tenants.platform.rest.fields import Strict, Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.rules.operator_roles import Area


class MoveOut(serializers.Serializer[Any]):
    """A running booking that would be paused and resumed on other GPUs."""

    booking = serializers.CharField(source="booking.label")
    tenant = serializers.CharField(source="booking.tenant.slug")
    source: Any = serializers.CharField()  # Any: the base class has an attribute of this name
    target = serializers.CharField()
    lost = serializers.CharField(help_text="Work that has to be repeated: `2h2m`.")


class ProposalOut(serializers.Serializer[Any]):
    """Moves that let `booking` start earlier, after the notice period."""

    proposal = serializers.CharField(source="key", help_text="Send it to order these moves.")
    booking = serializers.CharField(source="booking.label")
    tenant = serializers.CharField(source="booking.tenant.slug")
    places = serializers.ListField(child=serializers.CharField())
    notice = serializers.CharField(help_text="The notice period of the pauses.")
    earlier_by = serializers.CharField(source="sooner", help_text="How much earlier: `3h50m`.")
    lost = serializers.CharField(help_text="Work that has to be repeated, in all.")
    proven = serializers.BooleanField(help_text="True if no cheaper moves exist.")
    moves = MoveOut(many=True)


class ProposalsOut(serializers.Serializer[Any]):
    """The current proposals, best first."""

    items = ProposalOut(many=True)


class OrderIn(Strict):
    """The proposal to carry out."""

    proposal = Text(max_length=40)


class OrderOut(serializers.Serializer[Any]):
    """An order to carry out a proposal. After the next decision `declined` is empty, or the reason
    why nothing was moved."""

    id = serializers.UUIDField()
    booking = serializers.CharField(source="beneficiary.label")
    created = serializers.DateTimeField()
    decided_at = serializers.DateTimeField(allow_null=True)
    decision_id = serializers.IntegerField(allow_null=True)
    declined = serializers.CharField()


@costly("preview")
class CompactionProposals(OperatorView):
    """Proposed moves."""

    area = Area.FLEET

    @described(
        "list_compaction_proposals",
        "List compaction proposals (operators)",
        answer=ProposalsOut,
    )
    def get(self, request: Request) -> Response:
        """Returns all moves that would let a waiting booking start earlier. Nothing moves without
        an order."""
        with self.tx(), self.operator_tx():
            found = compaction_proposals(self.now)
            return Response({"items": ProposalOut(found, many=True).data})


class CompactionOrders(OperatorView):
    """Orders to move running bookings."""

    area = Area.FLEET
    queries = {"GET": PageQuery}

    @described(
        "list_compaction_orders",
        "List compaction orders (operators)",
        answer=page(OrderOut),
        query=PageQuery,
    )
    def get(self, request: Request) -> Response:
        """Returns the orders and their results, newest first."""
        with self.operator_tx():
            rows, next_cursor = page_of(
                CompactionOrder.objects.select_related("beneficiary"),
                keys=("-created", "-id"),
                query=self.query,
                scope="compaction-orders",
            )
            return list_response(OrderOut(rows, many=True).data, next_cursor)

    @described(
        "create_compaction_order",
        "Order a compaction proposal (operators)",
        answer=OrderOut,
        status=201,
        request=OrderIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Orders the moves of a proposal: its bookings are paused and resumed on other GPUs. The
        answer is 409 `order_stale` if the proposal is no longer valid."""
        sent = self.sent(OrderIn)
        return self.operate(
            lambda: compaction_order(operator=self.user, key=sent["proposal"], now=self.now),
            OrderOut,
            status=201,
        )
