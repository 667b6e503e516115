"""The model's changes of bookings: see services/bookings/change and services/plans."""

import dataclasses

from solver import ChangeAnswer, Plan, units_of
from tests.simulation.requests.tables import ChangeRow, Edit
from tests.simulation.tables.accounts import granted_seconds
from tests.simulation.tables.people import UserRequest
from tests.simulation.tables.rows import LIVE, OVER, Booking, Row, Site, Tables

SOON, LAST_EXTENSION = 120, 600
BEFORE_RUN = ("requested", "queued", "scheduled")
RUNNING = ("starting", "active")
WAITED_FOR = ("change_no_room", "change_weaker")


def has_run(booking: Booking) -> bool:
    """See has_run."""
    began = booking.used_seconds or booking.replaced or booking.pause_count
    return bool(began or booking.ready_at is not None or booking.lost_at is not None)


def change(tables: Tables, booking: Booking, edit: Edit, name: str, now: float) -> None:
    """See booking_patch."""
    requested, requested_from = _target(booking, edit)
    if (requested, requested_from) == (_now(booking), booking.requested_from):
        return
    if booking.state in RUNNING or _is_about_to_begin(booking, requested, requested_from, now):
        _running(tables, booking, requested, now, waits=edit.waits)
        return
    if booking.state not in BEFORE_RUN or has_run(booking):
        return
    if _is_weaker(_now(booking), requested, booking.requested_from, requested_from):
        _weaker(tables, booking, requested, requested_from)
        return
    _stronger(tables, booking, edit, (requested, requested_from), name, now)


def withdraw(tables: Tables, booking: Booking) -> None:
    """See change_withdraw."""
    replace_open(tables, booking)


def replace_open(tables: Tables, booking: Booking) -> None:
    """See ChangeWriter.replace_open."""
    tables.changes.pop(booking.id, None)
    extension_drop(booking)


def extension_drop(booking: Booking) -> None:
    """No later end is asked for any more."""
    booking.extension = booking.extension_waits_until = None
    booking.extension_is_waiting = False


def _now(booking: Booking) -> UserRequest:
    return dataclasses.replace(booking.requested, duration=booking.duration)


def _target(booking: Booking, edit: Edit) -> tuple[UserRequest, int | None]:
    requested = _now(booking)
    if edit.duration is not None:
        requested = dataclasses.replace(requested, duration=edit.duration)
    if edit.count is not None:
        requested = dataclasses.replace(requested, count=edit.count)
    if edit.starts is not None:
        requested = dataclasses.replace(requested, starts=edit.starts)
    return requested, booking.requested_from if edit.not_before is None else edit.not_before


def _is_weaker(old: UserRequest, new: UserRequest, was_from: int | None, is_from: int | None) -> bool:
    """See strength_of."""
    less = new.duration <= old.duration and new.count <= old.count
    return less and new.starts == old.starts and (is_from or 0) >= (was_from or 0)


def _is_about_to_begin(
    booking: Booking, requested: UserRequest, requested_from: int | None, now: float
) -> bool:
    if booking.state != "scheduled" or booking.starts is None:
        return False
    longer = requested.duration > booking.duration
    longest = dataclasses.replace(_now(booking), duration=requested.duration)
    is_only_end = requested == longest and requested_from == booking.requested_from
    return longer and is_only_end and (has_run(booking) or booking.starts <= now + SOON)


def _is_awaited(tables: Tables, booking: Booking) -> bool:
    """See calendar_cuts.is_awaited."""
    if booking.state == "queued":
        return booking.requested.starts is None and booking.strength == "firm"
    live = tables.of(booking, *LIVE)
    return any(row.preemptor for row in live)


