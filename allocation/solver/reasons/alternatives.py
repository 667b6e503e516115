"""Other ways to serve an ask: apart, fewer for longer, another class, a smaller slice."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from allocation.solver.model.inputs import UNITS_PER_GPU
from allocation.solver.model.plan import Alternative
from allocation.solver.placement.gang import Want
from allocation.solver.state.working import Found, Working

Kind = Literal[
    "as_asked", "later", "unpinned", "without_nvlink", "split", "fewer", "other_class", "slice"
]  # fmt: skip
Lengths = Mapping[str, int]
"""Seconds that work takes on each class; empty when the time is fixed whatever the class."""

_SLICES_OFFERED = 2
_ALTERNATIVES = 3


@dataclass(frozen=True, slots=True)
class Variant:
    """One way, not yet looked for on the calendar."""

    kind: Kind
    want: Want


def variants(
    working: Working, wants: tuple[Want, ...], lengths: Lengths | None = None
) -> Iterator[Variant]:
    """Ways that differ from the ask in one thing, nearest first; only what could ever fit.

    Work goes on until it is done, so fewer or slower GPUs have it for longer.
    """
    lengths = lengths or {}
    for want in wants:
        yield from _apart(want)
    for want in wants[:1]:
        if lengths and want.count > 1:
            yield Variant("fewer", fewer(want))
        for name in sorted(set(working.pools) - {want.gpu_class for want in wants}):
            profile = _same_profile(working, want, name)
            known = not lengths or name in lengths
            if known and (want.profile is None or profile is not None):
                seconds = lengths.get(name, want.duration)
                other = replace(want, gpu_class=name, profile=profile, duration=seconds)
                yield Variant("other_class", other)
    for want in wants:
        for profile in _smaller(working, want):
            smaller = replace(want, profile=profile, share=None, level=_slice_level(want))
            seconds = _stretched(working, want, smaller) if lengths else want.duration
            yield Variant("slice", replace(smaller, duration=seconds))


def fewer(want: Want) -> Want:
    """Half of the gang for twice as long, as if work were shared evenly."""
    count = want.count // 2
    return replace(want, count=count, duration=_minutes(want.duration * want.count, count))


def next_free(working: Working, able: tuple[Want, ...], starts: int) -> Found | None:
    """The first window from `starts` on in which one of the wants fits, within the horizon."""
    return working.earliest(able, starts, working.now + working.policy.horizon)


def alternatives(
    working: Working,
    asked: tuple[Want, ...],
    later: Found | None,
    starts: int,
    lengths: Lengths | None = None,
) -> tuple[Alternative, ...]:
    """Up to three windows for a refused ask: `later`, then other ways at `starts`."""
    found = [later] if later else []
    for variant in variants(working, in_fleet(working, asked), lengths):
        if len(found) == _ALTERNATIVES:
            break
        if _exists(working, variant.want):
            other = working.at(variant.want, starts)
            found += [other] if other else []
    return tuple(alternative_of(each) for each in found)


def in_fleet(working: Working, wants: tuple[Want, ...]) -> tuple[Want, ...]:
    """Those whose class the fleet has."""
    return tuple(want for want in wants if want.gpu_class in working.pools)


def alternative_of(found: Found) -> Alternative:
    """A found window as the plan says it."""
    want = found.want
    return Alternative(
        want.gpu_class, want.profile, want.count, found.starts, found.ends, want.share, want.pin
    )


def compute_of(working: Working, want: Want) -> int:
    """Thousandths of compute slices that one of the shape has.

    KeyError: the class makes no such slice.
    """
    for geometry, _ in working.pools[want.gpu_class].kinds:
        if geometry.serves(want.profile):
            whole = geometry.model.compute_slices
            slices = {place.profile: place.compute for place in geometry.model.placements}
            each = whole if want.profile is None else slices[want.profile]
            return each * (1000 if want.share is None else want.share)
    raise KeyError(want.profile)


def _apart(want: Want) -> Iterator[Variant]:
    """The gang less close together, or not where it is pinned to."""
    if want.pin:
        yield Variant("unpinned", replace(want, pin=()))
    if want.level == "domain":
        yield Variant("without_nvlink", replace(want, level="node"))
    if want.level != "any":
        yield Variant("split", replace(want, level="any"))


def _stretched(working: Working, want: Want, smaller: Want) -> int:
    """Seconds on a slice with a part of the compute."""
    share = compute_of(working, smaller)
    try:
        asked = compute_of(working, want)
    except KeyError:
        return want.duration
    return _minutes(want.duration * asked, share)


def _minutes(seconds: int, part: int) -> int:
    """`seconds` / `part`, rounded up to whole minutes: lengths that people can say."""
    return -(-seconds // (part * 60)) * 60


def _exists(working: Working, want: Want) -> bool:
    pool = working.pools[want.gpu_class]
    return pool.serves(want.shape) and pool.most(want.shape, want.level) >= want.count


def _same_profile(working: Working, want: Want, gpu_class: str) -> str | None:
    """The other class's profile of the same hardware id: names differ by the memory."""
    if want.profile is None:
        return None
    for geometry, _ in working.pools[want.gpu_class].kinds:
        if geometry.serves(want.profile):
            number = geometry.profile_id(want.profile)
            return working.pools[gpu_class].kinds[0][0].profile_with_id(number)
    return None


def _smaller(working: Working, want: Want) -> list[str]:
    """The largest slices smaller than what is asked for, of those without extras of their own."""
    pool = working.pools[want.gpu_class]
    most = pool.units(want.shape) or UNITS_PER_GPU
    found: list[str] = []
    sizes: set[int] = set()
    for profile in pool.kinds[0][0].common_profiles:
        units = pool.units(profile)
        if units < most and units not in sizes and pool.serves(profile):
            sizes.add(units)
            found.append(profile)
    return found[:_SLICES_OFFERED]


def _slice_level(want: Want) -> Literal["gpu", "node", "rack", "any"]:
    """Slices have no NVLink: a wish for it becomes the node."""
    return "node" if want.level == "domain" else want.level
