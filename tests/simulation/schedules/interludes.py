"""What comes between the steps of some schedules: agents that are stopped, planned outages of the
portal, and freezes of its decisions.

They draw from a source of their own: schedules without any stay as their seeds had them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from allocation.rules.nodes.leases import MARGIN_SECONDS
from tests.simulation.schedules.happenings import everybody_works, request_add
from tests.simulation.tables.people import UserRequest

if TYPE_CHECKING:
    from tests.simulation.nodes.node import SimNode
    from tests.simulation.schedules.schedule import Schedule

# Of all schedules, and of the steps of such a schedule.
SOME_SCHEDULES, SOME_STEPS = 0.4, 0.15
_ON_LEASE = UserRequest(count=1, profile=None, together="any", required=False, duration=1200, tier="steady")


def agent_is_stopped(schedule: "Schedule") -> None:
    """SIGSTOP: it does nothing for a while, and then continues with its old state."""
    running = [node for node in schedule.world.nodes if node.agent is not None]
    if not running:
        return
    if schedule.more.random() < 0.5:
        _work_on_lease(schedule)
        running = [node for node in running if node.agent is not None and node.is_on_lease()]
    if not running:
        return
    node, seconds = schedule.more.choice(running), schedule.more.choice((3, 12, 30, 60, 200))
    schedule.log(f"the agent of {node.name} is stopped for {seconds} s")
    node.stops_for(seconds)
    schedule.happened["agents stopped"] += 1
    if schedule.more.random() < 0.4:
        # A machine that is paused loses its connections, too.
        schedule.log(f"{node.name} is cut off")
        node.receives = node.sends = False
        _time_passes(schedule, seconds + 20)


def _work_on_lease(schedule: "Schedule") -> None:
    request_add(schedule, _ON_LEASE)
    _time_passes(schedule, 15)


def _time_passes(schedule: "Schedule", seconds: int) -> None:
    """Everybody works every few seconds, who can."""
    for _ in range(0, seconds, 5):
        schedule.world.passes(5)
        everybody_works(schedule)


def outage_is_planned(schedule: "Schedule") -> None:
    """Lengthens leases, then stops the portal for a while. A node may lose its connection."""
    length, world = schedule.more.choice((60, 600, 600)), schedule.world
    if schedule.more.random() < 0.6:
        _work_on_lease(schedule)
    until = int(world.now) + length
    schedule.log(f"an outage is planned, for {length} s")
    schedule.portal.outage_begin(until, world.now)
    # What a backup from before it knows nothing of: see docs/faults.md.
    schedule.can_restore = False
    for _ in range(3):
        world.passes(5)
        for node in world.nodes:
            world.node_works(node)
        world.portal_receives()
    if cut := schedule.more.random() < 0.5:
        node = schedule.more.choice([n for n in world.nodes if n.is_on_lease()] or world.nodes)
        schedule.log(f"{node.name} is cut off")
        node.receives = node.sends = False
    _portal_is_away(schedule, until)
    if schedule.more.random() < 0.7:
        schedule.log("the outage is over")
        schedule.portal.outage_end(world.now)
    # The portal counts a silence from when it is back.
    _time_passes(schedule, 60 if cut else 5)


def _portal_is_away(schedule: "Schedule", until: int) -> None:
    """Nodes that said that their lease lasts until the end of it end nothing for lack of one."""
    world = schedule.world
    safe = [node for node in world.nodes if _has_confirmed(schedule, node, until)]
    before = {node.name: node.happened["leases that ran out"] for node in safe}
    seconds = schedule.more.choice((10, 10, 50, until - int(world.now)))
    schedule.log(f"the portal is away for {seconds} s; safe are {sorted(before)}")
    world.is_away = True
    world.passes(max(0, min(seconds, until - world.now)))
    world.is_away = False
    schedule.portal.reader_restarts()
    for node in safe:
        schedule.happened["outages slept through"] += node.is_on_lease()
        if node.happened["leases that ran out"] > before[node.name]:
            world.violations.append(f"P12 {node.name} ended work in an outage that was announced to it")


def _has_confirmed(schedule: "Schedule", node: "SimNode", until: int) -> bool:
    """See _lease_state."""
    row = schedule.portal.tables.nodes[node.name]
    if row.partitioned or row.heartbeat_at is None or row.heartbeat_at < schedule.world.now - 15:
        return False
    return row.heartbeat_at + row.reported_lease_seconds - MARGIN_SECONDS >= until


def decisions_are_frozen(schedule: "Schedule") -> None:
    """By an operator, for a while, or until somebody ends it."""
    if schedule.portal.tables.is_frozen(schedule.world.now):
        schedule.log("decisions continue")
        schedule.portal.freeze_end(schedule.world.now)
        return
    seconds = schedule.more.choice((None, 20, 90, 400))
    schedule.log(f"decisions are frozen for {seconds} s")
    schedule.world.look()
    schedule.portal.freeze_begin(
        None if seconds is None else schedule.world.now + seconds, schedule.world.now
    )
    schedule.happened["freezes of decisions"] += 1


INTERLUDES: tuple[Callable[["Schedule"], None], ...] = (
    agent_is_stopped,
    agent_is_stopped,
    outage_is_planned,
    decisions_are_frozen,
)


def interlude(schedule: "Schedule") -> None:
    """Perhaps one of them, in a schedule that has some."""
    if schedule.has_interludes and schedule.more.random() < SOME_STEPS:
        schedule.more.choice(INTERLUDES)(schedule)
