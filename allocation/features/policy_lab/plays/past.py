"""The past of a site as a trial plays it, and what becomes of its bookings. Frozen values, no database."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from allocation.features.policy_lab.plays.rules_in_time import NO_RULES, Rules
from billing.rates import NO_PEAKS, PeakHours
from solver import Maintenance, Request, Snapshot


@dataclass(frozen=True, slots=True)
class Changed:
    """What a booking asks for from an instant on, because somebody changed it."""

    at: int
    request: Request


@dataclass(frozen=True, slots=True)
class Past:
    """A booking of the past: its request, how long its run was, and when it was cancelled before one.

    `really` is None where nobody knows; `least`: it has run for so long and still runs. `is_first`: it
    ran when the history begins. An element of an `array` comes when fewer than `parallel` of the array are
    open; the array was asked for when its request says.
    """

    request: Request
    really: int | None = None
    cancelled: int | None = None
    least: int = 0
    is_first: bool = False
    changes: tuple[Changed, ...] = ()
    array: str = ""
    parallel: int = 0

    @property
    def longest(self) -> int:
        """The longest time that it ever asked for."""
        return max(1, *(each.duration for each in self.requests))

    @property
    def requests(self) -> list[Request]:
        """Its request, and what each change made of it."""
        return [self.request, *(each.request for each in self.changes)]

    def with_requests(self, requests: Sequence[Request]) -> "Past":
        """The same with other requests, in the order of `requests`."""
        first, *later = requests
        changes = tuple(Changed(each.at, request) for each, request in zip(self.changes, later, strict=True))
        return replace(self, request=first, changes=changes)


@dataclass(frozen=True, slots=True)
class Outage:
    """A GPU that could not be used in [starts, ends)."""

    gpu: str
    starts: int
    ends: int


@dataclass(frozen=True, slots=True)
class Planned:
    """A maintenance, and since when it was known."""

    known: int
    row: Maintenance


@dataclass(frozen=True, slots=True)
class History:
    """What happened in [site.now, ends). The site has its rules and its fleet, and nothing runs.

    `rules` are limits that depend on the time. Use in `peak_hours` is counted apart. A run that is paused
    repeats so many seconds of work as `repeated` says of its tier.
    """

    site: Snapshot
    past: tuple[Past, ...]
    ends: int
    outages: tuple[Outage, ...] = ()
    maintenance: tuple[Planned, ...] = ()
    rules: Rules = NO_RULES
    peak_hours: PeakHours = NO_PEAKS
    repeated: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(slots=True)
class Fate:
    """What became of a booking. `lost`: GPU-seconds of work that pauses made it repeat. `inside`: it fitted
    into its organisation's guarantee when it was asked for. `came`: when it entered the queue; None: never,
    because others of its array were open."""

    started: int | None = None
    pauses: int = 0
    lost: int = 0
    refused: str = ""
    inside: bool = False
    cancelled: bool = False
    came: int | None = None


Use = tuple[str, str, str, str, str]
"""Tenant, project, class, tier, and profile of a slice or nothing."""


@dataclass(slots=True)
class Outcome:
    """The fates of all bookings by id; unit-seconds by use, in all and in peak hours."""

    fates: dict[str, Fate] = field(default_factory=dict)
    used: Counter[Use] = field(default_factory=Counter)
    peak: Counter[Use] = field(default_factory=Counter)
    turns: int = 0
