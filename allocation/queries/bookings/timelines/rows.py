"""The rows of a timeline: classes, nodes, GPUs and the blocks on them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal
from urllib.parse import urlencode
from uuid import UUID

from django.utils.functional import cached_property

SLOTS = 8
Kind = Literal["mine", "project", "other"]
Stretch = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Window:
    """The displayed period: [starts, ends)."""

    starts: datetime
    ends: datetime

    @property
    def length(self) -> timedelta:
        """The length of the period."""
        return self.ends - self.starts


@dataclass(frozen=True, slots=True)
class VisibleBooking:
    """The visible details of a booking on the timeline, or of `runs` elements of an array.

    `tenant` is the slug of its tenant on an operator's timeline, else empty.
    """

    label: str
    name: str
    state: str
    tier: str
    pausable: bool
    project: str
    array: str = ""
    runs: int = 1
    tenant: str = ""

    @property
    def key(self) -> str:
        """Identifies it: by its number, on an operator's timeline with its tenant."""
        return f"{self.tenant}/{self.label}" if self.tenant else self.label

    @property
    def title(self) -> str:
        """The name of the booking, or its number; for elements of an array also how many."""
        name = self.name or self.label
        return f"{self.runs} × {name}" if self.runs > 1 else name

    @property
    def path(self) -> str:
        """The page of the booking, or of the array; for operators the list that has it."""
        if self.tenant:
            return f"bookings?{urlencode({'tenant': self.tenant, 'q': self.label})}"
        return f"arrays/{self.array}" if self.runs > 1 else f"bookings/{self.label}"

    def of_array(self, runs: int) -> "VisibleBooking":
        """Several elements of its array as one."""
        return self if runs == 1 else replace(self, label=self.array, runs=runs)


@dataclass(frozen=True, slots=True)
class Block:
    """Slots [start, start + size) of a GPU during [starts, ends).

    `booking` is None for bookings that the reader may not see. `expected`: the planned place of a
    waiting booking. `over`: the booking has ended. `shared`: the GPU can have other shares at the
    same time; `share` has the thousandths of a visible booking. `paused_at_end`: it ends here
    because a waiting booking is planned in its place, for which it is paused.
    """

    gpu: UUID
    start: int
    size: int
    whole: bool
    profile: str | None
    starts: datetime
    ends: datetime
    kind: Kind
    booking: VisibleBooking | None
    expected: bool = False
    over: bool = False
    shared: bool = False
    share: int | None = None
    paused_at_end: bool = False


@dataclass(frozen=True, slots=True)
class MaintenancePeriod:
    """A period of maintenance and its reason."""

    starts: datetime
    ends: datetime
    reason: str


