"""The terms of a booking: what it asks for and what that costs, as one value that a change
replaces."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from allocation.models import Booking


@dataclass(frozen=True, slots=True)
class Terms:
    """The fields of a booking that a change of its request replaces."""

    name: str
    ask: dict[str, Any]
    tier: str
    request_text: str
    starts: datetime | None
    not_before: datetime
    deadline: datetime | None
    duration_seconds: int
    class_durations: list[Any]
    currency: str
    price_version: int
    price_per_hour: Decimal
    price_lines: list[Any]
    hold_amount: Decimal
    peak_surcharge: Decimal = Decimal(0)
    peak_zone: str = ""
    peak_weekly: list[Any] = field(default_factory=list)
    notice_seconds: int = 0
    late_share: int = 0
    setup_fee: Decimal = Decimal(0)

    def to_json(self) -> dict[str, Any]:
        """The terms as a change stores them."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in _TIMES:
            plain[name] = plain[name].isoformat() if plain[name] else None
        return {**plain, **{name: str(plain[name]) for name in _AMOUNTS}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Terms":
        """Undo `to_json`."""
        values = dict(data)
        for name in _TIMES:
            values[name] = datetime.fromisoformat(values[name]) if values[name] else None
        return cls(**{**values, **{name: Decimal(values.get(name, 0)) for name in _AMOUNTS}})

    def facts(self) -> dict[str, Any]:
        """The values by field of the booking, except its tier."""
        return {name: getattr(self, name) for name in _FACTS}

    def longest(self) -> timedelta:
        """The length on the slowest class."""
        seconds = (length for _, length in self.class_durations)
        return timedelta(seconds=max(seconds, default=self.duration_seconds))


_TIMES = ("starts", "not_before", "deadline")
_AMOUNTS = ("price_per_hour", "hold_amount", "peak_surcharge", "setup_fee")
_FACTS = tuple(each.name for each in fields(Terms) if each.name != "tier")


def booking_with(booking: Booking, terms: Terms) -> Booking:
    """A copy of the booking with other terms. It is not stored; its tier object is the old one."""
    changed = copy(booking)
    for name, value in terms.facts().items():
        setattr(changed, name, value)
    if changed.tier_id != terms.tier:
        changed.tier_id = terms.tier
    return changed


def terms_of(booking: Booking) -> Terms:
    """The present terms of a booking."""
    plain = {name: getattr(booking, name) for name in _FACTS}
    return Terms(**plain, tier=booking.tier_id)
