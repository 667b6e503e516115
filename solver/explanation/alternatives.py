"""Other ways to serve a request: spread, fewer for longer, another class, a smaller slice."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from solver.model.demand import Demand, Fit
from solver.model.inputs import UNITS_PER_GPU
from solver.model.plan import Alternative
from solver.model.quote import Kind
from solver.state.cycle_state import CycleState

Lengths = Mapping[str, int]
"""Duration of the work in seconds on each class; empty when it is the same on all."""

_SLICES_OFFERED = 2
_LENGTH_STEP = 300
_PRIVATE = "@"
"""In the name of a class that only requests which name it use: rented nodes of one plan."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A changed demand, not yet placed."""

    kind: Kind
    demand: Demand


def variants(
    state: CycleState, demands: tuple[Demand, ...], lengths: Lengths | None = None
) -> Iterator[Variant]:
    """Demands that differ from the request in one thing, nearest first; only possible ones.

    With `lengths` the work has a fixed amount, so fewer or slower GPUs need longer.
    """
    lengths = lengths or {}
    for demand in demands:
        yield from _apart(state, demand)
    for demand in demands[:1]:
        if lengths and demand.count > 1:
            yield Variant("fewer", fewer(demand))
        for name in _others(state, demands):
            profile = _same_profile(state, demand, name)
            known = not lengths or name in lengths
            if known and (demand.profile is None or profile is not None):
                seconds = lengths.get(name, demand.duration)
                other = replace(demand, gpu_class=name, profile=profile, duration=seconds)
                yield Variant("other_class", other)
    for demand in demands:
        for profile in _smaller(state, demand):
            # Slices have no NVLink.
            level = "node" if demand.level == "domain" else demand.level
            smaller = replace(demand, profile=profile, share=None, level=level)
            seconds = _stretched(state, demand, smaller) if lengths else demand.duration
            yield Variant("slice", replace(smaller, duration=seconds))


def _others(state: CycleState, demands: tuple[Demand, ...]) -> list[str]:
    """The classes of the same kind that everybody may ask for and these do not."""
    asked = {demand.gpu_class for demand in demands}
    of_hosts = any(_is_of_hosts(state, demand) for demand in demands)
    others = (name for name in state.pools if name not in asked and _PRIVATE not in name)
    return sorted(name for name in others if state.pools[name].of_hosts == of_hosts)


def _is_of_hosts(state: CycleState, demand: Demand) -> bool:
    """Whether it is for cores of hosts, which are all of one host."""
    return demand.gpu_class in state.pools and state.pools[demand.gpu_class].of_hosts


def fewer(demand: Demand) -> Demand:
    """Half of the gang for twice as long; assumes that the work divides evenly."""
    count = demand.count // 2
    return replace(demand, count=count, duration=_minutes(demand.duration * demand.count, count))


def next_free(state: CycleState, able: tuple[Demand, ...], starts: int) -> Fit | None:
    """The first window from `starts` on, within the horizon, in which one of the demands fits."""
    return state.earliest(able, starts, state.now + state.policy.horizon)


def alternatives(
    state: CycleState,
    asked: tuple[Demand, ...],
    later: Fit | None,
    starts: int,
    lengths: Lengths | None = None,
    *,
    until: int | None = None,
) -> tuple[Alternative, ...]:
    """Windows for a refused request: `later`, a shorter one within its limits, then variants and fewer
    GPUs at `starts`. It may start later than that if it ends by `until`."""
    found = [later] if later else []
    if starts > state.now + state.policy.horizon:
        # No window so far ahead is planned, of whichever class.
        return tuple(alternative_of(each, asked) for each in found)
    if not lengths:
        found += [short] if (short := _as_long_as_allowed(state, asked, starts, until)) else []
    for variant in variants(state, one_class(state, asked), lengths):
        if len(found) >= state.policy.alternatives:
            break
        demand, pool = variant.demand, state.pools[variant.demand.gpu_class]
        if pool.serves(demand.shape) and pool.most(demand.shape, demand.level) >= demand.count:
            other = state.at(variant.demand, starts)
            found += [other] if other else []
    if not lengths and len(found) < state.policy.alternatives:
        found += [less] if (less := _as_many_as_fit(state, asked, starts)) else []
    return tuple(alternative_of(each, asked) for each in found)


