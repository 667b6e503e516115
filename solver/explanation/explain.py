"""Reasons with their facts, made from the state that decided.

`allocation.words` renders them as sentences.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from solver.fleet.mig_geometry import WHOLE_MASK, Masks
from solver.fleet.pool import Pool
from solver.model.demand import Demand, Fit
from solver.model.inputs import UNITS_PER_GPU, Place, Request, Shape
from solver.model.sites.where import ANYWHERE
from solver.placement.gang import most_together
from solver.quota.use import Block
from solver.reasons.reason import Fact, Reason, reason
from solver.state.cycle_state import CycleState
from solver.state.room_search import parts_by_zone

Which = Literal["class", "booking", "planned"]
"""Whose GPUs are in maintenance: of the class, of the booking, or of its planned start."""

_NODES_NAMED = 4


@dataclass(frozen=True, slots=True)
class QueueAhead:
    """Bookings and quota units ahead in the queue of a class."""

    bookings: int = 0
    units: int = 0

    def plus(self, units: int) -> "QueueAhead":
        """With one more booking."""
        return QueueAhead(self.bookings + 1, self.units + units)


def shape(demand: Demand) -> dict[str, Fact | None]:
    """The facts that name a shape: class, profile, share."""
    return {"gpu_class": demand.gpu_class, "profile": demand.profile, "share": demand.share}


def where_facts(demand: Demand) -> dict[str, Fact | None]:
    """The facts that say on which nodes a demand may run."""
    where = demand.where or ANYWHERE
    return {
        "zones": ",".join(where.zones) or None,
        "not_zones": ",".join(where.not_zones) or None,
        "storage": where.storage or None,
        "scratch": where.scratch or None,
    }


def placed(state: CycleState, found: Fit) -> tuple[Reason, ...]:
    """The reasons of a placement: where each group is."""
    return tuple(_placed(state, part) for part in state.parts(found))


def _placed(state: CycleState, found: Fit) -> Reason:
    pool = state.pools[found.demand.gpu_class]
    nodes = sorted({pool.gpus[pool.column[place.gpu]].node for place in found.places})
    return reason(
        "placed",
        asked=found.demand.count,
        nodes=len(nodes),
        on=",".join(nodes[:_NODES_NAMED]),
        gpus=len({place.gpu for place in found.places}),
        near=_near(pool, found.places) if len(nodes) == 1 and found.demand.shape is None else None,
        **shape(found.demand),
    )


def _near(pool: Pool, places: tuple[Place, ...]) -> str | None:
    """How near whole GPUs of one node are by PCIe; None where they have NVLink, or it is not known."""
    if len(places) < 2 or not pool.near_of or pool.together("domain", places):
        return None
    columns = [pool.column[place.gpu] for place in places]
    if not all(pool.gpus[column].near for column in columns):
        return None
    shared = sum(len({int(near[column]) for column in columns}) == 1 for near in pool.near_of)
    return ("node", "processor", "switch")[shared]


def data_placed(state: CycleState, demand: Demand, places: Iterable[Place]) -> Reason:
    """The reason that says which nodes of a booking have all of its data, and which do not."""
    node_of = {gpu.id: gpu.node for pool in state.pools.values() for gpu in pool.gpus}
    nodes, able = {node_of[place.gpu] for place in places}, state.data.nodes_with(demand.data)
    return reason(
        "data_place",
        data=",".join(demand.data),
        has=_names(nodes.intersection(able)),
        lacks=_names(nodes.difference(able)),
        elsewhere_on=_names(set(able) - nodes) if nodes.difference(able) else None,
    )


def _names(nodes: Iterable[str]) -> str | None:
    return ",".join(sorted(nodes)[:_NODES_NAMED]) or None


def why_never(state: CycleState, demand: Demand) -> Reason | None:
    """The reason why a class can never serve the demand; None when it can. For a mixed demand, of
    the first group that can't be served."""
    if demand.groups:
        never = next(filter(None, (why_never(state, each) for each in demand.parts)), None)
        return never or _why_never_in_one_zone(state, demand)
    pool = state.pools.get(demand.gpu_class)
    if pool is None:
        return reason("unknown_class", gpu_class=demand.gpu_class)
    if demand.share is not None and (demand.count, demand.profile) != (1, None):
        return reason("share_of_one", asked=demand.count)
    if not any(geometry.serves(demand.shape) for geometry, _ in pool.kinds):
        return reason("impossible_profile", gpu_class=demand.gpu_class, profile=demand.profile)
    return (
        _why_never_in_mode(pool, demand)
        or _why_never_pinned(state, demand)
        or _why_never_there(state, demand)
        or _why_never_so_many(state, demand)
        or _why_never_on_hosts(state, demand)
        or _why_never_within_quota(state, demand)
    )


