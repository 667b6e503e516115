"""Other ways to serve an ask: another class, a smaller slice, apart instead of together."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from allocation.solver.placement import Want
from allocation.solver.plan import Alternative
from allocation.solver.types import UNITS_PER_GPU
from allocation.solver.working import Found, Working

Kind = Literal["as_asked", "later", "split", "other_class", "slice"]

_SLICES_OFFERED = 2
_ALTERNATIVES = 3


@dataclass(frozen=True, slots=True)
class Variant:
    """One way, not yet looked for on the calendar."""

    kind: Kind
    want: Want


def variants(working: Working, wants: tuple[Want, ...]) -> Iterator[Variant]:
    """Ways that differ from the ask in one thing, nearest first; only what could ever fit."""
    for want in wants:
        if want.level != "any":
            yield Variant("split", replace(want, level="any"))
    named = {want.gpu_class for want in wants}
    for want in wants[:1]:
        for name in sorted(set(working.pools) - named):
            profile = _same_profile(working, want, name)
            if want.profile is None or profile is not None:
                yield Variant("other_class", replace(want, gpu_class=name, profile=profile))
    for want in wants:
        for profile in _smaller(working, want):
            level = _slice_level(want)
            yield Variant("slice", replace(want, profile=profile, share=None, level=level))


def next_free(working: Working, able: tuple[Want, ...], starts: int) -> Found | None:
    """The first window from `starts` on in which one of the wants fits, within the horizon."""
    return working.earliest(able, starts, working.now + working.policy.horizon)


def alternatives(
    working: Working, asked: tuple[Want, ...], later: Found | None, starts: int
) -> tuple[Alternative, ...]:
    """Up to three windows for a refused ask: `later`, then other ways at `starts`."""
    found = [later] if later else []
    for variant in variants(working, in_fleet(working, asked)):
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
        want.gpu_class, want.profile, want.count, found.starts, found.ends, want.share
    )


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
