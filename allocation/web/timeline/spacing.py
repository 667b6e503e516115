"""Keeps narrow bars apart: widens them to a clickable size or merges several into one.

In the two-week view a booking of an hour is half a pixel wide. Bars that would overlap at their
minimum width become one bar with a count; the others grow into free space next to them, never over
a neighbour. No database, no template.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from allocation.web.parts.times import window_words
from allocation.web.timeline.bars import BAR_GAP, MIN_WIDTH
from allocation.web.timeline.elements import ROW, SLOT_ROW, Bar, Row, ViewOptions, percent_text
from allocation.web.timeline.span import since_text

NUMBER_WIDTH = 3.0
"""Width in percent of the lane for a two-digit number."""
PADDED_WIDTH = 3.6
"""Minimum width in percent of the lane for padding: 17 px on the narrowest lane."""
DIGIT_WIDTH = 1.8
"""Minimum width in percent of the lane for a number."""
ROUNDING = 0.01
KINDS = ("mine", "proj")

Track = tuple[int, int]
"""A row's index among its node's rows, and the offset in px of a lane in it."""


@dataclass(slots=True)
class BarGroup:
    """Bars drawn as one, with their extent in percent and their tracks."""

    tracks: tuple[Track, ...]
    left: float
    right: float
    bars: list[Bar]
    row: int
    is_part: bool = False

    @property
    def is_short(self) -> bool:
        """Returns whether it is narrower than the minimum width."""
        return self.right - self.left < MIN_WIDTH

    @property
    def least(self) -> float:
        """Returns the minimum width; several bars need room for their count."""
        return NUMBER_WIDTH if len(self.bars) > 1 else MIN_WIDTH


def bars_spaced(rows: Sequence[Row], look: ViewOptions) -> Sequence[Row]:
    """Returns one node's rows with bars that don't overlap because of their minimum width."""
    fixed = {id(bar) for row in rows for bar in row.bars if _is_background(bar)}
    pieces = list(_pieces(rows, fixed))
    pieces = _merged(_split(pieces))
    _widened(pieces)
    for row in rows:
        row.bars = [bar for bar in row.bars if id(bar) in fixed]
    for piece in pieces:
        rows[piece.row].bars.append(_bar(piece, rows[piece.row], look))
    return rows


def _is_background(bar: Bar) -> bool:
    """Returns whether other bars are drawn on top: maintenance and out of service."""
    return "maint" in bar.css or "dead" in bar.css


def _pieces(rows: Sequence[Row], fixed: set[int]) -> Iterator[BarGroup]:
    lanes = [sorted({bar.top for bar in row.bars if id(bar) not in fixed}) or [BAR_GAP] for row in rows]
    for place, row in enumerate(rows):
        for bar in row.bars:
            if id(bar) not in fixed:
                left = float(bar.left)
                tracks = tuple(_tracks(rows, place, bar, lanes))
                yield BarGroup(tracks, left, left + float(bar.width), [bar], place)


def _tracks(rows: Sequence[Row], place: int, bar: Bar, lanes: Sequence[Sequence[int]]) -> Iterator[Track]:
    for at in _covered(rows, place, bar):
        is_full = at != place or bar.height >= ROW - 2 * BAR_GAP or rows[at].kind == "slot"
        yield from ((at, top) for top in lanes[at] if is_full or top == bar.top)


def _covered(rows: Sequence[Row], place: int, bar: Bar) -> Iterator[int]:
    """Yields the rows that a bar covers, including closed slot rows of whole GPUs."""
    if rows[place].kind == "slot":
        yield from range(place, place + round((bar.height + 2 * BAR_GAP) / SLOT_ROW))
        return
    gpus = 0
    for at in range(place, len(rows)):
        gpus += rows[at].kind == "gpu"
        if gpus > bar.gpus:
            return
        yield at
        if "sum" in bar.css:
            return


def _split(pieces: list[BarGroup]) -> list[BarGroup]:
    """Splits short bars over several rows where they meet others, one per row."""
    while True:
        meeting = {
            id(piece)
            for group in _clusters(pieces).values()
            for run in group
            if len(run) > 1
            for piece in run
            if len({row for row, _ in piece.tracks}) > 1
        }
        if not meeting:
            return pieces
        kept = [piece for piece in pieces if id(piece) not in meeting]
        broken = (piece for piece in pieces if id(piece) in meeting)
        pieces = kept + [part for piece in broken for part in _parts(piece)]


def _parts(piece: BarGroup) -> Iterator[BarGroup]:
    by_row: dict[int, list[Track]] = defaultdict(list)
    for track in piece.tracks:
        by_row[track[0]].append(track)
    for row, tracks in by_row.items():
        yield BarGroup(tuple(tracks), piece.left, piece.right, piece.bars, row, is_part=True)


def _merged(pieces: list[BarGroup]) -> list[BarGroup]:
    """Merges runs of short bars in one row."""
    gone: set[int] = set()
    made: list[BarGroup] = []
    for runs in _clusters(pieces).values():
        for run in runs:
            rest = [piece for piece in run if id(piece) not in gone]
            if len(rest) < 2:
                continue
            gone.update(id(piece) for piece in rest)
            bars = [bar for piece in rest for bar in piece.bars]
            tracks = tuple(sorted({track for piece in rest for track in piece.tracks}))
            right = max(piece.right for piece in rest)
            made.append(BarGroup(tracks, rest[0].left, right, bars, rest[0].row))
    return [piece for piece in pieces if id(piece) not in gone] + made


def _clusters(pieces: Iterable[BarGroup]) -> dict[Track, list[list[BarGroup]]]:
    """Returns, per track, the runs of short bars that would overlap."""
    by_track: dict[Track, list[list[BarGroup]]] = defaultdict(list)
    for piece in sorted(pieces, key=lambda each: each.left):
        for track in piece.tracks:
            runs = by_track[track]
            last = runs[-1][-1] if runs and runs[-1] else None
            is_near = last is not None and piece.left < max(last.right, last.left + MIN_WIDTH) - ROUNDING
            if not piece.is_short:
                runs.append([])
            elif is_near and last is not None and last.is_short:
                runs[-1].append(piece)
            else:
                runs.append([piece])
    return by_track


def _widened(pieces: list[BarGroup]) -> None:
    """Widens narrow bars into free space on the right, then on the left."""
    by_track: dict[Track, list[BarGroup]] = defaultdict(list)
    place: dict[tuple[Track, int], int] = {}
    for piece in sorted(pieces, key=lambda each: (each.left, each.row)):
        for track in piece.tracks:
            place[track, id(piece)] = len(by_track[track])
            by_track[track].append(piece)
    for piece in sorted(pieces, key=lambda each: (each.left, each.row)):
        if piece.right - piece.left >= piece.least:
            continue
        neighbours = [(by_track[track], place[track, id(piece)]) for track in piece.tracks]
        after = min((all_[at + 1].left for all_, at in neighbours if at + 1 < len(all_)), default=100.0)
        before = max((all_[at - 1].right for all_, at in neighbours if at), default=0.0)
        wanted = piece.left + piece.least
        piece.right = max(piece.right, min(wanted, after))
        piece.left = min(piece.left, max(piece.right - piece.least, before))


def _bar(piece: BarGroup, row: Row, look: ViewOptions) -> Bar:
    first = piece.bars[0]
    if len(piece.bars) > 1:
        first = _many(piece, row, look)
    width = piece.right - piece.left
    drawn = replace(
        first,
        left=percent_text(piece.left),
        width=percent_text(width),
        css=first.css + " thin" * (width < PADDED_WIDTH),
    )
    if not piece.is_part:
        return drawn
    return replace(drawn, key=f"{first.key}/{row.key}", top=BAR_GAP, height=_bar_height(row), gpus=1)


def _many(piece: BarGroup, row: Row, look: ViewOptions) -> Bar:
    """Returns one bar for several bookings, with a link to a closer zoom."""
    bars = piece.bars
    count = sum(bar.count for bar in bars)
    own = sum(bar.count for bar in bars if "mine" in bar.css.split())
    kinds = {kind for bar in bars for kind in KINDS if kind in bar.css.split()}
    kind = "mine" if own == count else "proj" if kinds else ""
    marks = [mark for mark in ("plan", "sum") if all(mark in bar.css.split() for bar in bars)]
    starts = look.span.moment(min(float(bar.left) for bar in bars))
    ends = look.span.moment(max(float(bar.left) + float(bar.width) for bar in bars))
    words = window_words(starts, ends, look.span.zone, look.now)
    where = f"GPU {row.gpu}" + (f", memory slot {row.slot}" if row.slot is not None else "")
    yours = f", {own} yours" if own else ""
    return replace(
        bars[0],
        css=" ".join(filter(None, ("bar", "many", kind, *marks))),
        top=min(bar.top for bar in bars) if row.kind == "gpu" else BAR_GAP,
        height=min(_bar_height(row), *(bar.height for bar in bars)),
        key=f"{row.key}*{starts:%d%H%M}",
        title=str(count) if piece.right - piece.left >= DIGIT_WIDTH else "",
        sub="",
        name=f"{count} bookings{yours}, {where} on {row.node}, {words}",
        icon="",
        href=f"{look.base}timeline?{_zoom_in_query(look, starts)}",
        count=count,
        gpus=1,
    )


def _bar_height(row: Row) -> int:
    return (SLOT_ROW if row.kind == "slot" else ROW) - 2 * BAR_GAP


def _zoom_in_query(look: ViewOptions, starts: datetime) -> str:
    """Returns the query of the next closer zoom from `starts`; at the closest zoom, of the list."""
    closer = {"2w": "3d", "3d": "24h", "24h": "6h"}.get(look.span.zoom.key)
    query = {"from": since_text(starts, look.span.zone), "span": closer or "6h"}
    return urlencode(query if closer else query | {"view": "list"}, safe=":")