def possible_demands(
    state: CycleState, demands: Iterable[Demand]
) -> tuple[tuple[Demand, ...], tuple[Reason, ...]]:
    """The demands that could ever be served, and why the others can't."""
    able: list[Demand] = []
    never: list[Reason] = []
    for demand in demands:
        why = why_never(state, demand)
        if why is None:
            able.append(demand)
        else:
            never.append(why)
    return tuple(able), tuple(never)


def _why_never_pinned(state: CycleState, demand: Demand) -> Reason | None:
    """A pin names no GPU of the class, or too few."""
    if not demand.pin:
        return None
    if not state.pools[demand.gpu_class].within(demand.pin).any():
        return reason("pin_elsewhere", gpu_class=demand.gpu_class, pin=",".join(demand.pin))
    most = _most_pinned(state, demand)
    if most >= demand.count:
        return None
    pin = ",".join(demand.pin)
    return reason(
        "pin_too_small", asked=demand.count, most=most, pin=pin, level=demand.level, **shape(demand)
    )


def _why_never_there(state: CycleState, demand: Demand) -> Reason | None:
    """No GPU of the class is on such nodes, or too few."""
    if demand.where is None:
        return None
    if not state.pools[demand.gpu_class].allowed((), demand.where).any():
        return reason("where_elsewhere", gpu_class=demand.gpu_class, **where_facts(demand))
    most = _most_pinned(state, demand)
    if most >= demand.count:
        return None
    facts = {**shape(demand), **where_facts(demand)}
    return reason("where_too_small", asked=demand.count, most=most, level=demand.level, **facts)


def _why_never_in_one_zone(state: CycleState, demand: Demand) -> Reason | None:
    """Each group of a mixed demand has a zone, but no zone has all of them."""
    for parts in parts_by_zone(state.pools, demand):
        if all(_most_pinned(state, part) >= part.count for part in parts):
            return None
    return reason("no_zone_for_all")


def _most_pinned(state: CycleState, demand: Demand) -> int:
    """How many of the demand one group on its nodes could hold, all idle and in service."""
    pool = state.pools[demand.gpu_class]
    capacity = pool.capacity_on(demand.shape, _empty(pool, demand), pool.suits(demand.shape))
    return int(pool.sums(demand.level, capacity).max())


def _most_on_hosts(state: CycleState, demand: Demand) -> int:
    """How many of the demand one group could hold for its cores and memory, all idle."""
    pool = state.pools[demand.gpu_class]
    return most_together(pool, demand, _empty(pool, demand), state.all.hosts.whole(pool))


def _empty(pool: Pool, demand: Demand) -> Masks:
    """Nothing is taken, but what is not for the demand."""
    empty = np.zeros(len(pool), dtype=np.uint16)
    if demand.is_bound:
        empty[~pool.allowed(demand.pin, demand.where)] = WHOLE_MASK
    return empty


