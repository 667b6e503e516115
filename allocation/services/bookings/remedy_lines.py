"""Lines of text for what would work instead of a refused request that was a line."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.rules.ask.line.text import document_text
from allocation.rules.ask.when.recurrence_words import recurrence_line
from allocation.rules.recurrence import Recurrence
from allocation.services.bookings.checks.remedies import FIELDS, request_as, request_of
from allocation.services.bookings.requests import BookingRequest
from allocation.services.bookings.series import rule_of
from tenants.platform.errors import Refused


@contextmanager
def lines_offered(
    wanted: BookingRequest, *, names_tier: bool, rule: Recurrence | None = None
) -> Iterator[None]:
    """Adds its line (`request`) to each request that would work, where the refused one was a line."""
    try:
        yield
    except Refused as refusal:
        if not wanted.request_text:
            raise
        tier = wanted.tier if names_tier else ""
        raise with_lines(refusal, wanted.ask, ZoneInfo(wanted.zone), rule, tier) from refusal


def with_lines(
    refusal: Refused, ask: AskDocument, zone: ZoneInfo, rule: Recurrence | None = None, tier: str = ""
) -> Refused:
    """Returns the refusal with the line of each request that would work. The lines name the tier if
    the refused one named `tier`."""
    in_line = FIELDS | ({"tier"} if tier else set()) | ({"times"} if rule is not None else set())

    def line_of(remedy: Mapping[str, Any]) -> str:
        other = request_of(remedy, ask)
        parts = [document_text(other, zone, says_end=other.ends_in is not None)]
        if rule is not None:
            parts.append(recurrence_line(rule_of(remedy, rule)))
        if tier:
            parts.append(remedy.get("tier", tier))
        return " ".join(parts)

    found = [
        each if "request" in each or in_line.isdisjoint(each) else {**each, "request": line_of(each)}
        for each in refusal.alternatives
    ]
    return replace(refusal, alternatives=found)


def as_requests(booking: Booking, offered: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What is offered instead of a booking, each with the whole request that books it: as a line in the
    booking's zone, and in structured form."""
    ask, zone = AskDocument.from_json(booking.ask), ZoneInfo(booking.zone)
    found = []
    for each in offered:
        other = request_as(each, ask)
        line = f"{document_text(other, zone)} {booking.tier_id}"
        found.append({**each, "request": line, "ask": other.to_json()})
    return found
