"""The timeline over all tenants, for operators."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from uuid import UUID

from allocation.models import Allocation, Booking
from allocation.queries.bookings.timelines.rows import (
    Block,
    Kind,
    Stretch,
    Timeline,
    VisibleBooking,
    Window,
)
from allocation.queries.bookings.timelines.timeline import (
    allocation_block,
    allocation_end,
    away_of,
    blocks_joined,
    gpus_read,
    groups_of,
    reservation_blocks,
    visible_booking,
    waiting_rows,
)
from allocation.rules.states import State


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown by name: a GPU class, and bookings of a tenant and a tier ("" for all)."""

    gpu_class: str = ""
    tenant: str = ""
    tier: str = ""

    def has(self, booking: Booking) -> bool:
        """Whether a booking is among those that are shown by name."""
        return self.tenant in ("", booking.tenant.slug) and self.tier in ("", booking.tier_id)


def site_timeline_read(
    *, window: Window, shown: Shown, now: datetime, free: Mapping[UUID, tuple[Stretch, ...]]
) -> Timeline:
    """The fleet over `window` with the bookings of all tenants; in a transaction of an operator.

    Bookings that are filtered out are anonymous, because they still take their GPUs.
    """
    blocks: dict[UUID, list[Block]] = defaultdict(list)
    found = chain(_blocks(window, shown, now), _reservations(window, shown))
    for block in blocks_joined(found):
        blocks[block.gpu].append(block)
    gpus = gpus_read()
    classes = {gpu.gpu_class_id: gpu.gpu_class.label for gpu in gpus}
    rows = [gpu for gpu in gpus if shown.gpu_class in ("", gpu.gpu_class_id)]
    waiting = Booking.objects.all()
    if shown.tenant:
        waiting = waiting.filter(tenant__slug=shown.tenant)
    if shown.tier:
        waiting = waiting.filter(tier=shown.tier)
    return Timeline(
        groups=tuple(groups_of(rows, blocks, away_of(rows, window), free)),
        waiting=tuple(waiting_rows(waiting, lambda row: (_of_tenant(row), "project"))),
        classes=tuple(classes.items()),
    )


def _blocks(window: Window, shown: Shown, now: datetime) -> Iterator[Block]:
    rows = Allocation.objects.filter(
        period__overlap=(window.starts, window.ends),
        state__in=(*Allocation.LIVE, Allocation.State.ENDED),
    ).select_related("booking__tenant", "booking__tier", "booking__project", "booking__array")
    for row in rows.order_by("id"):
        kind, booking = _seen(row.booking, shown)
        ends = allocation_end(row, now)
        is_hidden = booking is None and row.state == Allocation.State.ENDED
        if ends > row.period.lower and not is_hidden:
            yield allocation_block(row, ends, kind=kind, booking=booking)


def _reservations(window: Window, shown: Shown) -> Iterator[Block]:
    rows = Booking.objects.filter(
        state__in=(State.QUEUED, State.PAUSING, State.PAUSED),
        planned_starts__lt=window.ends,
        planned_ends__gt=window.starts,
    ).select_related("tenant", "tier", "project", "array")
    for row in rows.order_by("id"):
        kind, booking = _seen(row, shown)
        yield from reservation_blocks(row, kind=kind, booking=booking)


def _seen(booking: Booking, shown: Shown) -> tuple[Kind, VisibleBooking | None]:
    return ("project", _of_tenant(booking)) if shown.has(booking) else ("other", None)


def _of_tenant(booking: Booking) -> VisibleBooking:
    tenant = booking.tenant
    project = f"{tenant.name} · {booking.project.name}"
    return replace(visible_booking(booking), tenant=tenant.slug, project=project)
