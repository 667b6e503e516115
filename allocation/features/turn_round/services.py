"""The time between two bookings of a device: measured by node, and kept by sure starts.

It is the time from the end of a run until its device was proven empty, and from the order to start the
next one until its device was ready. A time between in which nobody was waiting is not part of it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from math import ceil
from uuid import UUID

from django.db import connection

from allocation.models import Allocation

MEASURED = timedelta(weeks=4)
MOST_CHANGES = 200
"""The newest starts on a node that its page counts."""
MOST_PLANNED = 50
"""Those that the solver's turn looks at, once an hour, on all nodes."""
LEAST_CHANGES = 5
WHOLE, SLICES, DATA = "whole", "slices", "data"
KINDS = {WHOLE: "Whole GPUs", SLICES: "Slices", DATA: "With data that was fetched"}
# A start up to a minute late is on time, so less is not announced.
ON_TIME = timedelta(minutes=1)
# A device that needs longer has a fault, which no plan reckons with.
LONGEST = timedelta(minutes=15)
_PERCENT = 90
# `ready_at` is of the last run and of all devices, so runs after a pause and on several nodes say nothing.
_CHANGES = """
SELECT o.node_id, kind.name,
  extract(epoch FROM before.closed - before.ended)::float8,
  extract(epoch FROM b.ready_at - o.opened)::float8
FROM (
  SELECT o.*, g.node_id, row_number() OVER (PARTITION BY g.node_id ORDER BY o.opened DESC, o.id DESC) AS place
  FROM allocation_occupancy o JOIN allocation_gpu g ON g.id = o.gpu_id
  WHERE o.opened >= %(since)s AND o.opened < %(until)s AND (%(node)s::uuid IS NULL OR g.node_id = %(node)s)
) o
JOIN allocation_allocation a ON a.id = o.allocation_id
JOIN allocation_booking b ON b.id = a.booking_id
CROSS JOIN LATERAL (
  SELECT p.closed, least(upper(e.period), p.closed) AS ended, e.mode
  FROM allocation_occupancy p JOIN allocation_allocation e ON e.id = p.allocation_id
  WHERE p.gpu_id = o.gpu_id AND p.slots && o.slots AND p.closed <= o.opened
  ORDER BY p.closed DESC, p.id DESC LIMIT 1) before
CROSS JOIN LATERAL (
  SELECT CASE WHEN a.agent_steps @> '[["stage"]]' THEN 'data'
    WHEN 'sliced' IN (a.mode, before.mode) THEN 'slices' ELSE 'whole' END AS name) kind
WHERE o.place <= %(most)s AND b.pause_count = 0 AND b.ready_at >= o.opened
  AND NOT EXISTS (
    SELECT FROM allocation_allocation other JOIN allocation_gpu its ON its.id = other.gpu_id
    WHERE other.booking_id = b.id AND its.node_id <> o.node_id AND other.state <> 'superseded')
"""


@dataclass(frozen=True, slots=True)
class TurnRound:
    """What changes of bookings on the devices of a node took, in seconds. `kind`: of whole GPUs, of
    slices before or after the change, or with data that was fetched."""

    kind: str
    changes: int
    clearing_p50: float
    preparing_p50: float
    total_p50: float
    total_p90: float

    @property
    def kind_text(self) -> str:
        """The kind, for people."""
        return KINDS[self.kind]

    @property
    def announced(self) -> timedelta:
        """By how much a start right after another booking is announced wider; zero: it is on time."""
        took = timedelta(seconds=self.total_p90)
        if self.changes < LEAST_CHANGES or took <= ON_TIME:
            return timedelta()
        return min(LONGEST, timedelta(minutes=ceil(took / timedelta(minutes=1))))


def turn_rounds(
    now: datetime, node: UUID | None = None, most: int = MOST_CHANGES
) -> dict[UUID, list[TurnRound]]:
    """Returns what changes among the newest starts of the last four weeks took, by node; whole GPUs
    first."""
    facts = {"since": now - MEASURED, "until": now, "node": node, "most": most}
    found: Mapping[tuple[UUID, str], list[tuple[float, float]]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(_CHANGES, facts)
        for node_id, kind, clearing, preparing in cursor.fetchall():
            found[node_id, kind].append((clearing, preparing))
    rounds: dict[UUID, list[TurnRound]] = defaultdict(list)
    for (node_id, kind), took in sorted(found.items(), key=lambda each: (each[0][0], -len(each[0][1]))):
        rounds[node_id].append(_round(kind, took))
    for rows in rounds.values():
        rows.sort(key=lambda row: list(KINDS).index(row.kind))
    return dict(rounds)


def start_delays(starts: Sequence[tuple[Collection[UUID], datetime]], now: datetime) -> list[timedelta]:
    """Returns by how much each start is later because other bookings leave its GPUs just before: what
    the slowest of their nodes needs. Many starts take one statement."""
    delays = _delays(now.replace(minute=0, second=0, microsecond=0))
    if not delays or not starts:
        return [timedelta()] * len(starts)
    ending = Allocation.objects.filter(
        gpu__in={gpu for gpus, _ in starts for gpu in gpus},
        state__in=Allocation.LIVE,
        period__endswith__gt=min(at for _, at in starts) - LONGEST,
        period__endswith__lte=max(at for _, at in starts),
    )
    ready: dict[UUID, list[tuple[datetime, timedelta]]] = defaultdict(list)
    for gpu, node, mode, period in ending.values_list("gpu", "gpu__node", "mode", "period"):
        takes = delays.get((node, SLICES if mode == "sliced" else WHOLE), timedelta())
        ready[gpu].append((period.upper, takes))
    return [max((timedelta(), *_late(gpus, at, ready))) for gpus, at in starts]


def _late(
    gpus: Collection[UUID], at: datetime, ready: Mapping[UUID, Sequence[tuple[datetime, timedelta]]]
) -> Iterator[timedelta]:
    """Yields how long after `at` each booking that leaves just before has left the GPUs clear."""
    for gpu in gpus:
        for ends, takes in ready.get(gpu, ()):
            if at - LONGEST < ends <= at:
                yield takes - (at - ends)


@lru_cache(maxsize=2)
def _delays(hour: datetime) -> dict[tuple[UUID, str], timedelta]:
    """What is announced, by node and kind; read once an hour, and empty where all starts are on time."""
    found = turn_rounds(hour, most=MOST_PLANNED)
    return {(node, row.kind): row.announced for node, rows in found.items() for row in rows if row.announced}


def delays_forget() -> None:
    """Forgets what was read in this hour."""
    _delays.cache_clear()


def _round(kind: str, took: list[tuple[float, float]]) -> TurnRound:
    totals = [clearing + preparing for clearing, preparing in took]
    return TurnRound(
        kind,
        len(took),
        _rank([clearing for clearing, _ in took], 50),
        _rank([preparing for _, preparing in took], 50),
        _rank(totals, 50),
        _rank(totals, _PERCENT),
    )


def _rank(values: list[float], percent: int) -> float:
    """The smallest value that so many percent of them do not exceed."""
    return sorted(values)[ceil(len(values) * percent / 100) - 1]
