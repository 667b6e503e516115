"""What people and the portal do in a schedule."""

import dataclasses
import os
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.simulation.nodes.node import SimNode
from tests.simulation.tables.acts import KINDS, Act
from tests.simulation.tables.people import UserRequest, claim_draw, request_draw
from tests.simulation.tables.rows import OVER, MaintenanceRow

if TYPE_CHECKING:
    from tests.simulation.schedules.schedule import Schedule


def time_passes(schedule: "Schedule") -> None:
    seconds = schedule.world.rng.choice((0.25, 1, 2, 5, 5, 10, 30, 60, 300))
    schedule.log(f"{seconds} s pass")
    schedule.world.passes(seconds)
    everybody_works(schedule)


def everybody_works(schedule: "Schedule") -> None:
    rng, world = schedule.world.rng, schedule.world
    for node in rng.sample(world.nodes, len(world.nodes)):
        if rng.random() < 0.9:
            world.node_works(node)
    if rng.random() < 0.8:
        world.portal_receives()
    if rng.random() < 0.9:
        schedule.portal.cycle(world.now)
        world.look()


def request(schedule: "Schedule") -> None:
    requested = request_draw(schedule.world.rng, schedule.world.now)
    if schedule.world.rng.random() < 0.15:
        requested = dataclasses.replace(requested, pin=_pin(schedule))
    request_add(schedule, requested)


def _pin(schedule: "Schedule") -> tuple[str, ...]:
    """A node, or one of its GPUs."""
    node = schedule.world.rng.choice(schedule.world.nodes)
    gpu = schedule.world.rng.choice(node.hardware.gpus)
    return (schedule.world.rng.choice((node.name, f"{node.name}/{gpu.index}")),)


def claim(schedule: "Schedule") -> None:
    """A stronger claim on something that runs and may be paused; else a new request."""
    tables = schedule.portal.tables.bookings
    runs = sorted(n for n, b in tables.items() if b.state == "active" and b.tier.pausable)
    if not runs:
        request(schedule)
        return
    requested = tables[schedule.world.rng.choice(runs)].requested
    for _ in range(schedule.world.rng.choice((1, 1, 2))):
        request_add(schedule, claim_draw(schedule.world.rng, requested))


def request_add(schedule: "Schedule", requested: UserRequest) -> None:
    rng = schedule.world.rng
    classes = sorted(set(schedule.portal.site.class_of.values()))
    if len(classes) > 1:
        requested = dataclasses.replace(
            requested, classes=rng.choice((*((c,) for c in classes), (*classes,)))
        )
    schedule.log(f"somebody asks for {requested}")
    schedule.portal.request(
        str(uuid.UUID(int=rng.getrandbits(128), version=4)), requested, schedule.world.now
    )
    if rng.random() < 0.8:
        schedule.portal.cycle(schedule.world.now)
        schedule.world.look()


def release(schedule: "Schedule") -> None:
    name = _some_booking(schedule)
    if name is not None:
        schedule.log(f"{name} is released")
        schedule.portal.release(name, schedule.world.now)


def cancel(schedule: "Schedule") -> None:
    name = _some_booking(schedule)
    if name is not None:
        schedule.log(f"{name} is cancelled")
        schedule.portal.cancel(name, schedule.world.now)


def extend(schedule: "Schedule") -> None:
    name = _some_booking(schedule)
    if name is not None:
        ends = schedule.portal.tables.bookings[name].ends
        if ends is not None:
            schedule.log(f"{name} shall be longer")
            schedule.portal.extend(name, ends + schedule.world.rng.choice((60, 600)), schedule.world.now)


def people_act_while_a_plan_is_made(schedule: "Schedule") -> None:
    """New and known bookings change before each plan is written."""
    rng = schedule.world.rng
    requested = []
    for _ in range(rng.choice((1, 2))):
        requested.append(str(uuid.UUID(int=rng.getrandbits(128), version=4)))
        schedule.portal.request(requested[-1], _request_now(schedule), schedule.world.now)
    if not schedule.portal.tables.bookings:
        return
    acts = tuple(tuple(_act(schedule, requested) for _ in range(rng.choice((0, 1, 2, 4)))) for _ in range(2))
    schedule.log(f"while plans are made: {acts}")
    schedule.portal.cycle(schedule.world.now, acts=acts)
    schedule.world.look()


def _request_now(schedule: "Schedule") -> UserRequest:
    """A stronger claim where something runs that may be paused, or any request."""
    runs = sorted(
        name
        for name, booking in schedule.portal.tables.bookings.items()
        if booking.state == "active" and booking.tier.pausable
    )
    if runs and schedule.world.rng.random() < 0.7:
        return claim_draw(
            schedule.world.rng,
            schedule.portal.tables.bookings[schedule.world.rng.choice(runs)].requested,
        )
    return request_draw(schedule.world.rng, schedule.world.now)


