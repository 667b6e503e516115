"""Kinds of work: their duration and cost on each GPU class."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db import transaction

from allocation.models import Booking, WorkSpeed
from allocation.points import WorkRate, work_rates
from allocation.rules.ask import MAX_DURATION_SECONDS, AskDocument
from allocation.services.record.refusals import refusal
from allocation.words.refusals import refusal_text
from tenants.audit import audit_everywhere
from tenants.models import GpuClass, User
from tenants.platform.errors import Refused, invalid, missing
from tenants.services.input_values import slug_read

Durations = Mapping[str, int]
"""Seconds by class."""

MINUTE, THOUSAND = 60, 1_000
MOST_SPEED = 1_000_000


@dataclass(frozen=True, slots=True)
class WorkLength:
    """How long the work takes on a class. `rate`: finished runs on it and on the first class have shown
    this; None: it follows from the operator's table."""

    gpu_class: str
    seconds: int
    rate: WorkRate | None = None


def durations_of(ask: AskDocument, project_id: UUID) -> dict[str, int]:
    """Seconds that the work takes on every class with a known speed; empty for a fixed duration.

    Raises:
        Refused: `no_speed`, as `work_lengths`.
    """
    return {each.gpu_class: each.seconds for each in work_lengths(ask, project_id)}


def work_lengths(ask: AskDocument, project_id: UUID) -> list[WorkLength]:
    """How long the work takes on each class, the first one first; empty for a fixed duration.

    The request gives the duration on its first class. Where finished runs of the project have shown
    the speed of both, it counts, else that of the operator's table. Whole minutes, rounded up.

    Raises:
        Refused: `no_speed`, if the first class has no speed for this work.
    """
    if ask.workload is None:
        return []
    stated, rates = _speeds_of(ask.workload), work_rates(project_id, ask.workload)
    first = ask.classes[0]
    if first not in stated and first not in rates:
        raise _unknown(ask.workload, first)
    found = [WorkLength(first, ask.duration, rates.get(first) if len(rates) > 1 else None)]
    for name in [*stated, *(each for each in rates if each not in stated)]:
        rate = rates.get(name) if first in rates else None
        if name == first or (rate is None and not {first, name} <= stated.keys()):
            continue
        mine, other = stated.get(first, 1), stated.get(name, 1)
        if rate is not None:
            mine, other = THOUSAND, max(1, round(THOUSAND * rate.per_gpu_hour / rates[first].per_gpu_hour))
        seconds = -(-ask.duration * mine // (other * MINUTE)) * MINUTE
        if seconds <= MAX_DURATION_SECONDS:
            found.append(WorkLength(name, seconds, rate))
    return found


def classes_by_cost(ask: AskDocument, costs: Mapping[str, Decimal]) -> tuple[str, ...]:
    """The classes of `costs` (the most that the booking costs on each), lowest first; equal costs
    keep the order of the request."""
    order = {name: place for place, name in enumerate(ask.classes)}
    return tuple(sorted(costs, key=lambda name: (costs[name], order[name])))


def has_run(booking: Booking) -> bool:
    """Whether part of its work is done: it then continues on the same class."""
    began = booking.used_seconds or booking.replacement_count or booking.pause_count
    return bool(began or booking.ready_at or booking.hardware_lost_at)


def is_cheapest_first(ask: AskDocument) -> bool:
    """Whether cost decides among its classes instead of the order of the request."""
    return len(ask.classes) > 1 and (ask.workload is not None or ask.deadline is not None)


def _unknown(workload: str, gpu_class: str) -> Refused:
    kinds = sorted(set(WorkSpeed.objects.values_list("workload", flat=True)))
    known = f"Known kinds of work: {', '.join(kinds)}." if kinds else "No kinds of work are known."
    sentence = refusal_text("no_speed", workload=workload, gpu_class=gpu_class, known=known)
    numbers = {"workload": workload, "gpu_class": gpu_class}
    return refusal("no_speed", sentence, "invalid", "request", numbers=numbers)


@transaction.atomic
def speeds_set(*, operator: User, workload: str, speeds: Mapping[str, int], now: datetime) -> dict[str, int]:
    """Sets the speed of a kind of work on each class, in thousandths; without speeds the kind is
    removed. Existing bookings keep their durations. Written to every tenant's log.

    Raises:
        Refused: `bad_slug`, `bad_speed` or `not_found` (class).
    """
    slug_read(workload, param="workload")
    known = set(GpuClass.objects.values_list("slug", flat=True))
    for name, thousandths in speeds.items():
        if name not in known:
            raise missing("GPU class", f"speeds.{name}")
        if not 1 <= thousandths <= MOST_SPEED:
            raise invalid("bad_speed", refusal_text("bad_speed"), f"speeds.{name}")
    before = _speeds_of(workload)
    if before == dict(speeds):
        return before
    WorkSpeed.objects.filter(workload=workload).delete()
    WorkSpeed.objects.bulk_create(
        WorkSpeed(workload=workload, gpu_class_id=name, thousandths=speeds[name]) for name in sorted(speeds)
    )
    audit_everywhere(
        actor_id=operator.id,
        action="workload.set",
        target=("workload", workload),
        now=now,
        detail={"before": before, "after": dict(speeds)},
    )
    return dict(speeds)


def _speeds_of(workload: str) -> dict[str, int]:
    rows = WorkSpeed.objects.filter(workload=workload)
    return dict(rows.values_list("gpu_class_id", "thousandths"))
