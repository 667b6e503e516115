"""What people and the portal do in a schedule."""

import dataclasses
import os
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.simulation.nodes.node import SimNode
from tests.simulation.tables.acts import KINDS, Act
from tests.simulation.tables.people import Wish, claim_draw, wish_draw
from tests.simulation.tables.rows import OVER, Upkeep

if TYPE_CHECKING:
    from tests.simulation.schedules.schedule import Schedule


def time_passes(it: "Schedule") -> None:
    seconds = it.world.rng.choice((0.25, 1, 2, 5, 5, 10, 30, 60, 300))
    it.tell(f"{seconds} s pass")
    it.world.passes(seconds)
    everybody_works(it)


def everybody_works(it: "Schedule") -> None:
    rng, world = it.world.rng, it.world
    for node in rng.sample(world.nodes, len(world.nodes)):
        if rng.random() < 0.9:
            world.node_works(node)
    if rng.random() < 0.8:
        world.portal_hears()
    if rng.random() < 0.9:
        it.portal.cycle(world.now)
        world.look()


def request(it: "Schedule") -> None:
    wish = wish_draw(it.world.rng, it.world.now)
    if it.world.rng.random() < 0.15:
        wish = dataclasses.replace(wish, pin=_pin(it))
    ask(it, wish)


def _pin(it: "Schedule") -> tuple[str, ...]:
    """A node, or one of its GPUs."""
    node = it.world.rng.choice(it.world.nodes)
    gpu = it.world.rng.choice(node.hardware.gpus)
    return (it.world.rng.choice((node.name, f"{node.name}/{gpu.index}")),)


def claim(it: "Schedule") -> None:
    """A stronger claim on something that runs and may be paused; else somebody asks."""
    tables = it.portal.tables.bookings
    runs = sorted(n for n, b in tables.items() if b.state == "active" and b.tier.pausable)
    if not runs:
        request(it)
        return
    wish = tables[it.world.rng.choice(runs)].wish
    for _ in range(it.world.rng.choice((1, 1, 2))):
        ask(it, claim_draw(it.world.rng, wish))


def ask(it: "Schedule", wish: Wish) -> None:
    rng = it.world.rng
    classes = sorted(set(it.portal.site.class_of.values()))
    if len(classes) > 1:
        wish = dataclasses.replace(
            wish, classes=rng.choice((*((c,) for c in classes), (*classes,)))
        )
    it.tell(f"somebody asks for {wish}")
    it.portal.request(str(uuid.UUID(int=rng.getrandbits(128), version=4)), wish, it.world.now)
    if rng.random() < 0.8:
        it.portal.cycle(it.world.now)
        it.world.look()


def release(it: "Schedule") -> None:
    name = _some_booking(it)
    if name is not None:
        it.tell(f"{name} is released")
        it.portal.release(name, it.world.now)


def cancel(it: "Schedule") -> None:
    name = _some_booking(it)
    if name is not None:
        it.tell(f"{name} is cancelled")
        it.portal.cancel(name, it.world.now)


def extend(it: "Schedule") -> None:
    name = _some_booking(it)
    if name is not None:
        ends = it.portal.tables.bookings[name].ends
        if ends is not None:
            it.tell(f"{name} shall be longer")
            it.portal.extend(name, ends + it.world.rng.choice((60, 600)), it.world.now)


def people_act_while_a_plan_is_made(it: "Schedule") -> None:
    """Some have just asked; they and others change their minds before each plan is written."""
    rng = it.world.rng
    asked = []
    for _ in range(rng.choice((1, 2))):
        asked.append(str(uuid.UUID(int=rng.getrandbits(128), version=4)))
        it.portal.request(asked[-1], _asked_now(it), it.world.now)
    if not it.portal.tables.bookings:
        return
    acts = tuple(tuple(_act(it, asked) for _ in range(rng.choice((0, 1, 2, 4)))) for _ in range(2))
    it.tell(f"while plans are made: {acts}")
    it.portal.cycle(it.world.now, acts=acts)
    it.world.look()


def _asked_now(it: "Schedule") -> Wish:
    """A stronger claim where something runs that may be paused, or any wish."""
    runs = sorted(
        name
        for name, booking in it.portal.tables.bookings.items()
        if booking.state == "active" and booking.tier.pausable
    )
    if runs and it.world.rng.random() < 0.7:
        return claim_draw(it.world.rng, it.portal.tables.bookings[it.world.rng.choice(runs)].wish)
    return wish_draw(it.world.rng, it.world.now)


