"""REST of hand-overs."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.access import access_booking
from allocation.features.hand_overs.models import HandOver
from allocation.features.hand_overs.services import (
    HandOverTerms,
    hand_over_accept,
    hand_over_decline,
    hand_over_offer,
    hand_over_shown,
    hand_over_withdraw,
    hand_overs_visible,
)
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.errors import missing
from tenants.platform.rest.terms import Slug, Username

rest = Endpoints(Scope.BOOK, in_project=True)


class HandOverOut(serializers.Serializer[Any]):
    """An offer of a booking to a colleague."""

    id = serializers.UUIDField()
    booking = serializers.CharField(source="booking.label")
    project = Slug(source="booking.project.slug")
    giver = Username(help_text="Who owned the booking when it was offered.")
    taker = Username(help_text="Who may accept it.")
    created_by = Username(help_text="Who offered it: the owner, or a lead of the project.")
    note = serializers.CharField()
    created = serializers.DateTimeField()
    until = serializers.DateTimeField(help_text="When an open offer expires.")
    state = serializers.ChoiceField(choices=HandOver.State.choices)
    answered = serializers.DateTimeField(allow_null=True)


@rest.list("hand-overs", "List hand-overs", HandOverOut, order=("-created", "-id"))
def list_hand_overs(call: ApiView) -> QuerySet[HandOver]:
    """Returns the offers of bookings that you gave or got; leads see those of their projects."""
    return hand_overs_visible(call.actor)


@rest.get("bookings/<str:reference>/hand-over", "Get the hand-over of a booking", HandOverOut)
def get_hand_over(call: ApiView, reference: str) -> HandOver:
    """Returns the newest offer of the booking."""
    row = hand_over_shown(call.actor, access_booking(call.actor, reference))
    if row is None:
        raise missing("hand-over")
    return row


@rest.post(
    "bookings/<str:reference>/hand-over",
    "Offer a booking to a colleague",
    HandOverOut,
    terms=HandOverTerms,
    status=201,
    operation="create_hand_over",
)
def create_hand_over(call: ApiView, terms: HandOverTerms, reference: str) -> HandOver:
    """Offers a booking that has not begun. The colleague becomes its owner only by accepting; an open
    offer of the booking is replaced. Not for arrays, series, shares, and what was approved."""
    return hand_over_offer(actor=call.actor, reference=reference, terms=terms, now=call.now)


@rest.post("bookings/<str:reference>/hand-over/accept", "Accept a booking", HandOverOut)
def accept_hand_over(call: ApiView, reference: str) -> HandOver:
    """Makes you the owner, by the limits that a new booking of yours would meet. Project, price, money
    and place stay; a budget of your own in the project pays it from now on."""
    return hand_over_accept(actor=call.actor, reference=reference, now=call.now)


@rest.post("bookings/<str:reference>/hand-over/decline", "Decline a booking", HandOverOut)
def decline_hand_over(call: ApiView, reference: str) -> HandOver:
    """Declines what is offered to you. The booking stays as it is."""
    return hand_over_decline(actor=call.actor, reference=reference, now=call.now)


@rest.post("bookings/<str:reference>/hand-over/withdraw", "Withdraw the offer of a booking", HandOverOut)
def withdraw_hand_over(call: ApiView, reference: str) -> HandOver:
    """Withdraws the open offer."""
    return hand_over_withdraw(actor=call.actor, reference=reference, now=call.now)


urlpatterns = rest.urls
