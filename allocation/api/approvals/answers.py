"""Answers to requests for approval: counter-offers, and what needs no approval."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.access import access_approval
from allocation.api.bookings.shapes import BookingOut, booking_data, new_booking_data
from allocation.rules.ask import MAX_TEXT_LENGTH
from allocation.services.approvals.alternatives import alternative_take
from allocation.services.approvals.counter_terms import Proposal
from allocation.services.approvals.counters import (
    counter_accept,
    counter_decline,
    counter_make,
)
from allocation.services.bookings.request_text import request_read
from tenants.api.base import ApiView
from tenants.platform.rest.fields import Strict, Text
from tenants.platform.rest.schema import described


class CounterOut(serializers.Serializer[Any]):
    """What an approver would approve instead."""

    id = serializers.UUIDField()
    state = serializers.CharField()
    request = serializers.CharField(source="request_text")
    hash = serializers.CharField(
        source="digest", help_text="Names exactly what is offered. Send it to accept."
    )
    differences = serializers.DictField(help_text="By field: before and after.")
    cost = serializers.CharField(help_text="Of all dates or runs together, at most.")
    reason = serializers.CharField()
    by = serializers.CharField(source="person.get_username")
    at = serializers.DateTimeField()


class CounterIn(Strict):
    """A counter-offer to exactly what the hash names."""

    hash = Text(max_length=64, help_text="As the request for approval has it.")
    request = Text(max_length=MAX_TEXT_LENGTH, help_text="What you would approve: `2 h100 6h`.")
    reason = Text(required=False, max_length=200, default="")


class HashIn(Strict):
    """What is accepted."""

    hash = Text(max_length=64)


class ApprovalCounter(ApiView):
    """Offers the asker something else."""

    @described(
        "act_counter_approval",
        "Offer the asker something else",
        answer=CounterOut,
        request=CounterIn,
        status=201,
    )
    def post(self, request: Request, approval_id: UUID) -> HttpResponseBase:
        """Your approval of another request. The asker's acceptance is enough to book it; until then
        the request waits as it is. It replaces an earlier counter-offer."""
        sent = self.sent(CounterIn)

        def work() -> Response:
            found = access_approval(self.actor, approval_id, self.now)
            booking = found.booking
            ask, tier = request_read(
                sent["request"], project=found.project.slug, zone=booking.zone, now=self.now
            )
            proposal = Proposal(ask, tier, sent["request"], sent["reason"])
            row = counter_make(
                actor=self.actor,
                approval_id=approval_id,
                digest=sent["hash"],
                proposal=proposal,
                now=self.now,
            )
            return Response(CounterOut(row).data, status=201)

        return self.once(work)


class CounterAccept(ApiView):
    """Accepts a counter-offer."""

    @described("act_accept_counter", "Accept a counter-offer", answer=BookingOut, request=HashIn)
    def post(self, request: Request, approval_id: UUID) -> HttpResponseBase:
        """Changes your booking to what was offered, with the approver's approval. `hash` is that of
        the counter-offer."""
        digest = self.sent(HashIn)["hash"]

        def work() -> Response:
            booking = counter_accept(actor=self.actor, approval_id=approval_id, digest=digest, now=self.now)
            return Response(booking_data(booking, self.actor))

        return self.once(work)


class CounterDecline(ApiView):
    """Declines a counter-offer."""

    @described("act_decline_counter", "Decline a counter-offer", status=(204, "Declined."))
    def post(self, request: Request, approval_id: UUID) -> HttpResponseBase:
        """Your request still waits, unchanged."""

        def work() -> Response:
            counter_decline(actor=self.actor, approval_id=approval_id, now=self.now)
            return Response(status=204)

        return self.once(work)


class ApprovalAlternative(ApiView):
    """Books what needs no approval."""

    @described(
        "act_take_alternative",
        "Book the alternative that needs no approval",
        answer=BookingOut,
        request=HashIn,
    )
    def post(self, request: Request, approval_id: UUID) -> HttpResponseBase:
        """Withdraws your request and books its `alternative` at once. `hash` is that of the
        request."""
        digest = self.sent(HashIn)["hash"]

        def work() -> Response:
            booking = alternative_take(actor=self.actor, approval_id=approval_id, digest=digest, now=self.now)
            return Response(new_booking_data(booking))

        return self.once(work)
