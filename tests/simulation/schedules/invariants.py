"""What must hold at every instant of a schedule."""

from collections.abc import Iterable
from itertools import combinations

from allocation.rules.nodes.fencing import STARTED
from allocation.rules.nodes.leases import GRACE_SECONDS, MARGIN_SECONDS
from tests.simulation.model.maintenance import is_away, planned
from tests.simulation.nodes.node import SimNode, Stopped
from tests.simulation.tables.calendar import shared_at_most
from tests.simulation.tables.rows import LIVE, WHOLE, Booking, Pause, Row, Site, Tables

# A lease is over this long before anything is begun anew.
_ENDS_WITHIN = MARGIN_SECONDS + GRACE_SECONDS


def invariants_broken(tables: Tables) -> list[str]:
    """The checks of `manage.py invariants` on real tables, and more of pauses: P1, P2, P12, P13."""
    live = [row for row in tables.rows.values() if row.state in LIVE]
    found = _calendar_broken(live)
    found += [
        f"P2 {row.id} is {row.state} and not there"
        for row in live
        if row.state != "planned" and not row.occupied
    ]
    for booking in tables.bookings.values():
        found += _gang_broken(tables, booking)
        found += _account_broken(tables, booking)
    for pause in tables.pauses.values():
        if pause.is_open and pause.emptied_at is None:
            found += _notice_broken(tables, pause)
    return found


def begun_broken(tables: Tables, site: Site, begun: Iterable[Row], now: float) -> Iterable[str]:
    """Nothing new is sent to a node that does not answer, nor begun on hardware that is not well or
    under maintenance, nor anywhere but at its pin."""
    under = [each for each in planned(tables, now) if each.starts <= now]
    for row in begun:
        if tables.nodes[site.node_of[row.place.gpu]].unreachable_since is not None:
            yield f"R85 {row.id} was sent to a node that does not answer"
        if tables.gpus[site.uuids[row.place.gpu]].health != "ok":
            yield f"R62 {row.id} was begun on a GPU that is not well"
        if is_away(row, site, under):
            yield f"R33 {row.id} was begun under maintenance"
        requested = tables.bookings[row.booking].requested
        if site.class_of[row.place.gpu] not in requested.classes:
            yield f"R3 {row.id} is of a class that nobody asked for"
        nodes = {site.node_of[other.place.gpu] for other in begun_with(tables, row)}
        if requested.together == "node" and requested.required and len(nodes) > 1:
            yield f"R4 {row.booking} was to be on one node, and is on {sorted(nodes)}"
        node, index = site.node_of[row.place.gpu], site.index_of[row.place.gpu]
        pin = tables.bookings[row.booking].requested.pin
        if pin and node not in pin and f"{node}/{index}" not in pin:
            yield f"R78 {row.id} is on {node}/{index}, and was asked for on {pin}"


def frozen_broken(tables: Tables, begun: Iterable[Row], now: float) -> Iterable[str]:
    """While decisions are frozen nothing begins, and no pause is announced."""
    since = tables.frozen_since
    if since is None or not tables.is_frozen(now):
        return
    for row in begun:
        yield f"R120 {row.id} was begun while decisions were frozen"
    for pause in tables.pauses.values():
        if pause.notified_at > since:
            yield f"R120 {pause.booking} got notice of a pause while decisions were frozen"


def begun_with(tables: Tables, row: Row) -> list[Row]:
    """The same run of the same booking."""
    rows = tables.of(tables.bookings[row.booking], *STARTED)
    return [each for each in rows if each.starts == row.starts]


def _calendar_broken(live: list[Row]) -> list[str]:
    found = []
    for one, other in combinations(live, 2):
        if one.collides(other) and one.meets(other):
            found.append(f"P1 {one.id} and {other.id}")
        if one.collides(other) and one.occupied and other.occupied:
            found.append(f"P2 {one.id} and {other.id} are both taken to be there")
    return found + _shares_broken([row for row in live if row.place.share is not None])


def _shares_broken(shares: list[Row]) -> list[str]:
    found = []
    for gpu in sorted({row.place.gpu for row in shares}):
        rows = [row for row in shares if row.place.gpu == gpu]
        if shared_at_most(rows) > WHOLE:
            found.append(f"P1 {gpu} is shared beyond the whole")
        if sum(row.place.share or 0 for row in rows if row.occupied) > WHOLE:
            found.append(f"P2 {gpu} is taken to be shared beyond the whole")
    return found


