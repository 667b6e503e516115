"""REST of the waiting list: list it, wait for a window, accept or decline a place."""

from typing import Any
from uuid import UUID, uuid4

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from django.urls import path
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.bookings.requests import BookingIn, booking_request_of
from allocation.api.bookings.shapes import BookingOut, new_booking_data
from allocation.features.waiting_list.entries import entry_wake
from allocation.features.waiting_list.groups import ExcludeTerms, entries_exclude
from allocation.features.waiting_list.models import WaitEntry, WaitOffer
from allocation.features.waiting_list.offers import offer_accept, offer_cost, offer_decline
from allocation.features.waiting_list.queries import (
    access_wait_entry,
    access_wait_offer,
    entries_visible,
    offers_visible,
)
from allocation.models import WaitMode
from allocation.services.bookings.creation import booking_create
from allocation.words.refusals import refusal_text
from tenants.api.base import ApiView, list_response
from tenants.api.endpoints import Endpoints
from tenants.api.idempotency import booking_id
from tenants.api.project_tokens import IN_PROJECT
from tenants.api.scopes import WRITES
from tenants.models import Scope
from tenants.platform.rest.fields import Instant, Money, Strict
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.platform.rest.terms import Username

rest = Endpoints(Scope.BOOK, in_project=True)


class WaitWindowOut(serializers.Serializer[Any]):
    """A time in which all of the booking must be."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField()


class WaitEntryOut(serializers.Serializer[Any]):
    """A booking on the waiting list, and what it waits for."""

    id = serializers.UUIDField()
    booking = serializers.CharField(source="booking.label")
    owner = Username()
    mode = serializers.ChoiceField(
        choices=WaitMode.values, help_text="`auto`: booked when there is room. `offer`: offered."
    )
    windows = serializers.SerializerMethodField(help_text="Where all of its time must be.")
    until = serializers.DateTimeField(help_text="Its last possible start.")
    cost = Money(max_digits=20, help_text="The most that it costs; held for `auto` only.")
    unanswered = serializers.IntegerField(
        source="expired_count", help_text="Offers in a row without an answer: none after two."
    )
    quiet_until = serializers.DateTimeField(
        allow_null=True, help_text="It is night for its owner: no offer before."
    )
    any_of = serializers.UUIDField(allow_null=True, help_text="Entries with the same one exclude each other.")
    created_at = serializers.DateTimeField()

    @extend_schema_field(WaitWindowOut(many=True))
    def get_windows(self, entry: WaitEntry) -> list[dict[str, str]]:
        """Its windows, by time."""
        return [{"since": since, "until": until} for since, until in entry.windows]


class WaitOfferOut(serializers.Serializer[Any]):
    """A place that is offered until a time."""

    id = serializers.UUIDField()
    booking = serializers.CharField(source="booking.label")
    state = serializers.ChoiceField(choices=WaitOffer.State.values)
    gpu_class = serializers.CharField()
    starts = serializers.DateTimeField()
    ends = serializers.DateTimeField()
    made_at = serializers.DateTimeField()
    until = serializers.DateTimeField(help_text="It can be accepted before this time.")
    cost = serializers.SerializerMethodField(help_text="Held when it is accepted.")
    decided_at = serializers.DateTimeField(allow_null=True)

    def get_cost(self, offer: WaitOffer) -> str:
        """The most that the booking costs."""
        return f"{offer_cost(offer.booking, offer.starts):.2f}"


class WaitWindowIn(Strict):
    """A time in which the booking may be."""

    since = Instant()
    until = Instant()


class WaitIn(BookingIn):
    """A booking that waits for an offer."""

    windows = WaitWindowIn(
        many=True,
        required=False,
        help_text="1 to 50 times in which all of it must be; without them, its fixed window.",
    )

    def validate_windows(self, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Requires 1 to 50 windows with an end after their start. Raises ValidationError."""
        if not 1 <= len(given) <= 50 or any(each["since"] >= each["until"] for each in given):
            raise serializers.ValidationError([refusal_text("windows_count")], code="bad_windows")
        return given


