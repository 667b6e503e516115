"""What operators and idleness do to a world as it lives: orders, ordered pauses, idle bookings."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from solver import Held, Order, Place, Plan, Relocation, Request, Snapshot
from solver.cycle.compaction import propose
from solver.model.leaving import Idle
from tests.solver.builders import MODELS
from tests.worlds.operations import Idleness, Look, Operations, OrderedPause

if TYPE_CHECKING:
    from tests.worlds.life import World

TRIES = 60
"""So many plans are looked at until there is something to order."""
VETO, ANSWER, AGAIN = 600, 300, 2_400
"""Seconds in which the owner of an idle booking can answer, after which it does, and after which
it is warned again."""


class Operators:
    """The operators of one world. They read its plans and give orders to its next cycles."""

    def __init__(self, world: "World", operations: Operations) -> None:
        self._world, self._operations = world, operations
        self._looks = sorted(operations.looks, key=lambda look: look.at)
        self._tries: dict[Look, int] = {}
        self._orders: list[tuple[int, Order]] = []
        self._paused: dict[str, int] = {}
        self._is_released = False
        self.absent: dict[str, tuple[Request, int]] = {}
        """Paused bookings that ask for no place until then: a check-in, or the pause is lifted."""
        self.lifted: set[str] = set()
        self.leaving: set[str] = set()
        """Idle bookings that have notice: who gains by it need not start when they are out."""
        self.counts = {"orders": 0, "moved": 0, "released": 0, "ordered_pauses": 0}

    def is_open(self) -> bool:
        """True while somebody comes back by itself."""
        return bool(self.absent)

    def times(self) -> list[int]:
        """Seconds at which something happens."""
        world = self._world
        times = [at for at, _ in self._orders] + [look.at for look in self._looks]
        times += [at for _, at in self.absent.values()]
        times += [world.now + 1] if self._is_released else []
        for name, idle in self._operations.idle.items():
            run = world.runs.get(name)
            if run is not None and run.began is not None and name not in self.absent:
                warned = [run.began + idle.after + AGAIN * turn for turn in range(idle.vetoes + 1)]
                times += [*warned, *(at + ANSWER for at in warned[:-1]), warned[-1] + VETO]
        for each in self._operations.pauses:
            run = world.runs.get(each.booking)
            if run is not None and run.began is not None and each.booking not in self._paused:
                times.append(run.began + each.after)
        return times

    # What happens.

    def happen(self) -> Iterator[str]:
        """All that operators do now, and who comes back."""
        world = self._world
        self.leaving = {name for name in self.leaving if world.rows_of(name)}
        if self._is_released:
            self._is_released = False
            yield "idle"
        for each in self._operations.pauses:
            if each.booking not in self._paused and self._is_due(each):
                self._paused[each.booking] = world.now
                yield from self._pause(each.booking, each.lifted)
        for name, (request, at) in list(self.absent.items()):
            if at <= world.now:
                del self.absent[name]
                if name not in world.ended:
                    world.waiting[name] = request
                    self.lifted.add(name)
                yield "back"
        if any(at <= world.now for at, _ in self._orders):
            yield "order"

    def _is_due(self, each: OrderedPause) -> bool:
        world = self._world
        run, rows = world.runs.get(each.booking), world.rows_of(each.booking)
        if run is None or run.began is None or not rows or rows[0].pausing:
            return False
        return run.began + each.after <= world.now

    def _pause(self, name: str, lifted: int) -> Iterator[str]:
        """Gives notice; the booking waits for nothing until the pause is lifted."""
        world = self._world
        grace = world.runs[name].job.tier.grace
        at = world.now + grace
        if world.rows_of(name)[0].ends <= at:
            return
        world.notify(name, "", at)
        self.absent[name] = (world.waiting.pop(name), world.now + lifted)
        self.counts["ordered_pauses"] += 1
        yield "ordered pause"

    def forget(self, name: str) -> None:
        """Its pause is withdrawn."""
        self.absent.pop(name, None)
        self.lifted.discard(name)
        self.leaving.discard(name)

    # What the solver gets.

    def snapshot(self) -> dict[str, Any]:
        """Orders of this cycle, and bookings that are idle."""
        return {
            "orders": tuple(order for at, order in self._orders if at <= self._world.now),
            "idle": tuple(self._idle()),
        }

    def _idle(self) -> Iterator[Idle]:
        world = self._world
        for name, idle in sorted(self._operations.idle.items()):
            run, rows = world.runs.get(name), world.rows_of(name)
            if run is None or run.began is None or not rows or rows[0].pausing:
                continue
            warned = self._warned(run.began, idle)
            if warned is not None and rows[0].started:
                gpus = tuple(sorted({row.place.gpu for row in rows}))
                grace = run.job.tier.grace if idle.action == "pause" else 0
                since = max(run.began, warned - VETO)
                yield Idle(name, gpus, since, warned + VETO, grace)

    def _warned(self, began: int, idle: Idleness) -> int | None:
        """When its owner was warned; None if it is in use, or the owner has answered."""
        for turn in range(idle.vetoes + 1):
            at = began + idle.after + AGAIN * turn
            is_last = turn == idle.vetoes
            if at <= self._world.now and (is_last or self._world.now < at + ANSWER):
                return at
        return None

    # What the plan says.

    def read(self, site: Snapshot, plan: Plan) -> None:
        """Takes idle bookings as the plan says, and looks at proposals to move work."""
        world = self._world
        self.counts["orders"] += len(site.orders)
        self.counts["moved"] += sum(not answer.reasons for answer in plan.orders)
        self._orders = [each for each in self._orders if each[0] > world.now]
        for each in plan.idle:
            rows, idle = world.rows_of(each.booking), self._operations.idle[each.booking]
            is_over = each.beneficiary in world.ended or each.beneficiary in world.refused
            if is_over or not rows or rows[0].pausing:
                continue
            self.counts["released"] += 1
            self._is_released = True
            if idle.action == "end":
                world.leave(each.booking, world.now, is_paused=False)
                continue
            at = world.now + world.runs[each.booking].job.tier.grace
            if rows[0].ends > at:
                world.notify(each.booking, each.beneficiary, at)
                back = (world.waiting.pop(each.booking), at + idle.check_in)
                self.absent[each.booking] = back
                self.leaving.add(each.booking)
        for look in [each for each in self._looks if each.at <= world.now]:
            self._tries[look] = self._tries.get(look, 0) + 1
            order = self._made_up(look, plan) if look.is_made_up else self._proposed(site, plan)
            if order is not None:
                self._orders.append((world.now + look.later, order))
            if order is not None or not look.is_made_up or self._tries[look] == TRIES:
                self._looks.remove(look)

    def _proposed(self, site: Snapshot, plan: Plan) -> Order | None:
        """The first proposal, as an order."""
        if plan.idle or not any(wait.starts > site.now for wait in plan.waits):
            return None
        for found in propose(site, plan, self._world.policy)[:1]:
            moves = tuple(Relocation(each.booking, each.source, each.target) for each in found.moves)
            name = f"order {site.now}"
            return Order(name, found.beneficiary, found.gpu_class, found.places, moves)
        return None

    def _made_up(self, look: Look, plan: Plan) -> Order | None:
        """Some run moves to some place, and somebody who waits gets its place: mostly where there
        is room for both."""
        world = self._world
        chance = Random(look.at)  # noqa: S311  the same order each time
        rows = sorted((row for row in world.rows if row.started), key=lambda row: row.id)
        if not rows or not world.waiting:
            return None
        busy = {w.booking for w in plan.waits if any(r.code == "gpus_busy" for r in w.reasons)}
        able = [each for each in self._able(rows) if each[2] in busy]
        if chance.random() < 0.8:
            if not able:
                return None
            row, target, beneficiary, place = chance.choice(able)
        else:
            row = chance.choice(rows)
            others = sorted({gpu.id for gpu in world.drawn.gpus} - {row.place.gpu})
            target = replace(row.place, gpu=chance.choice(others or [row.place.gpu]))
            beneficiary, place = chance.choice(sorted(world.waiting)), row.place
        move = Relocation(row.booking, row.place, target)
        name = f"made up {look.at}"
        return Order(name, beneficiary, world.class_of(row), (place,), (move,))

    def _able(self, rows: list[Held]) -> Iterator[tuple[Held, Place, str, Place]]:
        """A run, where it can be moved, who could have its place, and that place."""
        world = self._world
        tiers = {tier.slug for tier in world.tiers if tier.pausable}
        for row in rows:
            run = world.runs[row.booking]
            is_one = row.tier in tiers and not row.pausing and len(world.rows_of(row.booking)) == 1
            is_safe = (run.began or world.now) + run.job.tier.protected > world.now
            if not is_one or is_safe or row.place.share is not None or row.cores:
                continue
            is_alone = sum(each.place.gpu == row.place.gpu for each in world.rows) == 1
            whole = Place(row.place.gpu, None, 0, 8)
            targets = list(self._targets(row))
            for name, request in sorted(world.waiting.items()):
                ask = request.ask
                is_whole = ask.profile is None and ask.share is None and is_alone
                place = whole if is_whole else row.place
                is_fit = ask.count == 1 and (is_whole or ask.profile == row.place.profile)
                until = world.now + world.runs[row.booking].job.tier.grace + request.duration
                both = {row.booking, name}
                if not (is_fit and self._may_start(request)) or self._is_taken(place, until, both):
                    continue
                for target in targets:
                    if not self._is_taken(target, row.ends, both):
                        yield row, target, name, place

    def _targets(self, row: Held) -> Iterator[Place]:
        """Places of the same shape on the other GPUs of its class."""
        world, models = self._world, {model.slug: model for model in MODELS}
        for gpu in world.drawn.gpus:
            if gpu.gpu_class != world.class_of(row) or gpu.id == row.place.gpu:
                continue
            if row.place.profile is None:
                yield replace(row.place, gpu=gpu.id)
            for spot in models[gpu.model].placements:
                if spot.profile == row.place.profile:
                    yield Place(gpu.id, spot.profile, spot.start, spot.size)

    def _may_start(self, request: Request) -> bool:
        """Whether it waits for nothing but room."""
        is_other = request.fixed or request.paused or request.ask.cores or request.ask.pin
        is_late = request.planned is not None and request.planned.starts > self._world.now
        return is_late and not is_other and request.earliest <= self._world.now

    def _is_taken(self, place: Place, ends: int, but: set[str]) -> bool:
        """Whether others have some of it until then, or are planned to have it."""
        world = self._world
        taken = [(row.booking, row.place, row.starts) for row in world.rows]
        for name, request in world.waiting.items():
            start = request.planned
            taken += [(name, each, start.starts) for each in start.places] if start else []
        return any(
            name not in but
            and each.gpu == place.gpu
            and starts < ends
            and each.start < place.start + place.size
            and place.start < each.start + each.size
            for name, each, starts in taken
        )
