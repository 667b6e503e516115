"""Values of the API as people read them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_LENGTH = re.compile(r"(?:(\d+)d)?\s*(?:(\d+)h)?\s*(?:(\d+)m(?:in)?)?")


def iso_length(text: str) -> str:
    """Returns `2h`, `1d 6h` or `90m` as ISO 8601. Raises ValueError."""
    found = _LENGTH.fullmatch(text.strip().lower())
    if found is None or not any(found.groups()):
        raise ValueError("Write a duration like 2h, 90m or 1d 6h.")
    days, hours, minutes = (int(each or 0) for each in found.groups())
    return f"P{days}DT{hours}H{minutes}M"


def money(text: str, currency: str = "") -> str:
    """Returns an amount with two decimals: `57.60 EUR`."""
    rounded = Decimal(text).quantize(Decimal("0.01"))
    return f"{rounded + 0} {currency}".strip()


def risk(thousandths: int | None) -> str:
    """Returns a probability in percent."""
    if thousandths is None:
        return "unknown"
    return "under 1 %" if 0 < thousandths < 10 else f"{thousandths / 10:.0f} %"


def place(booking: Mapping[str, Any]) -> str:
    """Returns the GPUs of a booking: `gpu-a1-01: 0, 1`."""
    nodes: dict[str, list[str]] = {}
    for each in booking["allocations"]:
        nodes.setdefault(each["node"], []).append(str(each["gpu_index"]))
    return "; ".join(f"{node}: {', '.join(gpus)}" for node, gpus in nodes.items()) or "–"


class UnknownZone(Exception):
    """There is no such time zone on this machine."""


@dataclass(frozen=True)
class Clock:
    """Times of the API in one time zone; without one, in that of this machine."""

    zone: tzinfo | None = None

    def moment(self, text: str | None) -> str:
        """Returns a time with its offset: `Mon 23 Nov 14:00 +0100`."""
        if not text:
            return "–"
        local = datetime.fromisoformat(text).astimezone(self.zone)
        return f"{local:%a} {local.day} {local:%b %H:%M %z}"

    def starts(self, booking: Mapping[str, Any]) -> str:
        """Returns when a booking started, or will start as far as it is known."""
        window = booking["window"]
        return self.moment(booking["ready_at"] or window["planned_starts"] or window["starts"])

    def ends(self, booking: Mapping[str, Any]) -> str:
        """Returns when a booking ended or will end."""
        window = booking["window"]
        return self.moment(booking["ended_at"] or window["planned_ends"] or window["ends"])


def clock_of_zone(name: str) -> Clock:
    """Returns the clock of `Europe/Berlin`; `local` is this machine. Raises UnknownZone."""
    if name == "local":
        return Clock()
    try:
        return Clock(ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UnknownZone(
            f"There is no time zone {name!r} here. Write one like Europe/Berlin, UTC or local."
        ) from None
