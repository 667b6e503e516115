"""What must hold of every world, computed from its definition, without the solver's own code.

The rules are those of the claims page: who is inside a guarantee, who may pause which booking, and
what a planned start is worth. Hardware and limits are checked by `tests.solver.truth`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from solver import Ask, Held, Limit, Pause, Place, Plan, Request, Snapshot, Waiting
from tests.solver import truth
from tests.solver.builders import NOON
from tests.solver.standing import Block, inside_of, potential_of, units_of
from tests.worlds.bound import Bound
from tests.worlds.core_checks import cores_look
from tests.worlds.found import Found
from tests.worlds.free_room import FreeRoom
from tests.worlds.guarantees import limits_now
from tests.worlds.jobs import Job, owners_of
from tests.worlds.life import Turn, World
from tests.worlds.messages import Messages
from tests.worlds.operator_checks import OperatorChecks
from tests.worlds.planned import planned_look
from tests.worlds.queue import is_proven, is_unproven, requests_after, without_start
from tests.worlds.replay import is_true, said_again
from tests.worlds.request_checks import RequestChecks

EMPTY = Plan((), (), (), ())
CUTS = {"limits", "maintenance"}
NAMED = {
    "quota_cut": {"limits"},
    "maintenance": {"maintenance"},
    "hardware_lost": {"failure", "drain"},
}
"""Reasons that name an event from outside, and the events."""
PLACES_LOST = {"failure", "drain", "maintenance"}
"""Events after which a start may have to be at another place."""
OTHER_RULES = {"tiers", "policy"}
"""Events after which every start may be another one."""
SAMPLED = 24
"""Of so many turns one is decided again with something more."""
REPLAYED = 2
"""So many starts made later in a world are decided again without the others."""


def _decided(plan: Plan) -> list[Pause]:
    """Pauses by the rules of the claims page; those of an order are the operator's."""
    ordered = "moved_together"
    return [each for each in plan.pauses if all(why.code != ordered for why in each.reasons)]


