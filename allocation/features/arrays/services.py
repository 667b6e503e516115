"""What people do with arrays: they ask for them, and cancel elements."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import transaction

from allocation.features.arrays.elements import array_advance, array_lock, array_stop
from allocation.models import Booking, BookingArray
from allocation.rules.arrays import element_id, parallel_usual
from allocation.rules.states import OPEN, State
from allocation.services.bookings.checks.admission import Asker
from allocation.services.bookings.checks.admission_check import admission_check
from allocation.services.bookings.checks.offers import Offer, offer_price, peak_facts
from allocation.services.bookings.checks.policy_hook import request_ask
from allocation.services.bookings.creation import AdmittedRequest, bookings_create
from allocation.services.bookings.release import booking_cancel
from allocation.services.bookings.requests import ArrayRequest, BookingRequest, array_bounds_check
from allocation.services.record.terms import Terms
from allocation.words.refusals import refusal_text
from billing.price_books import PriceShelf
from billing.services import HoldRequest, campaign_to_charge, holds_place
from tenants.access import Actor, access_project_to_book
from tenants.audit import actor_record
from tenants.platform.errors import Refused, invalid
from tenants.platform.rest.fields import Text
from tenants.platform.terms import term, terms
from tenants.services.booking_numbers import booking_numbers_take

MAX_RANGES_TEXT = 500
_RANGE = re.compile(r"\s*([0-9]{1,9})\s*(?:[-–]\s*([0-9]{1,9}))?\s*")
Range = tuple[int, int]
"""The first and the last index."""


@terms
class ArrayCancelTerms:
    """Elements to cancel."""

    elements: str | None = term(
        default=None,
        body=Text(
            required=False,
            max_length=MAX_RANGES_TEXT,
            help_text="Such as `17` or `3-20,40`. Without it, all.",
        ),
    )

    def ranges(self, array: BookingArray) -> list[Range] | None:
        """Returns the ranges of elements; None: all. Raises Refused."""
        return None if self.elements is None else ranges_of(array, self.elements)


def array_request(
    *, actor: Actor, request: BookingRequest, array: ArrayRequest, now: datetime, key: UUID
) -> Booking:
    """Creates an array and its first elements, and returns the first; `key` is the array's id.

    The first element waits for an approval of the whole array, if a rule asks for one. Run inside
    the tenant's transaction, which has to end on a refusal.

    Raises:
        Refused: as for a booking, or `bad_array`.
    """
    parallel = _parallel_of(array)
    if request.ask.starts is not None or request.waitlist or request.windows:
        raise invalid("array_fixed", refusal_text("array_fixed"), "request")
    project = access_project_to_book(actor, request.project, "project")
    runs = {"count": array.count, "parallel": parallel}
    request = request_ask(actor, "array", request, now, {"array": runs})
    admission = admission_check(
        project=project,
        tier_slug=request.tier,
        ask=request.ask,
        now=now,
        asker=Asker(actor.user_id, is_many=True, zone=request.zone),
    )
    offer = offer_price(admission, PriceShelf.read(request.priced_at or now))
    campaign = campaign_to_charge(project, request.campaign, request.labels, request.external_ref)
    admitted = AdmittedRequest(project, request, admission, offer, None, campaign)
    row = _row_of(actor, admitted, array, key, now)
    row.save(force_insert=True)
    element = AdmittedRequest(project, request, admission, offer, None, campaign, row)
    (first,) = bookings_create(actor, {element_id(row.id, 1): element}, now).values()
    if isinstance(first, Refused):
        raise first
    if row.holds_all:
        # After the first element, whose ladder counts what is held without the array itself.
        _rest_hold(row, now)
    if first.state == State.AWAITING_APPROVAL:
        BookingArray.objects.filter(id=row.id).update(state=BookingArray.State.AWAITING_APPROVAL)
    elif not array.awaits_parents:
        array_advance(row, now)
    _audit(actor, "array.request", row, now, {"count": row.count, "parallel": row.parallel})
    return first


def _row_of(
    actor: Actor, admitted: AdmittedRequest, array: ArrayRequest, key: UUID, now: datetime
) -> BookingArray:
    request = admitted.request
    return BookingArray(
        id=key,
        tenant_id=actor.tenant_id,
        number=booking_numbers_take(actor.tenant_id),
        project=admitted.project,
        owner_id=actor.user_id,
        campaign=admitted.campaign,
        labels=dict(request.labels),
        external_ref=request.external_ref,
        zone=request.zone,
        terms=_terms_of(admitted, admitted.offer).to_json(),
        submitted=now,
        count=array.count,
        parallel=_parallel_of(array),
        holds_all=array.holds_all,
        stop_after_failures=array.stop_after_failures,
        next_index=2,
    )


def ranges_of(array: BookingArray, text: str) -> list[Range]:
    """Returns the ranges in a text such as `3-20,40`. Raises Refused `bad_elements`."""
    found: list[Range] = []
    for part in text.split(","):
        read = _RANGE.fullmatch(part)
        if read is None:
            sentence = refusal_text("bad_elements", label=array.label, count=array.count)
            raise invalid("bad_elements", sentence, "elements")
        found.append((int(read[1]), int(read[2] or read[1])))
    return found


def array_cancel(
    *, actor: Actor, array: BookingArray, ranges: Sequence[Range] | None = None, now: datetime
) -> int:
    """Cancels elements: those of the ranges, or all. Returns how many.

    Elements that have started end; those that have not begun cost nothing. Idempotent.

    Raises:
        Refused: `bad_elements`.
    """
    chosen = [(1, array.count)] if ranges is None else ranges_read(array, ranges)
    with transaction.atomic():
        array = array_lock(array.id)
        cancelled = 0
        ahead = [(max(first, array.next_index), last) for first, last in chosen if last >= array.next_index]
        if not array.outcome and ahead:
            before = _covered(array.cancelled)
            array.cancelled = joined([*map(tuple, array.cancelled), *ahead])
            cancelled += _covered(array.cancelled) - before
            array.save(update_fields=["cancelled"])
        rows = array.elements.filter(state__in=OPEN).exclude(state=State.ENDING)
        for booking in rows.order_by("id"):
            if any(first <= (booking.array_index or 0) <= last for first, last in chosen):
                booking_cancel(actor=actor, booking=booking, now=now)
                cancelled += 1
        if ranges is None and not array.outcome:
            array_stop(array, BookingArray.Outcome.CANCELLED, now)
        array_advance(array, now)
        detail = {"elements": ranges_text(chosen), "cancelled": cancelled}
        _audit(actor, "array.cancel", array, now, detail)
    return cancelled


def ranges_read(array: BookingArray, ranges: Sequence[Range]) -> list[Range]:
    """Returns the ranges, joined. Raises Refused `bad_elements`."""
    if not ranges or not all(1 <= first <= last <= array.count for first, last in ranges):
        sentence = refusal_text("bad_elements", label=array.label, count=array.count)
        raise invalid("bad_elements", sentence, "elements")
    return [(first, last) for first, last in joined(ranges)]


def joined(ranges: Sequence[Any]) -> list[list[int]]:
    """Returns the same indexes as ranges in order that do not touch."""
    found: list[list[int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1][1] = max(found[-1][1], last)
        else:
            found.append([first, last])
    return found


def ranges_text(ranges: Sequence[Any]) -> str:
    """Returns ranges as people write them: `1-5,9`."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _covered(ranges: Sequence[Any]) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _parallel_of(array: ArrayRequest) -> int:
    array_bounds_check(array.count, array.parallel)
    return min(array.parallel or parallel_usual(array.count), array.count)


