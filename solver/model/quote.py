"""The request and the answer of a quote, as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from solver.model.inputs import BEHIND, WITHIN, Ask, Strength
from solver.model.omitted import OMITTED_WHEN_EMPTY
from solver.reasons.reason import Reason

Kind = Literal[
    "as_asked",
    "later",
    "unpinned",
    "anywhere",
    "without_nvlink",
    "split",
    "fewer",
    "other_class",
    "slice",
]


QUARTER = 21_600
"""Risks differ by the quarter of the day (UTC) in which a booking starts."""


@dataclass(frozen=True, slots=True)
class QuoteRequest:
    """A request for a quote. `earliest` is the start of a fixed window.

    `latest` is the last second at which a flexible booking may end. `rates` are money per GPU-hour
    by class in any integer unit; a missing class is free of charge.

    Work has `lengths`: seconds on each class, of which `duration` is the shortest; speeds are
    relative to the class `reference`. `cheapest` as in `Request`. `risks` are the chances of a
    pause in thousandths, by class, whether it borrows, and the quarter of the day (UTC) of its
    start; a missing entry is never paused. `priority` is its tier's.
    """

    ask: Ask
    duration: int
    earliest: int
    latest: int | None
    fixed: bool
    tenant: str
    project: str
    rates: Mapping[str, int] = field(default_factory=dict)
    tier: str = ""
    owner: str = ""
    lengths: Mapping[str, int] = field(default_factory=dict)
    reference: str = ""
    cheapest: bool = False
    risks: Mapping[tuple[str, bool, int], int] = field(default_factory=dict)
    priority: int = 0
    within: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)
    """Whether the ladder of a budget keeps it within guarantees, as in `Request`."""
    behind: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)
    """As in `Request`."""

    @property
    def quota_tier(self) -> str:
        """The tier by which its use of quota counts."""
        return self.tier + self.ask.tier_mark + BEHIND * self.behind + WITHIN * self.within


@dataclass(frozen=True, slots=True)
class Option:
    """One way to serve the request. `weight` is rate × units × seconds, for comparison only.

    `places_hint` are node names; the places are chosen again at booking. `borrowed` is how much of
    `units` exceeds the guarantees. `risk` is the chance of a pause and `speed` the speed relative
    to the request, in thousandths; None where the classes can't be compared. `pauses` counts its
    victims by rule. `strength` is that of the start if the next cycle gives it. A mixed option has
    further `groups`.
    """

    gpu_class: str
    profile: str | None
    count: int
    share: int | None
    starts: int
    ends: int
    places_hint: tuple[str, ...]
    kind: Kind
    units: int
    weight: int
    borrowed: int = 0
    risk: int = 0
    speed: int | None = None
    tier: str = ""
    pauses: tuple[tuple[str, int], ...] = ()
    strength: Strength = "expected"
    groups: tuple[Ask, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)


@dataclass(frozen=True, slots=True)
class Quote:
    """The options, best first. `blocked` is the reason against the request as asked."""

    options: tuple[Option, ...]
    blocked: Reason | None
