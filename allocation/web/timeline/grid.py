"""Arranges a timeline in groups and rows with free counts. No database, no template."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from allocation.points.outside import OutsideUse
from allocation.queries.bookings.timelines.rows import (
    SLOTS,
    Block,
    ClassGroup,
    GpuRow,
    MaintenancePeriod,
    NodeRow,
    Timeline,
    Waited,
    WaitingRow,
    Window,
)
from allocation.web.parts.times import window_words
from allocation.web.timeline.bars import (
    BAR_GAP,
    BarOrigin,
    bar_of,
    dead_bar,
    maintenance_bar,
    slices_bar,
    waiting_bar,
)
from allocation.web.timeline.elements import ROW, SLOT_ROW, Bar, Cell, Group, Row, ViewOptions
from allocation.web.timeline.elements import Gang as GangKey
from allocation.web.timeline.spacing import bars_spaced

MOST_WAITED = 3
"""Of so many stretches a heading says how many wait for them."""
MOST_ROWS_OPEN = 48
"""Maximum number of rows that are open by default."""
CLOSED_FROM = timedelta(days=3)
"""From this length on every node is closed by default."""


def grid_groups(timeline: Timeline, look: ViewOptions) -> list[Group]:
    """Returns one group per class and rack, then the waiting bookings, and what runs outside."""
    opened = _open_nodes(timeline, look)
    look = replace(look, gangs=gangs_of(timeline))
    waiting = timeline.waitlisted
    groups = [_group(group, look, opened, waiting) for group in timeline.groups]
    if timeline.waiting:
        rows = [_waiting_row(row, look) for row in timeline.waiting]
        groups.append(Group("waiting", "Waiting", "dashed bars show the planned place and start", rows))
    if look.outside:
        rows = [_outside_row(use) for use in look.outside]
        note = "mean number of GPUs in use by jobs of other clusters"
        groups.append(Group("outside", "Outside of the portal", note, rows))
    return groups


def gangs_of(timeline: Timeline) -> Counter[GangKey]:
    """Counts the whole GPUs of each known booking in each of its windows."""
    gpus = (gpu for group in timeline.groups for node in group.nodes for gpu in node.gpus)
    return Counter(
        (block.booking.key, block.starts, block.ends)
        for gpu in gpus
        for block in gpu.blocks
        if block.booking is not None and block.whole and not block.shared
    )


def _open_nodes(timeline: Timeline, look: ViewOptions) -> frozenset[str]:
    if look.open_nodes is not None:
        return look.open_nodes
    if look.span.zoom.length >= CLOSED_FROM:
        # Over several days the numbers of whole nodes say where there is room.
        return frozenset()
    nodes = [node for group in timeline.groups for node in group.nodes]
    own = sorted((node for node in nodes if node.has_own), key=lambda node: _own_start(node, look))
    chosen: set[str] = set()
    rows = 0
    for node in own or nodes[:1]:
        rows += sum(1 + SLOTS * _opens_slots(gpu, "", look) for gpu in node.gpus)
        if chosen and rows > MOST_ROWS_OPEN:
            break
        chosen.add(node.name)
    return frozenset(chosen)


def _own_start(node: NodeRow, look: ViewOptions) -> tuple[datetime, str]:
    """Returns when the reader's first own booking on the node starts; running ones come first."""
    own = (b for gpu in node.gpus for b in gpu.blocks if b.kind == "mine" and not b.over)
    return max(look.now, min(block.starts for block in own)), node.name


def _opens_slots(gpu: GpuRow, key: str, look: ViewOptions) -> bool:
    """Slot rows are open while the GPU is sliced, not for a slice on another day."""
    chosen = look.open_nodes or frozenset()
    if not gpu.shows_slots or f"{key}-" in chosen:
        return False
    at = min(max(look.now, look.span.window.starts), look.span.window.ends)
    sliced = any(not b.whole and not b.over and b.starts <= at < b.ends for b in gpu.blocks)
    return sliced or key in chosen


def _group(
    group: ClassGroup,
    look: ViewOptions,
    opened: frozenset[str],
    waiting: Mapping[str, Sequence[Waited]],
) -> Group:
    price = look.prices.get(group.gpu_class, "")
    noun = group.nodes[0].gpus[0].noun if group.nodes else "GPU"
    words = [f"{price} per {noun}-hour in Standard"] if price else []
    if found := waiting.get(group.gpu_class):
        # Of the reader's own organisation only.
        words.append(_waited_words(found, look))
    words.append(f"numbers: {'cores' if noun == 'core' else 'whole GPUs'} free for the whole column")
    rows = [row for node in group.nodes for row in bars_spaced(list(_node_rows(node, look, opened)), look)]
    return Group(
        key=f"{group.gpu_class}-{group.rack}",
        title=f"{group.label} · rack {group.rack}",
        note=" · ".join(words),
        rows=rows,
    )