def _terms_of(admitted: AdmittedRequest, offer: Offer) -> Terms:
    admission, request = admitted.admission, admitted.request
    return Terms(
        name=request.name,
        ask=admission.ask.to_json(),
        tier=admission.tier.slug,
        request_text=request.request_text,
        starts=None,
        not_before=admission.not_before,
        deadline=admission.ask.deadline,
        duration_seconds=min(map(admission.seconds_on, admission.units)),
        class_durations=[list(each) for each in offer.lengths],
        currency=offer.price.currency,
        price_version=offer.price.version,
        price_per_hour=offer.rate.plain,
        price_lines=[],
        hold_amount=offer.most,
        setup_fee=offer.price.setup,
        **peak_facts(offer.rate),
    )


def _rest_hold(array: BookingArray, now: datetime) -> None:
    """Holds the money of all elements but the first, under the array's id. Raises Refused."""
    terms = Terms.from_json(array.terms)
    hold = HoldRequest(
        array.id,
        terms.hold_amount * (array.count - 1),
        terms.not_before,
        terms.not_before + max(terms.longest(), timedelta(seconds=1)),
        array.owner_id,
        array.campaign_id,
    )
    refused = holds_place(
        tenant_id=array.tenant_id,
        project_id=array.project_id,
        requests=[hold],
        now=now,
    )
    if refused:
        raise _fewer_runs(array, refused[array.id], terms.hold_amount)


def _fewer_runs(array: BookingArray, refused: Refused, each: Decimal) -> Refused:
    """The refusal of an array for money that is short, with as many runs as the money is enough for,
    and with money for the open runs only."""
    # The money of the first element is held already.
    many = int(Decimal(refused.numbers.get("left", 0)) / each) + 1
    fewer = [{"array": many}] if 0 < many < array.count else []
    return replace(refused, alternatives=[*fewer, *([{"hold": "rolling"}] if many else [])])


def _audit(actor: Actor, action: str, array: BookingArray, now: datetime, detail: dict[str, Any]) -> None:
    actor_record(actor, action, ("array", array.id), now, {"label": array.label, **detail})
