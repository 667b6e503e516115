"""The start and the zone in which energy costs or emits least, for work whose tier may wait for it.

A booking waits at most as long as its tier says, counted from when it could first have run. It takes
another start only for a gain, and a planned start never gets later for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from solver.model.demand import Demand, Fit
from solver.model.inputs import Request, Tier
from solver.model.sites.energy import EnergyCalendar
from solver.reasons.reason import Reason, reason
from solver.state.cycle_state import CycleState

_LEAST = 95
"""What a better start may cost at most, in percent."""
_TRIES = 24
"""Starts that are tried for one booking, cheapest first."""

Demands = tuple[Demand, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A start for the sake of energy, and why."""

    fit: Fit
    why: Reason


def waits_for_energy(state: CycleState, request: Request) -> bool:
    """True for a booking that may start later, or elsewhere, for cheaper or cleaner energy."""
    is_set = request.fixed or request.paused or request.series is not None or request.pinned
    if is_set or request.home or request.ask.groups or request.ask.share is not None:
        return False
    return bool(state.energy) and bool(state.quota.tier(request.tier).prefers)


def energy_start(
    state: CycleState, request: Request, demands: Demands, base: Fit, last: int
) -> Chosen | None:
    """A start of [base, last] that needs no pause, at which energy costs or emits the least; None: the
    base, which is the earliest, is as good. Nothing is reserved."""
    tier = state.quota.tier(request.tier)
    known = _calendars(state, tier)
    before = _amount(state, known, base)
    if before is None or base.victims:
        return None
    last = min(last, _last_by_tier(state, request))
    options = sorted(
        (amount, starts, zone)
        for zone, calendar in known.items()
        for starts in _starts(state, calendar, base.starts, last)
        if (amount := calendar.mean(starts, demands[0].duration)) * 100 <= before * _LEAST
    )
    for _, starts, zone in options[:_TRIES]:
        there = tuple(each for demand in demands if (each := demand.in_zone(zone)) is not None)
        found = state.first_at(there, starts) if there else None
        if found is not None:
            rank = found.class_rank
            fit = Fit(demands[rank], found.places, starts, rank)
            return Chosen(fit, _why(state, request, (base, fit)))
    return None


def better_than_kept(
    state: CycleState, request: Request, demands: Demands, kept: Fit, last: int
) -> Chosen | None:
    """What a planned start that is not reserved becomes: itself, or a cheaper or an earlier one that is
    as cheap; None: no gain is left in waiting."""
    base = state.earliest(demands, state.first_start(request.earliest), kept.starts)
    if base is None:
        return None
    known = _calendars(state, state.quota.tier(request.tier))
    before, now = _amount(state, known, base), _amount(state, known, kept)
    best = energy_start(state, request, demands, base, min(last, kept.starts))
    if before is None or now is None:
        return best
    then = _amount(state, known, best.fit) if best is not None else None
    # What kept it back until now (room, quota) is not what its tier may wait for.
    may_wait = kept.starts <= _last_by_tier(state, request)
    is_gain = may_wait and now * 100 <= before * _LEAST and state.all.is_free(kept)
    if is_gain and (then is None or then * 100 > now * _LEAST):
        return Chosen(kept, _why(state, request, (base, kept)))
    return best


def _starts(state: CycleState, calendar: EnergyCalendar, first: int, last: int) -> Iterator[int]:
    """The first second, and those on the grid at which another hour begins."""
    at, grid = first, state.policy.grid
    while at <= last:
        yield at
        at = -(-calendar.edge(at) // grid) * grid


def _calendars(state: CycleState, tier: Tier) -> dict[str, EnergyCalendar]:
    found = {row.zone: EnergyCalendar(row, tier.prefers) for row in state.energy}
    return {zone: calendar for zone, calendar in found.items() if calendar.is_known}


def _amount(state: CycleState, known: dict[str, EnergyCalendar], found: Fit) -> int | None:
    """The mean amount of a fit; None: not known in its zone."""
    zones = state.zones_of(found.places)
    calendar = known.get(next(iter(zones))) if len(zones) == 1 else None
    return None if calendar is None else calendar.mean(found.starts, found.demand.duration)


def _asked_at(request: Request) -> int:
    """When it could first have run."""
    return max(request.submitted, request.earliest)


def _last_by_tier(state: CycleState, request: Request) -> int:
    """The last start until which its tier may wait for energy."""
    return _asked_at(request) + state.quota.tier(request.tier).shift


def _why(state: CycleState, request: Request, fits: tuple[Fit, Fit]) -> Reason:
    """The reason, with what it could have had: now is the hour that it is, so that no reason is another
    one each second."""
    base, found = fits
    tier = state.quota.tier(request.tier)
    known = _calendars(state, tier)
    (zone,), (other,) = state.zones_of(found.places), state.zones_of(base.places)
    begins = base.starts
    if begins <= state.now:
        begins = max(_asked_at(request), known[other].hour(begins))
    seconds = base.demand.duration
    return reason(
        "energy",
        prefers=tier.prefers,
        zone=zone,
        zone_before=other,
        cost=known[zone].mean(found.starts, seconds),
        cost_before=known[other].mean(begins, seconds),
        clock=known[zone].clock(found.starts),
        clock_before=known[other].clock(begins),
    )
