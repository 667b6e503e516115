"""Which bookings a rule of an organisation or project sends to an approver. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from decimal import Decimal
from typing import Literal, Protocol
from zoneinfo import ZoneInfo

Role = Literal["lead", "admin"]
"""Who decides a step: a lead of the project, or an admin of the organisation. Admins lead, too."""

# A person may have so many requests waiting for approval in an organisation.
MAX_OPEN = 20
# So many requests may wait in an organisation in all.
MAX_OPEN_IN_TENANT = 1_000
# Bookings that a person submitted in this time are counted together, so that none is split.
SUMMED = timedelta(hours=24)
# While a request waits, its place is kept this long at most, and until so long before its start.
PLACE_KEPT = timedelta(hours=4)
PLACE_MARGIN = timedelta(minutes=15)
# People decide no sooner than this, so that shorter work can use the GPUs meanwhile.
DECISION_TIME = timedelta(minutes=30)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class PlacePolicy:
    """Bounds of the places that are kept for requests that wait for an approval, in seconds except
    `soft_gpus` and `soft_borrow`.

    A place is kept `soft_hold` at most, and given up `soft_margin` before its start. A project has
    `soft_gpus` in all. Above its guarantee an organisation has `soft_borrow` percent of a class,
    in fixed windows only. A flexible request is placed `decision_time` after it was made, or later.
    """

    soft_hold: int = int(PLACE_KEPT.total_seconds())
    soft_margin: int = int(PLACE_MARGIN.total_seconds())
    soft_gpus: int = 8
    soft_borrow: int = 10
    decision_time: int = int(DECISION_TIME.total_seconds())

    @property
    def solver_bounds(self) -> tuple[int, ...]:
        """Margin, GPUs and percent for the solver; empty if they are the usual ones."""
        mine = (self.soft_margin, self.soft_gpus, self.soft_borrow)
        usual = PlacePolicy()
        return () if mine == (usual.soft_margin, usual.soft_gpus, usual.soft_borrow) else mine


# Upper bounds. All values are whole numbers from 1.
PLACE_POLICY_MAX = {
    "soft_hold": 7 * 86_400,
    "soft_margin": 86_400,
    "soft_gpus": 10_000,
    "soft_borrow": 100,
    "decision_time": 7 * 86_400,
}


def place_policy_of(document: Mapping[str, object]) -> PlacePolicy:
    """Reads the policy document. Missing and invalid values have their defaults."""
    values = ((name, document.get(name), most) for name, most in PLACE_POLICY_MAX.items())
    return PlacePolicy(
        **{name: each for name, each, most in values if type(each) is int and 1 <= each <= most}
    )


@dataclass(frozen=True, slots=True)
class WorkingHours:
    """Local hours of some weekdays (0 is Monday), as in `Mon-Fri 08:00-18:00, Europe/Berlin`."""

    weekdays: frozenset[int]
    begins: time
    ends: time
    zone: ZoneInfo

    def has(self, starts: datetime, ends: datetime | None) -> bool:
        """Whether all of [starts, ends) is inside; a window without an end is not."""
        if ends is None:
            return False
        first, last = starts.astimezone(self.zone), ends.astimezone(self.zone)
        if first.date() != last.date() or first.weekday() not in self.weekdays:
            return False
        return self.begins <= first.time() and last.time() <= self.ends


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a booking must reach for a rule to apply. None or empty: this does not matter."""

    cost: Decimal | None = None
    gpu_hours: Decimal | None = None
    gpus: int | None = None
    seconds: int | None = None
    classes: frozenset[str] = frozenset()
    tiers: frozenset[str] = frozenset()
    outside: WorkingHours | None = None
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Amounts:
    """What bookings ask for. `gpus` are whole GPUs at once, in parts for slices."""

    cost: Decimal = Decimal(0)
    gpu_hours: Decimal = Decimal(0)
    gpus: Decimal = Decimal(0)

    def plus(self, other: "Amounts") -> "Amounts":
        """Returns the sum."""
        return Amounts(self.cost + other.cost, self.gpu_hours + other.gpu_hours, self.gpus + other.gpus)


class Past(Protocol):
    """What a person asked for before. Each part is read when a rule needs it."""

    @property
    def recent(self) -> Amounts:
        """What the person asked for in the last 24 hours and nobody has looked at."""

    @property
    def is_first(self) -> bool:
        """Whether the person had no booking in the project before."""


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """A request as rules see it: what it asks for itself, and what its person asked for before.

    `windows` are the times in which it may run; without an end it may run at any time.
    """

    own: Amounts
    seconds: int
    classes: frozenset[str]
    tier: str
    windows: Sequence[tuple[datetime, datetime | None]]
    past: Past


def is_met(rule: Conditions, facts: RequestFacts) -> bool:
    """Whether the request meets every condition that the rule states.

    The past is looked at last, and only if it decides.
    """
    return _is_met_alone(rule, facts) and _is_met_with_past(rule, facts)


def _is_met_alone(rule: Conditions, facts: RequestFacts) -> bool:
    return all(
        (
            rule.seconds is None or facts.seconds >= rule.seconds,
            not rule.classes or bool(rule.classes & facts.classes),
            not rule.tiers or facts.tier in rule.tiers,
            rule.outside is None or _is_outside(rule.outside, facts.windows),
        )
    )


def _is_met_with_past(rule: Conditions, facts: RequestFacts) -> bool:
    if not _reaches(rule, facts.own) and not _reaches(rule, facts.own.plus(facts.past.recent)):
        return False
    return not rule.is_first or facts.past.is_first


def _reaches(rule: Conditions, amounts: Amounts) -> bool:
    return all(
        (
            rule.cost is None or amounts.cost >= rule.cost,
            rule.gpu_hours is None or amounts.gpu_hours >= rule.gpu_hours,
            rule.gpus is None or amounts.gpus >= rule.gpus,
        )
    )


def _is_outside(hours: WorkingHours, windows: Iterable[tuple[datetime, datetime | None]]) -> bool:
    return not all(hours.has(starts, ends) for starts, ends in windows)


@dataclass(frozen=True, slots=True)
class Step:
    """A step: who decides, how many of them, and within how many hours."""

    role: Role
    needed: int = 1
    hours: int = 72
    escalates: bool = False
    """After these hours it goes to the admins; else the request expires."""


def steps_merged(rules: Iterable[Sequence[Step]]) -> tuple[Step, ...]:
    """Returns the steps of several rules as one list: leads first, then admins.

    A role's step needs the most people that a rule asks for, in the shortest of their times.
    """
    found: dict[Role, Step] = {}
    for step in (step for steps in rules for step in steps):
        known = found.get(step.role, step)
        found[step.role] = Step(
            step.role,
            max(step.needed, known.needed),
            min(step.hours, known.hours),
            step.escalates or known.escalates,
        )
    order: tuple[Role, ...] = ("lead", "admin")
    return tuple(found[role] for role in order if role in found)