def _gang_broken(tables: Tables, booking: Booking) -> list[str]:
    if booking.state not in ("scheduled", "starting", "active", "paused"):
        return []
    if booking.id in tables.cuts:
        return []
    members = tables.here(booking)
    whole = len(members) == booking.requested.count and len({row.starts for row in members}) == 1
    if whole or (booking.state == "paused" and not members):
        return []
    return [f"P13 {booking.id} has {len(members)} of {booking.requested.count}"]


def _notice_broken(tables: Tables, pause: Pause) -> list[str]:
    """A pause is a contract: its grace is whole, and the places are its owner's until then."""
    booking, found = tables.bookings[pause.booking], []
    if pause.deadline < pause.notified_at + booking.tier.grace:
        found.append(f"P12 {booking.id} was not notified in time")
    if pause.acknowledged_at is None and booking.state == "pausing":
        rows = [row for row in tables.of(booking, *STARTED) if row.ends != pause.deadline]
        found += [f"P12 {row.id} is to be out at {row.ends}, not {pause.deadline}" for row in rows]
    return found


def _account_broken(tables: Tables, booking: Booking) -> list[str]:
    """What was bought is what was had, without what is given back for work to be done again, and
    what is left. Not of a run that hardware broke, or that was begun anew: that counts less."""
    if booking.requested.starts is not None or booking.replaced or booking.lost_at is not None:
        return []
    is_broken = any(row.broken for row in tables.of(booking, "releasing", "ended"))
    if is_broken or booking.id in tables.cuts:
        return []
    mine = [pause for pause in tables.pauses.values() if pause.booking == booking.id]
    billed = [pause for pause in mine if pause.remaining_seconds is not None]
    if booking.state not in (*STARTED, "paused", "ended"):
        return []
    if booking.outcome in ("released", "cancelled"):
        return []
    runs = {row.starts: row.ends for row in tables.of(booking, *STARTED, "releasing", "ended")}
    # What is left after a pause is had by the run that follows, if one does.
    goes_on = billed and billed[-1].ready_at < max(runs, default=0)
    left = 0 if not billed or goes_on else billed[-1].remaining_seconds or 0
    had = sum(ends - starts for starts, ends in runs.items())
    given_back = sum(pause.credit_seconds for pause in billed)
    if had - given_back + left == booking.bought:
        return []
    return [f"P12 {booking.id} had {had}-{given_back}+{left} of {booking.bought} seconds"]


def stops_broken(tables: Tables, node: SimNode) -> Iterable[str]:
    """Nobody is stopped before their document says so, nor before the end of their grace unless
    they said that all is saved."""
    for stop in node.stopped:
        if stop.early:
            yield f"P12 {node.name} stopped {stop.allocation} before its end"
        row = tables.rows.get(stop.allocation)
        pause = None if row is None else tables.pause_of(tables.bookings[row.booking])
        if row is not None and pause is not None and _is_too_soon(tables, row, pause, stop):
            yield f"P12 {node.name} stopped {stop.allocation} before the end of its grace"
    node.stopped.clear()


def _is_too_soon(tables: Tables, row: Row, pause: Pause, stop: Stopped) -> bool:
    booking = tables.bookings[row.booking]
    counts = booking.state == "pausing" and row.state in STARTED
    notified = stop.notice == pause.id and pause.acknowledged_at is None
    return counts and notified and stop.wall < pause.notified_at + booking.tier.grace


def runs_broken(tables: Tables, nodes: Iterable[SimNode], now: float) -> Iterable[str]:
    """No booking is on hardware with two of its runs at once, whatever its node has heard. What a
    node can't end because its driver does not answer, or what hardware broke, is not counted."""
    there: dict[str, dict[int, tuple[Row, SimNode]]] = {}
    for node in nodes:
        for holder, _ in node.occupancy.holders():
            row = tables.rows.get(holder)
            if row is not None:
                there.setdefault(row.booking, {})[row.starts] = (row, node)
    for booking, runs in there.items():
        for starts in sorted(runs)[:-1]:
            row, node = runs[starts]
            able = node.able_since is not None and now - node.able_since >= _ENDS_WITHIN
            if able and not row.broken:
                yield f"P12 {booking} runs twice: {row.id} is still on {node.name}"
