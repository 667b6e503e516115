"""Lines of progress that programs write to `$GPU_BOOKING_PROGRESS`, as nodes send them.

A node says whose line it is by an allocation that runs on it, and the file belongs to the account of
the booking. A line is the body of `PUT /bookings/{id}/progress`; one that is late, goes backwards or
can't be read changes nothing and is counted.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from django.db import transaction

from allocation.features.progress.services import ProgressTerms, report_keep
from allocation.models import Allocation
from allocation.services.record.counters import counter_add
from tenants.platform.errors import Refused
from tenants.platform.rest.body import exact_number
from tenants.platform.rest.fields import validated
from tenants.platform.rest.terms import body_of_terms

REFUSED = "progress_refused"


def lines_keep(lines: Iterable[tuple[UUID, str]], now: datetime) -> None:
    """Keeps the lines, each by itself; counts those that change nothing."""
    said = list(lines)
    places = Allocation.objects.select_related("booking").in_bulk([place for place, _ in said])
    refused = 0
    for place, line in said:
        try:
            terms = terms_read(line)
            with transaction.atomic():
                report_keep(places[place].booking, terms, now.replace(microsecond=0))
        except (Refused, ValueError):
            refused += 1
    if refused:
        counter_add(REFUSED, refused)


def terms_read(line: str) -> ProgressTerms:
    """The report of a line. Raises ValueError or Refused: it is none, or has a wrong field."""
    try:
        said = json.loads(line, parse_float=exact_number, parse_constant=_no_number)
    except RecursionError:
        said = None
    if not isinstance(said, dict):
        raise ValueError("not an object of JSON")  # noqa: TRY004 (bad input)
    found: ProgressTerms = validated(body_of_terms(ProgressTerms), said)
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number")
