"""Acts on a booking: cancel, release, undo, extend, check in, and answers to a notice."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.access import access_booking_to_change, access_booking_to_give_back
from allocation.api.bookings.bookings import booking_answer
from allocation.api.bookings.change.changes import (
    DRY_RUN,
)
from allocation.api.bookings.change.shapes import EndingOut, ending_data
from allocation.api.bookings.decisions import (
    preferences_of,
)
from allocation.api.bookings.shapes import BookingOut, booking_data
from allocation.models import Booking
from allocation.services.bookings.change.changes import (
    booking_extend,
)
from allocation.services.bookings.change.undo import change_undo
from allocation.services.bookings.change_rows import is_change_open
from allocation.services.bookings.checks.lengths import planned_end_of
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.bookings.results import booking_result
from allocation.services.quotes.changes import ending_quote
from allocation.services.runs.idle_use import booking_still_needed
from allocation.services.runs.no_shows import booking_check_in
from allocation.services.runs.pause_choices import booking_saved, more_time_request
from allocation.words.refusals import refusal_text
from tenants.api.base import ApiView
from tenants.platform.errors import invalid
from tenants.platform.rest.fields import Duration, Instant, Strict
from tenants.platform.rest.schema import described, one_of

ENDED = one_of("BookingOrEndingOut", BookingOut, EndingOut)


class _BookingAction(ApiView):
    """An action on a booking that takes no parameters."""

    access = staticmethod(access_booking_to_change)

    def act(self, reference: str, action: Callable[..., Booking]) -> HttpResponseBase:
        """Runs the action once per idempotency key and answers with the booking."""

        def work() -> Response:
            booking = self.access(self.actor, reference)
            return booking_answer(action(actor=self.actor, booking=booking, now=self.now), self.actor)

        return self.once(work)


class _BookingEnd(_BookingAction):
    """An action that ends a booking: its dry run says what that costs."""

    access = staticmethod(access_booking_to_give_back)

    def end(self, request: Request, reference: str, end: Callable[..., Booking]) -> HttpResponseBase:
        """Ends the booking, or answers with the charge and the late fee in it."""
        if not preferences_of(request).dry_run:
            return self.act(reference, end)
        with self.tx():
            booking = self.access(self.actor, reference)
            charged, fee = ending_quote(actor=self.actor, booking=booking, end=end, now=self.now)
            answer = ending_data(booking, charged, fee)
        return Response(answer, headers={"Preference-Applied": "dry-run"})


class BookingCancel(_BookingEnd):
    """Cancels a booking."""

    @described(
        "act_cancel_booking",
        "Cancel a booking",
        answer=ENDED,
        headers=DRY_RUN,
    )
    def post(self, request: Request, reference: str) -> HttpResponseBase:
        """Returns the booking, `cancelled`, or `ending` while it holds devices. Cancelling a
        booking again changes nothing. `Prefer: dry-run` writes nothing and answers with what would
        be charged in all, the `late_fee` in it, and what would be returned."""
        return self.end(request, reference, booking_cancel)


class BookingRelease(_BookingEnd):
    """Ends a running booking early."""

    @described(
        "act_release_booking",
        "Release the devices of a booking",
        answer=ENDED,
        headers=DRY_RUN,
    )
    def post(self, request: Request, reference: str) -> HttpResponseBase:
        """Ends a running booking early and returns it in the state `ending`. `Prefer: dry-run` as
        for a cancellation."""
        return self.end(request, reference, booking_release)


class BookingUndo(ApiView):
    """Undoes the last change of a booking."""

    has_reference = True

    @described(
        "act_undo_booking",
        "Undo the last change of a booking",
        answer=BookingOut,
        status=(200, "application/json"),
        others={202: BookingOut},
    )
    def post(self, request: Request, reference: str) -> HttpResponseBase:
        """Takes the last change back within 60 s, with the rank and the prices from before. What
        gives up time or GPUs takes effect at once (200). What the change had given up is asked for
        again: the answer is 202, the open change is in `change`, and if the old place is taken
        meanwhile the booking stays as it is."""

        def work() -> Response:
            booking = access_booking_to_change(self.actor, reference)
            changed = change_undo(actor=self.actor, booking=booking, now=self.now)
            return booking_answer(changed, self.actor, status=202 if is_change_open(changed) else 200)

        return self.once(work)


class ExtendIn(Strict):
    """The new end: a time, or a duration to add."""

    until = Instant(required=False)
    by = Duration(required=False, help_text="Seconds, or ISO 8601 such as `PT2H`.")

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Requires exactly one of the two. Raises ValidationError."""
        if len(given) != 1:
            raise serializers.ValidationError({"until": [refusal_text("until_or_by")]}, code="missing_field")
        return given


