"""The lines of a decision's page: which bookings it changed, and why."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from django.utils.safestring import SafeString

from allocation.models import Booking, BookingEvent
from allocation.queries.bookings.holders import holders_of
from allocation.queries.decisions.decisions import ChangedBooking
from allocation.web.parts.planned_start import holder_lines, moved_lines
from allocation.web.parts.state_pills import state_pill
from allocation.web.parts.times import moment_words
from allocation.words.reasons import stored_sentence
from tenants.models import Tenant
from tenants.platform.wall import tenant_tx

HOLDERS_SHOWN = 20
"""Bookings of a page for which the bookings in their way are looked up."""


@dataclass(frozen=True, slots=True)
class Why:
    """A reason, and when it ends; empty if that is not known."""

    sentence: str
    frees: str


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """A booking of the decision. `holders` are the bookings in its way, with their ends;
    `is_latest`: no later decision has planned it."""

    booking: Booking
    tenant: Tenant
    href: str
    pill: SafeString
    events: tuple[BookingEvent, ...]
    moved: str
    reasons: tuple[Why, ...]
    holders: tuple[str, ...]
    is_latest: bool


def decision_lines(
    changed: Sequence[ChangedBooking],
    number: int,
    zone: tzinfo,
    now: datetime,
    *,
    is_operator: bool,
) -> Iterator[DecisionLine]:
    """Yields the lines. For an operator each is read as its tenant reads it."""
    left = HOLDERS_SHOWN
    for each in changed:
        booking = each.booking
        is_latest = booking.decision_id == number
        holders: tuple[str, ...] = ()
        if is_latest and booking.planned_places and left:
            left -= 1
            with _tenant_of(booking, is_operator=is_operator):
                holders = tuple(holder_lines(holders_of(booking, now), zone, now))
        yield DecisionLine(
            booking=booking,
            tenant=booking.tenant,
            href=f"/t/{booking.tenant.slug}/bookings/{booking.label}",
            pill=state_pill(booking.state),
            events=each.events,
            moved=moved_lines([each.moved], zone, now)[0].text if each.moved else "",
            reasons=tuple(_reasons(each, zone, now, is_latest=is_latest)),
            holders=holders,
            is_latest=is_latest,
        )


def _tenant_of(booking: Booking, *, is_operator: bool) -> AbstractContextManager[None]:
    return tenant_tx(booking.tenant_id) if is_operator else nullcontext()


def _reasons(
    changed: ChangedBooking, zone: tzinfo, now: datetime, *, is_latest: bool
) -> Iterator[Why]:
    """Yields the receipt's reason, then those of the booking if no later decision replaced them."""
    said = set()
    if changed.moved is not None:
        said.add(changed.moved.sentence)
        yield Why(changed.moved.sentence, "")
    for stored in changed.booking.reasons if is_latest else ():
        sentence = stored_sentence(stored)
        if sentence not in said:
            said.add(sentence)
            yield Why(sentence, _frees(stored, zone, now))


def _frees(stored: dict[str, Any], zone: tzinfo, now: datetime) -> str:
    frees_at = stored.get("frees_at")
    if not frees_at:
        return ""
    return f"until {moment_words(datetime.fromisoformat(frees_at), zone, now)}"
