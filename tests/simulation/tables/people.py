"""Who books in a schedule, in which tiers, and what they ask for."""

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass

import wire
from solver import Ask, Tier


@dataclass(frozen=True, kw_only=True)
class Service:
    """A tier as the services know it; see `tenants.models.Tier`. Seconds."""

    slug: str
    priority: int
    pausable: bool = True
    counts: bool = True
    grace: int = 30
    method: wire.PauseMethod = "stop"
    more_times: int = 0
    more_time: int = 0
    credit_cap: int = 90
    replace: bool = False

    @property
    def tier(self) -> Tier:
        """As the solver reads it."""
        return Tier(self.slug, self.pausable, self.counts, priority=self.priority, grace=self.grace)


SERVICES = {
    each.slug: each
    for each in (
        Service(slug="standard", priority=50, pausable=False),
        Service(slug="steady", priority=50, pausable=False, replace=True),
        Service(slug="flex", priority=30, more_times=2, more_time=20),
        Service(slug="frozen", priority=30, method="suspend", grace=20),
        Service(slug="spot", priority=10, counts=False, grace=10, method="signal", replace=True),
    )
}


@dataclass(frozen=True, kw_only=True)
class Party:
    """One person in a project of a tenant. `owner_id` is the solver's word for `owner`."""

    tenant: str
    project: str
    slug: str
    owner: str
    owner_id: str


FIRST_CLASS, SECOND_CLASS = "h100", "h100-old"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRequest:
    """What somebody asks for, in whole seconds; `starts` makes the window fixed. `who` counts the
    site's parties; a `pin` names nodes, and GPUs as `node/index`."""

    count: int
    profile: str | None
    together: str
    required: bool
    duration: int
    starts: int | None = None
    share: int | None = None
    who: int = 0
    tier: str = "standard"
    pin: tuple[str, ...] = ()
    classes: tuple[str, ...] = (FIRST_CLASS,)

    def ask(self) -> Ask:
        """As the solver reads it."""
        return Ask(
            self.count,
            self.classes,
            self.profile,
            self.together,  # type: ignore[arg-type]  # one of its words
            self.required,
            self.share,
            pin=self.pin,
        )


# Two people of the tenant that is guaranteed everything, and one of a tenant that only borrows.
LENDER, COLLEAGUE, BORROWER = range(3)
WHO = (
    (LENDER, "standard", 5),
    (LENDER, "steady", 2),
    (LENDER, "flex", 2),
    (COLLEAGUE, "standard", 1),
    (COLLEAGUE, "frozen", 2),
    (COLLEAGUE, "spot", 1),
    (BORROWER, "flex", 4),
    (BORROWER, "frozen", 3),
    (BORROWER, "spot", 2),
)
SHAPES: tuple[tuple[int, str | int | None, str, bool], ...] = (
    (1, None, "any", False),
    (1, None, "any", False),
    (1, None, "any", False),
    (2, None, "any", False),
    (3, None, "rack", True),
    (2, None, "node", True),
    (1, "3g.40gb", "any", False),
    (1, "2g.20gb", "any", False),
    (2, "1g.10gb", "gpu", True),
    (1, "7g.80gb", "any", False),
    (1, 300, "any", False),
    (1, 600, "any", False),
)


def request_draw(rng: random.Random, now: float) -> UserRequest:
    """One of all that may be asked for."""
    count, shape, together, required = rng.choice(SHAPES)
    ((who, tier, _),) = rng.choices(WHO, [weight for _, _, weight in WHO])
    lengths, starts = (60, 120, 300, 1200), None
    if SERVICES[tier].pausable:
        lengths = (120, 600, 1200, 3600)
    if rng.random() < 0.2:
        starts = int(now) + rng.choice((0, 60, 300))
    return UserRequest(
        count=count,
        profile=shape if isinstance(shape, str) else None,
        share=shape if isinstance(shape, int) else None,
        together=together,
        required=required,
        duration=rng.choice(lengths),
        starts=starts,
        who=who,
        tier=tier,
    )


def borrowing_draw(rng: random.Random, tiers: Sequence[str]) -> UserRequest:
    """A whole GPU or two for long, by somebody in one of these tiers."""
    who, tier = rng.choice([(who, tier) for who, tier, _ in WHO if tier in tiers])
    duration = rng.choice((600, 1200, 3600))
    return UserRequest(
        count=rng.choice((1, 1, 2)),
        profile=None,
        together="any",
        required=False,
        duration=duration,
        who=who,
        tier=tier,
    )


def claim_draw(rng: random.Random, requested: UserRequest) -> UserRequest:
    """A request for what another one got, or for whole GPUs, by the guaranteed tenant."""
    if rng.random() < 0.6:
        requested = dataclasses.replace(
            requested, profile=None, share=None, count=rng.choice((1, 1, 2)), together="any"
        )
    tier = rng.choice(("standard", "standard", "steady"))
    duration = rng.choice((60, 60, 120, 300))
    return dataclasses.replace(requested, who=LENDER, tier=tier, duration=duration, starts=None)