def _waited_words(waited: Sequence[Waited], look: ViewOptions) -> str:
    """For which hours how many wait: `2 wait for today 10:00–12:00, 1 for 14:00–18:00`."""
    said = [
        f"{each.count} {'' if n else 'waits ' if each.count == 1 else 'wait '}for "
        f"{window_words(each.starts, each.ends, look.span.zone, look.now)}"
        for n, each in enumerate(waited[:MOST_WAITED])
    ]
    if len(waited) > MOST_WAITED:
        said.append("and for later hours")
    return ", ".join(said)


def _node_rows(node: NodeRow, look: ViewOptions, opened: frozenset[str]) -> Iterator[Row]:
    first = node.gpus[0]
    is_open = node.name in opened
    fits = [_fits(gpu, look) for gpu in node.gpus]
    yield Row(
        kind="node",
        key=f"{node.name}/{first.gpu_class}",
        level=2,
        name=node.name,
        end=f"{len(node.gpus)} × {first.class_label}",
        node=node.name,
        gpu_class=first.gpu_class,
        is_open=is_open,
        dim=not any(fits),
        cells=_cells(node.gpus, look),
    )
    drawn: set[int] = set()
    for place in range(len(node.gpus)):
        yield from _gpu_rows(node, place, look, drawn, is_open=is_open, fits=fits[place])


def gpu_row(node: NodeRow, gpu: GpuRow, look: ViewOptions) -> Row:
    """Returns one GPU's row, with its slices as one bar and without what is on its neighbours."""
    alone = replace(node, gpus=(gpu,))
    closed = replace(look, open_nodes=frozenset((f"{node.name}/{gpu.index}-",)))
    row = next(_gpu_rows(alone, 0, closed, set(), is_open=True, fits=True))
    row.is_open = None
    return row


def _fits(gpu: GpuRow, look: ViewOptions) -> bool:
    if look.free is None:
        return True
    window = look.span.window
    return any(ends - max(starts, look.now) >= look.free for starts, ends in gpu.gaps(window))


def _gpu_rows(
    node: NodeRow, place: int, look: ViewOptions, drawn: set[int], *, is_open: bool, fits: bool
) -> Iterator[Row]:
    gpu = node.gpus[place]
    key = f"{node.name}/{gpu.index}"
    opens = _opens_slots(gpu, key, look)
    row = Row(
        kind="gpu",
        key=key,
        level=3,
        name=f"{gpu.noun[0].upper()}{gpu.noun[1:]} {gpu.index}",
        end=_gpu_note(gpu),
        node=node.name,
        gpu=gpu.index,
        gpu_class=gpu.gpu_class,
        model=gpu.model,
        is_open=opens if gpu.shows_slots else None,
        is_chosen=bool({key, f"{key}-"} & (look.open_nodes or frozenset())),
        hidden=not is_open,
        dim=not fits,
    )
    origin = BarOrigin(key, node.name, gpu.index, _height(node, place, 1, look), noun=gpu.noun)
    # Maintenance comes first, so that running bookings are drawn on top.
    row.bars += [
        maintenance_bar(look, maintenance, origin)
        for maintenance in gpu.maintenance
        if _shows(maintenance, look)
    ]
    for block in gpu.blocks:
        if block.whole and not block.shared and id(block) not in drawn:
            gang = _gang(node, place, block)
            drawn.update(id(each) for each in gang)
            booking = block.booking
            whole = booking and look.gangs.get((booking.key, block.starts, block.ends))
            height = _height(node, place, len(gang), look)
            wide = BarOrigin(key, node.name, gpu.index, height, len(gang), whole or 1, noun=gpu.noun)
            row.bars.append(bar_of(block, wide, look))
    row.bars += _shared_bars(gpu, origin, look)
    row.bars += _slices_bars(gpu, origin, look)
    row.bars += [dead_bar(look, gpu.unusable_reason, origin, each) for each in _dead(gpu, look)]
    yield row
    if gpu.shows_slots:
        yield from _slot_rows(node, gpu, look, hidden=not (is_open and opens))


def _height(node: NodeRow, place: int, count: int, look: ViewOptions) -> int:
    """Returns the height in px of `count` GPUs from `place`, with open slot rows between them."""
    gpus = node.gpus[place : place + count]
    slots = [gpu for gpu in gpus if _opens_slots(gpu, f"{node.name}/{gpu.index}", look)]
    return ROW * count + SLOTS * SLOT_ROW * len(slots)


def _slices_bars(gpu: GpuRow, origin: BarOrigin, look: ViewOptions) -> list[Bar]:
    """Returns the bars that replace the slices while their rows are closed."""
    found: list[list[Block]] = []
    for block in sorted((b for b in gpu.blocks if not b.whole), key=lambda each: each.starts):
        if found and block.starts < max(each.ends for each in found[-1]):
            found[-1].append(block)
        else:
            found.append([block])
    return [slices_bar(blocks, replace(origin, height=ROW), look) for blocks in found]


def _shows(maintenance: MaintenancePeriod, look: ViewOptions) -> bool:
    return maintenance.ends > look.span.window.starts and maintenance.starts < look.span.window.ends


