"""The rows of the real services as the model has them, to be compared."""

from collections.abc import Mapping
from datetime import datetime

from allocation.models import Allocation, Booking, Gpu, GpuEvent, Node, Occupancy, Pause
from tests.simulation.tables.rows import GpuRow
from tests.simulation.tables.rows import Pause as ModelPause


def real_bookings() -> dict[str, tuple[object, ...]]:
    rows = Booking.objects.all()
    return {
        str(b.id): (
            b.state,
            b.outcome,
            *map(_seconds, (b.planned_starts, b.planned_ends, b.extension_until)),
            *map(_seconds, (b.ready_at, b.released_at, b.notified_at, b.saved_at)),
            _seconds(b.hardware_lost_at),
            *(b.duration_seconds, b.used_seconds, b.replacement_count, b.pause_count),
        )
        for b in rows
    }


def real_rows() -> dict[str, tuple[object, ...]]:
    open_ones = dict(Occupancy.objects.values_list("allocation_id", "closed"))
    return {
        r.id.hex: (
            str(r.booking_id),
            r.start,
            _seconds(r.period.lower),
            _seconds(r.period.upper),
            r.state,
            r.devices,
            open_ones[r.id] is None if r.id in open_ones else None,
            r.abandoned,
            *(r.leased, r.suspended, _seconds(r.saved_at), r.share),
        )
        for r in Allocation.objects.all()
    }


def real_pauses() -> dict[str, tuple[object, ...]]:
    return {
        p.id.hex: (
            *(str(p.booking_id), str(p.cause.beneficiary_id), p.number, p.may_wait),
            *map(_seconds, (p.ready_at, p.notified_at, p.deadline, p.ends_before)),
            *(p.cause.handed_over_at is not None, p.more_times_used),
            *map(_seconds, (p.more_asked_at, p.acknowledged_at, p.emptied_at)),
            *map(_seconds, (p.resumed_at, p.ended_at)),
            *(p.lost_seconds, p.credit_seconds, p.remaining_seconds),
        )
        for p in Pause.objects.select_related("cause")
    }


def real_gpus(known: Mapping[str, GpuRow]) -> dict[str, GpuRow]:
    """Why a GPU is not well stands there in words: the model's is taken."""
    kinds = set(GpuEvent.objects.filter(until=None).values_list("gpu__uuid", "kind"))
    return {
        g.uuid: GpuRow(
            mode=g.mode,
            health=g.health,
            drain_by=_seconds(g.drain_by),
            why=known[g.uuid].why,
            needs_operator=g.needs_operator,
            foreign=(g.uuid, "unbooked") in kinds,
            hanging=(g.uuid, "hang") in kinds,
        )
        for g in Gpu.objects.all()
    }


def real_nodes() -> dict[str, tuple[float | None, ...]]:
    return {
        n.name: (
            n.generation,
            n.published_generation,
            n.observed_generation,
            n.report_seq,
            n.takes_work,
            _seconds(n.unreachable_since),
            n.long_unreachable,
            n.reported_lease_seconds,
            n.outage_lease_seconds,
        )
        for n in Node.objects.all()
    }


def _seconds(instant: datetime | None) -> float | None:
    return None if instant is None else instant.timestamp()


def pause_facts(pause: ModelPause) -> tuple[object, ...]:
    """As `_real_pauses` has them."""
    return (
        *(pause.booking, pause.beneficiary, pause.number, pause.may_wait),
        *(pause.ready_at, pause.notified_at, pause.deadline, pause.ends_before),
        *(pause.handed, pause.more_times_used),
        *(pause.more_asked_at, pause.acknowledged_at, pause.emptied_at),
        *(pause.resumed_at, pause.ended_at),
        *(pause.lost_seconds, pause.credit_seconds, pause.remaining_seconds),
    )