class Oracle:
    """Follows one world; the same one from its first turn to its last."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.found = Found()
        self.tiers = {tier.slug: tier for tier in world.tiers}
        self.classes = {gpu.id: gpu.gpu_class for gpu in world.drawn.gpus}
        self._models = {model.slug: model for model in world.snapshot().models}
        self.model_of = {gpu.id: self._models[gpu.model] for gpu in world.drawn.gpus}
        self._seen: set[tuple[str, frozenset[str]]] = set()
        self._last: dict[str, frozenset[str]] = {}
        self._cut = False
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._turn = len(world.drawn.jobs) % SAMPLED
        self._messages = Messages()
        self._without_start: set[str] = set()
        self._request_checks = RequestChecks(world)
        self._operator_checks = OperatorChecks(world)
        self._bound = Bound(world)
        self._free_room = FreeRoom(self)

    def look(self, turn: Turn) -> None:
        """Checks one turn, after its plan was made true."""
        found = self.found
        found.cycles += 1
        found.pauses += len(turn.plan.pauses)
        self._cut = self._cut or bool(turn.outside & CUTS)
        if turn.outside & OTHER_RULES:
            self.tiers = {tier.slug: tier for tier in self.world.tiers}
        found.violations += [f"{turn.site.now}: {drop} dropped" for drop in turn.plan.dropped]
        found.violations += self._hardware(turn)
        found.violations += self._free_room.look(turn)
        found.violations += planned_look(self.world, turn, is_cut=self._cut)
        found.inside_guarantee += self._inside(turn)
        found.later += self._later(turn)
        self._messages.read(turn)
        self._without_start = set(without_start(turn))
        found.rings += self._rings(turn)
        # A quote does not count who waits behind the depth of planning.
        is_waiting = len(turn.site.requests) > 0 and not self.world.policy.plan_depth
        if is_waiting and found.cycles % SAMPLED == self._turn:
            found.violations += said_again(turn, self.world.policy)
        if found.cycles % SAMPLED == self._turn:
            found.violations += cores_look(turn, self.world.policy)
        found.violations += self._potential(turn)
        for pause in turn.plan.pauses:
            self._pairs[pause.booking, pause.beneficiary] += 1
        found.violations += self._bound.look(turn)
        found.violations += self._request_checks.look(turn)
        found.violations += self._operator_checks.look(turn)

    def end(self) -> Found:
        """What can be said only afterwards: everybody was served, and in time."""
        world = self.world
        left = sorted(world.runs.keys() - world.ended.keys() - world.refused.keys())
        capped = {cap.owner for cap in world.drawn.caps}
        jobs = {name: world.runs[name].job for name in left}
        # Who borrows nothing waits where its guarantee was cut.
        left = [
            name
            for name, job in jobs.items()
            if not capped & {*owners_of(job)} and not (job.within and self._cut)
        ]
        self.found.violations += [f"{name} was never served" for name in left]
        self.found.bookings = len(world.runs)
        self.found.mixed = sum(bool(world.runs[name].job.ask.groups) for name in world.started)
        self.found.requests = world.people.counts | world.operators.counts
        self.found.messages = sum(self._messages.later.values())
        self.found.makespan = max(world.ended.values(), default=NOON) - NOON
        self.found.pairs += [
            f"{victim} was paused {times} times for {claimant}"
            for (victim, claimant), times in sorted(self._pairs.items())
            if times > 1
        ]
        return self.found

    # Hardware and limits.

    def _hardware(self, turn: Turn) -> Iterator[str]:
        site = replace(turn.site, held=tuple(self.world.rows), requests=(), extensions=())
        for one, other in truth.overlaps(site, EMPTY):
            yield f"{site.now}: {one} and {other} have one slot at one instant"
        for gpu, _ in truth.overshared(site, EMPTY):
            yield f"{site.now}: more than all of {gpu} is given in shares"
        for node, _ in truth.beyond_hosts(site, EMPTY):
            yield f"{site.now}: more cores than {node} has"
        notified = {pause.booking for pause in turn.plan.pauses}
        resuming = (row for row in turn.site.running if row.booking in notified)
        demand = replace(turn.site, requests=(*requests_after(turn), *resuming))
        plan = replace(turn.plan, waits=tuple(filter(is_proven, turn.plan.waits)))
        for place in truth.illegal(demand, plan):
            yield f"{site.now}: {place} can't be made"
        for name in truth.torn(demand, plan):
            yield f"{site.now}: {name} is torn apart"
        yield from self._groups(site)
        yield from self._zones(site)
        yield from self._waits(turn)
        for owner, gpu_class, _ in () if self._cut else self._over(turn):
            yield f"{site.now}: {owner} is over its limit of {gpu_class}"

    def _groups(self, site: Snapshot) -> Iterator[str]:
        """Mixed bookings of which a group is missing, has another size or another window."""
        for name in sorted({row.booking for row in self.world.rows}):
            ask = self.world.runs[name].job.ask
            if not ask.groups:
                continue
            rows = self.world.rows_of(name)
            there = Counter(self.classes[row.place.gpu] for row in rows)
            requested = {part.classes[0]: part.count for part in (ask, *ask.groups)}
            if there != requested or len({(row.starts, row.ends) for row in rows}) > 1:
                yield f"{site.now}: {name} has {dict(there)} of {requested}"

    def _zones(self, site: Snapshot) -> Iterator[str]:
        """Bookings in two zones, or on a node that they exclude."""
        gpus = {gpu.id: gpu for gpu in self.world.drawn.gpus}
        for name in sorted({row.booking for row in self.world.rows}):
            where = self.world.runs[name].job.ask.where
            there = [gpus[row.place.gpu] for row in self.world.rows_of(name)]
            if len({gpu.zone for gpu in there}) > 1:
                yield f"{site.now}: {name} is in two zones"
            if where is None:
                continue
            for gpu in there:
                named = not where.zones or gpu.zone in where.zones
                if not named or gpu.zone in where.not_zones or gpu.scratch < where.scratch:
                    yield f"{site.now}: {name} may not be on {gpu.node}"
                if where.storage not in ("", gpu.storage):
                    yield f"{site.now}: {name} has no {where.storage} storage on {gpu.node}"

    def _waits(self, turn: Turn) -> Iterator[str]:
        """Starts that are later for energy than their tier allows, or in which nothing is gained."""
        requests = {request.booking: request for request in (*turn.site.requests, *requests_after(turn))}
        for wait in turn.plan.waits:
            request = requests.get(wait.booking)
            why = next((why for why in wait.reasons if why.code == "energy"), None)
            if request is None or why is None:
                continue
            latest = max(request.submitted, request.earliest) + self.tiers[request.tier].shift
            gain = int(why.facts["cost_before"]) - int(why.facts["cost"])
            if wait.starts > max(latest, turn.site.now) or gain <= 0:
                yield f"{turn.site.now}: {wait.booking} waits for energy until {wait.starts}"

    def _over(self, turn: Turn) -> list[tuple[str, str, int]]:
        names = {row.booking for row in turn.plan.assigns}
        before = {row.id for row in turn.site.held}
        kept = tuple(r for r in self.world.rows if r.id in before and r.booking not in names)
        raised = {row.owner: row.units for row in turn.site.overrides if row.units > 0}
        limits = (
            row if row.borrow is None else replace(row, borrow=row.borrow + raised.get(row.owner, 0))
            for row in turn.site.limits
        )
        requests = tuple(requests_after(turn))
        site = replace(turn.site, held=kept, extensions=(), limits=tuple(limits), requests=requests)
        moves = {move.booking for move in turn.plan.moves}
        if names & moves:
            return []
        return truth.over_limit(site, replace(EMPTY, assigns=turn.plan.assigns))

    # Guarantees.

    def blocks(self) -> list[Block]:
        """Who is in place: runs, or is written to start; not who has been given notice."""
        by_name: dict[str, list[Held]] = {}
        for row in self.world.rows:
            if not row.pausing:
                by_name.setdefault(row.booking, []).append(row)
        return list(self._blocks(by_name))

    def _blocks(self, by_name: dict[str, list[Held]]) -> Iterator[Block]:
        """One for each booking, of a mixed one one for each of its classes."""
        for name, rows in sorted(by_name.items()):
            for gpu_class in sorted({self.classes[row.place.gpu] for row in rows}):
                of_class = [row for row in rows if self.classes[row.place.gpu] == gpu_class]
                yield self._block_of(name, of_class)

    def _block_of(self, name: str, rows: list[Held]) -> Block:
        tier = self.tiers[rows[0].tier]
        return Block(
            name,
            rows[0].tenant,
            rows[0].project,
            self.classes[rows[0].place.gpu],
            sum(units_of(self.model_of[row.place.gpu], row.place) for row in rows),
            (tier.priority, not tier.pausable),
            self.world.runs[name].granted,
            self._counts(self.world.runs[name].job),
            tier.slug,
        )

    def _counts(self, job: Job) -> bool:
        """False for spot, and for a booking of several classes that may be paused."""
        return job.tier.counts and not (job.ask.groups and job.tier.pausable)

    def _may_be_paused(self, name: str) -> bool:
        """True for a booking that was paused no more often than its tier allows."""
        run = self.world.runs[name]
        most = self.tiers[run.job.tier.slug].pauses
        return most is None or run.pauses <= most

    def inside(self, blocks: Iterable[Block], last: str = "", instant: int | None = None) -> dict[str, bool]:
        """Those inside their tenant's guarantee (section 1 of the claims page), by name; whether
        on their own project's part.

        With `last`, that booking comes after its equals: where it is inside even so, it is inside
        whatever the order of the decisions of one cycle was.
        """
        return inside_of(blocks, self._limits_at(instant), last, self.world.drawn.tier_parts)

    def _limits_at(self, instant: int | None) -> tuple[Limit, ...]:
        world = self.world
        return limits_now(world.limits, world.drawn.guarantees, world.now if instant is None else instant)

    def potential(
        self, blocks: list[Block], gpu_class: str, instant: int | None = None
    ) -> tuple[object, ...]:
        """What every pause must raise (section 5 of the claims page)."""
        levels = [(t.priority, not t.pausable) for t in self.tiers.values()]
        return potential_of(blocks, self._limits_at(instant), levels, gpu_class, self.world.drawn.tier_parts)

    def _potential(self, turn: Turn) -> Iterator[str]:
        """Cycles whose pauses did not raise it; on a class that nobody claims only spot may fall. A
        booking for which somebody was given notice counts as in place from then on."""
        notified = {pause.booking: pause.at for pause in _decided(turn.plan)}
        held = [row for row in turn.site.held if not row.pausing]
        victims = [row for row in held if row.booking in notified]
        runs = self.world.runs
        asks = (runs[pause.beneficiary].job.ask for pause in _decided(turn.plan))
        claimed = {name for ask in asks for name in ask.all_classes}
        for gpu_class in sorted({self.classes[row.place.gpu] for row in victims}):
            of_class = (row for row in victims if self.classes[row.place.gpu] == gpu_class)
            last = max(notified[row.booking] for row in of_class)
            before = self._blocks_of(self._there(turn, held, last)) + self._awaited(but=notified)
            rows = (row for row in self.world.rows if not row.pausing)
            after = self._blocks_of(self._there(turn, rows, last)) + self._awaited()
            was, now = (self.potential(each, gpu_class, last) for each in (before, after))
            if not (now > was if gpu_class in claimed else now[:2] >= was[:2]):
                yield f"{turn.site.now}: pauses of {sorted(notified)} don't raise the potential"

    def _there(self, turn: Turn, rows: Iterable[Held], at: int) -> list[Held]:
        """Rows in place when somebody leaves: they have not ended by then, and start by then or
        within a notice from now."""
        policy = self.world.policy
        notice = max(tier.grace for tier in self.tiers.values()) + policy.notice_margin
        until = max(at, turn.site.now + policy.freeze_horizon + notice)
        return [row for row in rows if row.starts <= until and row.ends > at]

    def _awaited(self, but: Iterable[str] = ()) -> list[Block]:
        """Those that wait for the room of somebody who has been given notice."""
        runs = self.world.runs
        others = {*but, *self.world.operators.leaving}
        names = {r.beneficiary for r in runs.values() if r.notified and r.job.name not in others}
        return [
            Block(
                name,
                job.tenant,
                job.project,
                gpu_class,
                self._units_requested(ask, gpu_class),
                (job.tier.priority, not job.tier.pausable),
                10**9,
                self._counts(job),
                job.tier.slug,
            )
            for name in sorted(names & set(self.world.waiting))
            for job in (runs[name].job,)
            for ask in (job.ask, *job.ask.groups)
            for gpu_class in (self._class_awaited(name, ask),)
        ]

    def _class_awaited(self, name: str, ask: Ask) -> str:
        """The class on which somebody has notice for it."""
        planned = self.world.waiting[name].planned
        if len(ask.classes) == 1 or planned is None or not planned.places:
            return ask.classes[0]
        return self.classes[planned.places[0].gpu]

    def _units_requested(self, ask: Ask, gpu_class: str) -> int:
        gpu = next(g for g in self.world.drawn.gpus if g.gpu_class == gpu_class)
        return ask.count * units_of(self._models[gpu.model], Place("", ask.profile, 0, 8, ask.share))

    def guaranteed(self, owner: str, gpu_class: str, instant: int | None = None) -> int | None:
        """The guarantee of a tenant or project, now or at an instant; None if it has no limit."""
        row = self._limit(owner, gpu_class, instant)
        return None if row is None else row.guaranteed

    def _limit(self, owner: str, gpu_class: str, instant: int | None = None) -> Limit | None:
        rows = self._limits_at(instant)
        return next((r for r in rows if (r.owner, r.gpu_class) == (owner, gpu_class)), None)

    def _inside(self, turn: Turn) -> Iterator[str]:
        """Pauses of what is inside a guarantee for another tenant, or for borrowed own work."""
        if not turn.plan.pauses:
            return
        notified = {pause.booking: pause for pause in _decided(turn.plan)}
        rows = [row for row in turn.site.held if not row.pausing]
        # What this cycle granted first counts, too.
        before = [*self._blocks_of(rows), *self._granted(turn)]
        for name, pause in sorted(notified.items()):
            victim = next(block for block in before if block.name == name)
            claimant = self.world.runs[pause.beneficiary].job
            of_class = [block for block in before if block.gpu_class == victim.gpu_class]
            is_inside = name in self.inside(of_class, name, pause.at)
            if is_inside and claimant.tenant != victim.tenant:
                yield f"{turn.site.now}: {name} inside its guarantee, for {pause.beneficiary}"
            if not self._may_be_paused(name):
                yield f"{turn.site.now}: {name} is paused more often than its tier allows"
            if not self._counts(claimant):
                yield f"{turn.site.now}: {name} is paused for {claimant.name}, which may not pause"

    def _granted(self, turn: Turn) -> list[Block]:
        """What the cycle wrote, and what others were given notice for."""
        names = {row.booking for row in turn.plan.assigns}
        return [block for block in self.blocks() if block.name in names] + [
            block for block in self._awaited() if block.name not in names
        ]

    def _blocks_of(self, rows: Iterable[Held]) -> list[Block]:
        by_name: dict[str, list[Held]] = {}
        for row in rows:
            by_name.setdefault(row.booking, []).append(row)
        return list(self._blocks(by_name))

    # Rest.

    def _rings(self, turn: Turn) -> Iterator[str]:
        """A set of bookings in place on a class that was there before, with nothing from outside
        since. Who waits for somebody that has been given notice is in place."""
        if turn.outside - {"pause"}:
            self._seen.clear()
        blocks = [*self.blocks(), *self._awaited()]
        for gpu_class in sorted({block.gpu_class for block in blocks}):
            now = frozenset(block.name for block in blocks if block.gpu_class == gpu_class)
            if now != self._last.get(gpu_class) and (gpu_class, now) in self._seen:
                yield f"{turn.site.now}: the same work in place as before: {sorted(now)}"
            self._seen.add((gpu_class, now))
            self._last[gpu_class] = now

    # Planned starts.

    def _later(self, turn: Turn) -> Iterator[str]:
        """Planned starts made later although their strength forbids it, or for a false reason."""
        changed = {answer.booking for answer in turn.plan.changes if answer.granted}
        before = {r.booking: r for r in turn.site.requests if r.booking not in changed and not is_unproven(r)}
        for row in turn.plan.assigns:
            planned = before[row.booking].planned if row.booking in before else None
            is_kept = planned is None or row.starts <= max(planned.starts, turn.site.now)
            if planned is not None and not is_kept and planned.strength != "expected":
                yield f"{turn.site.now}: {row.booking} ({planned.strength}) starts later"
        for wait in () if turn.outside & OTHER_RULES else turn.plan.waits:
            planned = before[wait.booking].planned if wait.booking in before else None
            if planned is None or wait.starts <= max(planned.starts, turn.site.now):
                continue
            self.found.moved += 1
            code = wait.delayed_by.code if wait.delayed_by is not None else "nothing"
            event = NAMED.get(code)
            if event is not None and not event & turn.outside:
                yield f"{turn.site.now}: {wait.booking} later by {code}, which did not happen"
            elif event is None and not self._may_be_later(turn, before[wait.booking], wait):
                yield f"{turn.site.now}: {wait.booking} ({planned.strength}) later by {code}"
            elif event is None and code != "pinned" and not self._is_true(turn, wait):
                yield f"{turn.site.now}: {wait.booking} is later without the others, too"

    def _may_be_later(self, turn: Turn, request: Request, wait: Waiting) -> bool:
        """Whether a booking may be the cause: of an expected start any one that is ahead by a rule
        of the order, of a guaranteed one only its own organisation's: one that is new, or that an
        event from outside has made later."""
        strength = request.planned.strength if request.planned is not None else None
        if wait.delayed_by is not None and wait.delayed_by.code == "pinned":
            return strength == "expected" and bool(request.ask.pin)
        if wait.delayed_by is not None and wait.delayed_by.code == "overrun":
            # Who does not have to leave any more keeps its GPUs.
            return strength == "expected" and bool(turn.plan.withdrawn)
        if wait.delayed_by is None or wait.delayed_by.code != "overtaken":
            return False
        if strength == "guaranteed":
            runs, causes = self.world.runs, self._new(turn) | self._moved_by_events(turn)
            return request.tenant in {runs[name].job.tenant for name in causes}
        return strength == "expected"

    def _moved_by_events(self, turn: Turn) -> set[str]:
        """Bookings whose starts are later by an event of this turn, or at other places."""
        causes = {w.booking: w.delayed_by.code for w in turn.plan.waits if w.delayed_by is not None}
        found = {name for name, code in causes.items() if NAMED.get(code, set()) & turn.outside}
        if not turn.outside & PLACES_LOST:
            return found
        before = {r.booking: r.planned.places for r in turn.site.requests if r.planned is not None}
        moved = (w.booking for w in turn.plan.waits if w.places != before.get(w.booking, w.places))
        return found | set(moved)

    def _is_true(self, turn: Turn, wait: Waiting) -> bool:
        """Whether others are the cause, for the first starts that a world makes later."""
        policy, causes = self.world.policy, self._new(turn) | self._moved_by_events(turn)
        return self.found.moved > REPLAYED or is_true(turn, wait, causes, policy)

    def _new(self, turn: Turn) -> set[str]:
        had = {row.booking for row in turn.site.requests if row.planned is not None}
        had -= self._without_start
        given = {row.booking for row in turn.plan.assigns}
        given |= {row.booking for row in turn.plan.waits}
        changed = {each.booking for each in turn.plan.changes if each.granted}
        longer = {each.booking for each in turn.plan.extensions if each.granted}
        return (given - had) | changed | longer