def _why_never_in_mode(pool: Pool, demand: Demand) -> Reason | None:
    """There would be enough GPUs if they were not fixed to the other mode."""
    made = pool.supports(demand.shape)
    other = made & ~pool.suits(demand.shape)
    is_short = pool.most(demand.shape, demand.level) < demand.count or not pool.serves(demand.shape)
    if not is_short or not other.any() or pool.most_of(made, demand.shape, demand.level) < demand.count:
        return None
    facts: dict[str, Fact | None] = {"gpu_class": demand.gpu_class, "gpus": len(pool)}
    mode = "whole" if demand.profile else "sliced"
    pinned = sum(pool.gpus[column].pinned for column in np.flatnonzero(other).tolist())
    if pinned:
        return reason("mode_pinned", pinned=pinned, mode=mode, **facts)
    return reason("mode_fixed", fixed=int(other.sum()), mode=mode, **facts)


def mode_change(gpu_class: str, count: int, seconds: int, shape: Shape) -> Reason:
    """GPUs that change between whole and slices before the start."""
    mode = "sliced" if isinstance(shape, str) else "whole"
    return reason("mode_change", gpu_class=gpu_class, gpus=count, mode=mode, seconds=seconds)


def _why_never_so_many(state: CycleState, demand: Demand) -> Reason | None:
    pool = state.pools[demand.gpu_class]
    if demand.profile is not None and demand.level == "domain":
        return _impossible_together(demand, 0)
    most = pool.most(demand.shape, "any")
    if most < demand.count <= pool.most_in_all(demand.shape):
        return reason("zone_too_small", asked=demand.count, most=most, **shape(demand))
    if most < demand.count:
        kind = {"gpu_class": demand.gpu_class, "profile": demand.profile}
        return reason("not_enough_gpus", asked=demand.count, most=most, **kind)
    most = pool.most(demand.shape, demand.level)
    return _impossible_together(demand, most) if most < demand.count else None


def _impossible_together(demand: Demand, most: int) -> Reason:
    return reason("impossible_together", asked=demand.count, level=demand.level, most=most, **shape(demand))


def _why_never_on_hosts(state: CycleState, demand: Demand) -> Reason | None:
    """The nodes are too small for the host cores or the memory."""
    if not any(demand.host_resources):
        return None
    most = _most_on_hosts(state, demand)
    if most >= demand.count:
        return None
    return reason(
        "host_too_small",
        cores=demand.cores,
        memory=demand.memory,
        most=most,
        asked=demand.count,
        gpu_class=demand.gpu_class,
        level=demand.level,
    )


def _why_never_within_quota(state: CycleState, demand: Demand) -> Reason | None:
    use = state.use(demand)
    block = state.quota.never(use, demand.duration)
    if block is None:
        return None
    if block.kind == "limit":
        return _limit_reason(demand, block, use.units)
    return _quota_reason(state, demand, block, demand.duration)


def maintenance(away: int, which: Which, back: int, gpu_class: str | None = None) -> Reason:
    """GPUs in maintenance during the window; `back` is when the last of them returns."""
    return reason("maintenance", back, gpus=away, which=which, gpu_class=gpu_class)


def why_quota(state: CycleState, demand: Demand, starts: int) -> Reason | None:
    """The limit that forbids a window from `starts` on, and when it frees."""
    if demand.groups:
        return next(filter(None, (why_quota(state, each, starts) for each in demand.parts)), None)
    block = state.over(demand, starts)
    if block is None:
        return None
    frees = state.quota.frees_at(state.use(demand), (starts, starts + demand.duration))
    found = _quota_reason(state, demand, block, demand.duration, starts)
    return replace(found, frees_at=frees)


