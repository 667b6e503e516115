"""Words of limits at some times, and bars of the quota tree."""

from dataclasses import dataclass

from allocation.queries.limits.tree import ClassTree, OwnerUse
from tenants.models import QuotaWindow
from tenants.services import gpus_text

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class TreeBar:
    """A bar for `parts/quota.html`, in percent of the scale of its class."""

    name: str
    note: str
    words: str
    depth: int
    u: float
    b: float
    g: float
    m: float
    lent: float
    lent_at: float
    l: float | None  # noqa: E741 the part's own word
    of: str
    used: str
    """The class with the owner, and what it has in use, for programs."""


@dataclass(frozen=True, slots=True)
class TreeCard:
    """The bars of a class."""

    slug: str
    label: str
    bars: tuple[TreeBar, ...]


def tree_cards(trees: list[ClassTree]) -> list[TreeCard]:
    """Returns a card for each class that anybody has a quota of or uses."""
    cards = []
    for tree in trees:
        top = max(max(row.used, row.guaranteed, row.limit or 0) for row in tree.rows)
        if top:
            bars = tuple(_bar(row, top, tree.gpu_class.slug) for row in tree.rows)
            cards.append(TreeCard(tree.gpu_class.slug, tree.gpu_class.label, bars))
    return cards


def use_words(row: OwnerUse) -> str:
    """Returns the use: `8 own + 2 borrowed from Robotics`, with what nobody is assigned in between."""
    parts = [f"{gpus_text(row.own - row.spare)} own"]
    if row.spare:
        parts.append(f"{gpus_text(row.spare)} unassigned")
    if row.inside:
        names = " and ".join(row.lenders)
        parts.append(f"{gpus_text(row.inside)} borrowed{f' from {names}' if names else ''}")
    if row.outside:
        parts.append(f"{gpus_text(row.outside)} borrowed from other organisations")
    return " + ".join(parts) if len(parts) > 1 else f"{gpus_text(row.used)} in use"


def _bar(row: OwnerUse, top: int, gpu_class: str) -> TreeBar:
    notes = [f"{gpus_text(row.guaranteed)} guaranteed"] if row.guaranteed else []
    if row.limit is not None:
        now = " now" if row.is_dated else ""
        notes.append(f"limit {gpus_text(row.limit)}{now}")
    if row.lent:
        notes.append(f"{gpus_text(row.lent)} lent")
    lent = min(row.lent, max(0, row.guaranteed - row.used))
    return TreeBar(
        name=row.name,
        note=", ".join(notes) or "no quota of its own",
        words=use_words(row),
        depth=row.depth,
        u=100 * row.own / top,
        b=100 * row.borrowed / top,
        g=100 * row.guaranteed / top,
        m=100 * row.guaranteed / top,
        lent=100 * lent / top,
        lent_at=100 * (row.guaranteed - lent) / top,
        l=None if row.limit is None else 100 * row.limit / top,
        of=f"{gpu_class} {row.id}",
        used=gpus_text(row.used),
    )


def window_words(row: QuotaWindow) -> str:
    """Returns when a limit applies: `Mon Tue, 22:00–06:00 (Europe/Berlin), until 31 Jan 2027`."""
    parts = [" ".join(DAYS[day] for day in row.weekdays) or "every day"]
    if (row.first_hour, row.end_hour) != (0, 24):
        parts.append(f"{row.first_hour:02}:00–{row.end_hour % 24:02}:00")
    if row.first_day:
        parts.append(f"from {row.first_day.day} {row.first_day:%b %Y}")
    if row.last_day:
        parts.append(f"until {row.last_day.day} {row.last_day:%b %Y}")
    return f"{', '.join(parts)} ({row.zone})"