class BookingExtend(ApiView):
    """Extends a booking."""

    has_reference = True

    @described("act_extend_booking", "Extend a booking", answer=BookingOut, request=ExtendIn)
    def post(self, request: Request, reference: str) -> HttpResponseBase:
        """Requests a later end and returns the booking with `extension_until`. The next decision
        grants or refuses the extension."""
        sent = self.sent(ExtendIn)

        def work() -> Response:
            booking = access_booking_to_change(self.actor, reference)
            until = sent["until"] if "until" in sent else _later(booking, sent["by"])
            longer = booking_extend(actor=self.actor, booking=booking, until=until, now=self.now)
            return booking_answer(longer, self.actor)

        return self.once(work)


class BookingCheckIn(_BookingAction):
    """Checks in to a booking."""

    @described("act_check_in_booking", "Check in to a booking", answer=BookingOut)
    def post(self, request: Request, reference: str) -> HttpResponseBase:
        """Returns the booking with `checked_in_at`. Checking in again changes nothing."""
        return self.act(reference, booking_check_in)


class BookingStillNeeded(_BookingAction):
    """Says that idle GPUs are still needed."""

    @described("act_keep_idle_booking", "Keep the idle GPUs of a booking", answer=BookingOut)
    def post(self, request: Request, reference: str) -> HttpResponseBase:
        """Returns the booking, whose idle time begins anew. Only after a warning, and at most twice
        until the GPUs are used again."""
        return self.act(reference, booking_still_needed)


class BookingAcknowledge(_BookingAction):
    """Records that the work of a booking is saved."""

    @described("act_acknowledge_booking", "Acknowledge a pause", answer=BookingOut)
    def post(self, request: Request, reference: str) -> HttpResponseBase:
        """Records that all work is saved and returns the booking with `saved_at`. During the notice
        of a pause this ends the grace period, and the pause has `acknowledged_at`."""
        return self.act(reference, booking_saved)


class BookingMoreTime(_BookingAction):
    """Postpones a pause."""

    @described("act_more_time_booking", "Request more time before a pause", answer=BookingOut)
    def post(self, request: Request, reference: str) -> HttpResponseBase:
        """Requests the extra time that the tier grants and returns the booking, whose open pause
        has `more_asked_at`. The next decision grants or refuses it."""
        return self.act(reference, more_time_request)


def _later(booking: Booking, by: timedelta) -> datetime:
    try:
        return planned_end_of(booking) + by
    except OverflowError:
        raise invalid("too_long", refusal_text("booking_too_long"), "by") from None


class ResultIn(Strict):
    """What a program reports of its booking."""

    result = serializers.ChoiceField(choices=["success", "failure"])


class BookingResult(ApiView):
    """Reports the result of a booking's program."""

    @described("act_report_booking_result", "Report a result", answer=BookingOut, request=ResultIn)
    def post(self, request: Request, reference: str) -> HttpResponseBase:
        """Records whether the program of a booking succeeded, and returns the booking. Bookings
        that depend on its success start only then. Possible until 10 minutes after its end; the
        last report counts."""
        sent = self.sent(ResultIn)

        def work() -> Response:
            booking = access_booking_to_change(self.actor, reference)
            done = booking_result(actor=self.actor, booking=booking, result=sent["result"], now=self.now)
            return Response(booking_data(done, self.actor))

        return self.once(work)