def _running(tables: Tables, booking: Booking, requested: UserRequest, now: float, *, waits: bool) -> None:
    """Ends it earlier at once, or asks for a later end."""
    is_only_end = requested == dataclasses.replace(_now(booking), duration=requested.duration)
    if not is_only_end or booking.ends is None or requested.duration == booking.duration:
        return
    more = requested.duration - booking.duration
    until = booking.ends + more
    if more > 0 and booking.state == "scheduled" and _is_awaited(tables, booking):
        return
    last = booking.ends - LAST_EXTENSION if waits else None
    if more > 0 and last is not None and last <= now:
        return
    if more > 0:
        replace_open(tables, booking)
        booking.extension, booking.extension_requested = until, int(now)
        booking.extension_waits_until = last
    elif until > now:
        replace_open(tables, booking)
        booking.duration = granted_seconds(booking) + more
        booking.ends, booking.bought = until, booking.bought + more
        booking.revision += 1
        tables.cuts.add(booking.id)


def _weaker(tables: Tables, booking: Booking, requested: UserRequest, requested_from: int | None) -> None:
    """Takes effect at once; the calendar follows in the next turn."""
    replace_open(tables, booking)
    not_before = max(booking.not_before, requested_from or 0)
    _plan_cut(tables, booking, requested, not_before)
    _terms(booking, requested, requested_from, not_before)
    tables.cuts.add(booking.id)
    tables.outcomes["weaker changes"] += 1


def _plan_cut(tables: Tables, booking: Booking, requested: UserRequest, not_before: int) -> None:
    """See plan_cut."""
    if booking.starts is None:
        return
    if booking.starts >= not_before:
        booking.ends = booking.starts + requested.duration
        booking.places = booking.places[: requested.count]
        return
    tables.supersede(booking)
    booking.starts = booking.ends = booking.strength = None
    booking.places = ()
    if booking.state == "scheduled":
        booking.state = "queued"


def _terms(booking: Booking, requested: UserRequest, requested_from: int | None, not_before: int) -> None:
    """See terms_apply."""
    booking.bought += requested.duration - booking.duration
    booking.requested, booking.duration = requested, requested.duration
    booking.requested_from, booking.not_before = requested_from, not_before
    booking.revision += 1


def _stronger(
    tables: Tables,
    booking: Booking,
    edit: Edit,
    target: tuple[UserRequest, int | None],
    name: str,
    now: float,
) -> None:
    """Replaces a request that nobody has decided, and asks for the change of any other."""
    requested, requested_from = target
    if _is_awaited(tables, booking):
        return
    not_before = int(max(requested_from or now, now)) if requested.starts is None else requested.starts
    if booking.state == "requested":
        replace_open(tables, booking)
        _terms(booking, requested, requested_from, not_before)
        booking.ranked_at = int(now)
        return
    waits_until = (requested.starts or edit.start_by) if edit.waits else None
    if edit.waits and (waits_until is None or waits_until <= now):
        return
    replace_open(tables, booking)
    tables.changes[booking.id] = ChangeRow(
        id=name,
        booking=booking.id,
        base=booking.revision,
        requested=requested,
        requested_from=requested_from,
        not_before=not_before,
        asked_at=int(now),
        start_by=edit.start_by,
        strength="firm" if booking.state == "scheduled" else booking.strength,
        waits_until=waits_until,
    )


# What a turn does.


def calendar_cut(tables: Tables, site: Site) -> None:
    """See calendar_cut."""
    for name in sorted(tables.cuts):
        booking = tables.bookings[name]
        gone = _cut(tables, site, booking)
        if gone:
            _grant_anew(tables, site, booking, gone)
    tables.cuts.clear()


def _cut(tables: Tables, site: Site, booking: Booking) -> int:
    if booking.state in OVER or booking.ends is None:
        return 0
    number = {gpu.id: gpu.number for gpu in site.gpus}
    kept = sorted(tables.here(booking), key=lambda row: (number[row.place.gpu], row.place.start))
    units = 0
    if booking.state == "scheduled":
        gone, kept = kept[booking.requested.count :], kept[: booking.requested.count]
        units = sum(row_units(row, site) for row in gone)
        for row in gone:
            row.state = "superseded"
    for row in kept:
        if row.ends > booking.ends:
            row.ends = booking.ends
            if row.extended is not None and row.extended[0] >= booking.ends:
                row.extended = None
    tables.bump(kept)
    return units


