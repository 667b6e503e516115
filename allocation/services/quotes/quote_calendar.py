"""The calendar as a quote sees it: one's own time with all there is, that of others as busy.

Of other tenants a quote knows which slots are taken and until when. Whether a row is borrowed, in
which tier it is, what it belongs with and how soon it could be told to leave is not read, so no
answer can tell it.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db import connection

from allocation.models import Booking
from allocation.services.snapshot.maintenance import maintenance_read
from allocation.services.snapshot.quota_rows import caps_read, limits_read, tiers_read, used_read
from allocation.services.snapshot.snapshot import (
    expected_clear,
    gpus_read,
    held_read,
    hosts_read,
    models_read,
    requests_read,
    seconds,
)
from allocation.solver import Held, Limit, Place, Policy, Snapshot

_OTHERS = "others"
_SLICE = "busy"
_OCCUPIED = """
SELECT gpu_id, sliced, start, size, share, cores, memory, period_start, period_end
FROM portal_occupied(%s, %s)
"""
_LIMITS = "SELECT gpu_class, guaranteed, lent FROM portal_lenders()"


def published_snapshot(
    now: datetime,
    policy: Policy,
    without: Booking | None = None,
    until: datetime | None = None,
) -> Snapshot:
    """What is taken, promised and asked for; `without` is given up.

    Of others up to the horizon, or up to `until` where nothing later matters. Run inside a
    tenant's transaction.
    """
    until = until or now + timedelta(seconds=policy.horizon)
    used = used_read(now)
    gone = str(without.id) if without else None
    return Snapshot(
        now=seconds(now),
        models=models_read(),
        gpus=gpus_read(),
        held=(*(row for row in held_read(now) if row.booking != gone), *_occupied(now, until)),
        requests=tuple(row for row in requests_read(now) if row.booking != gone),
        extensions=(),
        limits=(*limits_read(), *_others_limits()),
        tiers=tiers_read(),
        caps=caps_read(now, used),
        used=used,
        hosts=hosts_read(),
        blackouts=maintenance_read(now),
    )


def _others_limits() -> Iterator[Limit]:
    """All other tenants as one: what they are guaranteed and what of that they lend."""
    with connection.cursor() as cursor:
        cursor.execute(_LIMITS)
        for gpu_class, guaranteed, lent in cursor.fetchall():
            yield Limit(_OTHERS, None, gpu_class, int(guaranteed), None, int(lent))


def _occupied(now: datetime, until: datetime) -> Iterator[Held]:
    """Each row by itself, in a tier that nobody described: it counts and is never paused."""
    with connection.cursor() as cursor:
        cursor.execute(_OCCUPIED, [now, until])
        rows = cursor.fetchall()
    for number, (gpu, sliced, start, size, share, cores, memory, starts, ends) in enumerate(rows):
        has_begun = starts <= now
        yield Held(
            id=f"busy-{number}",
            booking=f"busy-{number}",
            tenant=_OTHERS,
            project=_OTHERS,
            place=Place(str(gpu), _SLICE if sliced else None, start, size, share),
            starts=seconds(starts),
            ends=expected_clear(seconds(ends), seconds(now)) if has_begun else seconds(ends),
            started=has_begun,
            tier="",
            cores=cores * 1_000,
            memory=memory * 1_024,
            owner=_OTHERS,
        )
