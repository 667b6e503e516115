"""The bound of a guarantee: how long somebody inside it waits at most, in plain worlds."""

from collections.abc import Iterator

from solver import Tier
from tests.solver.standing import UNITS
from tests.worlds.life import EVERY, Turn, World

MARGIN = 30


class Bound:
    """Follows the claims of one world that stay inside their guarantee, until they start.

    Fixed windows that were granted before are firm: no booking moves them. Where they and work
    that nobody may have paused leave no GPU for a claim's time, it has no bound.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._due: dict[str, int] = {}

    def look(self, turn: Turn) -> Iterator[str]:
        """Claims that are refused or have not started in time."""
        world = self._world
        if not world.drawn.is_plain:
            return
        for name in list(self._due):
            # Its owner may ask for a later window meanwhile.
            earliest = world.runs[name].job.earliest
            self._due[name] = max(self._due[name], earliest + self._patience())
            if name in world.started or name in world.ended or name in world.refused:
                yield from self._check(name, self._due.pop(name))
            elif not self._stays_inside(name) or self._is_behind_windows(name):
                del self._due[name]
            elif world.now > self._due[name]:
                yield from self._check(name, self._due.pop(name))
        arrived = {r.booking for r in turn.site.requests if r.planned is None and not r.paused}
        for name in sorted(arrived):
            run = world.runs[name]
            is_new = run.job.at == turn.site.now and not run.job.fixed
            is_claim = is_new and run.job.tier.counts and self._stays_inside(name)
            if is_claim and not self._is_behind_windows(name):
                self._due[name] = run.job.earliest + self._patience()

    def _patience(self) -> int:
        tiers: list[Tier] = [t for t in self._world.tiers if t.pausable]
        protected = max(*(t.protected for t in tiers), self._world.policy.cool_down)
        return protected + max(t.grace for t in tiers) + MARGIN + EVERY

    def _check(self, name: str, due: int) -> Iterator[str]:
        started = self._world.started.get(name)
        if name in self._world.refused:
            yield f"{name}, inside its guarantee, is refused"
        elif name not in self._world.ended and (started is None or started > due):
            yield f"{name}, inside its guarantee, has not started by {due}"

    def _stays_inside(self, name: str) -> bool:
        """All of its tenant that is there or waits fits the guarantee, by project and in all."""
        job = self._world.runs[name].job
        jobs = {row.booking for row in self._world.rows} | set(self._world.waiting)
        mine = [self._world.runs[each].job for each in jobs | {name}]
        mine = [each for each in mine if each.tenant == job.tenant and each.tier.counts]
        sure = self._guaranteed(job.tenant) // UNITS
        project = self._guaranteed(job.project, sure * UNITS) // UNITS
        own = sum(each.project == job.project for each in mine)
        return len(mine) <= sure and own <= project

    def _is_behind_windows(self, name: str) -> bool:
        """Fixed windows of others that have not begun are on every GPU that could be cleared for
        it: each GPU has one of them, work that is never paused, or work of who has a guarantee."""
        world = self._world
        job = world.runs[name].job
        until = max(world.now, job.earliest) + self._patience() + job.seconds
        windows = [row for row in world.rows if self._is_window(row.booking, name)]
        near = {row.place.gpu for row in windows if not row.started and row.starts < until}
        for each, request in world.waiting.items():
            start = request.planned
            if start is not None and self._is_window(each, name) and start.starts < until:
                near |= {place.gpu for place in start.places}
        stays = {row.place.gpu for row in world.rows if self._may_stay(row.booking)}
        return bool(near - stays) and len(near | stays) == len(world.drawn.gpus)

    def _is_window(self, other: str, name: str) -> bool:
        return other != name and self._world.runs[other].job.fixed

    def _may_stay(self, other: str) -> bool:
        job = self._world.runs[other].job
        return job.tier.counts and (not job.tier.pausable or self._guaranteed(job.tenant) > 0)

    def _guaranteed(self, owner: str, otherwise: int = 0) -> int:
        limits = self._world.limits
        rows = (row for row in limits if (row.owner, row.gpu_class) == (owner, "h100"))
        return next((row.guaranteed for row in rows), otherwise)
