"""The drawings of GPUs (tiles, geometry and traces) with their text alternatives."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from allocation.models import Gpu, Node
from allocation.queries.fleet.fleet import SLOTS, Block, GpuNow, NodeNow
from allocation.queries.fleet.telemetry import UtilisationTrace
from allocation.web.parts.times import dated, moment_words

TRACE_WIDTH = 240
TRACE_HEIGHT = 36


@dataclass(frozen=True, slots=True)
class Cell:
    """A part of a tile or geometry line: `span` slots, a CSS class and a text."""

    span: int
    kind: str
    text: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """One GPU of a node's tile, slot 0 on top."""

    gpu: GpuNow
    cells: tuple[Cell, ...]
    rows: str
    text: str
    out: bool


@dataclass(frozen=True, slots=True)
class NodeTile:
    """A node's tile: drawing, state and texts."""

    node: NodeNow
    tiles: tuple[Tile, ...]
    tone: str
    icon: str
    state: str
    seen: str
    dim: bool
    bad: bool
    step: str
    trouble: str
    models: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Geometry:
    """The memory slots over the compute slices of one GPU, and their description."""

    memory: tuple[Cell, ...]
    compute: tuple[Cell, ...]
    text: str
    stranded: int


def node_tile(node: NodeNow, now: datetime) -> NodeTile:
    """Returns the node's tile."""
    tone, icon, state = _state(node)
    return NodeTile(
        node=node,
        tiles=tuple(_tile(gpu, node) for gpu in node.gpus),
        tone=tone,
        icon=icon,
        state=state,
        seen=seen(node.last_seen, now),
        dim=node.is_unreachable or node.last_seen is None,
        bad=tone == "risk",
        step=_sync_text(node),
        trouble=_problem(node, now),
        models=tuple(sorted(Counter(gpu.label for gpu in node.gpus).items())),
    )


def seen(at: datetime | None, now: datetime) -> str:
    """Returns the age of a report: "4 s ago", "3 min ago", "Sat 21 Nov 10:21", "never"."""
    if at is None:
        return "never"
    seconds = max(0, int((now - at).total_seconds()))
    if seconds < 60:
        return f"{seconds} s ago"
    if seconds < 3600:
        return f"{seconds // 60} min ago"
    return dated(at)


def busy_level(percent: int) -> str:
    """Returns the CSS class of a utilisation: u0 under 1 % to u5 from 80 %."""
    return f"u{0 if percent < 1 else min(5, 1 + percent // 20)}"


def block_words(block: Block) -> str:
    """Returns owner and utilisation as far as the reader may know."""
    if block.allocation is None:
        return "busy, another organisation"
    who = f"{block.label} of {block.tenant}" if block.tenant else f"{block.label}, yours"
    if block.busy is None:
        return f"{who}, use not measured"
    idle = ", idle for 15 min" if block.unused else ""
    return f"{who}, {block.busy} % busy{idle}"


def geometry(gpu: GpuNow) -> Geometry:
    """Returns the eight memory slots over the seven compute slices.

    A compute slice is stranded when its memory belongs to an instance with fewer slices: nothing
    can use it until that instance ends.
    """
    memory: list[Cell] = []
    compute: list[Cell] = []
    stranded = 0
    for start, size, block in _stretches(gpu):
        room = max(0, min(size, gpu.compute_slices - start))
        if block is None:
            memory += [Cell(1, "", "", "free") for _ in range(size)]
            compute += [Cell(1, "", "") for _ in range(room)]
        else:
            name = _block_name(block)
            memory.append(Cell(size, block_kind(block), name, name or "free"))
            lost = _compute_cells(compute, block, room)
            stranded += lost
    missing = SLOTS - sum(cell.span for cell in compute)
    why = f"compute has {gpu.compute_slices} slices, memory has {SLOTS}"
    compute += [Cell(1, "none", "-", why) for _ in range(missing)]
    return Geometry(tuple(memory), tuple(compute), _geometry_text(gpu, stranded), stranded)


def block_kind(block: Block) -> str:
    """Returns the CSS classes of an allocation: its utilisation if known, and `mine`."""
    if block.allocation is None:
        return "oth"
    use = "na" if block.busy is None else busy_level(block.busy)
    return ("idle" if block.unused else use) + (" mine" if block.mine else "")


def trace_paths(trace: UtilisationTrace) -> Sequence[str]:
    """Returns SVG path data with gaps where nothing was measured."""
    count = max(1, len(trace.points) - 1)
    paths: list[str] = []
    current: list[str] = []
    for number, (_, busy) in enumerate(trace.points):
        if busy is None:
            _close(paths, current)
            current = []
            continue
        x = number * TRACE_WIDTH / count
        y = 2 + (TRACE_HEIGHT - 4) * (1 - busy / 100)
        current.append(f"{x:.1f} {y:.1f}")
    _close(paths, current)
    return paths


def trace_text(trace: UtilisationTrace) -> str:
    """Returns the trace as text."""
    values = [busy for _, busy in trace.points if busy is not None]
    if not values:
        return "Utilisation was not measured in the last hour."
    share = round(100 * len(values) / len(trace.points))
    watched = "" if share >= 95 else f", measured {share} % of the time"
    return (
        f"Last hour: {min(values)} to {max(values)} % busy, "
        f"{round(sum(values) / len(values))} % on average{watched}."
    )