def _grant_anew(tables: Tables, site: Site, booking: Booking, gone: int) -> None:
    """See _grant_anew."""
    own = tables.here(booking)
    if not own:
        return
    first = min(own, key=lambda row: row.granted)
    if _was_inside(tables, site, booking, first, gone):
        return
    positions = [row.granted[1] for row in tables.rows.values() if row.granted[0] == tables.decisions]
    last = (tables.decisions, max(positions, default=-1) + 1)
    for row in own:
        row.granted, row.extended = last, None


def _was_inside(tables: Tables, site: Site, booking: Booking, first: Row, gone: int) -> bool:
    party = site.parties[booking.requested.who]
    name = site.class_of[first.place.gpu]
    sure = sum(
        each.guaranteed
        for each in site.limits
        if (each.owner, each.gpu_class, each.parent) == (party.tenant, name, None)
    )
    before = [
        row
        for row in tables.rows.values()
        if row.state in LIVE
        and not row.left
        and row.booking != booking.id
        and row.granted < first.granted
        and row.meets(first)
        and site.parties[tables.bookings[row.booking].requested.who].tenant == party.tenant
    ]
    units = sum(row_units(row, site) for row in (*before, *tables.here(booking)))
    return units + gone <= sure


def row_units(row: Row, site: Site) -> int:
    """Its part of a guarantee."""
    slug = next(gpu.model for gpu in site.gpus if gpu.id == row.place.gpu)
    return units_of(next(each for each in site.models if each.slug == slug), row.place.shape)


def changes_sweep(tables: Tables, now: float) -> None:
    """See changes_sweep."""
    for booking in tables.bookings.values():
        last = booking.extension_waits_until
        if booking.extension_is_waiting and last is not None and last <= now:
            extension_drop(booking)
    for name, row in sorted(tables.changes.items()):
        booking = tables.bookings[name]
        is_late = row.is_waiting and row.waits_until is not None and row.waits_until <= now
        if booking.state in BEFORE_RUN and not is_late:
            continue
        del tables.changes[name]
        if booking.state not in (*OVER, "ending"):
            booking.extension = None


def changes_write(tables: Tables, plan: Plan, now: float) -> bool:
    """See changes_write; False: a change was withdrawn or replaced meanwhile."""
    given = {*(each.booking for each in plan.waits), *(each.booking for each in plan.assigns)}
    for answer in plan.changes:
        booking, row = tables.bookings[answer.booking], tables.changes.get(answer.booking)
        if row is None or row.id != answer.change or row.base != booking.revision:
            return False
        if answer.granted:
            assert answer.booking in given
            _grant(tables, booking, row)
        else:
            _keep_or_wait(tables, booking, row, answer, now)
    return True


def _grant(tables: Tables, booking: Booking, row: ChangeRow) -> None:
    del tables.changes[booking.id]
    tables.outcomes["changes made"] += 1
    tables.supersede(booking)
    booking.starts = booking.ends = booking.strength = None
    booking.places = ()
    booking.ranked_at = row.asked_at
    if booking.state == "scheduled":
        booking.state = "queued"
    _terms(booking, row.requested, row.requested_from, row.not_before)


def _keep_or_wait(tables: Tables, booking: Booking, row: ChangeRow, answer: ChangeAnswer, now: float) -> None:
    until = row.waits_until
    if until is not None and now < until and answer.reasons[0].code in WAITED_FOR:
        row.is_waiting = True
        tables.outcomes["changes that wait"] += 1
        return
    del tables.changes[booking.id]
    tables.outcomes["changes kept"] += 1
    booking.extension = None