@dataclass(frozen=True)
class GpuRow:
    """One device with its blocks by start. `free` are the periods in which the whole device can be
    booked. `is_of_plan`: it is rented, for the bookings of one plan.

    Without slots, so that the busy periods can be cached.
    """

    id: UUID
    index: int
    gpu_class: str
    class_label: str
    model: str
    domain: int | None
    usable: bool
    unusable_reason: str
    sliced: bool
    compute_slices: int
    placements: Mapping[str, tuple[tuple[int, int], ...]]
    blocks: tuple[Block, ...]
    maintenance: tuple[MaintenancePeriod, ...] = ()
    free: tuple[Stretch, ...] = ()
    is_of_plan: bool = False
    noun: str = "GPU"
    """What the device is called: `GPU`, or `core` of a host."""

    @property
    def shows_slots(self) -> bool:
        """Whether the device is, was or will be sliced, so that its memory slots get rows."""
        return self.sliced or any(not block.whole for block in self.blocks)

    @cached_property
    def busy(self) -> tuple[tuple[datetime, datetime], ...]:
        """The merged periods in which a slot is taken, reserved or under maintenance."""
        taken = [(b.starts, b.ends) for b in self.blocks if not b.over]
        return tuple(_merged(sorted([*taken, *((a.starts, a.ends) for a in self.maintenance)])))

    def is_free(self, starts: datetime, ends: datetime) -> bool:
        """Whether the whole device can be booked for [starts, ends)."""
        return any(begin <= starts and ends <= end for begin, end in self.free)

    def gaps(self, window: Window) -> list[tuple[datetime, datetime]]:
        """The periods of the window in which the whole device can be booked."""
        clipped = ((max(a, window.starts), min(b, window.ends)) for a, b in self.free)
        return [gap for gap in clipped if gap[0] < gap[1]]

    def empty(self, window: Window) -> list[tuple[datetime, datetime]]:
        """The periods of the window in which no part of the device is taken or reserved."""
        gaps, at = [], window.starts
        for starts, ends in self.busy:
            if starts > at:
                gaps.append((at, min(starts, window.ends)))
            at = max(at, ends)
        if at < window.ends:
            gaps.append((at, window.ends))
        return [gap for gap in gaps if gap[0] < gap[1]]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node with its GPUs by index."""

    name: str
    rack: str
    gpus: tuple[GpuRow, ...]

    @property
    def has_own(self) -> bool:
        """Whether the reader has own bookings on the node."""
        return any(b.kind == "mine" and not b.over for gpu in self.gpus for b in gpu.blocks)


@dataclass(frozen=True, slots=True)
class ClassGroup:
    """The nodes of one rack with GPUs of one class. A node with two classes is in two groups."""

    gpu_class: str
    label: str
    rack: str
    nodes: tuple[NodeRow, ...]


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A waiting booking of the reader's projects with its planned start."""

    booking: VisibleBooking
    kind: Kind
    starts: datetime | None
    ends: datetime | None
    gpu_class: str


@dataclass(frozen=True, slots=True)
class Waited:
    """How many bookings wait for some of [starts, ends)."""

    starts: datetime
    ends: datetime
    count: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The content of a timeline."""

    groups: tuple[ClassGroup, ...]
    waiting: tuple[WaitingRow, ...]
    classes: tuple[tuple[str, str], ...]
    waitlisted: Mapping[str, tuple[Waited, ...]] = field(default_factory=dict)
    """How many bookings of the tenant wait for which hours of this time, by class."""


def _merged(
    stretches: Iterable[tuple[datetime, datetime]],
) -> Iterator[tuple[datetime, datetime]]:
    current: tuple[datetime, datetime] | None = None
    for starts, ends in stretches:
        if current is not None and starts <= current[1]:
            current = (current[0], max(current[1], ends))
            continue
        if current is not None:
            yield current
        current = (starts, ends)
    if current is not None:
        yield current


def cut_at_pauses(blocks: Mapping[UUID, Sequence[Block]]) -> dict[UUID, list[Block]]:
    """The blocks by GPU; what runs ends where a waiting booking is planned in its place.

    A pause takes the whole booking, so all of its blocks end at the first of these times; elements
    of an array are paused one by one.
    """
    cuts: dict[str, datetime] = {}
    found: dict[UUID, list[tuple[Block, datetime]]] = {}
    for gpu, row in blocks.items():
        planned = [block for block in row if block.expected]
        found[gpu] = [(block, _cut(block, planned)) for block in row]
        for block, at in found[gpu]:
            if block.booking is not None and not block.booking.array and at < block.ends:
                key = block.booking.key
                cuts[key] = min(at, cuts.get(key, at))
    return {gpu: [_ended(*each, cuts) for each in row] for gpu, row in found.items()}


def _cut(block: Block, planned: Sequence[Block]) -> datetime:
    """When a planned block takes slots of this one; its own end if none does."""
    if block.expected or block.over:
        return block.ends
    return min(
        (
            each.starts
            for each in planned
            if block.starts < each.starts < block.ends
            and not (block.shared and each.shared)
            and each.start < block.start + block.size
            and block.start < each.start + each.size
        ),
        default=block.ends,
    )


def _ended(block: Block, at: datetime, cuts: Mapping[str, datetime]) -> Block:
    if block.booking is not None and not (block.booking.array or block.expected or block.over):
        at = min(at, cuts.get(block.booking.key, at))
    if at >= block.ends or at <= block.starts:
        return block
    return replace(block, ends=at, paused_at_end=True)
