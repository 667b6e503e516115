"""The timeline as tables: free GPUs and visible bookings."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

from allocation.queries.bookings.timelines.rows import Block, GpuRow, NodeRow, Timeline
from allocation.rules.ask.line.text import shape_text, window_text
from allocation.web.parts.times import length_words, window_words
from allocation.web.timeline.elements import ViewOptions

SHORTEST = timedelta(hours=1)
MOST_ROWS = 40


@dataclass(frozen=True, slots=True)
class FreeRow:
    """Whole GPUs of one node that are free for the same time; `book` opens the panel with it."""

    when: str
    length: str
    count: int
    label: str
    where: str
    price: str
    book: str


@dataclass(frozen=True, slots=True)
class BookedRow:
    """A booking with all its GPUs."""

    title: str
    label: str
    href: str
    state: str
    when: str
    where: str
    tier: str
    project: str
    mine: bool


def free_rows(timeline: Timeline, look: ViewOptions) -> list[FreeRow]:
    """Returns the times in which whole GPUs are free, earliest first."""
    found: dict[tuple[datetime, datetime, str], list[GpuRow]] = defaultdict(list)
    for node, gpu in _gpus(timeline):
        for starts, ends in gpu.gaps(look.span.window):
            first = max(starts, _next_minute(look.now))
            if ends - first >= (look.free or SHORTEST):
                found[first, ends, node.name].append(gpu)
    rows = sorted(found.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][2]))
    return [_free_row(key, gpus, look) for key, gpus in rows[:MOST_ROWS]]


def _free_row(key: tuple[datetime, datetime, str], gpus: list[GpuRow], look: ViewOptions) -> FreeRow:
    starts, ends, node = key
    zone = look.span.zone
    text = window_text(shape_text(len(gpus), gpus[0].gpu_class, None), (starts, ends), zone)
    devices = _indices(gpu.index for gpu in gpus)
    return FreeRow(
        when=window_words(starts, ends, zone, look.now),
        length=length_words((ends - starts).total_seconds()),
        count=len(gpus),
        label=gpus[0].class_label,
        where=f"{gpus[0].noun} {devices} on {node}",
        price=look.prices.get(gpus[0].gpu_class, ""),
        book=f"{look.base}book?q={quote(text)}",
    )


def booked_rows(timeline: Timeline, look: ViewOptions) -> list[BookedRow]:
    """Returns the visible bookings of the window by start, then waiting ones."""
    places: dict[str, list[tuple[NodeRow, GpuRow, Block]]] = defaultdict(list)
    for node, gpu in _gpus(timeline):
        for block in gpu.blocks:
            if block.booking is not None:
                places[block.booking.key].append((node, gpu, block))
    found = sorted(places.values(), key=lambda each: each[0][2].starts)
    rows = [_seen_row(each, look) for each in found]
    return [*rows, *_waiting_rows(timeline, look)]


def _seen_row(places: list[tuple[NodeRow, GpuRow, Block]], look: ViewOptions) -> BookedRow:
    block = places[0][2]
    booking = block.booking
    if booking is None:
        raise ValueError("a block without a booking has no row")
    return BookedRow(
        title=booking.title,
        label=booking.label,
        href=f"{look.base}{booking.path}",
        state=booking.state,
        when=window_words(block.starts, block.ends, look.span.zone, look.now),
        where=_where(places),
        tier=booking.tier,
        project=booking.project,
        mine=block.kind == "mine",
    )


def _waiting_rows(timeline: Timeline, look: ViewOptions) -> Iterator[BookedRow]:
    for row in timeline.waiting:
        when = "being placed"
        if row.starts is not None and row.ends is not None:
            when = f"expected {window_words(row.starts, row.ends, look.span.zone, look.now)}"
        yield BookedRow(
            title=row.booking.title,
            label=row.booking.label,
            href=f"{look.base}{row.booking.path}",
            state=row.booking.state,
            when=when,
            where="",
            tier=row.booking.tier,
            project=row.booking.project,
            mine=row.kind == "mine",
        )


def _where(places: list[tuple[NodeRow, GpuRow, Block]]) -> str:
    """`gpu-a1-01 GPU 0–1`, `2g.20gb on gpu-a1-01 GPU 6`."""
    by_node: dict[str, list[int]] = defaultdict(list)
    for node, gpu, block in places:
        shape = "" if block.whole else f"{block.profile} on "
        if block.share is not None:
            shape = f"{block.share / 1000:g} shared of "
        by_node[f"{shape}{node.name} GPU"].append(gpu.index)
    return "; ".join(f"{node} {_indices(indices)}" for node, indices in by_node.items())


def _indices(indices: Iterable[int]) -> str:
    """Returns device indices as `0–3, 6`."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _gpus(timeline: Timeline) -> Iterator[tuple[NodeRow, GpuRow]]:
    for group in timeline.groups:
        for node in group.nodes:
            for gpu in node.gpus:
                yield node, gpu


def _next_minute(moment: datetime) -> datetime:
    """Returns the next full 5 minutes: a start in the past can't be booked."""
    step = 300 - int(moment.timestamp()) % 300
    return moment.replace(microsecond=0) + timedelta(seconds=step)
