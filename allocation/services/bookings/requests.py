"""The request of a booking, before any check."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from allocation.points.bookings import Windows
from allocation.rules.ask import AskDocument
from allocation.services.record.history import Event


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
