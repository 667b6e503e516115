"""One schedule: what happens, drawn from a seed; then everything heals, and must come to rest."""

import random
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from allocation.agent.link import Connected
from tests.simulation.node import CRASH_POINTS, SimNode
from tests.simulation.rows import OVER, TRANSITIONAL, Tables, Wish
from tests.simulation.world import Portal, World

FEWEST_STEPS, MOST_STEPS = 8, 32
# GPUs of each node.
SITES: tuple[tuple[int, ...], ...] = ((1,), (2,), (1, 1), (2, 1))
SHAPES = (
    (1, None, "any", False),
    (1, None, "any", False),
    (2, None, "any", False),
    (3, None, "rack", True),
    (1, "3g.40gb", "any", False),
    (1, "2g.20gb", "any", False),
    (2, "1g.10gb", "gpu", True),
    (1, "7g.80gb", "any", False),
)
GPU_FAULTS = {
    "nvmlDeviceCreateGpuInstanceWithPlacement": (
        "NVML_ERROR_INSUFFICIENT_RESOURCES",
        "NVML_ERROR_IN_USE",
        "NVML_ERROR_UNKNOWN",
    ),
    "nvmlGpuInstanceCreateComputeInstance": ("NVML_ERROR_UNKNOWN", "NVML_ERROR_TIMEOUT"),
    "nvmlGpuInstanceDestroy": ("NVML_ERROR_IN_USE", "NVML_ERROR_TIMEOUT"),
    "nvmlComputeInstanceDestroy": ("NVML_ERROR_IN_USE",),
    "nvmlDeviceSetMigMode": ("NVML_ERROR_IN_USE", "NVML_ERROR_TIMEOUT"),
    "nvmlDeviceGetMigMode": ("NVML_ERROR_TIMEOUT",),
    "nvmlDeviceGetComputeRunningProcesses_v3": ("NVML_ERROR_UNKNOWN",),
    "nvmlGpuInstanceGetInfo": ("NVML_ERROR_TIMEOUT",),
}


@dataclass
class Schedule:
    """`story` tells what happened, to be read when a promise was broken."""

    world: World
    story: list[str] = field(default_factory=list)
    saved: Tables | None = None
    can_restore: bool = True

    @property
    def portal(self) -> Portal:
        return self.world.portal

    def tell(self, text: str) -> None:
        self.story.append(f"{self.world.now:.2f} {text}")

    def run(self) -> None:
        """Stops at the first broken promise."""
        actions, weights = zip(*ACTIONS, strict=True)
        for _ in range(self.world.rng.randint(FEWEST_STEPS, MOST_STEPS)):
            self.world.rng.choices(actions, weights)[0](self)
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
        self.tell("everything heals")
        for node in self.world.nodes:
            node.skew, node.disk_full, node.armed = 0.0, False, None
            node.hears = node.speaks = True
            node.driver.faults.clear()
            for gpu in node.hardware.gpus:
                gpu.lost = False
            if node.agent is None:
                node.boot()
            reconnected(node)

    def rest(self, when: str) -> None:
        """Rounds until nothing is under way; P14 gives them five minutes of the clock."""
        for _ in range(60):
            self.world.passes(5)
            for node in self.world.nodes:
                self.world.node_works(node)
            self.world.portal_hears()
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
            wanted = {(site.uuids[row.place.gpu], row.place.start, row.place.profile)
                      for row in active if row.place.profile}  # fmt: skip
            there = {(gpu.uuid, i.start, i.profile.name)
                     for gpu in node.hardware.gpus for i in gpu.instances.values()}  # fmt: skip
            if not wanted <= there:
                found.append(f"{node.name} has {sorted(there)}, not {sorted(wanted)}")
            ids = {row.id for row in active}
            if set(node.occupancy.given) != ids:
                found.append(f"{node.name} has given {sorted(node.occupancy.given)}, not {ids}")
            if strangers := {name for name, _ in node.occupancy.holders()} - ids:
                found.append(f"{node.name} still holds {strangers}")
        return found

    def everything_given_back(self) -> None:
        """Nothing is left on any node, in its driver or on its disk."""
        for name, booking in sorted(self.portal.tables.bookings.items()):
            if booking.state not in OVER:
                self.portal.cancel(name, self.world.now)
        self.rest("when all was given back")
        for node in self.world.nodes:
            node.look()
            left = [str(path.relative_to(node.folder)) for path in node.folder.glob("bookings/*")]
            if left:
                self.world.violations.append(f"P14 {node.name} keeps {left}")
            self.world.violations += [f"P2 {text}" for text in node.occupancy.overlaps()]
        over = {b.state for b in self.portal.tables.bookings.values()} - set(OVER)
        if over and not self.world.violations:
            self.world.violations.append(f"P14 at the end there are bookings {over}")


