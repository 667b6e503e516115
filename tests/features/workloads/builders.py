"""Finished runs with readings and reports."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone

from allocation.features.progress.models import Progress
from allocation.models import Allocation, Booking, Gpu, GpuUse
from allocation.rules.states import State
from tenants.models import Project
from tests.builders_allocation import a_booking, an_allocation, an_ask
from tests.features.workloads.series import KINDS
from tests.roles import as_owner, as_system

STEP = timedelta(minutes=5)
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Ran:
    """A run to be made. `rows` are the readings in order, the last one to its end; None: no readings."""

    name: str = "protein-fold-1"
    gpu_class: str = "h100"
    rows: Iterable[Mapping[str, Any]] | None = (KINDS["compute"],)
    hours: float = 2
    ago: float = 24
    gpus: int = 1
    per_hour: float | None = None
    memory_mb: int = 40_000
    watts: int | None = 500
    paid: str = "6"
    ask: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def ran(project: Project, owner: int, wanted: Ran) -> Booking:
    """A finished run, with one allocation on each of the first GPUs of its class."""
    starts = timezone.now().replace(microsecond=0) - timedelta(hours=wanted.ago)
    ends = starts + timedelta(hours=wanted.hours)
    booking = a_booking(
        project, owner, state=State.ENDED, starts=starts, now=starts, ask=an_ask(hours=wanted.hours)
    )
    with as_owner():
        Booking.objects.filter(id=booking.id).update(
            name=wanted.name,
            labels=dict(wanted.labels),
            ask={**booking.ask, "count": wanted.gpus, "classes": [wanted.gpu_class], **wanted.ask},
            planned_class=wanted.gpu_class,
            outcome="completed",
            ready_at=starts,
            released_at=ends,
            ended_at=ends,
            charged=Decimal(wanted.paid),
            price_per_hour=Decimal(wanted.paid) / Decimal(str(wanted.hours)),
        )
        booking.refresh_from_db()
        gpus = Gpu.objects.filter(gpu_class=wanted.gpu_class).order_by("number")
        for gpu in gpus[: wanted.gpus]:
            profile = wanted.ask.get("profile")
            place = an_allocation(
                booking, gpu, profile=profile, starts=starts, ends=ends, state=Allocation.State.ENDED
            )
            _readings(place, wanted, starts, ends)
        if wanted.per_hour is not None:
            _report(booking, wanted, ends)
    return booking


def _readings(place: Allocation, wanted: Ran, starts: datetime, ends: datetime) -> None:
    if wanted.rows is None:
        return
    rows, at, number = list(wanted.rows), starts, 0
    while at < ends:
        measured = {**rows[min(number, len(rows) - 1)]}
        has_use = "busy_avg" in measured
        with as_system():
            GpuUse.objects.create(
                gpu_id=place.gpu_id,
                tenant_id=place.tenant_id,
                allocation_id=place.id,
                at=at,
                seconds=300,
                measured=300 if has_use else 0,
                processes_max=1,
                memory_max_mb=wanted.memory_mb,
                memory_total_mb=80_000,
                energy_mj=None if wanted.watts is None else wanted.watts * 1_000 * 300,
                **measured,
            )
        at, number = at + STEP, number + 1


def _report(booking: Booking, wanted: Ran, at: datetime) -> None:
    since, rate = at - timedelta(minutes=20), wanted.per_hour or 0
    Progress.objects.create(
        booking=booking,
        tenant_id=booking.tenant_id,
        step=rate,
        unit="step",
        metrics={},
        at=at,
        anchor_at=since,
        anchor_step=rate * 2 / 3,
        mark_at=since,
        mark_step=rate * 2 / 3,
    )
