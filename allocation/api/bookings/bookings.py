"""Bookings: create, list, retrieve and change them, and their events and reasons."""

from functools import partial
from http import HTTPStatus
from typing import Any
from uuid import UUID, uuid4

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.access import access_array, access_booking, access_booking_to_give_back
from allocation.api.bookings.change.changes import (
    IF_MATCH,
    PatchIn,
    patch_of,
    revision_sent,
)
from allocation.api.bookings.change.shapes import ChangeQuoteOut, change_quote_data
from allocation.api.bookings.decisions import (
    Preferences,
    booking_refusal,
    change_refusal,
    preference_applied,
    preferences_of,
    refusals_of_patch,
)
from allocation.api.bookings.quotes import QuoteOut, quote_data
from allocation.api.bookings.requests import NewBookingIn, booking_request_of, request_lines, with_array
from allocation.api.bookings.shapes import (
    BookingOut,
    EventOut,
    booking_data,
    booking_id_text,
    bookings_data,
    new_booking_data,
)
from allocation.api.bookings.why import WhyOut, why
from allocation.models import Booking
from allocation.points.arrays import arrays
from allocation.points.bookings import script_keep
from allocation.queries.bookings.booking_list import with_labels
from allocation.queries.bookings.decided import (
    DecidedBooking,
    bookings_decided,
)
from allocation.queries.fleet.catalogue import class_labels, host_classes, zone_labels
from allocation.rules.states import State
from allocation.services.bookings.change.changes import (
    Patch,
    booking_patch,
)
from allocation.services.bookings.change.refusals import revision_moved
from allocation.services.bookings.change_rows import is_change_open
from allocation.services.bookings.creation import booking_create
from allocation.services.bookings.dependencies import dependencies_add
from allocation.services.bookings.requests import ArrayRequest
from allocation.services.quotes.changes import change_quote
from allocation.words.amounts import class_names
from billing.price_books import currency_latest
from tenants.access import Actor, access_project
from tenants.api.base import ApiView, list_response
from tenants.api.idempotency import booking_id
from tenants.platform.deferred import Wait
from tenants.platform.labels import MAX_TEXT, Reference, labels_read
from tenants.platform.rest.fields import Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, one_of, page
from tenants.services.booking_numbers import booking_numbers_prepare
from tenants.services.sign_in.rate_limits import call_limit_check


class BookingQuery(PageQuery):
    """Filters for a list of bookings."""

    state = serializers.ChoiceField(choices=[state.value for state in State], required=False)
    project = Text(required=False, max_length=40)
    owner = serializers.ChoiceField(choices=["me"], required=False)
    label: Any = Text(  # Any: the base class has an attribute of this name
        required=False,
        max_length=MAX_TEXT,
        help_text="`key=value`. Several, separated by commas, have all to be there.",
    )
    external_ref = Reference(required=False, allow_blank=False)
    array = Text(required=False, max_length=40, help_text="Elements of it: `ar_…` or `BK-2041`.")


