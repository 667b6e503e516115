"""Keeps what agents measure of the host by booking."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

import wire
from allocation.features.host_use.models import HostUse
from allocation.models import Booking
from allocation.points import HostSignals

# A message is about ten seconds; an agent that was disconnected does not send later what it used meanwhile.
MOST_MS = 120_000
MOST_CORES = 4_096
# More of any of them in one message is impossible.
MOST_KB = 1 << 31
LATE_SECONDS = 60
_KEEP = """
INSERT INTO allocation_hostuse AS known (tenant_id, booking_id, node_id, at, seconds, cpu_seconds,
  core_seconds, cores, spare, cpu, memory_mb, peak_memory_mb, read_mb, written_mb, received_mb, sent_mb,
  network_seconds)
SELECT a.tenant_id, a.booking_id, g.node_id, %s, new.ms / 1000.0, new.cpu_ms / 1000.0,
  new.ms / 1000.0 * new.cores, new.cores, new.spare, new.cpu_ms::bigint * 1000 / new.ms,
  new.memory_mb, new.memory_mb,
  new.read_kb / 1024.0, new.written_kb / 1024.0, new.received_kb / 1024.0, new.sent_kb / 1024.0,
  CASE WHEN new.received_kb IS NULL OR new.sent_kb IS NULL THEN 0 ELSE new.ms / 1000.0 END
FROM unnest(%s::uuid[], %s::uuid[], %s::bigint[], %s::bigint[], %s::integer[], %s::integer[], %s::integer[],
  %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[]) AS new (node_id, allocation_id, ms, cpu_ms, cores,
  spare, memory_mb, read_kb, written_kb, received_kb, sent_kb)
JOIN allocation_allocation a ON a.id = new.allocation_id AND a.state = 'active'
JOIN allocation_gpu g ON g.id = a.gpu_id AND g.node_id = new.node_id
ORDER BY a.booking_id, g.node_id
ON CONFLICT ON CONSTRAINT host_use_once DO UPDATE SET at = excluded.at,
  seconds = known.seconds + excluded.seconds, cpu_seconds = known.cpu_seconds + excluded.cpu_seconds,
  core_seconds = known.core_seconds + excluded.core_seconds, cores = excluded.cores, spare = excluded.spare,
  cpu = excluded.cpu,
  memory_mb = excluded.memory_mb, peak_memory_mb = greatest(known.peak_memory_mb, excluded.memory_mb),
  read_mb = coalesce(known.read_mb + excluded.read_mb, excluded.read_mb, known.read_mb),
  written_mb = coalesce(known.written_mb + excluded.written_mb, excluded.written_mb, known.written_mb),
  received_mb = coalesce(known.received_mb + excluded.received_mb, excluded.received_mb, known.received_mb),
  sent_mb = coalesce(known.sent_mb + excluded.sent_mb, excluded.sent_mb, known.sent_mb),
  network_seconds = known.network_seconds + excluded.network_seconds
"""
_AMOUNTS = ("memory_mb", "read_kb", "written_kb", "received_kb", "sent_kb")


@dataclass(frozen=True, slots=True)
class HostFigures:
    """What a booking has used of one of its nodes, or of all together (`node` is empty). Rates are those of
    the whole measured time; None: not measured."""

    node: str
    at: datetime
    seconds: float
    cores: int
    cpu_cores: float
    cpu_percent: float | None
    memory_mb: int | None
    peak_memory_mb: int | None
    read_mb: float | None
    written_mb: float | None
    received_mb: float | None
    sent_mb: float | None
    network_seconds: float

    @property
    def network_mb_s(self) -> float | None:
        """MiB a second, in and out together; None: not measured."""
        if not self.network_seconds:
            return None
        return ((self.received_mb or 0) + (self.sent_mb or 0)) / self.network_seconds

    @property
    def not_measured(self) -> tuple[str, ...]:
        """What the node does not measure, for people."""
        named = {
            "host memory": self.memory_mb,
            "disk": self.read_mb,
            "network": self.received_mb,
        }
        return tuple(name for name, value in named.items() if value is None)


def uses_keep(readings: Sequence[tuple[UUID, wire.Telemetry]], now: datetime) -> None:
    """Adds what nodes say to the sums of running bookings on them. Impossible values count as not
    measured."""
    rows: dict[tuple[UUID, str], tuple[object, ...]] = {}
    for node, message in readings:
        if abs(now.timestamp() - message.sent_at) > LATE_SECONDS:
            continue
        for use in message.host[: wire.HOST_USES_MAX]:
            if _is_possible(use):
                rows[node, use.allocation] = (node, *_values(use))
    found = [row for row in rows.values() if row[1] is not None]
    if not found:
        return
    with connection.cursor() as cursor:
        cursor.execute(_KEEP, [now, *(list(column) for column in zip(*found, strict=True))])


def _is_possible(use: wire.HostUse) -> bool:
    return (
        0 < use.ms <= MOST_MS
        and use.cpu_ms <= use.ms * MOST_CORES
        and max(use.cores, use.spare) <= MOST_CORES
    )


def _values(use: wire.HostUse) -> tuple[object, ...]:
    amounts = (getattr(use, name) for name in _AMOUNTS)
    known = (value if value is None or value < MOST_KB else None for value in amounts)
    return (_uuid(use.allocation), use.ms, use.cpu_ms, use.cores, use.spare, *known)


def _uuid(text: str) -> UUID | None:
    is_one = len(text) == 32 and all(letter in "0123456789abcdef" for letter in text)
    return UUID(text) if is_one else None


def host_figures(booking: Booking) -> list[HostFigures]:
    """Returns what a booking has used of each of its nodes; nothing where no agent measures it."""
    rows = HostUse.objects.filter(booking=booking).select_related("node").order_by("node__name")
    return [_figures(row) for row in rows if row.seconds > 0]


def signals_read(bookings: Collection[UUID]) -> dict[UUID, HostSignals]:
    """Returns what each booking has used of its hosts: of its cores, if it is limited to some, and of the
    network, if it ran on several nodes of which each was measured for half of the time."""
    found: dict[UUID, list[HostUse]] = {}
    for row in HostUse.objects.filter(booking__in=bookings, seconds__gt=0).order_by("booking", "node"):
        found.setdefault(row.booking_id, []).append(row)
    return {booking: HostSignals(_cpu(rows), _network(rows)) for booking, rows in found.items()}


def _cpu(rows: Sequence[HostUse]) -> float | None:
    could = sum(row.core_seconds for row in rows)
    return min(100.0, 100 * sum(row.cpu_seconds for row in rows) / could) if could else None


def _network(rows: Sequence[HostUse]) -> float | None:
    if len(rows) < 2 or any(row.network_seconds < row.seconds / 2 for row in rows):
        return None
    rates = (min(row.received_mb or 0, row.sent_mb or 0) / row.network_seconds for row in rows)
    return sum(rates) / len(rows) / 1024


def _figures(row: HostUse) -> HostFigures:
    return HostFigures(
        row.node.name,
        row.at,
        row.seconds,
        row.cores,
        row.cpu_seconds / row.seconds,
        min(100.0, 100 * row.cpu_seconds / row.core_seconds) if row.core_seconds else None,
        row.memory_mb,
        row.peak_memory_mb,
        row.read_mb,
        row.written_mb,
        row.received_mb,
        row.sent_mb,
        row.network_seconds,
    )
