"""Five weeks by day and class, and the days of one GPU. No database, no template."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo

from allocation.queries.bookings.timelines.rows import GpuRow, NodeRow, Timeline, Window
from allocation.web.parts.times import day as day_words
from allocation.web.timeline.elements import Row, ViewOptions
from allocation.web.timeline.grid import gangs_of, gpu_row, tint
from allocation.web.timeline.span import ZOOMS, Span, Zoom, since_read, since_text

WEEK = 7
WEEKS = 5
GPU_DAYS = 14
"""Days that the calendar of one GPU shows."""
MONTH = Zoom("month", "Month", timedelta(weeks=WEEKS), WEEKS * WEEK, 24, timedelta(0))
Link = Callable[..., str]
"""Returns the page's address with changed values."""


@dataclass(frozen=True, slots=True)
class ClassDay:
    """A class on a day: whole GPUs that are free for all of it (of those of the class), with the
    colour of its free GPU-hours, in words, and the address of that day."""

    label: str
    css: str
    free: str
    words: str
    url: str
    is_free: bool = False


@dataclass(frozen=True, slots=True)
class Day:
    """A day; `own` counts the reader's own bookings on it. The first day of a month has its name."""

    number: str
    name: str
    url: str
    is_today: bool
    is_over: bool
    own: int
    classes: tuple[ClassDay, ...]

    @property
    def spoken(self) -> str:
        """Returns its name for a screen reader, which has the number that is on screen: `29, Today`."""
        return self.name if self.number in self.name else f"{self.number}, {self.name}"

    @property
    def taken(self) -> tuple[ClassDay, ...]:
        """Returns the classes of which a GPU is taken for a part of the day; a single class in any case."""
        if len(self.classes) == 1:
            return self.classes
        return tuple(each for each in self.classes if not each.is_free)

    @property
    def rest(self) -> str:
        """Returns what is said of the other classes, all of whose GPUs are free; empty: there are none."""
        others = len(self.classes) - len(self.taken)
        if not others:
            return ""
        return "others free" if self.taken else "all free"


def month_span(since: str, zone: tzinfo, now: datetime) -> Span:
    """Returns five weeks, from the Monday of the week of an address on."""
    day = (since_read(since, zone) or now).astimezone(zone).date()
    first = day - timedelta(days=day.weekday())
    return Span(MONTH, Window(_midnight(first, zone), _midnight(first + MONTH.length, zone)), zone)


def gpu_span(since: str, zone: tzinfo, now: datetime) -> Span:
    """Returns the days of a GPU's calendar, from a local midnight on."""
    first = (since_read(since, zone) or now).astimezone(zone).date()
    window = Window(_midnight(first, zone), _midnight(first + timedelta(days=GPU_DAYS), zone))
    return Span(ZOOMS["2w"], window, zone)


def moved(span: Span, steps: int) -> datetime:
    """Returns the first midnight of the days before or after these."""
    days = round(span.window.length / timedelta(days=1)) * steps
    first = span.window.starts.astimezone(span.zone).date()
    return _midnight(first + timedelta(days=days), span.zone)


def local_days(span: Span) -> Iterator[tuple[date, Window]]:
    """Yields the local days of a span that begins at midnight; with a clock change one has 23 or
    25 hours."""
    at = span.window.starts.astimezone(span.zone).date()
    while (starts := _midnight(at, span.zone)) < span.window.ends:
        yield at, Window(starts, _midnight(at + timedelta(days=1), span.zone))
        at += timedelta(days=1)


def month_weeks(timeline: Timeline, look: ViewOptions, link: Link) -> list[list[Day]]:
    """Returns the weeks from Monday on."""
    gpus = _by_class(timeline)
    days = [_day(at, window, gpus, look, link) for at, window in local_days(look.span)]
    return [days[at : at + WEEK] for at in range(0, len(days), WEEK)]


def gpu_days(timeline: Timeline, look: ViewOptions, key: str) -> tuple[NodeRow, GpuRow, list[Row]] | None:
    """Returns a GPU (`node/index`), its node and a row for each day; None if there is none."""
    look = replace(look, gangs=gangs_of(timeline))
    for group in timeline.groups:
        for node in group.nodes:
            for gpu in node.gpus:
                if f"{node.name}/{gpu.index}" == key:
                    days = local_days(look.span)
                    return node, gpu, [_gpu_day(node, gpu, look, *each) for each in days]
    return None


def _gpu_day(node: NodeRow, gpu: GpuRow, look: ViewOptions, at: date, window: Window) -> Row:
    here = tuple(each for each in gpu.blocks if each.starts < window.ends and window.starts < each.ends)
    away = tuple(each for each in gpu.maintenance if each.starts < window.ends and window.starts < each.ends)
    day = replace(look, span=Span(ZOOMS["24h"], window, look.span.zone))
    row = gpu_row(node, replace(gpu, blocks=here, maintenance=away), day)
    row.key = f"{row.key}@{at:%Y-%m-%d}"
    row.name, row.end = _title(day_words(window.starts, look.span.zone, look.now)), ""
    return row


def _by_class(timeline: Timeline) -> dict[tuple[str, str], list[GpuRow]]:
    found: dict[tuple[str, str], list[GpuRow]] = {}
    for group in timeline.groups:
        gpus = found.setdefault((group.gpu_class, group.label), [])
        gpus += [gpu for node in group.nodes for gpu in node.gpus if not gpu.is_of_plan]
    return {name: gpus for name, gpus in found.items() if gpus}


def _day(
    at: date, window: Window, gpus: dict[tuple[str, str], list[GpuRow]], look: ViewOptions, link: Link
) -> Day:
    name = day_words(window.starts, look.span.zone, look.now)
    since = since_text(window.starts, look.span.zone)
    own = {
        block.booking.key
        for each in gpus.values()
        for gpu in each
        for block in gpu.blocks
        if block.booking
        and block.kind == "mine"
        and block.starts < window.ends
        and window.starts < block.ends
    }
    rest = Window(max(window.starts, look.now), window.ends)
    is_over = rest.starts >= rest.ends
    return Day(
        number=f"{at.day} {at:%b}" if at.day == 1 else f"{at.day}",
        name=_title(name),
        url=link(view="", span="", from_=since),
        is_today=window.starts <= look.now < window.ends,
        is_over=is_over,
        own=len(own),
        classes=()
        if is_over
        else tuple(
            _class_day(label, each, rest, name, link(view="", span="", from_=since, class_=slug))
            for (slug, label), each in gpus.items()
        ),
    )


def _class_day(label: str, gpus: list[GpuRow], rest: Window, name: str, url: str) -> ClassDay:
    whole = sum(gpu.is_free(rest.starts, rest.ends) for gpu in gpus)
    free = sum(((ends - starts) for gpu in gpus for starts, ends in gpu.gaps(rest)), timedelta())
    share = free / (rest.length * len(gpus))
    # Its name begins with what is seen.
    words = (
        f"{label} {whole} of {len(gpus)} free for the whole of {name}, {share:.0%} of the GPU time is free"
    )
    return ClassDay(label, tint(share), str(whole), words, url, whole == len(gpus))


def _title(words: str) -> str:
    return words[:1].upper() + words[1:]


def _midnight(at: date, zone: tzinfo) -> datetime:
    return datetime(at.year, at.month, at.day, tzinfo=zone).astimezone(UTC)