class WaitList(ApiView):
    """The waiting list."""

    queries = {"GET": PageQuery}

    @described("list_waiting", "List the waiting list", answer=page(WaitEntryOut), query=PageQuery)
    def get(self, request: Request) -> Response:
        """Returns what you and the projects that you lead wait for, newest first."""
        with self.tx():
            found, following = page_of(
                entries_visible(self.actor),
                keys=("-created_at", "-id"),
                query=self.query,
                scope=f"waitlist:{self.actor.tenant_id}:{self.actor.user_id}",
            )
            return list_response(WaitEntryOut(found, many=True).data, following)

    @described("wait_for_offer", "Wait for an offer", answer=BookingOut, status=201, request=WaitIn)
    def post(self, request: Request) -> HttpResponseBase:
        """Puts a booking on the waiting list without holding its money. A place that is free after
        the whole queue is offered to it, until a deadline. To have a full window booked instead,
        send `if_full` to *Create a booking*."""
        sent = self.sent(WaitIn)

        def work() -> Response:
            windows = tuple((each["since"], each["until"]) for each in sent.get("windows", ()))
            wanted = booking_request_of(self.actor, sent, self.now, (WaitMode.OFFER, windows))
            key = booking_id(self.actor, self.idempotency) or uuid4()
            booking = booking_create(self.actor, wanted, self.now, key)
            booking.owner = self.user
            return Response(new_booking_data(booking), status=201)

        return self.once(work)


@rest.post("waitlist/<uuid:entry_id>/wake", "Get offers again", WaitEntryOut)
def wake_waiting(call: ApiView, entry_id: UUID) -> WaitEntry:
    """Makes an entry get offers again after two without an answer. Waking it again changes
    nothing."""
    entry_wake(actor=call.actor, entry_id=entry_id, now=call.now)
    return access_wait_entry(call.actor, entry_id)


@rest.post("waitlist/any-of", "Book only one of several", WaitEntryOut, terms=ExcludeTerms, many=True)
def exclude_waiting(call: ApiView, terms: ExcludeTerms) -> list[WaitEntry]:
    """Makes entries exclude each other: when one is booked, or an offer of one is accepted, the
    others are cancelled at no cost. Replaces what they excluded before."""
    rows = entries_exclude(actor=call.actor, terms=terms, now=call.now)
    return [access_wait_entry(call.actor, row.id) for row in rows]


@rest.list("offers", "List offers", WaitOfferOut, order=("-made_at", "-id"))
def list_offers(call: ApiView) -> QuerySet[WaitOffer]:
    """Returns the offers that you may answer, and answered ones, newest first."""
    return offers_visible(call.actor)


@rest.post("offers/<uuid:offer_id>/accept", "Accept an offer", WaitOfferOut)
def accept_offer(call: ApiView, offer_id: UUID) -> WaitOffer:
    """Holds the money and makes the place a booking at once. After `until`, or twice: 409. If
    the budget is short, the offer stays open."""
    offer_accept(actor=call.actor, offer_id=offer_id, now=call.now)
    return access_wait_offer(call.actor, offer_id)


@rest.post("offers/<uuid:offer_id>/decline", "Decline an offer", WaitOfferOut)
def decline_offer(call: ApiView, offer_id: UUID) -> WaitOffer:
    """Declines the offer: the next entry gets it. You get no other offer of this time."""
    offer_decline(actor=call.actor, offer_id=offer_id, now=call.now)
    return access_wait_offer(call.actor, offer_id)


WRITES["api-waitlist"] = Scope.BOOK
IN_PROJECT.add("api-waitlist")
urlpatterns = [path("waitlist", WaitList.as_view(), name="api-waitlist"), *rest.urls]