class Bookings(ApiView):
    """Bookings in the caller's projects."""

    has_reference = True
    queries = {"GET": BookingQuery}

    @described(
        "list_bookings",
        "List bookings",
        answer=page(BookingOut),
        query=BookingQuery,
    )
    def get(self, request: Request) -> Response:
        """Returns the bookings in your projects, newest first. Tenant admins see every project."""
        with self.tx():
            bookings, next_cursor = page_of(
                self._rows().select_related("project", "owner", "campaign"),
                keys=("-submitted", "-id"),
                query=self.query,
                scope=f"bookings:{self.actor.tenant_id}",
            )
            return list_response(bookings_data(bookings, self.actor), next_cursor)

    @described(
        "create_booking",
        "Create a booking",
        answer=BookingOut,
        status=201,
        request=NewBookingIn,
        headers=Preferences.PARAMETERS,
        others={200: QuoteOut},
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Returns the booking in the state `requested`. With `Prefer: wait=5` the answer waits for
        the decision: 201 with the decided booking, or 409 when it is refused. With `array` the
        answer is the first element of a new array."""
        preferences = preferences_of(request)
        sent = self.sent(NewBookingIn)
        if preferences.dry_run:
            with self.tx():
                answer = quote_data(self.actor, sent, self.now)
            return Response(answer, headers={"Preference-Applied": "dry-run"})

        @class_names(class_labels, zone_labels, host_classes, currency_latest)
        def work() -> Response:
            body = with_array(self.actor, sent, self.now)
            wanted = booking_request_of(self.actor, body, self.now)
            key = booking_id(self.actor, self.idempotency) or uuid4()
            if "array" in body:
                wants = {"actor": self.actor, "request": wanted, "now": self.now, "key": key}
                booking = arrays().request(array=_array_of(body), **wants)
            else:
                with request_lines(body, wanted):
                    booking = booking_create(self.actor, wanted, self.now, key)
            script_keep(booking, sent.get("script"))
            if sent.get("depends_on"):
                parents = [(each["booking"], each["needs"]) for each in sent["depends_on"]]
                dependencies_add(self.actor, booking, parents)
            booking.owner = self.user
            return _created(booking, new_booking_data(booking))

        def wait(response: Response) -> Wait:
            subject = UUID(response.data["id"].removeprefix("bk_"))
            return Wait(self.actor.tenant_id, subject, preferences.wait, render)

        def render(decided: DecidedBooking, applied: bool) -> Response:  # noqa: FBT001 (as Wait says)
            if decided.booking.state == State.REFUSED:
                raise booking_refusal(decided.booking)
            answer = _created(decided.booking, booking_data(decided.booking, self.actor, decided.parts))
            return preference_applied(answer, preferences.wait, applied=applied)

        booking_numbers_prepare(self.actor.tenant_id)
        return self.once(work, wait=wait if preferences.wait else None, is_gathered=True)

    def _rows(self) -> QuerySet[Booking]:
        actor = self.actor
        rows = Booking.objects.filter(tenant_id=actor.tenant_id)
        if "project" in self.query:
            rows = rows.filter(project=access_project(actor, self.query["project"], "project"))
        elif not actor.is_tenant_admin:
            rows = rows.filter(project_id__in=actor.roles)
        if "state" in self.query:
            rows = rows.filter(state=self.query["state"])
        if "owner" in self.query:
            rows = rows.filter(owner_id=actor.user_id)
        if "label" in self.query:
            rows = with_labels(rows, labels_read(self.query["label"], "label"))
        if "array" in self.query:
            rows = rows.filter(array=access_array(actor, self.query["array"]))
        if "external_ref" in self.query:
            rows = rows.filter(external_ref=self.query["external_ref"])
        return rows


class BookingOne(ApiView):
    """One booking, by its id or its number."""

    has_reference = True

    @described(
        "get_booking",
        "Retrieve a booking",
        answer=BookingOut,
        headers=Preferences.WAIT_PARAMETERS,
    )
    def get(self, request: Request, reference: str) -> Response:
        """Returns a booking by its id (`bk_…`) or its number (`BK-2041`). With `Prefer: wait=5` the
        answer waits for the decision."""
        with self.tx():
            booking = access_booking(self.actor, reference)
            answer = booking_answer(booking, self.actor)
            seconds = preferences_of(request).wait
            if not seconds or bookings_decided({booking.id}):
                return answer

        def render(decided: DecidedBooking, applied: bool) -> Response:  # noqa: FBT001 (as Wait says)
            response = Response(booking_data(decided.booking, self.actor, decided.parts))
            return preference_applied(response, seconds, applied=applied)

        return self.deferred(answer, Wait(booking.tenant_id, booking.id, seconds, render))

    @described(
        "act_update_booking",
        "Change a booking",
        answer=one_of("BookingOrChangeQuoteOut", BookingOut, ChangeQuoteOut),
        status=(200, "application/json"),
        others={202: BookingOut},
        request=PatchIn,
        headers=(*IF_MATCH, *Preferences.PATCH_PARAMETERS),
    )
    def patch(self, request: Request, reference: str) -> HttpResponseBase:
        """Changes a booking. What only gives up time, GPUs or conditions takes effect at once (200)
        and keeps the place in line. Anything else is decided: the answer is 202, the open change is
        in `change`, and until it is granted the booking keeps what it has. A later PATCH replaces
        an open change. With `Prefer: wait=5` the answer waits for the decision: 200 with the
        changed booking, or 409 when it keeps what it has. `Prefer: dry-run` writes nothing and
        answers with the price, the start and the place in the queue that the change would have.
        Requires `If-Match` with the booking's ETag: 428 without, 412 if the request was changed
        meanwhile."""
        sent, revision = self.sent(PatchIn), revision_sent(request)
        preferences = preferences_of(request)

        def work() -> Response:
            booking = access_booking_to_give_back(self.actor, reference)
            if revision is not None and revision != booking.revision:
                raise revision_moved(booking)
            patch = patch_of(self.actor, booking, sent, self.now)
            with refusals_of_patch(booking, patch):
                if preferences.dry_run:
                    return self._quote(booking, patch, revision)
                found = booking_patch(
                    actor=self.actor, booking=booking, patch=patch, revision=revision, now=self.now
                )
            return booking_answer(found, self.actor, status=202 if is_change_open(found) else 200)

        def wait(response: Response) -> Wait:
            subject = UUID(response.data["id"].removeprefix("bk_"))
            # Without an open change nothing is asked, and an older answer is not this one's.
            is_asked = response.status_code == HTTPStatus.ACCEPTED
            answer = partial(render, response.data["change"]["id"] if is_asked else None)
            return Wait(self.actor.tenant_id, subject, preferences.wait, answer)

        def render(
            asked: str | None,
            decided: DecidedBooking,
            applied: bool,  # noqa: FBT001 (as Wait says)
        ) -> Response:
            refusal = change_refusal(decided.booking, asked)
            if refusal is not None:
                raise refusal
            found = decided.booking
            answer = booking_answer(found, self.actor, status=202 if is_change_open(found) else 200)
            return preference_applied(answer, preferences.wait, applied=applied)

        if preferences.dry_run:
            with self.tx():
                return work()
        return self.once(work, wait=wait if preferences.wait else None)

    def _quote(self, booking: Booking, patch: Patch, revision: int | None) -> Response:
        call_limit_check("quotes", str(self.actor.user_id), self.now)
        quote = change_quote(actor=self.actor, booking=booking, patch=patch, revision=revision, now=self.now)
        return Response(change_quote_data(quote), headers={"Preference-Applied": "dry-run"})


class BookingEvents(ApiView):
    """The history of a booking."""

    queries = {"GET": PageQuery}

    @described(
        "list_booking_events",
        "List the events of a booking",
        answer=page(EventOut),
        query=PageQuery,
    )
    def get(self, request: Request, reference: str) -> Response:
        """Returns the history of a booking, oldest event first."""
        with self.tx():
            booking = access_booking(self.actor, reference)
            events, next_cursor = page_of(
                booking.events.filter(tenant_id=self.actor.tenant_id).select_related("actor"),
                keys=("id",),
                query=self.query,
                scope=f"events:{booking.id}",
            )
            return list_response(EventOut(events, many=True).data, next_cursor)


class BookingWhy(ApiView):
    """The reasons for a booking's state."""

    @described("get_booking_why", "Explain the state of a booking", answer=WhyOut)
    def get(self, request: Request, reference: str) -> Response:
        """Returns six checks, each with the reasons that the latest decision recorded."""
        with self.tx():
            return Response(why(access_booking(self.actor, reference), self.now, self.actor))


def booking_answer(booking: Booking, actor: Actor, status: int = 200) -> Response:
    """The booking as the answer to a request, with its `Location` when it is new."""
    data = booking_data(booking, actor)
    if status == 201:
        return _created(booking, data)
    return Response(data, status=status, headers={"ETag": f'"{booking.revision}"'})


def _created(booking: Booking, data: dict[str, Any]) -> Response:
    return Response(
        data,
        status=201,
        headers={
            "Location": f"/api/v1/bookings/{booking_id_text(booking)}",
            "ETag": f'"{booking.revision}"',
        },
    )


def _array_of(sent: dict[str, Any]) -> ArrayRequest:
    return ArrayRequest(
        count=sent["array"],
        parallel=sent.get("parallel"),
        holds_all=sent.get("hold", "all") == "all",
        stop_after_failures=sent.get("stop_after_failures"),
        awaits_parents=bool(sent.get("depends_on")),
    )
