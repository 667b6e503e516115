"""What operators and idleness do to some worlds, drawn from their number: idle bookings, orders to
move running work, and ordered pauses.

Each is drawn by itself, so everything else of a world is as without it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Literal

from tests.solver.builders import NOON
from tests.worlds.jobs import HOUR, Job

if TYPE_CHECKING:
    from tests.worlds.draw import Drawn


@dataclass(frozen=True)
class Idleness:
    """A booking whose GPUs are idle `after` seconds of its run: its owner says `vetoes` times that
    they are still needed. Then the booking ends, or is paused until it checks in again."""

    after: int
    action: Literal["end", "pause"]
    vetoes: int
    check_in: int


@dataclass(frozen=True)
class Look:
    """An operator looks at proposals to move running work and orders the first one `later`. An
    order that is made `up` moves some run to some place, whatever the portal proposes."""

    at: int
    later: int
    is_made_up: bool


@dataclass(frozen=True)
class OrderedPause:
    """An operator pauses a booking `after` seconds of its run, until the pause is lifted."""

    booking: str
    after: int
    lifted: int


@dataclass(frozen=True)
class Operations:
    """All of them."""

    idle: dict[str, Idleness] = field(default_factory=dict)
    looks: tuple[Look, ...] = ()
    pauses: tuple[OrderedPause, ...] = ()


def with_operations(seed: int, drawn: "Drawn") -> "Drawn":
    """The world of this number with what operators do; plain worlds have none."""
    if drawn.is_plain:
        return drawn
    chances = {
        name: Random(f"{name} {seed}")  # noqa: S311  a made-up world, the same each time
        for name in ("idle", "orders", "ordered pauses")
    }
    idle = dict(_idle(chances["idle"], drawn.jobs))
    looks = tuple(_looks(chances["orders"], drawn))
    pauses = tuple(_pauses(chances["ordered pauses"], drawn.jobs))
    if looks:
        drawn = replace(drawn, jobs=tuple(_fragmented(chances["orders"], drawn)))
    return replace(drawn, operations=Operations(idle, looks, pauses))


def _idle(chance: Random, jobs: tuple[Job, ...]) -> Iterator[tuple[str, Idleness]]:
    if chance.random() > 0.2:
        return
    for job in jobs:
        if chance.random() < 0.5:
            action: Literal["end", "pause"] = "end"
            if job.tier.pausable and chance.random() < 0.6:
                action = "pause"
            after, vetoes = chance.choice((60, 700, 2_400)), chance.choice((0, 0, 1, 2))
            yield job.name, Idleness(after, action, vetoes, chance.choice((0, 600, 9_000)))


def _looks(chance: Random, drawn: "Drawn") -> Iterator[Look]:
    if chance.random() > 0.25:
        return
    last = max(job.at for job in drawn.jobs) - NOON + 2 * HOUR
    for _ in range(chance.choice((3, 6, 10))):
        at = NOON + chance.randint(60, last)
        yield Look(at, chance.choice((1, 20, 300)), chance.random() < 0.7)


def _fragmented(chance: Random, drawn: "Drawn") -> Iterator[Job]:
    """Most work is one small slice that can be paused, so that a whole GPU is seldom free."""
    flex = next(tier for tier in drawn.tiers if tier.slug == "flex")
    for job in drawn.jobs:
        ask = job.ask
        is_plain = ask.classes == ("h100",) and not (ask.groups or ask.share or ask.pin)
        if not is_plain or job.series is not None or job.name in drawn.requests.listed:
            yield job
        elif chance.random() < 0.6:
            small = replace(ask, count=1, profile=chance.choice(("1g.10gb", "2g.20gb")), cores=0)
            yield replace(job, tier=flex, ask=small, fixed=False, seconds=job.seconds + 2 * HOUR)
        else:
            yield replace(job, ask=replace(ask, count=1, profile=None, cores=0), fixed=False)


def _pauses(chance: Random, jobs: tuple[Job, ...]) -> Iterator[OrderedPause]:
    if chance.random() > 0.15:
        return
    for job in jobs:
        if job.tier.pausable and chance.random() < 0.3:
            lifted = chance.choice((20, 60, 600, 6_000))
            yield OrderedPause(job.name, chance.choice((30, 900, 3_000)), lifted)
