"""The calendar as a quote sees it: one's own time with all there is, that of others by number.

Enough to find the start that the next cycle would give, pauses included; no name of anybody else
is read, and nothing of it is shown but starts and how many would be asked to leave.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.services.places import place_of
from allocation.services.snapshot import (
    gpus_read,
    held_read,
    hosts_read,
    is_handing_over,
    models_read,
    out_by,
    requests_read,
    seconds,
    solver_ask,
)
from allocation.services.snapshot_blackouts import blackouts_read
from allocation.services.snapshot_quota import caps_read, limits_read, tiers_read, used_read
from allocation.solver import Ask, Held, Limit, Place, Policy, Promise, Request, Snapshot
from allocation.solver.types import Together
from tenants.models import Tier

_HELD = """
SELECT tenant, booking, gpu_id, profile, start, size, share, cores, memory, period_start,
  period_end, tier, has_started, ready_at, saved_at, pauses, is_pausing, is_left, owner, may_move,
  is_pinned, together, is_required
FROM portal_beside(%s, %s)
"""
_WAITING = """
SELECT tenant, booking, tier, gpu_class, places, together, is_required, cores, memory, starts, ends,
  pin
FROM portal_waiting(%s, %s)
"""
_ASKED = """
SELECT tenant, booking, tier, ask, lengths, duration, starts, not_before, deadline, submitted,
  owner, series
FROM portal_asked()
"""
_LIMITS = "SELECT tenant, gpu_class, guaranteed, borrow, lend, weight FROM portal_limits()"


def published_snapshot(now: datetime, policy: Policy, without: Booking | None = None) -> Snapshot:
    """What is taken, promised and asked for; `without` is given up.

    Run inside a tenant's transaction.
    """
    until = now + timedelta(seconds=policy.horizon)
    used = used_read(now)
    gone = str(without.id) if without else None
    return Snapshot(
        now=seconds(now),
        models=models_read(),
        gpus=gpus_read(),
        held=(*(row for row in held_read(now) if row.booking != gone), *_others_held(now, until)),
        requests=(
            *(row for row in requests_read(now) if row.booking != gone),
            *_others_waiting(now, until),
            *_others_asked(),
        ),
        extensions=(),
        limits=(*limits_read(), *_others_limits()),
        tiers=tiers_read(),
        caps=caps_read(now, used),
        used=used,
        hosts=hosts_read(),
        blackouts=blackouts_read(now),
    )


def _rows(query: str, *values: datetime) -> Iterator[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        names = [column.name for column in cursor.description or ()]
        for row in cursor.fetchall():
            yield dict(zip(names, row, strict=True))


def _tenant(number: int) -> str:
    return f"other-{number}"


def _project(number: int) -> str:
    """Of another tenant: its projects are not told apart."""
    return f"of-other-{number}"


def _owner(number: int) -> str:
    return f"somebody-{number}"


def _others_limits() -> Iterator[Limit]:
    for row in _rows(_LIMITS):
        yield Limit(
            owner=_tenant(row["tenant"]),
            parent=None,
            gpu_class=row["gpu_class"],
            guaranteed=row["guaranteed"],
            borrow=row["borrow"],
            lend=row["lend"],
            weight=row["weight"],
        )


def _others_held(now: datetime, until: datetime) -> Iterator[Held]:
    """What a booking has left behind keeps its place, and is nobody's use any more."""
    for number, row in enumerate(_rows(_HELD, now, until)):
        if is_handing_over(row["period_end"], now, is_pausing=row["is_pausing"]):
            continue
        ends, left = seconds(row["period_end"]), row["is_left"]
        gpu, profile = str(row["gpu_id"]), row["profile"]
        yield Held(
            id=f"busy-{number}",
            booking=f"left-{number}" if left else f"busy-{row['booking']:08}",
            tenant="" if left else _tenant(row["tenant"]),
            project="" if left else _project(row["tenant"]),
            place=Place(gpu, profile, row["start"], row["size"], row["share"]),
            starts=seconds(row["period_start"]),
            ends=out_by(ends, seconds(now)) if row["has_started"] else ends,
            started=row["has_started"],
            tier=row["tier"],
            since=seconds(row["ready_at"]) if row["ready_at"] else None,
            saved=seconds(row["saved_at"]) if row["saved_at"] else None,
            pauses=row["pauses"],
            pausing=row["is_pausing"] and not left,
            cores=row["cores"] * 1_000,
            memory=row["memory"] * 1_024,
            owner=_owner(row["owner"]),
            pinned=row["is_pinned"],
            level=_level(row),
        )


def _level(row: dict[str, Any]) -> Together | None:
    """As `services.snapshot` says it of one's own."""
    if not row["may_move"]:
        return None
    together: Together = row["together"]
    return together if row["is_required"] else "any"


def _others_asked() -> Iterator[Request]:
    """What waits for its first decision, or has no start that can be planned."""
    priorities = dict(Tier.objects.values_list("slug", "priority"))
    for row in _rows(_ASKED):
        ask, deadline = AskDocument.from_json(json.loads(row["ask"])), row["deadline"]
        lengths = tuple((name, length) for name, length in json.loads(row["lengths"]))
        is_work = bool(lengths) and ask.workload is not None
        if lengths:
            ask = replace(ask, classes=tuple(name for name, _ in lengths))
        yield Request(
            booking=f"asks-{row['booking']:08}",
            tenant=_tenant(row["tenant"]),
            project=_project(row["tenant"]),
            tier=row["tier"],
            priority=priorities[row["tier"]],
            submitted=seconds(row["submitted"]),
            ask=solver_ask(ask),
            duration=min(length for _, length in lengths) if is_work else row["duration"],
            earliest=seconds(row["not_before"]),
            latest=seconds(deadline) if deadline else None,
            fixed=row["starts"] is not None,
            promise=None,
            owner=_owner(row["owner"]),
            durations=lengths if is_work and len(lengths) > 1 else (),
            cheapest=bool(lengths) and deadline is not None,
            series=None if row["series"] is None else f"series-{row['series']}",
        )


def _others_waiting(now: datetime, until: datetime) -> Iterator[Request]:
    """Promised starts; of what was asked for only what says where else it could lie."""
    for row in _rows(_WAITING, now, until):
        places = tuple(place_of(place) for place in json.loads(row["places"]))
        starts, ends = seconds(row["starts"]), seconds(row["ends"])
        ask = Ask(
            count=len(places),
            classes=(row["gpu_class"],),
            profile=places[0].profile,
            together=row["together"],
            required=row["is_required"],
            share=places[0].share,
            cores=row["cores"] * 1_000,
            memory=row["memory"] * 1_024,
            pin=tuple(json.loads(row["pin"])),
        )
        yield Request(
            booking=f"waits-{row['booking']:08}",
            tenant=_tenant(row["tenant"]),
            project=_project(row["tenant"]),
            tier=row["tier"],
            priority=0,
            submitted=0,
            ask=ask,
            duration=ends - starts,
            earliest=starts,
            latest=None,
            fixed=False,
            promise=Promise(starts, ends, places),
        )
