"""The parts of a timeline: rows, bars and cells, and the view options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from allocation.web.timeline.span import Span

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

    `kind` is node, gpu, slot or wait. `calendar` is the address of a GPU's days. `is_chosen` when
    the address says whether its slot rows are open.
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
    """

    span: Span
    now: datetime
    base: str
    open_nodes: frozenset[str] | None
    free: timedelta | None
    prices: dict[str, str]
    gangs: Mapping[Gang, int] = field(default_factory=dict)
    hues: Mapping[str, str] = field(default_factory=dict)


def percent_text(share: float) -> str:
    """Returns a percentage for CSS without trailing zeros."""
    return f"{share:.3f}".rstrip("0").rstrip(".")