def _close(paths: list[str], points: list[str]) -> None:
    if points:
        # A single reading is drawn as a dot: a zero-length path with round caps.
        paths.append("M" + " L".join(points if len(points) > 1 else points * 2))


def _state(node: NodeNow) -> tuple[str, str, str]:
    out = sum(not gpu.usable for gpu in node.gpus)
    states = {
        Node.State.EXPECTED: ("wait", "clock", "Waiting for agent"),
        Node.State.DRAINING: ("risk", "shield", "Draining, locked out")
        if node.is_locked_out
        else ("info", "wrench", "Draining"),
        Node.State.QUARANTINED: ("risk", "shield", "Quarantined"),
    }
    found = states.get(Node.State(node.state))
    if node.unreachable_since is not None:
        return ("risk", "warn", f"{found[2]}, unreachable" if found else "Unreachable")
    if found:
        return found
    if node.no_new_work_reason:
        return ("risk", "warn", "Not trusted")
    if node.is_unreachable:
        return ("wait", "warn", "Unreachable")
    if out:
        return ("risk", "warn", f"{out} GPU{'s' if out > 1 else ''} out")
    return ("ok", "ok", "Healthy")


def _sync_text(node: NodeNow) -> str:
    """Returns how many changes the agent has not applied yet."""
    if node.last_seen is None:
        return "no report yet"
    if not node.behind:
        return "in sync"
    return f"{node.behind} change{'s' if node.behind > 1 else ''} behind"


def _problem(node: NodeNow, now: datetime) -> str:
    """Returns the problem of a node; empty for a healthy node."""
    since = ""
    if node.unreachable_since is not None:
        zone = timezone.get_current_timezone()
        since = f"No answer since {moment_words(node.unreachable_since, zone, now)}. "
    if node.is_locked_out and node.state not in (Node.State.QUARANTINED, Node.State.DRAINING):
        return node.no_new_work_reason
    if node.state_reason and node.state != Node.State.READY:
        return f"{since}{node.state_reason}"
    if node.no_new_work_reason:
        return f"{since}{node.no_new_work_reason}"
    if node.last_seen is None:
        return "The agent has not reported yet."
    if node.is_unreachable:
        return f"Last report {seen(node.last_seen, now)}. Running work continues."
    lost = [f"GPU {gpu.index}: {gpu.health_reason or gpu.health}" for gpu in node.gpus if not gpu.usable]
    return " ".join(lost)


def _tile(gpu: GpuNow, node: NodeNow) -> Tile:
    free = "free" if gpu.usable and node.in_service else "x"
    cells = tuple(
        Cell(size, free if block is None else block_kind(block)) for _, size, block in _stretches(gpu)
    )
    return Tile(
        gpu=gpu,
        cells=cells,
        rows=" ".join(f"{cell.span}fr" for cell in cells),
        text=_tile_text(gpu, node),
        out=gpu.health == Gpu.Health.LOST,
    )


def _tile_text(gpu: GpuNow, node: NodeNow) -> str:
    unusable = "" if node.in_service else ", not bookable"
    if not gpu.usable:
        reason = gpu.health_reason.rstrip(".") or "no reason given"
        unusable = f", out of service: {reason}"
    parts = []
    for start, size, block in _stretches(gpu):
        place = (
            gpu.noun
            if gpu.noun == "core"
            else "all slots"
            if size == SLOTS
            else f"slot {_range(start, size)}"
        )
        if block is None:
            parts.append(f"{place} idle")
        else:
            name = "" if block.allocation is None else f"{_block_name(block)} "
            parts.append(f"{place} {name}{block_words(block)}")
    return f"{gpu.noun} {gpu.index}, {gpu.label}{unusable}: " + "; ".join(parts)


def _stretches(gpu: GpuNow) -> list[tuple[int, int, Block | None]]:
    """Returns (start, size, block) over all eight slots; the block is None for free ones."""
    found: list[tuple[int, int, Block | None]] = []
    at = 0
    for block in gpu.blocks:
        if block.start < at:
            continue  # another share of the same GPU
        if block.start > at:
            found.append((at, block.start - at, None))
        found.append((block.start, block.size, block))
        at = block.start + block.size
    if at < SLOTS:
        found.append((at, SLOTS - at, None))
    return found


def _block_name(block: Block) -> str:
    if block.thousandths is not None:
        return "shared GPU"
    if block.whole:
        return "whole GPU"
    return block.profile or "busy"


def _compute_cells(compute: list[Cell], block: Block, room: int) -> int:
    """Adds the block's compute cells and returns the number of stranded slices."""
    if not room:
        return 0
    if block.compute is None:
        compute.append(Cell(room, "oth", "not known", "not known"))
        return 0
    used = min(block.compute, room)
    if used:
        text = f"{used}" if block.whole else ""
        compute.append(Cell(used, block_kind(block), text, text))
    compute.extend(Cell(1, "x", "", "no memory left for this slice") for _ in range(room - used))
    return room - used


def _geometry_text(gpu: GpuNow, stranded: int) -> str:
    parts = [
        f"{'idle' if block is None else _block_name(block)} at memory {_range(start, size)}"
        for start, size, block in _stretches(gpu)
    ]
    tail = ""
    if stranded:
        tail = f". {stranded} compute slice{'s' if stranded > 1 else ''} without memory"
    return f"GPU {gpu.index}: " + ", ".join(parts) + tail


def _range(start: int, size: int) -> str:
    return f"{start}" if size == 1 else f"{start} to {start + size - 1}"