# What may happen.


def reconnected(node: SimNode) -> None:
    """The line is there again."""
    if node.agent is not None:
        node.arrivals.append(Connected())


def time_passes(it: Schedule) -> None:
    seconds = it.world.rng.choice((0.25, 1, 2, 5, 5, 10, 30, 60, 300))
    it.tell(f"{seconds} s pass")
    it.world.passes(seconds)
    _everybody_works(it)


def _everybody_works(it: Schedule) -> None:
    rng, world = it.world.rng, it.world
    for node in rng.sample(world.nodes, len(world.nodes)):
        if rng.random() < 0.9:
            world.node_works(node)
    if rng.random() < 0.8:
        world.portal_hears()
    if rng.random() < 0.9:
        it.portal.cycle(world.now)
        world.look()


def request(it: Schedule) -> None:
    rng = it.world.rng
    count, profile, together, required = rng.choice(SHAPES)
    starts = None
    if rng.random() < 0.2:
        starts = int(it.world.now) + rng.choice((0, 60, 300))
    wish = Wish(
        count=count,
        profile=profile,
        together=together,
        required=required,
        duration=rng.choice((60, 120, 300, 1200)),
        starts=starts,
    )
    it.tell(f"somebody asks for {wish}")
    it.portal.request(str(uuid.UUID(int=rng.getrandbits(128), version=4)), wish, it.world.now)
    if rng.random() < 0.8:
        it.portal.cycle(it.world.now)
        it.world.look()


def _some_booking(it: Schedule) -> str | None:
    open_ones = sorted(n for n, b in it.portal.tables.bookings.items() if b.state not in OVER)
    return it.world.rng.choice(open_ones) if open_ones else None


def release(it: Schedule) -> None:
    name = _some_booking(it)
    if name is not None:
        it.tell(f"{name} is released")
        it.portal.release(name, it.world.now)


def cancel(it: Schedule) -> None:
    name = _some_booking(it)
    if name is not None:
        it.tell(f"{name} is cancelled")
        it.portal.cancel(name, it.world.now)


def extend(it: Schedule) -> None:
    name = _some_booking(it)
    if name is not None:
        ends = it.portal.tables.bookings[name].ends
        if ends is not None:
            it.tell(f"{name} shall be longer")
            it.portal.extend(name, ends + it.world.rng.choice((60, 600)), it.world.now)


def portal_is_killed_before_it_tells(it: Schedule) -> None:
    it.tell("a cycle is killed before nodes are told")
    it.portal.cycle(it.world.now, publishes=False)
    it.world.look()


def agent_is_killed(it: Schedule) -> None:
    node = it.world.rng.choice(it.world.nodes)
    if node.agent is None:
        it.tell(f"the agent of {node.name} starts again")
        node.boot()
    elif it.world.rng.random() < 0.3:
        it.tell(f"the agent of {node.name} is killed")
        node.dies()
    else:
        node.armed = (it.world.rng.choice(CRASH_POINTS), it.world.rng.choice((0, 0, 1, 3)))
        it.tell(f"the agent of {node.name} will die {node.armed}")
    _everybody_works(it)


def node_reboots(it: Schedule) -> None:
    node = it.world.rng.choice(it.world.nodes)
    it.tell(f"{node.name} loses power and comes back")
    node.dies()
    node.hardware.power_cycle()
    node.look()
    node.boot()


