"""Why: reasons with their facts, made from the state that decided.

`allocation.words` says them in sentences.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from allocation.reasons.reason import Fact, Reason, reason, with_facts
from allocation.solver.fleet.pool import Pool
from allocation.solver.model.inputs import UNITS_PER_GPU, Shape
from allocation.solver.placement.gang import Want
from allocation.solver.quota.quota import Block
from allocation.solver.state.working import Found, Working

Which = Literal["class", "booking", "planned"]
"""Whose GPUs are in maintenance: of a class, of the booking, or those it was planned on."""

_NODES_NAMED = 4


@dataclass(frozen=True, slots=True)
class Line:
    """Who is ahead in a class: bookings and quota units."""

    bookings: int = 0
    units: int = 0

    def longer(self, units: int) -> "Line":
        """With one more booking."""
        return Line(self.bookings + 1, self.units + units)


def shape(want: Want) -> dict[str, Fact | None]:
    """The facts that name a shape: class, profile, share."""
    return {"gpu_class": want.gpu_class, "profile": want.profile, "share": want.share}


def placed(working: Working, found: Found) -> Reason:
    """Why a winner got what it got."""
    pool = working.pools[found.want.gpu_class]
    nodes = sorted({pool.gpus[pool.column[place.gpu]].node for place in found.places})
    return reason(
        "placed",
        asked=found.want.count,
        nodes=len(nodes),
        on=",".join(nodes[:_NODES_NAMED]),
        gpus=len({place.gpu for place in found.places}),
        **shape(found.want),
    )


def why_never(working: Working, want: Want) -> Reason | None:
    """Why a class can never serve the want, whatever else ends; None when it can."""
    pool = working.pools.get(want.gpu_class)
    if pool is None:
        return reason("unknown_class", gpu_class=want.gpu_class)
    if want.share is not None and (want.count, want.profile) != (1, None):
        return reason("share_of_one", asked=want.count)
    if not any(geometry.serves(want.shape) for geometry, _ in pool.kinds):
        return reason("impossible_profile", gpu_class=want.gpu_class, profile=want.profile)
    return (
        _why_never_cut_so(pool, want)
        or _why_never_pinned(working, want)
        or _why_never_so_many(working, want)
        or _why_never_beside(working, want)
        or _why_never_within_quota(working, want)
    )


def possible_wants(
    working: Working, wants: Iterable[Want]
) -> tuple[tuple[Want, ...], tuple[Reason, ...]]:
    """The classes that could serve the ask one day, and why the others never can."""
    able: list[Want] = []
    never: list[Reason] = []
    for want in wants:
        why = why_never(working, want)
        if why is None:
            able.append(want)
        else:
            never.append(why)
    return tuple(able), tuple(never)


def _why_never_pinned(working: Working, want: Want) -> Reason | None:
    """Nodes and GPUs that are named and are not of the class, or too few."""
    if not want.pin:
        return None
    if not working.pools[want.gpu_class].within(want.pin).any():
        return reason("pin_elsewhere", gpu_class=want.gpu_class, pin=",".join(want.pin))
    most = working.most_pinned(want)
    if most >= want.count:
        return None
    pin = ",".join(want.pin)
    return reason(
        "pin_too_small", asked=want.count, most=most, pin=pin, level=want.level, **shape(want)
    )


def _why_never_cut_so(pool: Pool, want: Want) -> Reason | None:
    """GPUs that there are enough of, were they not kept in the other mode."""
    made = pool.made_for(want.shape)
    other = made & ~pool.suits(want.shape)
    is_short = pool.most(want.shape, want.level) < want.count or not pool.serves(want.shape)
    if not is_short or not other.any() or pool.most_of(made, want.shape, want.level) < want.count:
        return None
    facts: dict[str, Fact | None] = {"gpu_class": want.gpu_class, "gpus": len(pool)}
    mode = "whole" if want.profile else "sliced"
    pinned = sum(pool.gpus[column].pinned for column in np.flatnonzero(other).tolist())
    if pinned:
        return reason("mode_pinned", pinned=pinned, mode=mode, **facts)
    return reason("mode_fixed", fixed=int(other.sum()), mode=mode, **facts)


def mode_change(gpu_class: str, count: int, seconds: int, shape: Shape) -> Reason:
    """GPUs that change between whole and slices before something can start on them."""
    mode = "sliced" if isinstance(shape, str) else "whole"
    return reason("mode_change", gpu_class=gpu_class, gpus=count, mode=mode, seconds=seconds)


def _why_never_so_many(working: Working, want: Want) -> Reason | None:
    pool = working.pools[want.gpu_class]
    if want.profile is not None and want.level == "domain":
        return _impossible_together(want, 0)
    most = pool.most(want.shape, "any")
    if most < want.count:
        kind = {"gpu_class": want.gpu_class, "profile": want.profile}
        return reason("not_enough_gpus", asked=want.count, most=most, **kind)
    most = pool.most(want.shape, want.level)
    return _impossible_together(want, most) if most < want.count else None


def _impossible_together(want: Want, most: int) -> Reason:
    return reason(
        "impossible_together", asked=want.count, level=want.level, most=most, **shape(want)
    )


def _why_never_beside(working: Working, want: Want) -> Reason | None:
    """Nodes too small for the host cores or the memory that is asked for."""
    if not any(want.of_host):
        return None
    most = working.most_beside(want)
    if most >= want.count:
        return None
    return reason(
        "host_too_small", cores=want.cores, memory=want.memory, most=most, asked=want.count,
        gpu_class=want.gpu_class, level=want.level,
    )  # fmt: skip


def _why_never_within_quota(working: Working, want: Want) -> Reason | None:
    use = working.use(want)
    block = working.quota.never(use, want.duration)
    if block is None:
        return None
    if block.kind == "limit":
        return _limit_reason(want, block, use.units)
    return _quota_reason(working, want, block, want.duration)


def maintenance(away: int, which: Which, back: int, gpu_class: str | None = None) -> Reason:
    """GPUs in maintenance for some of the time; `back` is when the last of them returns."""
    return reason("maintenance", back, gpus=away, which=which, gpu_class=gpu_class)


def why_quota(working: Working, want: Want, starts: int) -> Reason | None:
    """The limit that forbids the window which begins at `starts`, with when it frees."""
    block = working.over(want, starts)
    if block is None:
        return None
    frees = working.quota.frees_at(working.use(want), (starts, starts + want.duration))
    found = _quota_reason(working, want, block, want.duration, starts)
    return replace(found, frees_at=frees)


def _quota_reason(
    working: Working, want: Want, block: Block, seconds: int, starts: int | None = None
) -> Reason:
    """What the block says; without `starts` it holds for ever."""
    asked, most, used, name = working.use(want).units, block.most, block.used, want.gpu_class
    if block.kind == "limit":
        return _limit_reason(want, block, asked, used)
    if block.kind == "guarantee":
        return reason("guarantee_only", used=used, guaranteed=most, asked=asked, gpu_class=name)
    if block.kind == "hours":
        counted = seconds if starts is None else _counted(block, (starts, starts + seconds))
        return _hours_reason(want, asked * counted, block)
    own = 0
    if starts is not None:
        window = (starts, starts + want.duration)
        own = asked - working.quota.borrowed(working.use(want), window)
    return reason("lent_out", own=own, borrowed=asked - own, asked=asked, gpu_class=name)


def _limit_reason(want: Want, block: Block, asked: int, used: int | None = None) -> Reason:
    """`used` is what the owner has in the window; None: the limit is too low for the ask alone."""
    code = "tenant_quota" if _whose(want, block.owner) == "tenant" else "project_quota"
    facts: dict[str, Fact | None] = {
        "owner": block.owner,
        "limit": block.most,
        "asked": asked,
        "used": used,
    }
    return reason(code, gpu_class=want.gpu_class, **facts)


def _counted(block: Block, window: tuple[int, int]) -> int:
    """Seconds of the window that the cap counts: of a period only those that lie in it."""
    cap = block.cap
    if cap is None or cap.rolling_days is not None:
        return window[1] - window[0]
    return min(window[1], cap.ends) - max(window[0], cap.starts)


def _hours_reason(want: Want, asked: int, block: Block) -> Reason:
    hours = UNITS_PER_GPU * 3_600
    days = block.cap.rolling_days if block.cap else None
    most, used, needs = block.most // hours, -(-block.used // hours), -(-asked // hours)
    return reason(
        "gpu_hours", owner=block.owner, limit=most, used=used, asked=needs,
        whose=_whose(want, block.owner), days=days or None,
    )  # fmt: skip


def _whose(want: Want, owner: str) -> Literal["tenant", "project"]:
    """Which of the want's owners it is."""
    return "tenant" if want.owners and owner == want.owners[0] else "project"


def freed_by(reasons: tuple[Reason, ...], later: Found | None) -> tuple[Reason, ...]:
    """The same reasons; room that is in the way is out of it when the next window begins."""
    if later is None:
        return reasons
    return tuple(
        replace(each, frees_at=later.starts)
        if each.check == "together" and each.frees_at is None
        else each
        for each in reasons
    )


def with_totals(reasons: tuple[Reason, ...], total: int) -> tuple[Reason, ...]:
    """The same reasons, the place in line said out of all that wait for the class."""
    if not any(each.code == "line" for each in reasons):
        return reasons
    return tuple(with_facts(each, of=total) if each.code == "line" else each for each in reasons)
