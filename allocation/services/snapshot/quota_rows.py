"""Quota in a snapshot: tiers, the quota tree, and recent use.

A leading process keeps recent use: a turn reads the bookings that have changed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from solver import Limit, Tier, Used
from solver.model.rows import Key
from tenants.models import Quota
from tenants.models import Tier as TierRow

# The fair share decays: of older use less than a hundredth counts. Monthly caps that carry over
# need it too.
HISTORY = timedelta(days=62)
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)

# Charged time per person, project, class and UTC day: from "ready" to the release, or to the notice
# of the pause that ended the run (its end, if the pause was for the own organisation) less the
# credited time, else until now. Broken runs have no "ready": their saved seconds count at their
# end.
_RUNS = """
  SELECT a.booking_id, a.tenant_id, a.project_id, g.gpu_class_id, b.owner_id, a.units,
         greatest(coalesce(p.ready_at, b.ready_at), lower(a.period), %(since)s) AS since,
         least(upper(a.period),
               coalesce(CASE WHEN p.relation = '' THEN p.notified_at ELSE upper(a.period) END
                          - make_interval(secs => p.credit_seconds),
                        b.released_at, b.ended_at, %(now)s),
               %(now)s) AS until
  FROM allocation_allocation a
    JOIN allocation_booking b ON b.id = a.booking_id
    JOIN allocation_gpu g ON g.id = a.gpu_id
    LEFT JOIN allocation_pause p ON p.booking_id = a.booking_id AND NOT p.withdrawn
      AND p.ready_at >= lower(a.period) AND p.ready_at < upper(a.period)
  WHERE coalesce(p.ready_at, b.ready_at) IS NOT NULL AND a.state <> 'superseded'
    AND (p.id IS NOT NULL OR NOT a.abandoned)
    AND a.period && tstzrange(%(since)s, %(now)s)
    AND {some}
  UNION ALL
  SELECT a.booking_id, a.tenant_id, a.project_id, g.gpu_class_id, b.owner_id, a.units,
         greatest(upper(a.period) - make_interval(secs => a.counted_seconds), %(since)s) AS since,
         least(upper(a.period), %(now)s) AS until
  FROM allocation_allocation a
    JOIN allocation_booking b ON b.id = a.booking_id
    JOIN allocation_gpu g ON g.id = a.gpu_id
  WHERE a.abandoned AND a.counted_seconds > 0 AND a.period && tstzrange(%(since)s, %(now)s)
    AND {some}
"""
_USED = f"""
SELECT u.tenant_id, u.project_id, u.gpu_class_id, extract(epoch FROM d.day)::bigint, u.owner_id,
       sum(u.units * extract(epoch FROM least(u.until, d.day + interval '1 day')
                                        - greatest(u.since, d.day)))::bigint
FROM ({_RUNS.format(some="true")}) u CROSS JOIN LATERAL generate_series(
  date_trunc('day', u.since, 'UTC'), u.until - interval '1 microsecond', interval '1 day'
) AS d(day)
WHERE u.until > u.since
GROUP BY 1, 2, 3, 4, 5
ORDER BY 2, 3, 4, 5
"""  # noqa: S608 (constants)
_STRETCHES = {
    is_some: f"""
SELECT u.booking_id, u.tenant_id::text, u.project_id::text, u.gpu_class_id, u.owner_id::text,
       u.units, (extract(epoch FROM u.since) * 1000000)::bigint,
       (extract(epoch FROM u.until) * 1000000)::bigint
FROM ({_RUNS.format(some="a.booking_id = ANY(%(some)s)" if is_some else "true")}) u
WHERE u.until > u.since
"""  # noqa: S608 (constants)
    for is_some in (False, True)
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_Name = tuple[str, str, int, str, str]
"""Project, class, day, tenant, and person: what names a row of use."""


class Stretch(NamedTuple):
    """Charged time on a GPU, in microseconds of Unix time."""

    tenant: str
    project: str
    gpu_class: str
    owner: str
    units: int
    since: int
    until: int


def tiers_read() -> tuple[Tier, ...]:
    """All tiers."""
    return tiers_of(TierRow.objects.order_by("slug"))


def tiers_of(rows: Iterable[TierRow]) -> tuple[Tier, ...]:
    """Solver tiers of rows in the order of their slugs."""
    return tuple(
        Tier(
            tier.slug,
            tier.pausable,
            tier.counts_against_guarantee,
            priority=tier.priority,
            grace=tier.grace_seconds,
            protected=tier.protected_seconds,
            pauses=tier.max_pauses,
        )
        for tier in rows
    )


def quotas_read() -> list[Quota]:
    """All quota rows in the order of a snapshot; under row-level security, of one tenant."""
    return list(Quota.objects.order_by("tenant_id", "project_id", "gpu_class_id"))


def limits_of(rows: Iterable[Quota]) -> tuple[Limit, ...]:
    """Solver limits of quota rows."""
    return tuple(
        Limit(
            owner=str(row.project_id or row.tenant_id),
            parent=str(row.tenant_id) if row.project_id else None,
            gpu_class=row.gpu_class_id,
            guaranteed=row.guaranteed_units,
            borrow=row.borrow_limit_units,
            lend=row.lend_limit_units,
            weight=row.weight,
        )
        for row in rows
    )


def used_since(now: datetime) -> datetime:
    """The midnight from which use counts."""
    return (now - HISTORY).replace(hour=0, minute=0, second=0, microsecond=0)


def stretches_read(since: datetime, only: Collection[UUID] | None = None) -> list[tuple[UUID, Stretch]]:
    """What all bookings, or some, use from `since` on, with the ends that are known."""
    with connection.cursor() as cursor:
        some = {} if only is None else {"some": list(only)}
        cursor.execute(_STRETCHES[only is not None], {"since": since, "now": _NEVER, **some})
        return [(row[0], Stretch(*row[1:])) for row in cursor.fetchall()]


def used_read(now: datetime) -> tuple[Used, ...]:
    """Unit-seconds by person, project, class and UTC day; row-level security may narrow them to one
    tenant."""
    with connection.cursor() as cursor:
        cursor.execute(_USED, {"since": used_since(now), "now": now})
        rows = cursor.fetchall()
    return tuple(
        Used(str(tenant), str(project), gpu_class, day, amount, str(person))
        for tenant, project, gpu_class, day, person, amount in rows
        if amount > 0
    )


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

    def advance(self, bookings: Collection[UUID], now: datetime) -> tuple[dict[Key, Used], tuple[Key, ...]]:
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

    def _refresh(self, changed: Iterable[_Name], now: datetime) -> tuple[dict[Key, Used], tuple[Key, ...]]:
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
