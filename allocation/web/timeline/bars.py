"""Turns blocks of time into bars with position, style and text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from allocation.queries.bookings.timelines.rows import (
    Block,
    MaintenancePeriod,
    VisibleBooking,
    WaitingRow,
    Window,
)
from allocation.rules.states import BEFORE_RUN, RUNNING
from allocation.web.parts.times import clock, window_words
from allocation.web.timeline.elements import ROW, Bar, ViewOptions, percent_text

BAR_GAP = 2
TWO_LINE_WIDTH = 7.0
"""Minimum width in percent for a second line of text."""
TEXT_WIDTH = 4.0
MIN_WIDTH = 1.2
"""Minimum width of a bar in percent of the lane: 6 px on the narrowest lane."""

STATE_WORDS = {"active": "running"}


@dataclass(frozen=True, slots=True)
class BarOrigin:
    """The origin of a bar: its row, its full height in px and the GPUs it covers of the `whole`
    gang."""

    key: str
    node: str
    gpu: int
    height: int
    gpus: int = 1
    whole: int = 1
    top: int = 0
    noun: str = "GPU"


def bar_of(block: Block, origin: BarOrigin, look: ViewOptions) -> Bar:
    """Returns the bar of an allocation or a planned start."""
    if block.booking is None:
        return _anonymous(block, origin, look)
    return _known(block, block.booking, origin, look)


def _known(block: Block, booking: VisibleBooking, origin: BarOrigin, look: ViewOptions) -> Bar:
    left, width = _stretch(look, block.starts, block.ends)
    whose = "yours" if block.kind == "mine" else booking.project
    shape = _shape(block)
    word = "pauses about" if block.paused_at_end else "until"
    until = f"{word} {clock(block.ends, look.span.zone)}"
    sub = _sub(booking.project if block.kind == "project" else until, origin, width)
    name = ", ".join(
        (
            # The visible words come first, for speech input (WCAG 2.5.3).
            f"{shape}{booking.title} {sub}".rstrip(),
            whose,
            booking.tier,
            _where(block, origin),
            window_words(block.starts, block.ends, look.span.zone, look.now),
            "expected" if block.expected else STATE_WORDS.get(booking.state, booking.state),
            *(["a pause is expected at its end"] if block.paused_at_end else []),
        )
    )
    return Bar(
        css=_css(block, origin, width, look),
        left=percent_text(left),
        width=percent_text(width),
        top=origin.top + BAR_GAP,
        height=origin.height - 2 * BAR_GAP,
        key=f"{origin.key}@{booking.key}" + f"@{block.starts:%d%H%M}" * (booking.runs > 1),
        title=f"{shape}{booking.title}" if width > TEXT_WIDTH else "",
        sub=sub,
        name=name,
        icon=_icon(block, booking, origin.whole) if width > TEXT_WIDTH else "",
        href=f"{look.base}{booking.path}",
        gpus=origin.gpus,
        move=_move(block, booking),
        starts=block.starts.timestamp(),
        ends=block.ends.timestamp(),
    )


def _move(block: Block, booking: VisibleBooking) -> str:
    """Returns what of a booking its owner can drag: all before its start, then its end."""
    if block.kind != "mine" or block.over or booking.runs > 1:
        return ""
    if booking.state in BEFORE_RUN:
        return "all"
    return "end" if booking.state in RUNNING else ""


def _anonymous(block: Block, origin: BarOrigin, look: ViewOptions) -> Bar:
    left, width = _stretch(look, block.starts, block.ends)
    words = window_words(block.starts, block.ends, look.span.zone, look.now)
    title = "expected" if block.expected else "shared" if block.shared else "busy"
    who = "a waiting booking" if block.expected else "someone else's booking"
    return Bar(
        css=_css(block, origin, width, look),
        left=percent_text(left),
        width=percent_text(width),
        top=origin.top + BAR_GAP,
        height=origin.height - 2 * BAR_GAP,
        key=f"{origin.key}@{block.starts:%d%H%M}" + f"+{origin.top}" * bool(origin.top),
        title=title if width > TEXT_WIDTH else "",
        sub="",
        name=f"{title}, {who}, {_where(block, origin)}, {words}",
    )


def slices_bar(blocks: Sequence[Block], origin: BarOrigin, look: ViewOptions) -> Bar:
    """Returns one bar in the GPU's row for overlapping slices."""
    if len(blocks) == 1:
        alone = bar_of(blocks[0], origin, look)
        return replace(alone, css=f"{alone.css} sum", key=f"{alone.key}=")
    starts, ends = min(b.starts for b in blocks), max(b.ends for b in blocks)
    own = sum(block.kind == "mine" for block in blocks)
    kind = "mine" if own else "proj" if any(b.booking for b in blocks) else ""
    is_plan = all(block.expected for block in blocks)
    if is_plan:
        kind = "plan" if kind else "plan oth"
    count = f"{len(blocks)} slices"
    paths = {block.booking.path if block.booking else "" for block in blocks} - {""}
    left, width = _stretch(look, starts, ends)
    words = window_words(starts, ends, look.span.zone, look.now)
    return Bar(
        css=" ".join(filter(None, ("bar", kind, "sum"))),
        left=percent_text(left),
        width=percent_text(width),
        top=origin.top + BAR_GAP,
        height=origin.height - 2 * BAR_GAP,
        key=f"{origin.key}={starts:%d%H%M}",
        title=count if width > TEXT_WIDTH else "",
        sub="",
        name=f"{count}{f', {own} yours' * bool(own)}, {origin.noun} {origin.gpu} on {origin.node}, {words}"
        + ", expected" * is_plan,
        href=f"{look.base}{paths.pop()}" if len(paths) == 1 else "",
        count=len(blocks),
    )


