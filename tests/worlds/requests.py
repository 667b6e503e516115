"""What people of a world do besides asking, drawn from its number: they change bookings, ask for
approvals, wait for a window, make arrays, and let bookings wait for each other."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

from solver import LabLimit, Limit, PersonLimit, Tier
from solver.model.limits import Override
from tests.worlds.jobs import HOUR, Job

Answer = Literal["accept", "decline", "none"]


@dataclass(frozen=True)
class Edit:
    """A change of a booking, `after` so many seconds; `is_bound`: its start and strength must not
    get worse."""

    booking: str
    after: int
    kind: Literal["longer", "shorter", "more", "fewer", "later", "earlier", "tier"]
    is_bound: bool
    series: str = ""
    """All dates of this series that have not begun change together, or none."""
    waits: int = 0
    """For so many seconds it stays open until there is room; then, or when it is withdrawn, the
    booking stays as it is."""


@dataclass(frozen=True)
class Listed:
    """A booking on the waiting list: `windows` in seconds from when it is asked for."""

    mode: Literal["auto", "offer"]
    windows: tuple[tuple[int, int], ...]
    answers: tuple[tuple[Answer, int], ...]
    """What the person says to each offer, and after how many seconds."""


@dataclass(frozen=True)
class Requests:
    """All of them by booking. `approvals`: seconds until the decision, and whether it is yes.
    `parents`: the booking that has to be over."""

    edits: tuple[Edit, ...] = ()
    approvals: dict[str, tuple[int, bool]] = field(default_factory=dict)
    listed: dict[str, Listed] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    overrides: tuple[Override, ...] = ()
    labs: tuple[LabLimit, ...] = ()
    persons: tuple[PersonLimit, ...] = ()


def requests_draw(
    seed: int,
    jobs: tuple[Job, ...],
    limits: tuple[Limit, ...],
    tiers: tuple[Tier, ...],
    *,
    is_plain: bool,
) -> tuple[tuple[Job, ...], Requests]:
    """The jobs, with the elements of arrays, and what people do about them.

    In a plain world nothing is offered: an offer may hold the room of a claim for half an hour.
    """
    chance = Random(f"wishes {seed}")  # noqa: S311  a made-up world, the same each time
    made, requests = list[Job](), Requests()
    edits = list[Edit]()
    for job in jobs:
        made.append(job)
        if job.series is not None:
            continue
        roll = chance.random()
        if roll < 0.3:
            edits += _edits(chance, job, is_plain=is_plain)
        elif roll < 0.4:
            decided = chance.choice((600, 3_000, 9_000, 20_000)) + chance.randint(0, 59)
            requests.approvals[job.name] = (decided, chance.random() < 0.7)
        elif roll < 0.5 and not is_plain:
            made[-1] = _listed(chance, job, requests)
        elif roll < 0.55 and len(made) > 1:
            requests.parents[job.name] = chance.choice(made[:-1]).name
        elif roll < 0.59 and not job.ask.groups:
            made += _elements(chance, job, requests)
    edits += _series_edits(seed, jobs)
    edits = list(_waiting(seed, edits))
    overrides = () if is_plain else tuple(_overrides(chance, limits, jobs))
    requests = replace(requests, edits=tuple(edits), overrides=overrides)
    return tuple(made), requests if is_plain else _with_inner_limits(seed, requests, limits, jobs)


def _with_inner_limits(
    seed: int, requests: Requests, limits: tuple[Limit, ...], jobs: tuple[Job, ...]
) -> Requests:
    """In some worlds a tenant's projects are a lab, persons have caps, and a lab's limit is lower
    for some hours."""
    chance = Random(f"inner limits {seed}")  # noqa: S311  a made-up world, the same each time
    job = chance.choice(jobs)
    row = next(each for each in limits if (each.owner, each.gpu_class) == (job.tenant, job.ask.classes[0]))
    labs, persons, lower = list[LabLimit](), list[PersonLimit](), list[Override]()
    if chance.random() < 0.35:
        projects = (f"{row.owner}-p", f"{row.owner}-q")[: chance.choice((1, 2))]
        sure = sum(
            each.guaranteed for each in limits if each.owner in projects and each.gpu_class == row.gpu_class
        )
        borrow, lend = chance.choice((1, 2, 3)) * 56_000, chance.choice((0, None, None))
        labs.append(LabLimit("lab-1", row.owner, row.gpu_class, sure, borrow, lend, projects))
        if chance.random() < 0.5:
            starts = min(job.at for job in jobs) + chance.randint(0, 6 * HOUR)
            ends = starts + chance.randint(1, 8) * HOUR
            lower.append(Override("w1", "lab-1", row.gpu_class, starts, ends, -56_000))
    if chance.random() < 0.35:
        for person in chance.choice((("",), ("", job.owner))):
            most = chance.choice((1, 1, 2, 3)) * 56_000
            persons.append(PersonLimit(row.owner, person, row.gpu_class, most))
    return replace(
        requests,
        overrides=(*requests.overrides, *lower),
        labs=tuple(labs),
        persons=tuple(persons),
    )


def _edits(chance: Random, job: Job, *, is_plain: bool) -> Iterator[Edit]:
    kinds = ("longer", "shorter", "later", "earlier", "tier", "more", "fewer")
    for _ in range(chance.choice((1, 1, 2))):
        kind = chance.choice(kinds[:4] if is_plain else kinds)
        after = int(chance.random() ** 3 * 12_000)
        yield Edit(job.name, after, kind, chance.random() < 0.5)  # type: ignore[arg-type]  # of kinds


def _series_edits(seed: int, jobs: tuple[Job, ...]) -> Iterator[Edit]:
    """Half of the series change as a whole: all of their dates get longer, or move."""
    chance = Random(f"series {seed}")  # noqa: S311  a made-up world, the same each time
    first: dict[str, Job] = {}
    for job in jobs:
        if job.series is not None:
            first.setdefault(job.series, job)
    for series, job in first.items():
        if chance.random() < 0.5:
            after, is_bound = chance.randint(60, 6_000), chance.random() < 0.5
            kind: Literal["longer", "later"] = chance.choice(("longer", "later"))
            yield Edit(job.name, after, kind, is_bound, series)


def _waiting(seed: int, edits: list[Edit]) -> Iterator[Edit]:
    """A third of the changes wait for room, of several dates all together."""
    chance = Random(f"waits {seed}")  # noqa: S311  a made-up world, the same each time
    for edit in edits:
        waits = chance.choice((1_500, 6_000, 20_000)) if chance.random() < 0.35 else 0
        yield replace(edit, waits=waits)


def _listed(chance: Random, job: Job, requests: Requests) -> Job:
    if job.ask.groups or chance.random() < 0.4:
        starts = chance.randint(300, 6 * HOUR)
        requests.listed[job.name] = Listed("auto", (), ())
        earliest = job.at + starts
        return replace(job, fixed=True, earliest=earliest, patience=None, cancelled_after=None)
    windows = []
    for number in range(chance.choice((1, 1, 2))):
        since = chance.randint(600, 4 * HOUR) + number * 12 * HOUR
        windows.append((since, since + job.seconds + chance.choice((0, 0, HOUR, 3 * HOUR))))
    answers: list[tuple[Answer, int]] = [
        (chance.choice(("accept", "accept", "decline", "none")), chance.randint(30, 2_000)) for _ in range(6)
    ]
    requests.listed[job.name] = Listed("offer", tuple(windows), tuple(answers))
    return replace(job, fixed=False, patience=None, cancelled_after=None)


def _elements(chance: Random, job: Job, requests: Requests) -> Iterator[Job]:
    """The other elements of an array: each is booked when one so many before it is over."""
    count, parallel = chance.randint(2, 5), chance.randint(1, 2)
    names = [job.name]
    for index in range(1, count):
        name = f"{job.name}[{index}]"
        if index >= parallel:
            requests.parents[name] = names[index - parallel]
        names.append(name)
        yield replace(job, name=name, fixed=False, cancelled_after=None, extended_by=0)


def _overrides(chance: Random, limits: tuple[Limit, ...], jobs: tuple[Job, ...]) -> Iterator[Override]:
    """In one world of four a limit is raised for some hours, or for one booking."""
    bounded = [row for row in limits if row.borrow is not None]
    if not bounded or chance.random() > 0.25:
        return
    row, first = chance.choice(bounded), min(job.at for job in jobs)
    starts = first + chance.randint(0, 3 * HOUR)
    units = 56_000 * chance.randint(1, 2)
    ends = starts + chance.randint(2, 12) * HOUR
    yield Override("o1", row.owner, row.gpu_class, starts, ends, units)
