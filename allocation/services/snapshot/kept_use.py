"""Recent use as a leading process keeps it: a turn reads the bookings that have changed."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from uuid import UUID

from allocation.services.snapshot.quota_rows import Stretch, stretches_read, used_since
from allocation.solver import Used
from allocation.solver.model.rows import Key

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_Name = tuple[str, str, int, str, str]
"""Project, class, day, tenant, and person: what names a row of use."""


class KeptUse:
    """The rows that `used_read` finds, from the sums of past days and the stretches of today.

    Sums are whole unit-microseconds, so they are exact. They are kept for one day of UTC.
    """

    def __init__(self, now: datetime) -> None:
        """Reads all."""
        self.rows: dict[Key, Used] = {}
        self._midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        self._today = int(self._midnight.timestamp()) * _SECOND
        self._sums: dict[_Name, int] = defaultdict(int)
        self._by_booking: dict[UUID, list[Stretch]] = defaultdict(list)
        # Those that reach into today.
        self._late: dict[UUID, list[Stretch]] = defaultdict(list)
        # The rows of today.
        self._named = set[_Name]()
        self._add(stretches_read(used_since(now)))
        self._refresh([*self._sums], now)

    def is_of(self, now: datetime) -> bool:
        """Whether it is of the day of this instant."""
        return self._midnight <= now < self._midnight + timedelta(days=1)

    def advance(
        self, bookings: Collection[UUID], now: datetime
    ) -> tuple[dict[Key, Used], tuple[Key, ...]]:
        """Reads these bookings; returns the rows that are new or have other values, and the keys
        of those that are gone."""
        changed = set[_Name]()
        for booking in bookings:
            self._late.pop(booking, None)
            for stretch in self._by_booking.pop(booking, ()):
                changed |= self._count(stretch, -1)
        if bookings:
            changed |= self._add(stretches_read(used_since(now), bookings))
        return self._refresh(changed, now)

    def _add(self, found: Iterable[tuple[UUID, Stretch]]) -> set[_Name]:
        changed = set[_Name]()
        for booking, stretch in found:
            self._by_booking[booking].append(stretch)
            if stretch.until > self._today:
                self._late[booking].append(stretch)
            changed |= self._count(stretch, 1)
        return changed

    def _count(self, stretch: Stretch, sign: int) -> set[_Name]:
        """Adds the days before today to the sums; returns their keys."""
        found, until = set[_Name](), min(stretch.until, self._today)
        since = stretch.since
        while since < until:
            day = since // _DAY * _DAY
            ends = min(until, day + _DAY)
            key = _key(stretch, day)
            self._sums[key] += sign * stretch.units * (ends - since)
            found.add(key)
            since = ends
        return found

    def _refresh(
        self, changed: Iterable[_Name], now: datetime
    ) -> tuple[dict[Key, Used], tuple[Key, ...]]:
        """Makes the rows of these keys, and of today, those of this instant."""
        today = self._of_today((now - _EPOCH) // timedelta(microseconds=1))
        sums = {**{key: self._sums[key] for key in changed}, **today}
        gone, self._named = self._named - today.keys(), {*today}
        put, drop = dict[Key, Used](), list[Key]()
        for key, total in (*sums.items(), *((key, 0) for key in gone)):
            # As PostgreSQL rounds.
            amount = (total + _SECOND // 2) // _SECOND
            known = self.rows.get(key)
            if amount > 0 and (known is None or known.unit_seconds != amount):
                project, gpu_class, day, tenant, owner = key
                put[key] = Used(tenant, project, gpu_class, day, amount, owner)
            elif amount <= 0 and known is not None:
                drop.append(key)
        self.rows.update(put)
        for each in drop:
            del self.rows[each]
        return put, tuple(drop)

    def _of_today(self, now: int) -> dict[_Name, int]:
        sums = dict[_Name, int]()
        for stretches in self._late.values():
            for stretch in stretches:
                length = min(stretch.until, now) - max(stretch.since, self._today)
                if length > 0:
                    key = _key(stretch, self._today)
                    sums[key] = sums.get(key, 0) + stretch.units * length
        return sums


def _key(stretch: Stretch, day: int) -> _Name:
    return (stretch.project, stretch.gpu_class, day // _SECOND, stretch.tenant, stretch.owner)
