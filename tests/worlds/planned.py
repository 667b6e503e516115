"""What must hold of the planned starts of one plan next to each other: room and limits.

The next cycle would find what does not, and say a reason that has nothing to do with it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from solver import Cap, Place, Waiting
from tests.solver import truth
from tests.solver.builders import MODELS
from tests.solver.standing import units_of
from tests.worlds.guarantees import limits_now
from tests.worlds.jobs import DAY
from tests.worlds.life import Turn, World
from tests.worlds.queue import is_proven, requests_after


class Span(NamedTuple):
    """Places that a booking has, or will have, for a time. `stays`: nobody is paused there."""

    booking: str
    owners: tuple[str, str]
    gpu_class: str
    units: int
    counts: bool
    places: tuple[Place, ...]
    starts: int
    ends: int
    stays: bool


def planned_look(world: World, turn: Turn, *, is_cut: bool) -> Iterator[str]:
    """Planned starts in each other's room, or over a limit; after its plan was made true. After a
    cut of limits what runs may be over them."""
    planned = list(_planned(world, turn))
    rows = list(_written(world))
    now = turn.site.now
    yield from (f"{now}: {each}" for each in over_caps(world, turn, planned, rows))
    yield from (f"{now}: {each}" for each in left_alone(turn))
    for number, one in enumerate(planned):
        others = (*planned[number + 1 :], *(row for row in rows if row.stays))
        for other in others:
            if one.booking != other.booking and _meet(one, other):
                yield f"{now}: {one.booking} is planned where {other.booking} is"
    makes_room = any(_makes_room(wait) for wait in turn.plan.waits)
    if not is_cut and not makes_room and not turn.site.overrides:
        # Else some of what runs leaves before its end, or a limit is another one for some time.
        yield from (f"{now}: {each}" for each in _over(turn, planned, [*planned, *rows]))


def _over(turn: Turn, planned: list[Span], every: list[Span]) -> Iterator[str]:
    """Planned starts with which their tenant or project is over its limit."""
    dates = {at for each in turn.site.guarantees for at in (each.starts, each.ends)}
    limits = {
        at: {
            (row.owner, row.gpu_class): row.guaranteed + row.borrow
            for row in limits_now(turn.site.limits, turn.site.guarantees, at)
            if row.borrow is not None
        }
        for at in (turn.site.now, *dates)
    }
    most = limits[turn.site.now]
    for one in planned:
        for owner in one.owners:
            whose = (owner, one.gpu_class)
            if whose not in most:
                continue
            mine = [
                each
                for each in every
                if owner in each.owners
                and each.gpu_class == one.gpu_class
                and (each.counts or not one.counts)
            ]
            instants = {max(one.starts, each.starts) for each in mine if _overlap(one, each)}
            instants |= {at for at in dates if one.starts <= at < one.ends}
            left = (
                limits[max(each for each in limits if each <= at or each == turn.site.now)][whose]
                - sum(each.units for each in mine if each.starts <= at < each.ends)
                for at in instants
            )
            if min(left, default=0) < 0:
                yield f"{one.booking} is planned over the limit of {owner}"


def left_alone(turn: Turn) -> Iterator[str]:
    """Starts that are new on a node that does not answer, and pauses for a tenant that cools down
    after a cancelled claim."""
    site, plan = turn.site, turn.plan
    silent = {gpu.id for gpu in site.gpus if gpu.silent}
    had = {
        row.booking: {place.gpu for place in row.planned.places}
        for row in site.requests
        if row.planned is not None
    }
    for given in truth.given_by(plan) if silent else ():
        there = {place.gpu for place in given.places} & silent
        if there - had.get(given.booking, set()):
            yield f"{given.booking} is planned on a node that does not answer"
    yield from _despite_a_cool_down(turn)


def _despite_a_cool_down(turn: Turn) -> Iterator[str]:
    """Pauses for a person whose claim on the class was cancelled a while ago."""
    site = turn.site
    whose = {row.booking: (row.tenant, row.owner) for row in site.requests}
    class_of = {gpu.id: gpu.gpu_class for gpu in site.gpus}
    until = {(each.tenant, each.owner, each.gpu_class): each.until for each in site.cooling}
    for pause in turn.plan.pauses if until else ():
        names = {class_of[row.place.gpu] for row in site.held if row.booking == pause.booking}
        keys = {(*whose.get(pause.beneficiary, ("", "")), name) for name in names}
        if len(keys) == 1 and pause.at < until.get(keys.pop(), 0):
            yield f"{pause.booking} is paused for {pause.beneficiary}, whose claims rest"


def over_caps(world: World, turn: Turn, planned: list[Span], rows: list[Span]) -> Iterator[str]:
    """Starts that were decided now with which an owner has more GPU-hours than its cap."""
    given = {row.booking for row in turn.plan.assigns}
    new = [*planned, *(row for row in rows if row.booking in given)]
    for cap in world.drawn.caps:
        mine, used = _of_cap(world, cap, [*planned, *rows])
        for one in _of_cap(world, cap, new)[0]:
            counted = [each for each in mine if not _leaves(each, one)]
            near = [window for window in _windows(cap, counted) if _common(one, window)]
            sums = [
                sum(each.units * _common(each, window) for each in counted)
                + sum(amount for day, amount in used if _is_within(day, window))
                for window in near
            ]
            if max(sums, default=0) > cap.most:
                yield f"{one.booking} is planned over the cap of {cap.owner}"


def _leaves(row: Span, one: Span) -> bool:
    """Whether the row is paused for `one`, so that its hours come back."""
    return not (row.stays or one.stays) and row.booking != one.booking and _meet(row, one)


def _windows(cap: Cap, mine: list[Span]) -> list[tuple[int, int]]:
    """The windows of a cap in which most may be used."""
    if cap.rolling_days is None:
        return [(cap.starts, cap.ends)]
    length = cap.rolling_days * DAY
    edges = {each.starts for each in mine} | {each.ends - length for each in mine}
    return [(at, at + length) for at in sorted(edges)]


def _of_cap(world: World, cap: Cap, spans: list[Span]) -> tuple[list[Span], list[tuple[int, int]]]:
    """What counts against a cap: the spans, and what was used, by day."""
    mine = [each for each in spans if cap.owner in each.owners and each.gpu_class == cap.gpu_class]
    used = [
        (day, amount)
        for (tenant, project, gpu_class, day), amount in world.used.items()
        if cap.owner in (tenant, project) and gpu_class == cap.gpu_class
    ]
    return mine, used


def _is_within(day: int, window: tuple[int, int]) -> bool:
    return window[0] <= day and day + DAY <= window[1]


def _common(span: Span, window: tuple[int, int]) -> int:
    return max(0, min(span.ends, window[1]) - max(span.starts, window[0]))


def _planned(world: World, turn: Turn) -> Iterator[Span]:
    """Starts that the plan proves."""
    requests = {request.booking: request for request in requests_after(turn)}
    for wait in turn.plan.waits:
        if not is_proven(wait):
            continue
        request, job = requests.get(wait.booking), world.runs[wait.booking].job
        tenant, project = job.tenant, job.project
        slug = request.tier if request is not None else job.tier.slug
        yield from _spans(
            world,
            wait.booking,
            (tenant, project),
            slug,
            wait.places,
            (wait.starts, wait.ends),
            stays=not _makes_room(wait),
        )


def _written(world: World) -> Iterator[Span]:
    for row in world.rows:
        tier = next((t for t in world.tiers if t.slug == row.tier), None)
        stays = tier is None or not tier.pausable or row.pausing or not row.started
        yield from _spans(
            world,
            row.booking,
            (row.tenant, row.project),
            row.tier,
            (row.place,),
            (row.starts, row.ends),
            stays=stays,
        )


def _spans(
    world: World,
    booking: str,
    owners: tuple[str, str],
    slug: str,
    places: tuple[Place, ...],
    window: tuple[int, int],
    *,
    stays: bool,
) -> Iterator[Span]:
    """One for each class."""
    classes = {gpu.id: gpu for gpu in world.drawn.gpus}
    models = {model.slug: model for model in MODELS}
    tier = next(each for each in world.tiers if each.slug == slug)
    counts = tier.counts and not (world.runs[booking].job.ask.groups and tier.pausable)
    for name in sorted({classes[place.gpu].gpu_class for place in places}):
        here = tuple(place for place in places if classes[place.gpu].gpu_class == name)
        units = sum(units_of(models[classes[place.gpu].model], place) for place in here)
        yield Span(booking, owners, name, units, counts, here, *window, stays)


def _makes_room(wait: Waiting) -> bool:
    return any(reason.code == "makes_room" for reason in wait.reasons)


def _overlap(one: Span, other: Span) -> bool:
    return one.starts < other.ends and other.starts < one.ends


def _meet(one: Span, other: Span) -> bool:
    """Whether they have a slot at one time; shares may be next to each other."""
    return _overlap(one, other) and any(
        a.gpu == b.gpu
        and a.start < b.start + b.size
        and b.start < a.start + a.size
        and not (a.share and b.share)
        for a in one.places
        for b in other.places
    )
