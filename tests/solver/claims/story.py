"""The site of the worked examples: 8 GPUs, five tiers, and who asks for what and when."""

from collections import Counter
from dataclasses import dataclass, field

from solver import Limit, Plan, Policy, Tier
from tests.solver.builders import DAY, HOUR, NOON, an_ask, gpus
from tests.worlds.draw import Drawn
from tests.worlds.jobs import Job
from tests.worlds.life import UNITS, World

GRACE, PROTECTED, MARGIN = 120, 600, 30
MINUTE = 60
TIERS = {
    tier.slug: tier
    for tier in (
        Tier("prem", pausable=False, counts=True, priority=90),
        Tier("std", pausable=False, counts=True, priority=50),
        Tier("flex", pausable=True, counts=True, priority=40, grace=GRACE, protected=PROTECTED),
        Tier("low", pausable=True, counts=True, priority=20, grace=GRACE, protected=PROTECTED),
        Tier("spot", pausable=True, counts=False, priority=10, grace=GRACE),
    )
}


def asks(
    name: str,
    tenant: str,
    tier: str,
    hours: float,
    *,
    at: int = 0,
    count: int = 1,
    project: str = "p",
    owner: str = "ann",
    earliest: int | None = None,
    fixed: bool = False,
    patience: int | None = None,
) -> Job:
    """Somebody asks for GPUs `at` seconds after noon, by default to start at once."""
    return Job(
        name=name,
        at=NOON + at,
        tenant=tenant,
        project=f"{tenant}-{project}",
        owner=owner,
        tier=TIERS[tier],
        ask=an_ask(count),
        seconds=int(hours * HOUR),
        earliest=NOON + (at if earliest is None else earliest),
        fixed=fixed,
        patience=patience,
        really=int(hours * HOUR),
        cancelled_after=None,
        extended_by=0,
    )


def many(count: int, name: str, tenant: str, tier: str, hours: float, **more: int) -> list[Job]:
    """The same, so many times."""
    return [asks(f"{name}{n:03}", tenant, tier, hours, **more) for n in range(count)]  # type: ignore[arg-type]  # as `asks` takes


@dataclass
class Story:
    """What became of the bookings: all times in seconds from noon."""

    started: dict[str, int] = field(default_factory=dict)
    pauses: Counter[str] = field(default_factory=Counter)
    moved: dict[str, list[tuple[int, int, dict[str, object]]]] = field(default_factory=dict)
    plans: list[tuple[int, Plan]] = field(default_factory=list)

    def delayed(self) -> dict[str, set[tuple[object, object]]]:
        """The rules by which starts became later, and whether the own tenant's work did it."""
        return {
            name: {(facts.get("rule"), facts.get("own_tenant")) for _, _, facts in rows}
            for name, rows in self.moved.items()
        }


def story_of(
    jobs: list[Job],
    limits: tuple[Limit, ...] = (),
    *,
    fleet: int = 8,
    hours: float = 48,
    policy: Policy | None = None,
    heavy: str = "",
) -> Story:
    """Lives it, and returns what happened until then. The tenant `heavy` had the whole fleet for a
    week."""
    policy = policy or Policy(1, cool_down=1_800)
    drawn = Drawn(policy, gpus(fleet), (), tuple(TIERS.values()), limits, tuple(jobs), (), is_plain=False)
    world, story = World.of_drawn(drawn), Story()
    if heavy:
        world.used[heavy, f"{heavy}-p", "h100", NOON - DAY] = fleet * 7 * DAY * UNITS
    for turn in world.turns():
        story.plans.append((turn.site.now - NOON, turn.plan))
        story.pauses.update(pause.beneficiary for pause in turn.plan.pauses)
        for wait in turn.plan.waits:
            if wait.delayed_by is not None:
                row = (turn.site.now - NOON, wait.starts - NOON, dict(wait.delayed_by.numbers))
                story.moved.setdefault(wait.booking, []).append(row)  # type: ignore[arg-type]  # facts
        if turn.site.now > NOON + hours * HOUR:
            break
    story.started = {name: at - NOON for name, at in world.started.items()}
    return story
