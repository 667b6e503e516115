"""What comes between the steps of some schedules: agents that are stopped, planned outages of the
portal, and freezes of its decisions.

They draw from a source of their own: schedules without any stay as their seeds had them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from allocation.rules.nodes.leases import MARGIN_SECONDS
from tests.simulation.schedules.happenings import ask, everybody_works
from tests.simulation.tables.people import Wish

if TYPE_CHECKING:
    from tests.simulation.nodes.node import SimNode
    from tests.simulation.schedules.schedule import Schedule

# Of all schedules, and of the steps of such a schedule.
SOME_SCHEDULES, SOME_STEPS = 0.4, 0.15
_ON_LEASE = Wish(
    count=1, profile=None, together="any", required=False, duration=1200, tier="steady"
)


def agent_is_stopped(it: "Schedule") -> None:
    """SIGSTOP: it does nothing for a while, and then goes on with what it knew."""
    running = [node for node in it.world.nodes if node.agent is not None]
    if not running:
        return
    if it.more.random() < 0.5:
        _work_on_lease(it)
        running = [node for node in running if node.agent is not None and node.is_on_lease()]
    if not running:
        return
    node, seconds = it.more.choice(running), it.more.choice((3, 12, 30, 60, 200))
    it.tell(f"the agent of {node.name} is stopped for {seconds} s")
    node.stops_for(seconds)
    it.happened["agents stopped"] += 1
    if it.more.random() < 0.4:
        # A machine that is paused loses its lines, too.
        it.tell(f"{node.name} is cut off")
        node.hears = node.speaks = False
        _time_passes(it, seconds + 20)


def _work_on_lease(it: "Schedule") -> None:
    ask(it, _ON_LEASE)
    _time_passes(it, 15)


def _time_passes(it: "Schedule", seconds: int) -> None:
    """Everybody works every few seconds, who can."""
    for _ in range(0, seconds, 5):
        it.world.passes(5)
        everybody_works(it)


def outage_is_planned(it: "Schedule") -> None:
    """Leases are lengthened, then the portal is away for a while. Some node's line may break."""
    length, world = it.more.choice((60, 600, 600)), it.world
    if it.more.random() < 0.6:
        _work_on_lease(it)
    until = int(world.now) + length
    it.tell(f"an outage is planned, for {length} s")
    it.portal.outage_begin(until, world.now)
    # What a backup from before it knows nothing of: see docs/faults.md.
    it.can_restore = False
    for _ in range(3):
        world.passes(5)
        for node in world.nodes:
            world.node_works(node)
        world.portal_hears()
    if cut := it.more.random() < 0.5:
        node = it.more.choice([n for n in world.nodes if n.is_on_lease()] or world.nodes)
        it.tell(f"{node.name} is cut off")
        node.hears = node.speaks = False
    _portal_is_away(it, until)
    if it.more.random() < 0.7:
        it.tell("the outage is over")
        it.portal.outage_end(world.now)
    # The portal counts a silence from when it is back.
    _time_passes(it, 60 if cut else 5)


def _portal_is_away(it: "Schedule", until: int) -> None:
    """Nodes that said that their lease lasts until the end of it end nothing for want of one."""
    world = it.world
    safe = [node for node in world.nodes if _has_confirmed(it, node, until)]
    before = {node.name: node.happened["leases that ran out"] for node in safe}
    seconds = it.more.choice((10, 10, 50, until - int(world.now)))
    it.tell(f"the portal is away for {seconds} s; safe are {sorted(before)}")
    world.is_away = True
    world.passes(max(0, min(seconds, until - world.now)))
    world.is_away = False
    it.portal.reader_restarts()
    for node in safe:
        it.happened["outages slept through"] += node.is_on_lease()
        if node.happened["leases that ran out"] > before[node.name]:
            world.violations.append(f"P12 {node.name} ended work in an outage that it was told of")


def _has_confirmed(it: "Schedule", node: "SimNode", until: int) -> bool:
    """See _lease_state."""
    row = it.portal.tables.nodes[node.name]
    if row.cut_off or row.heartbeat_at is None or row.heartbeat_at < it.world.now - 15:
        return False
    return row.heartbeat_at + row.lease_said - MARGIN_SECONDS >= until


def decisions_are_frozen(it: "Schedule") -> None:
    """By an operator, for a while, or until somebody ends it."""
    if it.portal.tables.is_frozen(it.world.now):
        it.tell("decisions go on")
        it.portal.freeze_end(it.world.now)
        return
    seconds = it.more.choice((None, 20, 90, 400))
    it.tell(f"decisions are frozen for {seconds} s")
    it.world.look()
    it.portal.freeze_begin(None if seconds is None else it.world.now + seconds, it.world.now)
    it.happened["freezes of decisions"] += 1


INTERLUDES: tuple[Callable[["Schedule"], None], ...] = (
    agent_is_stopped,
    agent_is_stopped,
    outage_is_planned,
    decisions_are_frozen,
)


def interlude(it: "Schedule") -> None:
    """Perhaps one of them, in a schedule that has some."""
    if it.has_interludes and it.more.random() < SOME_STEPS:
        it.more.choice(INTERLUDES)(it)