def line_breaks(it: Schedule) -> None:
    node = it.world.rng.choice(it.world.nodes)
    node.hears, node.speaks = it.world.rng.choice(
        ((False, False), (True, False), (False, True), (True, True))
    )
    it.tell(f"{node.name} hears {node.hears}, speaks {node.speaks}")
    if node.hears and node.speaks:
        reconnected(node)
    _everybody_works(it)


def server_loses_everything(it: Schedule) -> None:
    it.tell("the server loses everything")
    it.world.server.loses_everything()
    for node in it.world.nodes:
        reconnected(node)


def messages_go_astray(it: Schedule) -> None:
    """Lost, doubled, late, in another order; old ones again."""
    rng, server = it.world.rng, it.world.server
    it.tell("messages go astray")
    stream = [entry for entry in server.stream for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    if server.heard and rng.random() < 0.5:
        stream += rng.choices(server.heard, k=3)
    rng.shuffle(stream)
    server.stream = stream
    it.world.portal_hears(rng.randrange(len(stream) + 1))


def old_document_comes(it: Schedule) -> None:
    node = it.world.rng.choice(it.world.nodes)
    it.tell(f"an old document comes to {node.name}")
    it.world.node_works(node, stale=True)


def gpu_fails(it: Schedule) -> None:
    rng = it.world.rng
    node = rng.choice(it.world.nodes)
    if rng.random() < 0.25:
        gpu = rng.choice(node.hardware.gpus)
        gpu.lost = not gpu.lost
        it.tell(f"GPU {gpu.index} of {node.name}: lost is {gpu.lost}")
    else:
        symbol = rng.choice(sorted(GPU_FAULTS))
        code = rng.choice(GPU_FAULTS[symbol])
        node.driver.faults[symbol].extend([code] * rng.choice((1, 1, 2, 8)))
        it.tell(f"{symbol} of {node.name} says {code}")
    _everybody_works(it)


def disk_fills(it: Schedule) -> None:
    """Not where the clock is wrong too: see docs/faults.md, what is not covered."""
    node = it.world.rng.choice(it.world.nodes)
    if node.skew:
        return
    node.disk_full = not node.disk_full
    it.tell(f"the disk of {node.name} is full: {node.disk_full}")
    _everybody_works(it)


def clock_jumps(it: Schedule) -> None:
    node = it.world.rng.choice(it.world.nodes)
    if node.disk_full:
        return
    node.skew = it.world.rng.choice((0.0, 0.0, -10.0, 10.0, -3600.0, 3600.0))
    it.tell(f"the clock of {node.name} is off by {node.skew}")
    _everybody_works(it)


def backup_comes_back(it: Schedule) -> None:
    if not it.can_restore:
        return
    if it.saved is None:
        it.tell("a backup is made")
        it.saved = it.portal.backup()
        return
    it.tell("the backup comes back")
    it.portal.restore(it.saved, it.world.now)
    it.saved = None


ACTIONS: tuple[tuple[Callable[[Schedule], None], int], ...] = (
    (time_passes, 30),
    (request, 20),
    (release, 5),
    (cancel, 4),
    (extend, 3),
    (portal_is_killed_before_it_tells, 3),
    (agent_is_killed, 9),
    (node_reboots, 2),
    (line_breaks, 7),
    (server_loses_everything, 2),
    (messages_go_astray, 6),
    (old_document_comes, 5),
    (gpu_fails, 5),
    (disk_fills, 2),
    (clock_jumps, 3),
    (backup_comes_back, 2),
)


def schedule_run(seed: int, prepare: Callable[[Schedule], None] = lambda _: None) -> Schedule:
    """A schedule that has ended, well or not; `prepare` may break something first."""
    rng = random.Random(seed)  # noqa: S311 (a schedule, not a secret)
    # In memory where there is such a place: nothing here has to outlive the process.
    memory = Path("/dev/shm")  # noqa: S108
    folder = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
    with folder as name:
        schedule = Schedule(World(rng, Path(name), rng.choice(SITES)))
        prepare(schedule)
        schedule.run()
        return schedule
