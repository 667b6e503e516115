"""How some schedules begin: what chance alone brings about too seldom."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tests.simulation.schedules.faults import frozen_dies, gpu_falls_off, will_die
from tests.simulation.schedules.happenings import (
    claim,
    claim_is_given_up,
    everybody_works,
    maintenance_is_planned,
    more_time_is_requested,
    move_is_ordered,
    people_act_while_a_plan_is_made,
    release,
    request_add,
    saved_is_reported,
    time_passes,
)
from tests.simulation.tables.people import BORROWER, LENDER, UserRequest, borrowing_draw

if TYPE_CHECKING:
    from tests.simulation.schedules.schedule import Schedule

MAKING = ("before a slice is made", "between the two steps of a slice", "after a slice is made")
TAKING = (
    "between the two steps of taking it away",
    "after a slice is taken away",
    "after a device is taken back",
)
PAUSING = (
    "after a program was asked to end",
    "before a program is frozen or woken",
    "while a program is frozen or woken",
)
ANSWERS = (
    claim_is_given_up,
    more_time_is_requested,
    saved_is_reported,
    gpu_falls_off,
    time_passes,
)
_ONE = UserRequest(count=1, profile=None, together="any", required=False, duration=1200)


def minds_change(schedule: "Schedule") -> None:
    """A site that is full of work that may be paused; claims on it are given up, and runs given
    back, while plans are made of them."""
    for _ in schedule.portal.site.gpus:
        request_add(schedule, borrowing_draw(schedule.world.rng, ("flex", "frozen", "spot")))
    _begun(schedule)
    for _ in range(3):
        people_act_while_a_plan_is_made(schedule)


def fully_borrowed(schedule: "Schedule") -> None:
    """A site that is full of work that may be paused, and somebody stronger who comes."""
    tiers = schedule.world.rng.choice((("flex", "frozen", "spot"), ("frozen",)))
    for _ in schedule.portal.site.gpus:
        request_add(schedule, borrowing_draw(schedule.world.rng, tiers))
    _begun(schedule)
    _may_die(schedule, PAUSING)
    claim(schedule)
    schedule.world.rng.choice(
        (claim_is_given_up, more_time_is_requested, saved_is_reported, gpu_falls_off, time_passes)
    )(schedule)
    schedule.portal.cycle(schedule.world.now)
    schedule.world.passes(40)
    everybody_works(schedule)


def cut_off_on_lease(schedule: "Schedule") -> None:
    """Leased work, and a node that is cut off in both directions for long."""
    request_add(schedule, dataclasses.replace(_ONE, tier="steady"))
    _begun(schedule)
    node = schedule.world.rng.choice(schedule.world.nodes)
    schedule.log(f"{node.name} is cut off")
    node.receives = node.sends = False
    for seconds in (10, 1, 30, 30):
        schedule.world.passes(seconds)
        everybody_works(schedule)


def shares_side_by_side(schedule: "Schedule") -> None:
    """Shares of several people at once, more than there is room for."""
    for who in (LENDER, BORROWER, LENDER, LENDER):
        share = schedule.world.rng.choice((300, 500, 600))
        tier = "flex" if who == BORROWER else "standard"
        request_add(schedule, dataclasses.replace(_ONE, share=share, who=who, tier=tier))
    _begun(schedule)
    claim(schedule)


def old_reports_repeated(schedule: "Schedule") -> None:
    """One booking gives way to another, and then the old words come once more."""
    for _ in range(2):
        request_add(schedule, _ONE)
        _begun(schedule)
        release(schedule)
        _begun(schedule)
    request_add(schedule, _ONE)
    _begun(schedule)
    for node in schedule.world.nodes:
        schedule.world.node_works(node, stale=True)


def overtaken(schedule: "Schedule") -> None:
    """A node that receives nothing ends a booking on time that has been extended; it restarts it
    once it receives that, and its old report arrives after the booking was released."""
    request_add(schedule, dataclasses.replace(_ONE, duration=60))
    _begun(schedule)
    for node in schedule.world.nodes:
        node.receives = False
    active = sorted(n for n, b in schedule.portal.tables.bookings.items() if b.state == "active")
    for name in active:
        schedule.log(f"{name} shall be longer, and its node does not receive it")
        schedule.portal.extend(
            name, (schedule.portal.tables.bookings[name].ends or 0) + 600, schedule.world.now
        )
    schedule.portal.cycle(schedule.world.now)
    schedule.world.passes(60)
    for receives in (False, True):
        for node in schedule.world.nodes:
            node.receives = receives
            schedule.world.node_works(node)
    for name in active:
        schedule.portal.release(name, schedule.world.now)
    schedule.portal.cycle(schedule.world.now)
    schedule.happened["words that were overtaken"] += len(active)
    while schedule.world.server.stream and not schedule.world.violations:
        schedule.world.portal_receives(1)


def power_lost_in_the_dark(schedule: "Schedule") -> None:
    """What one had is proven empty; then its node loses power, comes back and receives nothing."""
    request_add(schedule, _ONE)
    _begun(schedule)
    release(schedule)
    _begun(schedule)
    if schedule.world.rng.random() < 0.5:
        request_add(schedule, _ONE)
        _begun(schedule)
    for node in schedule.world.nodes:
        node.receives = False
        schedule.log(f"{node.name} loses power, and receives nothing")
        node.loses_power()
        schedule.happened["power lost in the dark"] += 1
    for seconds in (1, 10):
        schedule.world.passes(seconds)
        everybody_works(schedule)


def frozen_that_die(schedule: "Schedule") -> None:
    """Work is suspended for a higher-priority booking; before it resumes, a program of it is
    ended."""
    frozen = dataclasses.replace(_ONE, who=BORROWER, tier="frozen", duration=3600)
    for _ in schedule.portal.site.gpus:
        request_add(schedule, frozen)
    _settles(schedule)
    _may_die(schedule, PAUSING)
    for _ in schedule.portal.site.gpus:
        request_add(schedule, dataclasses.replace(_ONE, duration=60))
    schedule.portal.cycle(schedule.world.now)
    _settles(schedule)
    frozen_dies(schedule)
    for _ in range(2):
        schedule.world.passes(60)
        everybody_works(schedule)
        _settles(schedule)


def on_one_node(schedule: "Schedule") -> None:
    """Gangs that are to lie on one node, and others that leave each node too little room."""
    for count, together in ((1, "any"), (2, "node"), (1, "any"), (2, "node")):
        required = together == "node"
        request_add(schedule, dataclasses.replace(_ONE, count=count, together=together, required=required))
    schedule.portal.cycle(schedule.world.now)
    schedule.world.look()
    _begun(schedule)


def in_the_way(schedule: "Schedule") -> None:
    """A large slice on one GPU and a small one on the next, both free to be paused; somebody waits
    for a whole GPU, and an operator orders a move."""
    for _ in schedule.portal.site.gpus:
        for profile in ("4g.40gb", "3g.40gb"):
            request_add(schedule, dataclasses.replace(_ONE, profile=profile, tier="flex", duration=3600))
    schedule.portal.cycle(schedule.world.now)
    _settles(schedule)
    tables = schedule.portal.tables
    for number, gpu in enumerate(schedule.portal.site.gpus):
        gone = ("4g.40gb", "3g.40gb")[number % 2]
        for row in [r for r in tables.rows.values() if r.place.gpu == gpu.id]:
            if row.place.profile == gone:
                schedule.log(f"{row.booking} is released")
                schedule.portal.release(row.booking, schedule.world.now)
    _settles(schedule)
    request_add(schedule, dataclasses.replace(_ONE, tier="flex", duration=600))
    schedule.portal.cycle(schedule.world.now)
    move_is_ordered(schedule)
    for seconds in (30, 10, 30):
        schedule.world.passes(seconds)
        everybody_works(schedule)


def clock_set_back(schedule: "Schedule") -> None:
    """A node that receives nothing ends a booking in time, says so, and then its clock goes
    wrong."""
    request_add(schedule, dataclasses.replace(_ONE, duration=60))
    _begun(schedule)
    for node in schedule.world.nodes:
        node.receives = False
    for seconds in (60, 10):
        schedule.world.passes(seconds)
        everybody_works(schedule)
    for node in schedule.world.nodes:
        node.skew = -3600.0
    schedule.world.passes(10)
    everybody_works(schedule)


def sliced(schedule: "Schedule") -> None:
    """Slices come and go, and somebody makes one by hand; the agents die of it."""
    _may_die(schedule, MAKING)
    for profile in ("1g.10gb", "2g.20gb", "3g.40gb"):
        request_add(schedule, dataclasses.replace(_ONE, profile=profile, duration=60))
    _begun(schedule)
    _may_die(schedule, TAKING)
    schedule.world.passes(60)
    everybody_works(schedule)


def node_unreachable(schedule: "Schedule") -> None:
    """A node is cut off in one or both directions when something is to start there, perhaps for
    long."""
    node = schedule.world.rng.choice(schedule.world.nodes)
    starts = int(schedule.world.now) + schedule.world.rng.choice((90, 2400))
    request_add(schedule, dataclasses.replace(_ONE, pin=(node.name,), starts=starts))
    _begun(schedule)
    node.receives, node.sends = schedule.world.rng.choice(((False, True), (True, False), (False, False)))
    schedule.log(f"{node.name} receives {node.receives}, sends {node.sends}")
    for seconds in (30, 30, 60, *schedule.world.rng.choice(((), (300, 300)))):
        schedule.world.passes(seconds)
        everybody_works(schedule)


def driver_that_hangs(schedule: "Schedule") -> None:
    """In the middle of making slices; what was asked for is given back before it answers."""
    for profile in ("1g.10gb", "2g.20gb"):
        request_add(schedule, dataclasses.replace(_ONE, profile=profile))
    if schedule.world.rng.random() < 0.5:
        _begun(schedule)
    for node in schedule.world.nodes:
        node.hanging = {gpu.uuid for gpu in node.hardware.gpus}
    schedule.log("all drivers hang")
    for _ in range(3):
        schedule.world.passes(10)
        everybody_works(schedule)
    schedule.world.rng.choice((release, ask_again, time_passes))(schedule)
    for node in schedule.world.nodes:
        schedule.log(f"the driver of {node.name} answers again")
        node.answers()
        schedule.world.node_works(node)


def slices_moved_together(schedule: "Schedule") -> None:
    """Planned slices are on two GPUs once others are cancelled; a whole GPU is free only if they
    move to one."""
    later = dataclasses.replace(_ONE, starts=int(schedule.world.now) + 600)
    for profile in ("4g.40gb", "4g.40gb", "3g.40gb"):
        request_add(schedule, dataclasses.replace(later, profile=profile))
    schedule.portal.cycle(schedule.world.now)
    tables = schedule.portal.tables
    planned = [row for row in tables.rows.values() if row.state == "planned"]
    both = {row.place.gpu for row in planned if row.place.profile == "3g.40gb"}
    for row in planned:
        if row.place.gpu in both and row.place.profile != "3g.40gb":
            schedule.log(f"{row.booking} is cancelled")
            schedule.portal.cancel(row.booking, schedule.world.now)
    request_add(schedule, later)
    schedule.portal.cycle(schedule.world.now)
    schedule.world.look()


def ask_again(schedule: "Schedule") -> None:
    """For a whole GPU."""
    request_add(schedule, _ONE)


def under_maintenance(schedule: "Schedule") -> None:
    """One booking runs where maintenance is planned, and another is requested there."""
    request_add(schedule, _ONE)
    _begun(schedule)
    maintenance_is_planned(schedule)
    request_add(schedule, _ONE)
    for seconds in (30, 30, 120):
        schedule.world.passes(seconds)
        everybody_works(schedule)


def _may_die(schedule: "Schedule", kind: Sequence[str]) -> None:
    for node in schedule.world.nodes:
        if schedule.world.rng.random() < 0.6:
            will_die(schedule, node, kind)


def _begun(schedule: "Schedule") -> None:
    for seconds in (1, schedule.world.rng.choice((2, 30))):
        schedule.world.passes(seconds)
        everybody_works(schedule)


def _settles(schedule: "Schedule") -> None:
    """Time for what ends to be proven empty, too."""
    for seconds in (10, 20, 20):
        schedule.world.passes(seconds)
        everybody_works(schedule)


SCENES: tuple[Callable[["Schedule"], None], ...] = (
    minds_change,
    sliced,
    fully_borrowed,
    fully_borrowed,
    fully_borrowed,
    fully_borrowed,
    cut_off_on_lease,
    shares_side_by_side,
    old_reports_repeated,
    clock_set_back,
    sliced,
    sliced,
    overtaken,
    power_lost_in_the_dark,
    frozen_that_die,
    frozen_that_die,
    on_one_node,
    in_the_way,
    in_the_way,
    slices_moved_together,
    node_unreachable,
    driver_that_hangs,
    under_maintenance,
)
