"""Energy in a snapshot: which tiers wait for it, and what it costs and emits in each zone by hour."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from allocation.models import Zone
from allocation.points import energy_waits
from solver import Energy, Tier

# The changes of clocks of these years are known: no booking is planned outside of them.
_SINCE, _UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
_DAY, _MINUTE = timedelta(days=1), timedelta(minutes=1)
_TEN_THOUSANDTHS = 10_000


def energy_sections(tiers: Iterable[Tier]) -> dict[str, Any]:
    """Reads the sections of tiers, with what they prefer, and of energy; without a preference that is
    empty."""
    waits = energy_waits()
    preferring = tuple(
        replace(tier, prefers=waits[tier.slug][0], shift=waits[tier.slug][1]) if tier.slug in waits else tier
        for tier in tiers
    )
    return {"tiers": preferring, "energy": tuple(_energy()) if waits else ()}


def _energy() -> Iterator[Energy]:
    for zone in Zone.objects.filter(ended=None).order_by("slug"):
        if zone.price or zone.grams:
            price = tuple(int(each * _TEN_THOUSANDTHS) for each in zone.price)
            yield Energy(zone.slug, price, tuple(zone.grams), offsets_of(zone.time_zone))


@lru_cache(maxsize=128)
def offsets_of(name: str) -> tuple[tuple[int, int], ...]:
    """Returns (from that second on, seconds east of UTC) of a time zone, rising from 0 on."""
    zone = ZoneInfo(name)
    found, at = [(0, _offset(zone, _SINCE))], _SINCE
    while at < _UNTIL:
        after = at + _DAY
        if _offset(zone, after) != found[-1][1]:
            while _offset(zone, at) == found[-1][1]:
                at += _MINUTE
            found.append((int(at.timestamp()), _offset(zone, at)))
        at = after
    return tuple(found)


def _offset(zone: ZoneInfo, at: datetime) -> int:
    offset = at.astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())
