"""Events as an iCalendar file (RFC 5545)."""

from collections.abc import Iterable
from datetime import UTC

import icalendar
from django.conf import settings

from allocation.queries.bookings.calendar import Event

CONTENT_TYPE = "text/calendar; charset=utf-8"


def calendar_file(name: str, events: Iterable[Event], tenant_slug: str) -> bytes:
    """Returns the file; the same events give the same bytes."""
    calendar = icalendar.Calendar()
    calendar.add("prodid", "-//gpu-portal//calendar//EN")
    calendar.add("version", "2.0")
    # The library does not escape the text of an X- property by itself.
    calendar.add("x-wr-calname", icalendar.vText(name))
    for event in events:
        calendar.add_component(_entry(event, tenant_slug))
    return bytes(calendar.to_ical())


def _entry(event: Event, tenant_slug: str) -> icalendar.Event:
    entry = icalendar.Event()
    entry.add("uid", f"{event.uid}@{settings.PUBLIC_HOST}")
    # Without a METHOD, DTSTAMP is the time of the last change (RFC 5545).
    entry.add("dtstamp", event.changed.astimezone(UTC).replace(microsecond=0))
    entry.add("sequence", event.sequence)
    entry.add("status", event.status)
    entry.add("dtstart", event.starts.astimezone(UTC))
    entry.add("dtend", event.ends.astimezone(UTC))
    entry.add("summary", event.title)
    entry.add("description", event.words)
    # A GPU booking does not make its owner busy.
    entry.add("transp", "TRANSPARENT")
    if event.path:
        entry.add("url", f"{settings.PUBLIC_URL}/t/{tenant_slug}/{event.path}")
    return entry
