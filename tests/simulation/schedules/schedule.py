"""One schedule: what happens, drawn from a seed; then everything heals, and must come to rest."""

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation.requests import happenings as requests
from tests.simulation.schedules.actions import weighted
from tests.simulation.schedules.faults import (
    operator_returns,
    reconnected,
    unbooked_end,
    will_die,
)
from tests.simulation.schedules.interludes import SOME_SCHEDULES, interlude
from tests.simulation.schedules.scenes import SCENES
from tests.simulation.schedules.world import Portal, World
from tests.simulation.tables.rows import OVER, TRANSITIONAL, Tables

FEWEST_STEPS, MOST_STEPS = 6, 19
# GPUs of each node.
LARGER_SITES: tuple[tuple[int, ...], ...] = ((4,), (2, 2))
SITES: tuple[tuple[int, ...], ...] = ((1,), (2,), (1, 1), (2, 1))


@dataclass
class Schedule:
    """`story` is the log of what happened, for a schedule that broke an invariant."""

    world: World
    story: list[str] = field(default_factory=list)
    saved: Tables | None = None
    can_restore: bool = True
    can_order: bool = True
    happened: Counter[str] = field(default_factory=Counter)
    # What interludes are drawn from, and whether there are any.
    more: random.Random = field(init=False)
    has_interludes: bool = field(init=False)
    # The same of what people change and wait for.
    requests_rng: random.Random = field(init=False)
    has_requests: bool = field(init=False)

    def __post_init__(self) -> None:
        self.more = random.Random(f"{self.world.rng.getstate()[1][:8]} more")  # noqa: S311
        self.has_interludes = self.more.random() < SOME_SCHEDULES
        # The word is part of the seed: another one would draw other schedules.
        self.requests_rng = random.Random(f"{self.world.rng.getstate()[1][:8]} wishes")  # noqa: S311
        self.has_requests = self.requests_rng.random() < requests.SOME_SCHEDULES

    @property
    def portal(self) -> Portal:
        return self.world.portal

    def log(self, text: str) -> None:
        self.story.append(f"{self.world.now:.2f} {text}")

    def run(self) -> None:
        """Stops at the first violated invariant."""
        actions, weights = weighted(self.world.rng.choice((1.0, 0.3)))
        for node in self.world.nodes:
            if self.world.rng.random() < 0.3:
                will_die(self, node)
        if self.world.rng.random() < 0.5:
            self.world.rng.choice(SCENES)(self)
        for _ in range(self.world.rng.randint(FEWEST_STEPS, MOST_STEPS)):
            (action,) = self.world.rng.choices(actions, weights)
            for each in (action, interlude, requests.later_request):
                each(self)
                if self.world.violations:
                    return
        self.heal()
        self.rest("after the faults")
        if not self.world.violations:
            self.agreed("after the faults")
            self.everything_given_back()

    # The end of every schedule.

    def heal(self) -> None:
        """Everything works again, and nobody is cut off."""
        self.log("everything heals")
        self.portal.outage_end(self.world.now)
        self.portal.freeze_end(self.world.now)
        for node in self.world.nodes:
            node.skew, node.disk_full, node.armed = 0.0, False, None
            node.receives = node.sends = True
            node.driver.faults.clear()
            node.continues()
            node.answers()
            unbooked_end(node)
            for gpu in node.hardware.gpus:
                gpu.lost = False
            if node.agent is None:
                node.boot()
            reconnected(node)
        operator_returns(self)

    def rest(self, when: str) -> None:
        """Rounds until nothing is under way; P14 gives them five minutes of the clock."""
        for _ in range(60):
            self.world.passes(5)
            for node in self.world.nodes:
                self.world.node_works(node)
            self.world.portal_receives()
            self.portal.cycle(self.world.now)
            if self.world.violations or self._rests():
                return
        stuck = [b for b in self.portal.tables.bookings.values() if b.state in TRANSITIONAL]
        self.world.violations.append(f"P14 {when}: {stuck or self._differences()}")

    def _rests(self) -> bool:
        moving = any(b.state in TRANSITIONAL for b in self.portal.tables.bookings.values())
        return not moving and not self._differences()

    def agreed(self, when: str) -> None:
        """What the portal says is what the drivers have."""
        for text in self._differences():
            self.world.violations.append(f"P14 {when}: {text}")

    def _differences(self) -> list[str]:
        site = self.portal.site
        found = []
        for node in self.world.nodes:
            active = [
                row
                for row in self.portal.tables.rows.values()
                if row.state == "active" and site.node_of[row.place.gpu] == node.name
            ]
            expected = {
                (site.uuids[row.place.gpu], row.place.start, row.place.profile)
                for row in active
                if row.place.profile
            }
            there = {
                (gpu.uuid, i.start, i.profile.name)
                for gpu in node.hardware.gpus
                for i in gpu.instances.values()
            }
            if not expected <= there:
                found.append(f"{node.name} has {sorted(there)}, not {sorted(expected)}")
            ids = {row.id for row in active}
            if set(node.occupancy.given) != ids:
                found.append(f"{node.name} has given {sorted(node.occupancy.given)}, not {ids}")
            if holders := {name for name, _ in node.occupancy.holders()} - ids:
                found.append(f"{node.name} still holds {holders}")
        return found

    def everything_given_back(self) -> None:
        """Nothing is left on any node, in its driver or on its disk."""
        for name in sorted(self.portal.tables.arrays):
            self.portal.array_cancel(name, self.world.now)
        for name, booking in sorted(self.portal.tables.bookings.items()):
            if booking.state not in OVER:
                self.portal.cancel(name, self.world.now)
        self.rest("when all was given back")
        # What was frozen is forgotten with the next document, for which nobody waits.
        self.world.passes(5)
        for node in self.world.nodes:
            self.world.node_works(node)
            programs = [p.label for g in node.hardware.gpus for p in g.processes.values() if not p.service]
            if programs:
                self.world.violations.append(f"P14 {node.name} still has {programs}")
            left = [str(path.relative_to(node.folder)) for path in node.folder.glob("bookings/*")]
            if left:
                self.world.violations.append(f"P14 {node.name} keeps {left}")
            self.world.violations += [f"P2 {text}" for text in node.occupancy.overlaps()]
        over = {b.state for b in self.portal.tables.bookings.values()} - set(OVER)
        if over and not self.world.violations:
            self.world.violations.append(f"P14 at the end there are bookings {over}")


def schedule_run(seed: int, prepare: Callable[[Schedule], None] = lambda _: None) -> Schedule:
    """A schedule that has ended, well or not; `prepare` may break something first."""
    rng = random.Random(seed)  # noqa: S311 (a schedule, not a secret)
    # In memory where there is such a place: nothing here has to outlive the process.
    memory = Path("/dev/shm")  # noqa: S108
    folder = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
    with folder as name:
        sizes = rng.choice((*SITES, *LARGER_SITES))
        classes = rng.choice((1, 2)) if len(sizes) > 1 else 1
        schedule = Schedule(World(rng, Path(name), sizes, classes=classes))
        prepare(schedule)
        schedule.run()
        return schedule