def dead_bar(look: ViewOptions, why: str, origin: BarOrigin, window: Window) -> Bar:
    """Returns the bar of a time in which nothing can be booked, with the reason."""
    left, width = _stretch(look, window.starts, window.ends)
    return Bar(
        css="bar dead",
        left=percent_text(left),
        width=percent_text(width),
        top=BAR_GAP,
        height=origin.height - 2 * BAR_GAP,
        key=f"{origin.key}!{window.starts:%d%H%M}",
        title=why if width > TEXT_WIDTH else "",
        sub="",
        name=f"cannot be booked: {why}",
        icon="wrench" if origin.height >= ROW else "",
    )


def maintenance_bar(look: ViewOptions, maintenance: MaintenancePeriod, origin: BarOrigin) -> Bar:
    """Returns the bar of a maintenance."""
    left, width = _stretch(look, maintenance.starts, maintenance.ends)
    words = window_words(maintenance.starts, maintenance.ends, look.span.zone, look.now)
    return Bar(
        css="bar maint",
        left=percent_text(left),
        width=percent_text(width),
        top=BAR_GAP,
        height=origin.height - 2 * BAR_GAP,
        key=f"{origin.key}~{maintenance.starts:%d%H%M}",
        title=f"Maintenance: {maintenance.reason}" if width > TEXT_WIDTH else "",
        sub="",
        name=f"Maintenance: {maintenance.reason}, {origin.noun} {origin.gpu} on {origin.node}, {words}",
        icon="wrench" if width > TEXT_WIDTH else "",
    )


def waiting_bar(waiting: WaitingRow, look: ViewOptions) -> Bar:
    """Returns the bar of a waiting booking; at the right edge when it starts later."""
    booking, zone, window = waiting.booking, look.span.zone, look.span.window
    href = f"{look.base}{booking.path}"
    left, width, css = 0.0, 14.0, "bar plan"
    if waiting.starts is None or waiting.ends is None:
        title, words = "Being placed", "being placed"
    else:
        expected = window_words(waiting.starts, waiting.ends, zone, look.now)
        title, words = clock(waiting.starts, zone), f"expected {expected}"
        left, width = _stretch(look, waiting.starts, waiting.ends)
        width = max(width, MIN_WIDTH)
        if waiting.starts >= window.ends:
            left, width, css, title = 72.0, 28.0, "bar plan later", f"{expected} →"
    return Bar(
        css=css,
        left=percent_text(left),
        width=percent_text(width),
        top=2 * BAR_GAP,
        height=ROW - 4 * BAR_GAP,
        key=f"wait@{booking.key}",
        title=title,
        sub="",
        name=f"{booking.title}, {booking.tier}, {words}",
        icon="clock",
        href=href,
    )


def _shape(block: Block) -> str:
    if block.share is not None:
        return f"{block.share / 1000:g} shared, not isolated · "
    return "" if block.whole else f"{block.profile} · "


def _sub(words: str, origin: BarOrigin, width: float) -> str:
    if width <= TEXT_WIDTH:
        return ""
    return f"{_count(origin)} · {words}" if origin.whole > 1 else words


def _count(origin: BarOrigin) -> str:
    """Returns `4 GPUs`, or `3 of 4 GPUs` when the others are drawn elsewhere."""
    number = str(origin.whole) if origin.gpus == origin.whole else f"{origin.gpus} of {origin.whole}"
    return f"{number} {origin.noun}s"


def _where(block: Block, origin: BarOrigin) -> str:
    where = f"{origin.noun} {origin.gpu}"
    if origin.gpus > 1:
        where += f"–{origin.gpu + origin.gpus - 1}"
    if origin.whole > origin.gpus:
        where = f"{_count(origin)}, {where}"
    if not block.whole and block.size == 1:
        where += f", memory slot {block.start}"
    elif not block.whole:
        where += f", memory slots {block.start}–{block.start + block.size - 1}"
    return f"{where} on {origin.node}"


def _css(block: Block, origin: BarOrigin, width: float, look: ViewOptions) -> str:
    names = ["bar", {"mine": "mine", "project": "proj", "other": ""}[block.kind]]
    if block.expected:
        names[1] = "plan" if block.booking else "plan oth"
    if block.booking is not None and block.booking.pausable:
        names.append("spot")
    if block.booking is not None and block.booking.state == "pausing":
        names.append("warn")
    if origin.height > ROW and width >= TWO_LINE_WIDTH:
        names.append("tall")
    if block.over:
        names.append("over")
    if block.booking is not None:
        names.append(look.hues.get(block.booking.tenant, ""))
    return " ".join(name for name in names if name)


def _icon(block: Block, booking: VisibleBooking, gpus: int) -> str:
    if block.expected:
        return "clock"
    if booking.state in ("pausing", "paused"):
        return "pause"
    if booking.state == "failed":
        return "warn"
    if booking.pausable:
        return "spot"
    return "link" if gpus > 1 else ""


def _stretch(look: ViewOptions, starts: datetime, ends: datetime) -> tuple[float, float]:
    left = look.span.percent(starts)
    return left, look.span.percent(ends) - left
