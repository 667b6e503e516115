"""Conditions that only some worlds have: requests with several possible classes, GPU-hour caps,
suspended work, people who ask in the same second, and events that change the rules.

Each is drawn by itself, so everything else of a world is as without it.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from solver import Cap, Limit, Policy, Tier
from solver.model.policy import ORDER_KEYS, VICTIM_RULES
from tests.solver.builders import L40S, NOON
from tests.worlds.draw import Drawn, Event
from tests.worlds.jobs import DAY, HOUR, Job, owners_of
from tests.worlds.requests import Requests

GPU_HOUR = 56_000 * 3_600
CONDITIONS = ("classes", "together", "caps", "suspended", "within", "rules", "silence", "drains")
OFTEN = 0.5
"""A part of the jobs that a condition is about."""


def with_conditions(seed: int, drawn: Drawn) -> Drawn:
    """The world of this number with its conditions; plain worlds have none."""
    if drawn.is_plain:
        return drawn
    chances = {
        name: Random(f"{name} {seed}")  # noqa: S311  a made-up world, the same each time
        for name in (
            "classes",
            "together",
            "caps",
            "suspended",
            "within",
            "rules",
            "silence",
            "drains",
        )
    }
    if chances["classes"].random() < 0.8:
        drawn = _with_several_classes(chances["classes"], drawn)
    if chances["together"].random() < 0.2:
        drawn = _together(chances["together"], drawn)
    if chances["caps"].random() < 0.2:
        drawn = replace(drawn, caps=tuple(_caps(chances["caps"], drawn)))
    if chances["suspended"].random() < 0.2:
        drawn = replace(drawn, suspends=True)
    if chances["within"].random() < 0.15:
        drawn = replace(drawn, jobs=tuple(_within(chances["within"], drawn.jobs)))
    events = (*drawn.events, *_events(chances["rules"], chances["silence"], drawn))
    events += tuple(_drains(chances["drains"], drawn))
    return replace(drawn, events=events)


def _with_several_classes(chance: Random, drawn: Drawn) -> Drawn:
    """A world with H100 and A100 gets L40S in the place of the A100, and most of its requests for
    whole GPUs can be met by either."""
    names = {gpu.gpu_class for gpu in drawn.gpus}
    if names != {"h100", "a100"} or any(job.ask.groups for job in drawn.jobs):
        return drawn
    gpus = tuple(
        replace(gpu, gpu_class="l40s", model=L40S.slug, mode=None) if gpu.gpu_class == "a100" else gpu
        for gpu in drawn.gpus
    )
    speeds = {job.name: _speeds(chance) for job in drawn.jobs}
    return replace(
        drawn,
        gpus=gpus,
        limits=tuple(map(_renamed, drawn.limits)),
        jobs=tuple(
            _of_either(
                chance,
                job,
                speeds[job.name.split("[")[0]],
                is_listed=job.name in drawn.requests.listed,
            )
            for job in drawn.jobs
        ),
        events=tuple(replace(each, limits=tuple(map(_renamed, each.limits))) for each in drawn.events),
        requests=_renamed_requests(drawn.requests),
    )


def _speeds(chance: Random) -> tuple[bool, bool, bool, float]:
    """Whether L40S is first, all classes are equal, the first is the cheapest; and how many times
    as long work takes on L40S."""
    ratio = chance.choice((1.0, 1.0, 0.6, 1.5, 2.5))
    return chance.random() < 0.4, chance.random() < 0.3, chance.random() < 0.2, ratio


def _of_either(chance: Random, job: Job, how: tuple[bool, bool, bool, float], *, is_listed: bool) -> Job:
    ask = job.ask
    if ask.classes == ("a100",):
        ask = replace(ask, classes=("l40s",), profile=None)
    is_whole = ask.profile is None and ask.share is None and not ask.pin
    is_set = job.series is not None or job.fixed or is_listed
    if not is_whole or is_set or chance.random() > 0.7:
        return replace(job, ask=ask)
    reverse, any_class, cheapest, ratio = how
    classes = ("l40s", "h100") if reverse else ("h100", "l40s")
    ask = replace(ask, classes=classes, any_class=any_class and ratio == 1.0)
    lengths = {"h100": job.seconds, "l40s": int(job.seconds * ratio)}
    durations = () if ratio == 1.0 else tuple((name, lengths[name]) for name in classes)
    shortest = min(lengths.values())
    really = max(60, int(job.really * shortest / job.seconds))
    return replace(job, ask=ask, durations=durations, seconds=shortest, really=really, cheapest=cheapest)


def _renamed(row: Limit) -> Limit:
    return replace(row, gpu_class="l40s") if row.gpu_class == "a100" else row


def _renamed_requests(requests: Requests) -> Requests:
    def all_of(rows: tuple) -> tuple:  # type: ignore[type-arg]  # rows of any kind
        is_old = [row.gpu_class == "a100" for row in rows]
        return tuple(
            replace(row, gpu_class="l40s") if old else row for row, old in zip(rows, is_old, strict=True)
        )

    return replace(
        requests,
        overrides=all_of(requests.overrides),
        labs=all_of(requests.labs),
        persons=all_of(requests.persons),
    )


def _together(chance: Random, drawn: Drawn) -> Drawn:
    """People ask in the same second, those of one organisation in classes that no request
    connects."""
    step = chance.choice((900, 1_800, 3_600))
    moved = []
    for job in drawn.jobs:
        at = NOON + -(-(job.at - NOON) // step) * step
        moved.append(replace(job, at=at, earliest=job.earliest + at - job.at))
    return replace(drawn, jobs=tuple(moved))


def _caps(chance: Random, drawn: Drawn) -> Iterator[Cap]:
    """GPU-hours of a day, or of any one or two days, for a tenant or a project."""
    first = NOON // DAY * DAY
    for _ in range(chance.choice((1, 1, 2))):
        job = chance.choice(drawn.jobs)
        rows = [row for row in drawn.limits if row.owner in owners_of(job)]
        row = chance.choice([row for row in rows if row.gpu_class in job.ask.classes])
        most = chance.choice((2, 4, 8, 16, 30)) * GPU_HOUR
        if chance.random() < 0.5:
            yield Cap(row.owner, row.gpu_class, most, first, first + DAY)
        else:
            yield Cap(row.owner, row.gpu_class, most, 0, 0, chance.choice((1, 2)))


def _within(chance: Random, jobs: tuple[Job, ...]) -> Iterator[Job]:
    for job in jobs:
        yield replace(job, within=job.tier.counts and chance.random() < OFTEN)


def _events(rules: Random, silence: Random, drawn: Drawn) -> Iterator[Event]:
    if rules.random() < 0.35:
        yield from _rule_events(rules, drawn)
    if silence.random() < 0.15:
        yield from _silence(silence, drawn)


def _rule_events(chance: Random, drawn: Drawn) -> Iterator[Event]:
    """Quotas are cut and raised again, tiers and the policy change, maintenance is cancelled, and a
    node is lost and returns."""
    last = max(job.at for job in drawn.jobs) - NOON + HOUR
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = NOON + chance.randint(60, last)
        later = at + chance.choice((600, 3_000, 9_000)) + chance.randint(0, 59)
        kind = chance.choice(("limits", "tiers", "policy", "maintenance", "node"))
        if kind == "limits":
            yield Event(at, "limits", limits=tuple(_lower(chance, drawn.limits)))
            yield Event(later, "limits", limits=drawn.limits)
        elif kind == "tiers":
            yield Event(at, "tiers", tiers=tuple(_other_tiers(chance, drawn.tiers)))
        elif kind == "policy":
            yield Event(at, "policy", policy=_other_policy(chance, drawn))
        elif kind == "maintenance":
            node = chance.choice(sorted({gpu.node for gpu in drawn.gpus}))
            yield Event(at, "maintenance", node=node, until=at + 5 * HOUR)
            yield Event(later, "no maintenance", node=node)
        else:
            node = chance.choice(sorted({gpu.node for gpu in drawn.gpus}))
            for gpu in (gpu.id for gpu in drawn.gpus if gpu.node == node):
                yield Event(at, "failure", node=gpu)
                yield Event(later, "repair", node=gpu)


def _silence(chance: Random, drawn: Drawn) -> Iterator[Event]:
    """A node does not answer for some time."""
    at = NOON + chance.randint(60, max(job.at for job in drawn.jobs) - NOON + HOUR)
    node = chance.choice(sorted({gpu.node for gpu in drawn.gpus}))
    yield Event(at, "silence", node=node)
    yield Event(at + chance.choice((300, 1_800, 7_200)), "answer", node=node)


def _drains(chance: Random, drawn: Drawn) -> Iterator[Event]:
    """A node, or one GPU, takes no new work for some time."""
    if chance.random() > 0.15:
        return
    gpu = chance.choice(drawn.gpus)
    where = gpu.node if chance.random() < 0.6 else gpu.id
    at = NOON + chance.randint(60, max(job.at for job in drawn.jobs) - NOON + HOUR)
    yield Event(at, "drain", node=where)
    yield Event(at + chance.choice((600, 3_600, 20_000)), "in service", node=where)


def _lower(chance: Random, limits: tuple[Limit, ...]) -> Iterator[Limit]:
    """One tenant may borrow nothing more, or one GPU."""
    tenant = chance.choice(sorted({row.owner for row in limits if row.parent is None}))
    to = chance.choice((0, 56_000))
    for row in limits:
        yield replace(row, borrow=to) if row.owner == tenant else row


def _other_tiers(chance: Random, tiers: tuple[Tier, ...]) -> Iterator[Tier]:
    """The tiers that can be paused get another grace, protection or maximum of pauses."""
    grace, protected = chance.choice((30, 90, 240)), chance.choice((0, 120, 900))
    pauses = chance.choice((None, None, 1, 3))
    for tier in tiers:
        if tier.pausable:
            yield replace(tier, grace=grace, protected=protected, pauses=pauses)
        else:
            yield tier


def _other_policy(chance: Random, drawn: Drawn) -> Policy:
    """Another order of the queue, fewer rules of pauses, or other constants."""
    policy = replace(drawn.policy, version=2)
    kind = chance.choice(("order", "rules", "patience", "steps"))
    if kind == "order":
        keys = list(ORDER_KEYS)
        rest = keys[1:]
        chance.shuffle(rest)
        return replace(policy, order=(keys[0], *rest))
    if kind == "rules":
        return replace(policy, victim_rules=tuple(chance.sample(VICTIM_RULES, 3)))
    if kind == "patience":
        return replace(policy, patience=chance.choice((2, 6)) * HOUR)
    return replace(policy, share_step=20_000, age_step=HOUR, cool_down=900)