def _act(schedule: "Schedule", requested: Sequence[str]) -> Act:
    rng, bookings = schedule.world.rng, schedule.portal.tables.bookings
    if rng.random() < 0.15:
        name = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        return Act("request", name, requested=request_draw(rng, schedule.world.now))
    claims = {each.beneficiary for each in schedule.portal.tables.pauses.values() if each.is_open}
    runs = {name for name, booking in bookings.items() if booking.state == "active"}
    others = {name for name, booking in bookings.items() if booking.state not in OVER}
    # What the real services have refused is not there.
    known = [sorted(names & set(bookings)) for names in (set(requested), claims, runs, others)]
    name = rng.choice(rng.choice([names for names in known if names] or [sorted(bookings)]))
    until = (bookings[name].ends or int(schedule.world.now)) + rng.choice((60, 600))
    return Act(rng.choice(KINDS), name, until)


def move_is_ordered(schedule: "Schedule") -> None:
    """By an operator, of running work that is in somebody's way; somebody may act before the next
    turn answers."""
    rng = schedule.world.rng
    if not schedule.can_order:
        return
    if schedule.portal.order(str(uuid.UUID(int=rng.getrandbits(128), version=4)), schedule.world.now):
        schedule.log("a move is ordered")
        schedule.happened["moves ordered"] += 1
        rng.choice((release, saved_is_reported, request, time_passes, time_passes))(schedule)
        schedule.portal.cycle(schedule.world.now)
        schedule.world.look()


def portal_is_killed_before_it_publishes(schedule: "Schedule") -> None:
    schedule.log("a cycle is killed before it publishes")
    schedule.portal.cycle(schedule.world.now, publishes=False)
    schedule.world.look()


def saved_is_reported(schedule: "Schedule") -> None:
    """Owners say that all is saved: to the portal, or where the work runs."""
    name = _some_booking(schedule, "pausing") or _some_booking(schedule, "active")
    if name is None:
        return
    if schedule.world.rng.random() < 0.5:
        schedule.log(f"{name} is saved, reported to the portal")
        schedule.portal.saved(name, schedule.world.now)
    else:
        schedule.log(f"{name} is saved, reported on its nodes")
        for node in schedule.world.nodes:
            _saved_on(schedule, node, name)


def _saved_on(schedule: "Schedule", node: SimNode, name: str) -> None:
    booking = schedule.portal.tables.bookings[name]
    slug = schedule.portal.site.parties[booking.requested.who].slug
    file = node.folder / "bookings" / f"{slug}.{booking.label}" / "saved"
    if file.exists():
        os.utime(file, (node.wall(), node.wall()))


def claim_is_given_up(schedule: "Schedule") -> None:
    """A booking that another one is to be paused for is cancelled."""
    tables = schedule.portal.tables
    found = sorted({p.beneficiary for p in tables.pauses.values() if p.is_open})
    if found:
        name = schedule.world.rng.choice(found)
        schedule.log(f"{name} is given up")
        schedule.portal.cancel(name, schedule.world.now)


def more_time_is_requested(schedule: "Schedule") -> None:
    name = _some_booking(schedule, "pausing")
    if name is not None:
        schedule.log(f"{name} asks for more time")
        schedule.portal.more_time(name, schedule.world.now)


def maintenance_is_planned(schedule: "Schedule") -> None:
    """Of a node or one GPU, soon or at once; what runs may have some time to leave."""
    rng, now = schedule.world.rng, int(schedule.world.now)
    node = rng.choice(schedule.world.nodes)
    starts = now + rng.choice((0, 30, 120, 600))
    ends = starts + rng.choice((60, 300, 1200))
    row = MaintenanceRow(
        id=str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        node=node.name,
        gpu=rng.choice((None, *range(len(node.hardware.gpus)))),
        starts=starts,
        ends=ends,
        drain_by=min(ends, starts + rng.choice((0, 0, 30))),
    )
    schedule.log(f"maintenance is planned: {row}")
    schedule.portal.maintenance_plan(row, schedule.world.now)


def maintenance_ends(schedule: "Schedule") -> None:
    found = sorted(n for n, each in schedule.portal.tables.maintenance.items() if each.ended_at is None)
    if found:
        name = schedule.world.rng.choice(found)
        schedule.log(f"maintenance {name} is over")
        schedule.portal.maintenance_end(name, schedule.world.now)


def reader_restarts(schedule: "Schedule") -> None:
    schedule.log("the reader of reports starts anew")
    schedule.portal.reader_restarts()


def _some_booking(schedule: "Schedule", *states: str) -> str | None:
    bookings = schedule.portal.tables.bookings.items()
    found = sorted(n for n, b in bookings if b.state in states or not (states or b.state in OVER))
    return schedule.world.rng.choice(found) if found else None
