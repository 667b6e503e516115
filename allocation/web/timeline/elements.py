"""The elements of a timeline: rows, bars and cells, the view options, and rows as HTML.

A page has thousands of bars, cells and rows; a template takes ten times as long for them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from html import escape

from django.templatetags.static import static
from django.utils.safestring import SafeString

from allocation.points.outside import OutsideUse
from allocation.web.timeline.span import Span
from tenants.web.parts import icon

ROW = 28
SLOT_ROW = 20
Gang = tuple[str, datetime, datetime]
"""A booking's label and one of its windows."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar: position in percent of the lane, top and height in px from its row's top.

    `href` is empty without a link. `name` is the text alternative, `count` the number of bookings,
    `gpus` the number of covered GPU rows. `move` says what of it its reader can drag: `all`, `end`
    or nothing; `starts` and `ends` are its times, in seconds since 1970.
    """

    css: str
    left: str
    width: str
    top: int
    height: int
    key: str
    title: str
    sub: str
    name: str
    icon: str = ""
    href: str = ""
    count: int = 1
    gpus: int = 1
    move: str = ""
    starts: float = 0
    ends: float = 0


@dataclass(frozen=True, slots=True)
class Cell:
    """Free whole GPUs in one column; `text` is empty for the past."""

    css: str
    text: str


@dataclass(slots=True)
class Row:
    """A row of the treegrid.

    `kind` is node, gpu, slot, wait, or out for what runs outside of the portal. `calendar` is the
    address of a GPU's days. `is_chosen` when the address says whether its slot rows are open.
    """

    kind: str
    key: str
    level: int
    name: str
    end: str = ""
    node: str = ""
    gpu: int | None = None
    slot: int | None = None
    gpu_class: str = ""
    model: str = ""
    is_open: bool | None = None
    is_chosen: bool = False
    hidden: bool = False
    toggle: str = ""
    calendar: str = ""
    dim: bool = False
    bars: list[Bar] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Group:
    """Rows under one heading."""

    key: str
    title: str
    note: str
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """How the grid is drawn.

    `free` filters by hours. `open_nodes` names open nodes, GPUs with open slot rows (`node/6`) and
    with closed ones (`node/6-`); None uses the default. `gangs` counts the whole GPUs of each
    booking in each of its windows. `hues` are the colours of organisations by slug, for operators.
    `outside` is what clusters use that the portal only reads.
    """

    span: Span
    now: datetime
    base: str
    open_nodes: frozenset[str] | None
    free: timedelta | None
    prices: dict[str, str]
    gangs: Mapping[Gang, int] = field(default_factory=dict)
    hues: Mapping[str, str] = field(default_factory=dict)
    outside: Sequence[OutsideUse] = ()


def percent_text(share: float) -> str:
    """Returns a percentage for CSS without trailing zeros."""
    return f"{share:.3f}".rstrip("0").rstrip(".")


def rows_element(rows: Iterable[Row]) -> SafeString:
    """Returns the rows, one element a line."""
    sprite = escape(static("img/icons.svg"))
    return SafeString("\n".join(line for row in rows for line in _row(row, sprite)))


def _row(row: Row, sprite: str) -> Iterator[str]:
    yield f"<div {' '.join(_attributes(row))}>"
    kind, key = row.kind, escape(row.key)
    yield f'<div class="tl-lab {kind}" role="rowheader" tabindex="-1" data-key="{key}#">'
    yield f"{_label(row)}</div>"
    yield f'<div class="lane" role="gridcell" tabindex="-1" data-key="{key}">'
    if row.cells:
        cells = "".join(f'<span class="{each.css}">{escape(each.text)}</span>' for each in row.cells)
        yield f'<div class="dens" aria-hidden="true" style="--n:{len(row.cells)}">{cells}</div>'
    for bar in row.bars:
        yield _bar(bar, sprite)
    yield "</div></div>"


def _attributes(row: Row) -> Iterator[str]:
    yield f'class="tl-row {row.kind}{" dim" if row.dim else ""}" role="row" aria-level="{row.level}"'
    if row.is_open is not None:
        yield f'aria-expanded="{"true" if row.is_open else "false"}"'
    yield f'data-node="{escape(row.node)}"'
    if row.gpu is not None:
        yield f'data-gpu="{row.gpu}"'
    if row.slot is not None:
        yield f'data-slot="{row.slot}"'
    if row.is_chosen:
        yield "data-chosen"
    yield f'data-class="{escape(row.gpu_class)}"'
    if row.model:
        yield f'data-model="{escape(row.model)}"'
    if row.hidden:
        yield "hidden"


def _label(row: Row) -> str:
    name = escape(row.name)
    first = ""
    if row.kind == "node":
        act = "Collapse" if row.is_open else "Expand"
        first = (
            f'<a class="tog" href="{escape(row.toggle)}" tabindex="-1" aria-label="{act} {name}" data-toggle>'
            f"{icon('down', 'ic-s')}</a>"
        )
    elif row.kind == "slot":
        first = '<i class="mem"></i>'
    if row.kind in ("wait", "out"):
        name = f'<span class="nm">{name}</span>'
    elif row.calendar:
        name = f'<a href="{escape(row.calendar)}" tabindex="-1">{name}</a>'
    end = f' <span class="end">{escape(row.end)}</span>' if row.end else ""
    return f"{first} {name}{end}"


def _bar(bar: Bar, sprite: str) -> str:
    """A bar. Its name is also what a pointer reads on it, which `timeline.js` sets: twice in the page it
    would be a tenth of its size."""
    tag = "a" if bar.href else "span"
    opens = f'href="{escape(bar.href)}" tabindex="-1"' if bar.href else 'role="img"'
    gpus = f' data-gpus="{bar.gpus}"' if bar.gpus > 1 else ""
    drag = f' data-move="{bar.move} {int(bar.starts)} {int(bar.ends)}"' if bar.move else ""
    svg = f'<svg class="ic" aria-hidden="true"><use href="{sprite}#i-{bar.icon}"/></svg>' if bar.icon else ""
    sub = f' <span class="by">{escape(bar.sub)}</span>' if bar.sub else ""
    return (
        f'<{tag} {opens} class="{escape(bar.css)}"'
        f' style="left:calc({bar.left}% + 1px);width:calc({bar.width}% - 2px);'
        f'top:{bar.top}px;height:{bar.height}px"'
        f' data-key="{escape(bar.key)}"{gpus}{drag} aria-label="{escape(bar.name)}">'
        f"{svg}<span>{escape(bar.title)}{sub}</span></{tag}>"
    )
