"""Makers of hardware, of bookings on it and of what agents measured there."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import count

from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from allocation.models import (
    Allocation,
    Booking,
    Gpu,
    GpuModel,
    GpuSample,
    MigPlacement,
    Node,
    Rack,
)
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from tenants.models import Membership
from tests.builders import a_gpu_class, a_tier
from tests.roles import as_system

UNITS = 56_000
# profile: (id, compute, size, starts), as NVML lists them for an H100 of 80 GB.
H100_PROFILES = {
    "1g.10gb": (19, 1, 1, range(7)),
    "1g.20gb": (15, 1, 2, (0, 2, 4, 6)),
    "2g.20gb": (14, 2, 2, (0, 2, 4)),
    "3g.40gb": (9, 3, 4, (0, 4)),
    "4g.40gb": (5, 4, 4, (0,)),
}
_numbers = count(1)


def a_model(slug: str = "h100-80gb") -> GpuModel:
    """The model with the H100's geometry, made unless it is there."""
    gpu_class = a_gpu_class(slug.partition("-")[0])
    with as_system():
        model, is_new = GpuModel.objects.get_or_create(
            slug=slug,
            defaults={
                "product_name": f"NVIDIA {slug}",
                "gpu_class": gpu_class,
                "memory_mb": 81_559,
            },
        )
        if is_new:
            MigPlacement.objects.bulk_create(
                MigPlacement(
                    model=model,
                    profile=profile,
                    profile_id=number,
                    start=start,
                    size=size,
                    compute=compute,
                    limit=7,
                )
                for profile, (number, compute, size, starts) in H100_PROFILES.items()
                for start in starts
            )
    return model


def a_node(
    name: str = "gpu-a1-01",
    *,
    now: datetime,
    gpus: int = 2,
    rack: str = "a1",
    state: str = Node.State.READY,
    silent_for: timedelta = timedelta(seconds=4),
) -> Node:
    """A node that was heard `silent_for` ago, with that many healthy H100."""
    model = a_model()
    with as_system():
        node = Node.objects.create(
            name=name,
            rack=Rack.objects.get_or_create(name=rack)[0],
            state=state,
            cores=96,
            memory_mb=1_031_000,
            driver="570.86",
            agent_version="0.1.0",
            generation=3,
            published_generation=3,
            observed_generation=3,
            last_seen=now - silent_for,
        )
        for index in range(gpus):
            number = next(_numbers)
            Gpu.objects.create(
                number=number,
                node=node,
                index=index,
                uuid=f"GPU-{number:08}",
                model=model,
                gpu_class=model.gpu_class,
            )
    return node


def a_booking(
    member: Membership,
    *,
    now: datetime,
    state: str = State.ACTIVE,
    name: str = "",
    hours: float = 6,
    held: str = "24",
    profile: str | None = None,
    tier: str = "standard",
    starts_in: timedelta = timedelta(hours=-1),
) -> Booking:
    """A booking of one GPU or slice by the member, planned from `now + starts_in`."""
    assert member.project is not None
    starts = (now + starts_in).replace(microsecond=0)
    ask = AskDocument(
        count=1,
        classes=("h100",),
        profile=profile,
        together="any",
        required=False,
        duration=int(hours * 3600),
        starts=starts,
    )
    with as_system():
        return Booking.objects.create(
            tenant=member.tenant,
            project=member.project,
            owner=member.user,
            number=next(_numbers),
            name=name,
            tier=a_tier(tier),
            ask=ask.to_json(),
            duration_seconds=hours * 3600,
            starts=starts,
            not_before=starts,
            state=state,
            submitted=now - timedelta(days=1),
            planned_starts=starts,
            planned_ends=starts + timedelta(hours=hours),
            planned_class="h100",
            price_version=1,
            price_per_hour=Decimal(4),
            hold_amount=Decimal(held),
        )


def a_place(
    booking: Booking,
    gpu: Gpu,
    *,
    profile: str | None = None,
    start: int = 0,
    share: int | None = None,
) -> Allocation:
    """The GPU, the profile at `start` on it, or thousandths of it: the booking's for its planned
    time."""
    compute, size = (7, 8) if profile is None else H100_PROFILES[profile][1:3]
    mode = Gpu.Mode.WHOLE if profile is None else Gpu.Mode.SLICED
    units = max(compute * UNITS // 7, size * UNITS // 8)
    with as_system():
        if profile is not None:
            Gpu.objects.filter(id=gpu.id).update(mode=Gpu.Mode.SLICED)
        return Allocation.objects.create(
            tenant=booking.tenant,
            project=booking.project,
            booking=booking,
            gpu=gpu,
            gpu_number=gpu.number,
            model=gpu.model,
            mode=mode if share is None else Gpu.Mode.SHARED,
            share=share,
            profile=profile,
            start=start,
            size=size,
            units=units if share is None else UNITS * share // 1000,
            period=DateTimeTZRange(booking.planned_starts, booking.planned_ends),
            state=Allocation.State.ACTIVE,
        )


def measured(
    place: Allocation,
    values: Sequence[int | None],
    *,
    now: datetime,
    step: timedelta = timedelta(seconds=60),
) -> None:
    """Readings of the place's use, one per step, the last one five seconds ago."""
    last = now - timedelta(seconds=5)
    with as_system():
        GpuSample.objects.bulk_create(
            GpuSample(
                gpu=place.gpu,
                tenant_id=place.tenant_id,
                slot=None if place.profile is None else place.start,
                allocation_id=place.id,
                at=last - step * (len(values) - 1 - number),
                utilisation=value,
                power_mw=410_000 if place.profile is None else None,
                temperature_c=61,
            )
            for number, value in enumerate(values)
        )
