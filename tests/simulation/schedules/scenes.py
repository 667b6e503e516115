"""How some schedules begin: what chance alone brings about too seldom."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tests.simulation.schedules.faults import frozen_dies, gpu_falls_off, will_die
from tests.simulation.schedules.happenings import (
    ask,
    claim,
    claim_is_given_up,
    everybody_works,
    maintenance_is_planned,
    more_time_is_asked,
    move_is_ordered,
    people_act_while_a_plan_is_made,
    release,
    saves_are_told,
    time_passes,
)
from tests.simulation.tables.people import BORROWER, LENDER, Wish, borrowing_draw

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
    more_time_is_asked,
    saves_are_told,
    gpu_falls_off,
    time_passes,
)
_ONE = Wish(count=1, profile=None, together="any", required=False, duration=1200)


def minds_change(it: "Schedule") -> None:
    """A site that is full of work that may be paused; claims on it are given up, and runs given
    back, while plans are made of them."""
    for _ in it.portal.site.gpus:
        ask(it, borrowing_draw(it.world.rng, ("flex", "frozen", "spot")))
    _begun(it)
    for _ in range(3):
        people_act_while_a_plan_is_made(it)


def fully_borrowed(it: "Schedule") -> None:
    """A site that is full of work that may be paused, and somebody stronger who comes."""
    tiers = it.world.rng.choice((("flex", "frozen", "spot"), ("frozen",)))
    for _ in it.portal.site.gpus:
        ask(it, borrowing_draw(it.world.rng, tiers))
    _begun(it)
    _may_die(it, PAUSING)
    claim(it)
    it.world.rng.choice(
        (claim_is_given_up, more_time_is_asked, saves_are_told, gpu_falls_off, time_passes)
    )(it)
    it.portal.cycle(it.world.now)
    it.world.passes(40)
    everybody_works(it)


def cut_off_on_lease(it: "Schedule") -> None:
    """Work that may begin anew elsewhere, and a node that neither hears nor speaks for long."""
    ask(it, dataclasses.replace(_ONE, tier="steady"))
    _begun(it)
    node = it.world.rng.choice(it.world.nodes)
    it.tell(f"{node.name} is cut off")
    node.hears = node.speaks = False
    for seconds in (10, 1, 30, 30):
        it.world.passes(seconds)
        everybody_works(it)


def beside_each_other(it: "Schedule") -> None:
    """Shares of several people at once, more than there is room for."""
    for who in (LENDER, BORROWER, LENDER, LENDER):
        share = it.world.rng.choice((300, 500, 600))
        tier = "flex" if who == BORROWER else "standard"
        ask(it, dataclasses.replace(_ONE, share=share, who=who, tier=tier))
    _begun(it)
    claim(it)


def told_again(it: "Schedule") -> None:
    """One booking gives way to another, and then the old words come once more."""
    for _ in range(2):
        ask(it, _ONE)
        _begun(it)
        release(it)
        _begun(it)
    ask(it, _ONE)
    _begun(it)
    for node in it.world.nodes:
        it.world.node_works(node, stale=True)


def overtaken(it: "Schedule") -> None:
    """A node that hears nothing ends a booking on time that is longer by now; it takes it up again
    once it hears of that, and its old word is heard when the booking has been given back."""
    ask(it, dataclasses.replace(_ONE, duration=60))
    _begun(it)
    for node in it.world.nodes:
        node.hears = False
    active = sorted(n for n, b in it.portal.tables.bookings.items() if b.state == "active")
    for name in active:
        it.tell(f"{name} shall be longer, and its node does not hear of it")
        it.portal.extend(name, (it.portal.tables.bookings[name].ends or 0) + 600, it.world.now)
    it.portal.cycle(it.world.now)
    it.world.passes(60)
    for hears in (False, True):
        for node in it.world.nodes:
            node.hears = hears
            it.world.node_works(node)
    for name in active:
        it.portal.release(name, it.world.now)
    it.portal.cycle(it.world.now)
    it.happened["words that were overtaken"] += len(active)
    while it.world.server.stream and not it.world.violations:
        it.world.portal_hears(1)


def power_lost_in_the_dark(it: "Schedule") -> None:
    """What one had is proven empty; then its node loses power, comes back and hears nothing."""
    ask(it, _ONE)
    _begun(it)
    release(it)
    _begun(it)
    if it.world.rng.random() < 0.5:
        ask(it, _ONE)
        _begun(it)
    for node in it.world.nodes:
        node.hears = False
        it.tell(f"{node.name} loses power, and hears nothing")
        node.loses_power()
        it.happened["power lost in the dark"] += 1
    for seconds in (1, 10):
        it.world.passes(seconds)
        everybody_works(it)


def frozen_that_die(it: "Schedule") -> None:
    """Work is frozen for somebody stronger; before it goes on, a program of it is ended."""
    frozen = dataclasses.replace(_ONE, who=BORROWER, tier="frozen", duration=3600)
    for _ in it.portal.site.gpus:
        ask(it, frozen)
    _settles(it)
    _may_die(it, PAUSING)
    for _ in it.portal.site.gpus:
        ask(it, dataclasses.replace(_ONE, duration=60))
    it.portal.cycle(it.world.now)
    _settles(it)
    frozen_dies(it)
    for _ in range(2):
        it.world.passes(60)
        everybody_works(it)
        _settles(it)


def on_one_node(it: "Schedule") -> None:
    """Gangs that are to lie on one node, and others that leave each node too little room."""
    for count, together in ((1, "any"), (2, "node"), (1, "any"), (2, "node")):
        required = together == "node"
        ask(it, dataclasses.replace(_ONE, count=count, together=together, required=required))
    it.portal.cycle(it.world.now)
    it.world.look()
    _begun(it)


def in_the_way(it: "Schedule") -> None:
    """A large slice on one GPU and a small one on the next, both free to be paused; somebody waits
    for a whole GPU, and an operator orders a move."""
    for _ in it.portal.site.gpus:
        for profile in ("4g.40gb", "3g.40gb"):
            ask(it, dataclasses.replace(_ONE, profile=profile, tier="flex", duration=3600))
    it.portal.cycle(it.world.now)
    _settles(it)
    tables = it.portal.tables
    for number, gpu in enumerate(it.portal.site.gpus):
        gone = ("4g.40gb", "3g.40gb")[number % 2]
        for row in [r for r in tables.rows.values() if r.place.gpu == gpu.id]:
            if row.place.profile == gone:
                it.tell(f"{row.booking} is released")
                it.portal.release(row.booking, it.world.now)
    _settles(it)
    ask(it, dataclasses.replace(_ONE, tier="flex", duration=600))
    it.portal.cycle(it.world.now)
    move_is_ordered(it)
    for seconds in (30, 10, 30):
        it.world.passes(seconds)
        everybody_works(it)


def clock_set_back(it: "Schedule") -> None:
    """A node that hears nothing ends a booking in time, says so, and then its clock goes wrong."""
    ask(it, dataclasses.replace(_ONE, duration=60))
    _begun(it)
    for node in it.world.nodes:
        node.hears = False
    for seconds in (60, 10):
        it.world.passes(seconds)
        everybody_works(it)
    for node in it.world.nodes:
        node.skew = -3600.0
    it.world.passes(10)
    everybody_works(it)


def sliced(it: "Schedule") -> None:
    """Slices come and go, and somebody makes one by hand; the agents die of it."""
    _may_die(it, MAKING)
    for profile in ("1g.10gb", "2g.20gb", "3g.40gb"):
        ask(it, dataclasses.replace(_ONE, profile=profile, duration=60))
    _begun(it)
    _may_die(it, TAKING)
    it.world.passes(60)
    everybody_works(it)


def fallen_silent(it: "Schedule") -> None:
    """A node is not heard, or does not hear, when something is to start there; perhaps for long."""
    node = it.world.rng.choice(it.world.nodes)
    starts = int(it.world.now) + it.world.rng.choice((90, 2400))
    ask(it, dataclasses.replace(_ONE, pin=(node.name,), starts=starts))
    _begun(it)
    node.hears, node.speaks = it.world.rng.choice(((False, True), (True, False), (False, False)))
    it.tell(f"{node.name} hears {node.hears}, speaks {node.speaks}")
    for seconds in (30, 30, 60, *it.world.rng.choice(((), (300, 300)))):
        it.world.passes(seconds)
        everybody_works(it)


def driver_that_hangs(it: "Schedule") -> None:
    """In the middle of making slices; what was asked for is given back before it answers."""
    for profile in ("1g.10gb", "2g.20gb"):
        ask(it, dataclasses.replace(_ONE, profile=profile))
    if it.world.rng.random() < 0.5:
        _begun(it)
    for node in it.world.nodes:
        node.hanging = {gpu.uuid for gpu in node.hardware.gpus}
    it.tell("all drivers hang")
    for _ in range(3):
        it.world.passes(10)
        everybody_works(it)
    it.world.rng.choice((release, ask_again, time_passes))(it)
    for node in it.world.nodes:
        it.tell(f"the driver of {node.name} answers again")
        node.answers()
        it.world.node_works(node)


def laid_anew(it: "Schedule") -> None:
    """Slices that are to begin later lie apart once others are given up; then there is room for a
    whole GPU only if they lie beside each other."""
    later = dataclasses.replace(_ONE, starts=int(it.world.now) + 600)
    for profile in ("4g.40gb", "4g.40gb", "3g.40gb"):
        ask(it, dataclasses.replace(later, profile=profile))
    it.portal.cycle(it.world.now)
    tables = it.portal.tables
    planned = [row for row in tables.rows.values() if row.state == "planned"]
    beside = {row.place.gpu for row in planned if row.place.profile == "3g.40gb"}
    for row in planned:
        if row.place.gpu in beside and row.place.profile != "3g.40gb":
            it.tell(f"{row.booking} is cancelled")
            it.portal.cancel(row.booking, it.world.now)
    ask(it, later)
    it.portal.cycle(it.world.now)
    it.world.look()


def ask_again(it: "Schedule") -> None:
    """For a whole GPU."""
    ask(it, _ONE)


def under_maintenance(it: "Schedule") -> None:
    """Somebody runs where maintenance is planned, and somebody wants to."""
    ask(it, _ONE)
    _begun(it)
    maintenance_is_planned(it)
    ask(it, _ONE)
    for seconds in (30, 30, 120):
        it.world.passes(seconds)
        everybody_works(it)


def _may_die(it: "Schedule", kind: Sequence[str]) -> None:
    for node in it.world.nodes:
        if it.world.rng.random() < 0.6:
            will_die(it, node, kind)


def _begun(it: "Schedule") -> None:
    for seconds in (1, it.world.rng.choice((2, 30))):
        it.world.passes(seconds)
        everybody_works(it)


def _settles(it: "Schedule") -> None:
    """Time for what ends to be proven empty, too."""
    for seconds in (10, 20, 20):
        it.world.passes(seconds)
        everybody_works(it)


SCENES: tuple[Callable[["Schedule"], None], ...] = (
    minds_change,
    sliced,
    fully_borrowed,
    fully_borrowed,
    fully_borrowed,
    fully_borrowed,
    cut_off_on_lease,
    beside_each_other,
    told_again,
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
    laid_anew,
    fallen_silent,
    driver_that_hangs,
    under_maintenance,
)
