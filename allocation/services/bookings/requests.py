"""The request of a booking or of an array, before any other check."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from allocation.points.bookings import Windows
from allocation.rules.arrays import MOST_ELEMENTS, MOST_PARALLEL
from allocation.rules.ask import AskDocument
from allocation.services.record.history import Event
from allocation.words.refusals import refusal_text
from tenants.platform.errors import invalid

STANDARD = "standard"
"""The tier of a request that names none."""


@dataclass(frozen=True, slots=True)
class BookingRequest:
    """A booking as a person asked for it, before any check.

    `priced_at` is the time of a shown quote whose prices count; None: the prices of now.
    `waitlist` is a `WaitMode`: the booking waits if its window is full, instead of being refused.
    An offer may be of any of the `windows`. `hook` records what the policy hook answered, `diversion`
    that the project orders its classes by cost.
    """

    project: str
    tier: str
    ask: AskDocument
    name: str = ""
    zone: str = "UTC"
    request_text: str = ""
    priced_at: datetime | None = None
    campaign: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    external_ref: str = ""
    waitlist: str = ""
    windows: Windows = ()
    hook: Event | None = None
    diversion: Event | None = None


@dataclass(frozen=True, slots=True)
class ArrayRequest:
    """How many runs of a request, and how many of them are open at a time (None: as usual).
    `awaits_parents`: its first element waits for other bookings, and the others for that."""

    count: int
    parallel: int | None = None
    holds_all: bool = True
    stop_after_failures: int | None = None
    awaits_parents: bool = False


def array_bounds_check(count: int | None, parallel: int | None) -> None:
    """Raises Refused `bad_array` or `bad_parallel`. None: nothing was said."""
    if count is not None and not 1 <= count <= MOST_ELEMENTS:
        found = invalid("bad_array", refusal_text("bad_array", most=f"{MOST_ELEMENTS:,}"), "array")
        raise replace(found, alternatives=[{"array": max(1, min(count, MOST_ELEMENTS))}])
    if parallel is not None and not 1 <= parallel <= MOST_PARALLEL:
        sentence = refusal_text("bad_parallel", most=f"{MOST_PARALLEL:,}")
        found = invalid("bad_parallel", sentence, "parallel")
        raise replace(found, alternatives=[{"parallel": max(1, min(parallel, MOST_PARALLEL))}])
