"""What people do in some schedules besides asking: they change bookings, wait for windows, answer
offers and ask for arrays.

They draw from a source of their own: schedules without any stay as their seeds had them.
"""

import dataclasses
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.requests.changes import BEFORE_RUN
from tests.simulation.requests.tables import Edit, Repeats, Waits
from tests.simulation.schedules.happenings import everybody_works
from tests.simulation.tables.people import UserRequest, request_draw

if TYPE_CHECKING:
    from tests.simulation.schedules.schedule import Schedule

# Of all schedules, and of the steps of such a schedule.
SOME_SCHEDULES, SOME_STEPS = 0.35, 0.5
HOUR = 3600


def booking_changes(schedule: "Schedule") -> None:
    """Longer, shorter, more, fewer, or another window; of a running one its end."""
    name = _some_booking(schedule, *BEFORE_RUN, "starting", "active")
    if name is None:
        return
    rng, world = schedule.requests_rng, schedule.world
    booking = schedule.portal.tables.bookings[name]
    edit = _edit(schedule, booking.duration, booking.requested)
    if booking.state in ("starting", "active"):
        edit = Edit(duration=edit.duration or max(60, booking.duration * rng.choice((2, 3)) // 4))
    # Without a bound it would be the start that was announced, which the model does not know.
    start_by = int(world.now) + rng.choice((60, HOUR, HOUR, 4 * HOUR))
    edit = dataclasses.replace(edit, start_by=start_by)
    if rng.random() < 0.3:
        edit = dataclasses.replace(edit, waits=True)
    schedule.log(f"{name} shall be {edit}")
    schedule.portal.change(name, edit, _id(schedule), world.now)
    _turn(schedule)


def _edit(schedule: "Schedule", duration: int, requested: UserRequest) -> Edit:
    rng, now = schedule.requests_rng, int(schedule.world.now)
    is_whole = requested.profile is None and requested.share is None and not requested.pin
    if rng.random() < 0.25 and is_whole and requested.together == "any":
        return Edit(count=max(1, requested.count + rng.choice((-1, 1))))
    if rng.random() < 0.3:
        at = now + rng.choice((30, 120, 600))
        return Edit(not_before=at) if requested.starts is None else Edit(starts=at)
    return Edit(duration=max(60, duration * rng.choice((2, 3, 6, 8)) // 4))


def change_is_withdrawn(schedule: "Schedule") -> None:
    changes = schedule.portal.tables.changes
    if changes:
        name = schedule.requests_rng.choice(sorted(changes))
        schedule.log(f"the change of {name} is withdrawn")
        schedule.portal.change_withdraw(name, schedule.world.now)
        schedule.happened["changes withdrawn"] += 1


def window_is_waited_for(schedule: "Schedule") -> None:
    """A window that may be full, or any time within some hours that is offered."""
    rng, now = schedule.requests_rng, int(schedule.world.now)
    requested = dataclasses.replace(request_draw(rng, now), duration=rng.choice((120, 600, 1200)))
    if len(set(schedule.portal.site.class_of.values())) > 1:
        classes = tuple(sorted(set(schedule.portal.site.class_of.values())))
        requested = dataclasses.replace(requested, classes=(rng.choice(classes),))
    starts = now + rng.choice((60, 300, 900))
    if rng.random() < 0.5:
        requested, waits = dataclasses.replace(requested, starts=starts), Waits(mode="auto")
    else:
        until = starts + requested.duration + rng.choice((0, 600, HOUR))
        requested = dataclasses.replace(requested, starts=None)
        waits = Waits(mode="offer", windows=((starts, until),))
    schedule.log(f"somebody waits for {requested}: {waits}")
    schedule.portal.request(_id(schedule), requested, schedule.world.now, waits)
    _turn(schedule)


def offer_is_answered(schedule: "Schedule") -> None:
    """Accepted or declined, or too late: then nothing happens."""
    offers, world = schedule.portal.tables.offers, schedule.world
    if not offers:
        return
    name = schedule.requests_rng.choice(sorted(offers))
    offer = offers[name]
    if schedule.requests_rng.random() < 0.25:
        world.passes(max(0.0, offer.until - world.now))
    accepts, is_late = schedule.requests_rng.random() < 0.6, world.now >= offer.until
    schedule.log(f"the offer to {name} is answered: {accepts}, late is {is_late}")
    schedule.portal.answer(name, world.now, accepts=accepts)
    if is_late and schedule.portal.tables.bookings[name].state != "offered":
        world.violations.append(f"C9 an answer to {name} came late and counted")
    kind = "answered late" if is_late else "accepted" if accepts else "declined"
    schedule.happened[f"offers {kind}"] += 1
    _turn(schedule)


def array_is_requested(schedule: "Schedule") -> None:
    rng = schedule.requests_rng
    requested = dataclasses.replace(
        request_draw(rng, schedule.world.now), starts=None, duration=rng.choice((60, 120))
    )
    repeats = Repeats(count=rng.randint(2, 4), parallel=rng.randint(1, 2))
    schedule.log(f"somebody asks for {repeats} of {requested}")
    schedule.portal.array(_id(schedule), requested, repeats, schedule.world.now)
    _turn(schedule)


LATER_REQUESTS: tuple[Callable[["Schedule"], None], ...] = (
    *(booking_changes,) * 5,
    change_is_withdrawn,
    *(window_is_waited_for,) * 2,
    *(offer_is_answered,) * 2,
    array_is_requested,
)


def later_request(schedule: "Schedule") -> None:
    """Perhaps one of them, in a schedule that has some."""
    if not schedule.has_requests or schedule.requests_rng.random() >= SOME_STEPS:
        return
    if schedule.portal.tables.offers and schedule.requests_rng.random() < 0.5:
        offer_is_answered(schedule)
    elif schedule.portal.tables.changes and schedule.requests_rng.random() < 0.4:
        change_is_withdrawn(schedule)
    else:
        schedule.requests_rng.choice(LATER_REQUESTS)(schedule)


def _turn(schedule: "Schedule") -> None:
    if schedule.requests_rng.random() < 0.7:
        schedule.portal.cycle(schedule.world.now)
        schedule.world.look()
    elif schedule.requests_rng.random() < 0.5:
        everybody_works(schedule)


def _id(schedule: "Schedule") -> str:
    return str(uuid.UUID(int=schedule.requests_rng.getrandbits(128), version=4))


def _some_booking(schedule: "Schedule", *states: str) -> str | None:
    bookings = schedule.portal.tables.bookings.items()
    found = sorted(name for name, booking in bookings if booking.state in states)
    return schedule.requests_rng.choice(found) if found else None