def _as_long_as_allowed(
    state: CycleState, asked: tuple[Demand, ...], starts: int, until: int | None
) -> Fit | None:
    """The longest window of the first class that fits, where a limit forbids the one that was asked for."""
    found = None
    for demand in one_class(state, asked)[:1]:
        if state.over(demand, starts) is None:
            continue
        least, most = 1, (demand.duration - 1) // _LENGTH_STEP
        while least <= most:
            middle = (least + most + 1) // 2
            shorter = replace(demand, duration=middle * _LENGTH_STEP)
            if until is None:
                fit = state.at(shorter, starts)
            else:
                fit = state.earliest((shorter,), starts, until - shorter.duration)
            found, least, most = (fit, middle + 1, most) if fit else (found, least, middle - 1)
    return found


def _as_many_as_fit(state: CycleState, asked: tuple[Demand, ...], starts: int) -> Fit | None:
    """The most GPUs of the first class that fit at exactly that time, where fewer than asked do."""
    found, least = None, 1
    for demand in (each for each in one_class(state, asked)[:1] if not each.pin):
        most = demand.count - 1
        while least <= most:
            count = (least + most + 1) // 2
            fit = state.at(replace(demand, count=count), starts)
            found, least, most = (fit, count + 1, most) if fit else (found, least, count - 1)
    return found


def in_fleet(state: CycleState, demands: tuple[Demand, ...]) -> tuple[Demand, ...]:
    """The demands whose class the fleet has; of a mixed one, all of them."""
    return tuple(demand for demand in demands if all(each.gpu_class in state.pools for each in demand.parts))


def one_class(state: CycleState, demands: tuple[Demand, ...]) -> tuple[Demand, ...]:
    """Those of which variants exist: another class or slice of one group of a mixed demand would
    have to suit the others."""
    return tuple(each for each in in_fleet(state, demands) if not each.groups)


def alternative_of(found: Fit, asked: tuple[Demand, ...]) -> Alternative:
    """The fit as an alternative of a plan to what was asked."""
    demand = found.demand
    is_looser = all(demand.level != each.level for each in asked)
    return Alternative(
        demand.gpu_class,
        demand.profile,
        demand.count,
        found.starts,
        found.ends,
        demand.share,
        demand.pin,
        demand.groups,
        demand.where,
        demand.level if is_looser else "",
    )


def compute_of(state: CycleState, demand: Demand) -> int:
    """Thousandths of compute slices of one unit of the shape.

    KeyError: the class has no such slice.
    """
    for geometry, _ in state.pools[demand.gpu_class].kinds:
        if geometry.serves(demand.profile):
            whole = geometry.model.compute_slices
            slices = {place.profile: place.compute for place in geometry.model.placements}
            each = whole if demand.profile is None else slices[demand.profile]
            return each * (1000 if demand.share is None else demand.share)
    raise KeyError(demand.profile)


def _apart(state: CycleState, demand: Demand) -> Iterator[Variant]:
    """The gang with a looser level, without its pin, or on any nodes. Cores stay on one node."""
    if demand.pin:
        yield Variant("unpinned", replace(demand, pin=()))
    if demand.where is not None:
        yield Variant("anywhere", replace(demand, where=None))
    if demand.level == "domain":
        yield Variant("without_nvlink", replace(demand, level="node"))
    if demand.level != "any" and not _is_of_hosts(state, demand):
        yield Variant("split", replace(demand, level="any"))


def _stretched(state: CycleState, demand: Demand, smaller: Demand) -> int:
    """Seconds on a slice with a part of the compute."""
    share = compute_of(state, smaller)
    try:
        asked = compute_of(state, demand)
    except KeyError:
        return demand.duration
    return _minutes(demand.duration * asked, share)


def _minutes(seconds: int, part: int) -> int:
    """`seconds` / `part`, rounded up to whole minutes."""
    return -(-seconds // (part * 60)) * 60


def _same_profile(state: CycleState, demand: Demand, gpu_class: str) -> str | None:
    """The other class's profile of the same hardware id: names differ by memory."""
    if demand.profile is None:
        return None
    for geometry, _ in state.pools[demand.gpu_class].kinds:
        if geometry.serves(demand.profile):
            number = geometry.profile_id(demand.profile)
            return state.pools[gpu_class].kinds[0][0].profile_with_id(number)
    return None


def _smaller(state: CycleState, demand: Demand) -> list[str]:
    """The largest smaller slices without extras such as media engines."""
    pool = state.pools[demand.gpu_class]
    most = pool.units(demand.shape) or UNITS_PER_GPU
    found: list[str] = []
    sizes: set[int] = set()
    for profile in pool.kinds[0][0].common_profiles:
        units = pool.units(profile)
        if units < most and units not in sizes and pool.serves(profile):
            sizes.add(units)
            found.append(profile)
    return found[:_SLICES_OFFERED]
