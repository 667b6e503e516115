"""Who waits although there is room for it: nobody inside its guarantee may."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from solver import Request, Snapshot
from tests.solver import truth
from tests.solver.standing import UNITS, Block, units_of
from tests.worlds.life import Turn

if TYPE_CHECKING:
    from tests.worlds.oracle import Oracle


class FreeRoom:
    """What is free in one world, by the definitions of its oracle."""

    def __init__(self, oracle: "Oracle") -> None:
        self._oracle, self._world = oracle, oracle.world

    def look(self, turn: Turn) -> Iterator[str]:
        """Single whole GPUs inside their guarantee that wait while one is free for all of their
        time, and planned for nobody."""
        site, plan = turn.site, turn.plan
        planned = [(p, w.starts, w.ends) for w in plan.waits for p in w.places]
        planned += [(p, soft.starts, soft.ends) for soft in plan.soft for p in soft.places]
        taken = [(r.place, r.starts, r.ends) for r in self._world.rows] + planned
        use = self._oracle.blocks()
        for wait in plan.waits:
            request = next((r for r in site.requests if r.booking == wait.booking), None)
            if request is None or not self._is_simple(request, site) or wait.starts <= site.now:
                continue
            until = site.now + request.duration
            mine = {(p.gpu, p.start) for p in wait.places}
            free = [
                gpu.id
                for gpu in site.gpus
                if gpu.gpu_class == request.ask.classes[0]
                and (gpu.usable and not gpu.silent)
                and gpu.mode in (None, "whole")
                and not any(
                    place.gpu == gpu.id and starts < until and site.now < ends
                    for place, starts, ends in taken
                    if (place.gpu, place.start) not in mine or starts != wait.starts
                )
                and not any(
                    b.gpu == gpu.id and b.starts < until and site.now < b.ends for b in site.blackouts
                )
            ]
            if free and self._is_within(request, use) and self._has_cap(request, site):
                yield f"{site.now}: {request.booking} waits until {wait.starts}, {free[0]} is free"

    def _is_simple(self, request: Request, site: Snapshot) -> bool:
        ask = request.ask
        is_whole = ask.count == 1 and ask.profile is None and ask.share is None
        tier = self._oracle.tiers[request.tier]
        return (
            is_whole
            and tier.counts
            and not tier.prefers
            and not (
                ask.cores
                or ask.memory
                or ask.pin
                or ask.where
                or ask.groups
                or request.fixed
                or request.latest
            )
            and not (request.durations or request.cheapest or request.home)
            and request.earliest <= site.now
        )

    def _has_cap(self, request: Request, site: Snapshot) -> bool:
        """True where its person may have one more GPU of the class for all of its time, and it is
        in no lab and has no GPU-hour cap, which have limits of their own."""
        gpu_class = request.ask.classes[0]
        capped = {cap.owner for cap in site.caps if cap.gpu_class == gpu_class}
        if any(request.project in lab.projects for lab in site.labs) or capped & {
            request.tenant,
            request.project,
        }:
            return False
        caps = {
            cap.person: cap.most
            for cap in site.persons
            if (cap.scope, cap.gpu_class) == (request.tenant, gpu_class)
        }
        most = caps.get(request.owner, caps.get(""))
        has = sum(
            units_of(self._oracle.model_of[row.place.gpu], row.place)
            for row in self._world.rows
            if (row.tenant, row.owner) == (request.tenant, request.owner)
            and self._oracle.classes[row.place.gpu] == gpu_class
        )
        has += sum(
            units_of(self._oracle.model_of[place.gpu], place)
            for other in self._world.waiting.values()
            if (other.tenant, other.owner) == (request.tenant, request.owner)
            and other.booking != request.booking
            and other.planned is not None
            and other.planned.starts < site.now + request.duration
            for place in other.planned.places
            if self._oracle.classes[place.gpu] == gpu_class
        )
        return most is None or has + UNITS <= most

    def _is_within(self, request: Request, use: list[Block]) -> bool:
        """Inside its project's and its tenant's part, whatever else of the tenant is there, and
        next to what its other projects never lend."""
        gpu_class = request.ask.classes[0]
        now, dated = self._world.now, self._world.drawn.guarantees
        until = now + request.duration + self._world.policy.grid
        falls = (each.starts for each in dated), (each.ends for each in dated)
        instants = {now, *(at for each in falls for at in each if now < at < until)}
        sure = min(self._oracle.guaranteed(request.tenant, gpu_class, at) or 0 for at in instants)
        sure -= sum(
            part.units
            for part in self._world.drawn.tier_parts
            if (part.owner, part.gpu_class) == (request.tenant, gpu_class) and request.tier not in part.tiers
        )
        mine = [b for b in use if b.tenant == request.tenant and b.gpu_class == gpu_class]
        mine_counted = sum(b.units for b in mine if b.counts)
        notified = sum(
            units_of(self._oracle.model_of[row.place.gpu], row.place)
            for row in self._world.rows
            if row.pausing and row.tenant == request.tenant
        )
        planned = sum(
            UNITS * truth.count_of(r.ask)
            for r in self._world.waiting.values()
            if r.tenant == request.tenant and r.booking != request.booking and r.planned
        )
        project = self._oracle.guaranteed(request.project, gpu_class)
        own = sum(b.units for b in mine if b.project == request.project)
        in_project = project is None or own + UNITS <= project
        kept = sum(
            max(0, row.guaranteed - row.lend)
            for row in self._world.limits
            if (row.parent, row.gpu_class) == (request.tenant, gpu_class)
            and row.owner != request.project
            and row.lend is not None
        )
        return in_project and mine_counted + notified + planned + kept + UNITS <= sure