def _act(it: "Schedule", asked: Sequence[str]) -> Act:
    rng, bookings = it.world.rng, it.portal.tables.bookings
    if rng.random() < 0.15:
        name = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        return Act("request", name, wish=wish_draw(rng, it.world.now))
    claims = {each.beneficiary for each in it.portal.tables.pauses.values() if each.is_open}
    runs = {name for name, booking in bookings.items() if booking.state == "active"}
    others = {name for name, booking in bookings.items() if booking.state not in OVER}
    # What the real services have refused is not there.
    known = [sorted(names & set(bookings)) for names in (set(asked), claims, runs, others)]
    name = rng.choice(rng.choice([names for names in known if names] or [sorted(bookings)]))
    until = (bookings[name].ends or int(it.world.now)) + rng.choice((60, 600))
    return Act(rng.choice(KINDS), name, until)


def move_is_ordered(it: "Schedule") -> None:
    """By an operator, of running work that is in somebody's way; somebody may act before the next
    turn answers."""
    rng = it.world.rng
    if not it.can_order:
        return
    if it.portal.order(str(uuid.UUID(int=rng.getrandbits(128), version=4)), it.world.now):
        it.tell("a move is ordered")
        it.happened["moves ordered"] += 1
        rng.choice((release, saves_are_told, request, time_passes, time_passes))(it)
        it.portal.cycle(it.world.now)
        it.world.look()


def portal_is_killed_before_it_tells(it: "Schedule") -> None:
    it.tell("a cycle is killed before nodes are told")
    it.portal.cycle(it.world.now, publishes=False)
    it.world.look()


def saves_are_told(it: "Schedule") -> None:
    """Owners say that all is saved: to the portal, or where the work runs."""
    name = _some_booking(it, "pausing") or _some_booking(it, "active")
    if name is None:
        return
    if it.world.rng.random() < 0.5:
        it.tell(f"{name} is saved, the portal hears")
        it.portal.saved(name, it.world.now)
    else:
        it.tell(f"{name} is saved, its nodes hear")
        for node in it.world.nodes:
            _saved_on(it, node, name)


def _saved_on(it: "Schedule", node: SimNode, name: str) -> None:
    booking = it.portal.tables.bookings[name]
    slug = it.portal.site.parties[booking.wish.who].slug
    file = node.folder / "bookings" / f"{slug}.BK-{booking.number}" / "saved"
    if file.exists():
        os.utime(file, (node.wall(), node.wall()))


def claim_is_given_up(it: "Schedule") -> None:
    """By whom somebody is told to pause for."""
    tables = it.portal.tables
    found = sorted({p.beneficiary for p in tables.pauses.values() if p.is_open})
    if found:
        name = it.world.rng.choice(found)
        it.tell(f"{name} is given up")
        it.portal.cancel(name, it.world.now)


def more_time_is_asked(it: "Schedule") -> None:
    name = _some_booking(it, "pausing")
    if name is not None:
        it.tell(f"{name} asks for more time")
        it.portal.more_time(name, it.world.now)


def maintenance_is_planned(it: "Schedule") -> None:
    """Of a node or one GPU, soon or at once; what runs may have some time to leave."""
    rng, now = it.world.rng, int(it.world.now)
    node = rng.choice(it.world.nodes)
    starts = now + rng.choice((0, 30, 120, 600))
    ends = starts + rng.choice((60, 300, 1200))
    wanted = Upkeep(
        id=str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        node=node.name,
        gpu=rng.choice((None, *range(len(node.hardware.gpus)))),
        starts=starts,
        ends=ends,
        drain_by=min(ends, starts + rng.choice((0, 0, 30))),
    )
    it.tell(f"maintenance is planned: {wanted}")
    it.portal.plan_upkeep(wanted, it.world.now)


def maintenance_ends(it: "Schedule") -> None:
    found = sorted(n for n, each in it.portal.tables.upkeep.items() if each.ended_at is None)
    if found:
        name = it.world.rng.choice(found)
        it.tell(f"maintenance {name} is over")
        it.portal.end_upkeep(name, it.world.now)


def reader_restarts(it: "Schedule") -> None:
    it.tell("the reader of reports starts anew")
    it.portal.reader_restarts()


def _some_booking(it: "Schedule", *states: str) -> str | None:
    bookings = it.portal.tables.bookings.items()
    found = sorted(n for n, b in bookings if b.state in states or not (states or b.state in OVER))
    return it.world.rng.choice(found) if found else None
