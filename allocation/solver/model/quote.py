"""What a quote is asked and what it answers, as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from allocation.reasons.reason import Reason
from allocation.solver.model.inputs import Ask

Kind = Literal[
    "as_asked", "later", "unpinned", "without_nvlink", "split", "fewer", "other_class", "slice"
]  # fmt: skip


QUARTER = 21_600
"""Risks are told apart by the quarter of the day (UTC) in which a booking starts."""


@dataclass(frozen=True, slots=True)
class QuoteRequest:
    """What somebody would like to know. `earliest` is the start of a fixed window.

    `latest` is the last second at which a flexible booking may end. `rates` are money per
    GPU-hour by class in any integer unit; classes without one count as free of charge.

    Work has `lengths`: seconds on each class, of which `duration` is the shortest that was asked
    for; speeds are told beside the class `reference`. `cheapest` as in `Request`. `risks` are the
    chances of a pause in thousandths, by class, whether it borrows, and the quarter of the day
    (UTC) in which it starts; what is not there is never paused. `priority` is that of its tier.
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


@dataclass(frozen=True, slots=True)
class Option:
    """One way to get it. `weight` is rate × units × seconds: for comparing, not for paying.

    `places_hint` are node names; the place itself is found again when it is booked. `borrowed` is
    how much of `units` lies above the guarantees.
    `risk` is the chance of a pause and `speed` how fast it is beside the ask, in thousandths;
    None where nobody has compared the classes. `pauses` are how many running bookings would be
    asked to leave for it, by the rule of each.
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


@dataclass(frozen=True, slots=True)
class Quote:
    """The options, best first. `blocked` says what is in the way when it can't be had as asked."""

    options: tuple[Option, ...]
    blocked: Reason | None