def _quota_reason(
    state: CycleState, demand: Demand, block: Block, seconds: int, starts: int | None = None
) -> Reason:
    """The reason of a quota block; without `starts` it holds forever."""
    asked, most, used, name = state.use(demand).units, block.most, block.used, demand.gpu_class
    if block.kind == "limit":
        return _limit_reason(demand, block, asked, used)
    if block.kind == "guarantee":
        longest = state.quota.tier(demand.tier).borrow
        parts = state.quota.parts
        part = parts.kept_from(state.use(demand)) if parts is not None else None
        return reason(
            "guarantee_only",
            used=used,
            guaranteed=most,
            asked=asked,
            gpu_class=name,
            borrow_seconds=longest or None,
            part=part.units if part else None,
            tiers=", ".join(part.tiers) if part else None,
        )
    if block.kind == "hours":
        counted = seconds if starts is None else _counted(block, (starts, starts + seconds))
        return _hours_reason(demand, asked * counted, block)
    if block.kind == "headroom":
        return reason("headroom", gpus=most, gpu_class=name, until=block.until)
    own = 0
    if starts is not None:
        window = (starts, starts + demand.duration)
        own = asked - state.quota.borrowed(state.use(demand), window)
    return reason("lent_out", own=own, borrowed=asked - own, asked=asked, gpu_class=name)


def _limit_reason(demand: Demand, block: Block, asked: int, used: int | None = None) -> Reason:
    """`used` is the owner's use in the window; None: the limit is too low for the demand alone."""
    facts: dict[str, Fact | None] = {"limit": block.most, "asked": asked, "used": used}
    if block.is_dated:
        facts["dated"] = 1
    if " " in block.owner:
        # The name of a person's limit starts with the tenant or project in which it holds.
        facts["whose"] = _whose(demand, block.owner.partition(" ")[0])
        return reason("person_quota", gpu_class=demand.gpu_class, **facts)
    code = "project_quota"
    if block.owner not in demand.owners:
        code = "lab_quota"
    elif _whose(demand, block.owner) == "tenant":
        code = "tenant_quota"
    return reason(code, gpu_class=demand.gpu_class, owner=block.owner, **facts)


def _counted(block: Block, window: tuple[int, int]) -> int:
    """Seconds of the window that the cap counts: of a period only those inside it."""
    cap = block.cap
    if cap is None or cap.rolling_days is not None:
        return window[1] - window[0]
    return min(window[1], cap.ends) - max(window[0], cap.starts)


def _hours_reason(demand: Demand, asked: int, block: Block) -> Reason:
    hours = UNITS_PER_GPU * 3_600
    days = block.cap.rolling_days if block.cap else None
    most, used, needs = block.most // hours, -(-block.used // hours), -(-asked // hours)
    return reason(
        "gpu_hours",
        owner=block.owner,
        limit=most,
        used=used,
        asked=needs,
        whose=_whose(demand, block.owner) if block.owner in demand.owners else "lab",
        days=days or None,
    )


def _whose(demand: Demand, owner: str) -> Literal["tenant", "project"]:
    """Which of the demand's owners it is."""
    return "tenant" if demand.owners and owner == demand.owners[0] else "project"


def freed_by(reasons: tuple[Reason, ...], later: Fit | None) -> tuple[Reason, ...]:
    """The reasons; missing room ends when the next window begins."""
    if later is None:
        return reasons
    return tuple(
        replace(each, frees_at=later.starts) if each.check == "together" and each.frees_at is None else each
        for each in reasons
    )


def why_window_impossible(state: CycleState, request: Request) -> Reason | None:
    """The rule against the window itself: past, too far ahead, or too short for its duration."""
    now, ends = state.now, request.earliest + request.duration
    if request.duration <= 0:
        return reason("too_short")
    first = state.first_start(request.earliest)
    if first > now + state.policy.horizon:
        return reason(
            "advance_window",
            request.earliest - state.policy.horizon,
            horizon_seconds=state.policy.horizon,
        )
    if request.fixed:
        return reason("window_past") if ends <= now else None
    if request.latest is None:
        return None
    if request.latest <= now:
        return reason("deadline_passed")
    # A paused booking gets what is left before its deadline, however short.
    least = max(now, request.earliest) + 1 if request.paused else first + request.duration
    return reason("deadline_unreachable", duration=request.duration) if request.latest < least else None