def _shared_bars(gpu: GpuRow, origin: BarOrigin, look: ViewOptions) -> list[Bar]:
    """Stacks concurrent shares, each in the first free lane."""
    lanes: list[datetime] = []
    placed: list[tuple[int, Block]] = []
    shares = (block for block in gpu.blocks if block.shared)
    for block in sorted(shares, key=lambda each: (each.starts, each.ends)):
        lane = next((n for n, ends in enumerate(lanes) if ends <= block.starts), len(lanes))
        lanes[lane : lane + 1] = [block.ends]
        placed.append((lane, block))
    height = origin.height // max(len(lanes), 1)
    return [
        bar_of(block, replace(origin, height=max(height, 3 * BAR_GAP), top=lane * height), look)
        for lane, block in placed
    ]


def _dead(gpu: GpuRow, look: ViewOptions) -> list[Window]:
    """Returns the future windows in which an unusable device has no bookings."""
    window = look.span.window
    starts = max(look.now, window.starts)
    if gpu.usable or starts >= window.ends:
        return []
    rest = Window(starts, window.ends)
    return [rest] if gpu.shows_slots else [Window(*gap) for gap in gpu.empty(rest)]


def _gpu_note(gpu: GpuRow) -> str:
    if gpu.shows_slots:
        return "MIG"
    return f"NVLink {chr(ord('A') + gpu.domain)}" if gpu.domain is not None else ""


def _gang(node: NodeRow, place: int, block: Block) -> list[Block]:
    """Returns the blocks of the same booking on the rows below, drawn as one bar.

    Anonymous bookings are not joined.
    """
    gang = [block]
    if block.booking is None:
        return gang
    for gpu in node.gpus[place + 1 :]:
        same = [
            other
            for other in gpu.blocks
            if other.whole
            and not other.shared
            and other.booking == block.booking
            and (other.starts, other.ends) == (block.starts, block.ends)
        ]
        if not same:
            break
        gang.append(same[0])
    return gang


def _slot_rows(node: NodeRow, gpu: GpuRow, look: ViewOptions, *, hidden: bool) -> Iterator[Row]:
    stranded = _stranded(gpu, look)
    for slot in range(SLOTS):
        key = f"{node.name}/{gpu.index}/{slot}"
        row = Row(
            kind="slot",
            key=key,
            level=4,
            name=f"slot {slot}",
            node=node.name,
            gpu=gpu.index,
            slot=slot,
            gpu_class=gpu.gpu_class,
            model=gpu.model,
            hidden=hidden,
        )
        for block in gpu.blocks:
            if not block.whole and block.start == slot:
                origin = BarOrigin(key, node.name, gpu.index, SLOT_ROW * block.size)
                row.bars.append(bar_of(block, origin, look))
        if slot in stranded:
            why = "no slice fits here next to the others"
            origin = BarOrigin(key, node.name, gpu.index, SLOT_ROW)
            row.bars.append(dead_bar(look, why, origin, Window(look.now, stranded[slot])))
        yield row


def _stranded(gpu: GpuRow, look: ViewOptions) -> dict[int, datetime]:
    """Returns the free slots that no legal placement can use next to running work, with the end."""
    window = look.span.window
    if not gpu.usable or not gpu.placements or not window.starts <= look.now < window.ends:
        return {}
    here = [b for b in gpu.blocks if not b.over and b.starts <= look.now < b.ends]
    if not here:
        return {}
    free = set(range(SLOTS)) - {s for b in here for s in range(b.start, b.start + b.size)}
    usable: set[int] = set()
    for places in gpu.placements.values():
        for start, size in places:
            stretch = set(range(start, start + size))
            if stretch <= free:
                usable |= stretch
    changes = [b.ends for b in here] + [b.starts for b in gpu.blocks if b.starts > look.now]
    return dict.fromkeys(free - usable, min(*changes, window.ends))


def _waiting_row(waiting: WaitingRow, look: ViewOptions) -> Row:
    booking = waiting.booking
    return Row(
        kind="wait",
        key=f"wait/{booking.key}",
        level=2,
        name=booking.title,
        end=booking.tier,
        bars=[waiting_bar(waiting, look)],
    )


def _outside_row(use: OutsideUse) -> Row:
    cells = [Cell("fx" if not gpus else "out", _gpus_text(gpus)) for gpus in use.gpus]
    return Row("out", f"out/{use.cluster}/{use.kind}", 2, use.cluster, use.kind, cells=cells)


def _gpus_text(gpus: float | None) -> str:
    """The mean of a column in few characters: `12`, `0.5`; empty where nothing is known or used."""
    return "" if not gpus else f"{gpus:.0f}" if gpus >= 9.5 else f"{gpus:.1f}".removesuffix(".0")


def _cells(gpus: Sequence[GpuRow], look: ViewOptions) -> list[Cell]:
    cells = []
    for starts, ends in look.span.columns():
        if ends <= look.now:
            cells.append(Cell("fx", ""))
            continue
        free = sum(gpu.is_free(max(starts, look.now), ends) for gpu in gpus)
        cells.append(Cell(tint(free / len(gpus)), str(free)))
    return cells


def tint(share: float) -> str:
    """Returns the colour of a share of free GPUs from 0 to 1."""
    if not share:
        return "f0"
    return "f1" if share <= 0.25 else "f2" if share <= 0.5 else "f3"
