"""Step one of every cycle: what is held goes on the calendars, all of it at once."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from allocation.solver.quota import Use
from allocation.solver.types import Held, Snapshot

if TYPE_CHECKING:
    from allocation.solver.working import Working

Window = tuple[int, int]


def prime(working: "Working", snapshot: Snapshot) -> None:
    """Prepare the calendars for all that is held, promised and away; they are empty still."""
    instants = {name: working.upkeep.instants(name) for name in working.pools}
    for held in snapshot.held:
        name = working.class_of(held.place.gpu)
        if name is not None:
            instants[name] += (held.starts, working.end_of(held))
    for request in snapshot.requests:
        if request.promise is not None and request.promise.places:
            name = working.class_of(request.promise.places[0].gpu)
            if name is not None:
                starts = max(request.promise.starts, working.now)
                instants[name] += (starts, starts + request.length_on(name))
    rising = {name: sorted(set(each)) for name, each in instants.items()}
    for name, calendar in working.calendars.items():
        calendar.prime(rising[name])
    working.quota.prime(rising)
    working.hosts.prime({instant for each in rising.values() for instant in each})


def lay_held(working: "Working", rows: Iterable[Held]) -> list[tuple[Use, Window]]:
    """Take room, what comes with it, and quota for what is held; it is true, asked or not.

    Answers with what is used of quota: rows of one kind and period in one.
    """
    amounts: dict[tuple[tuple[str, ...], str, str, Window], int] = {}
    for held in rows:
        name = working.class_of(held.place.gpu)
        if name is not None:
            _take(working, held, name, (held.starts, working.end_of(held)))
            kind = ((held.tenant, held.project), held.tier, name, (held.starts, held.ends))
            amounts[kind] = amounts.get(kind, 0) + working.units(name, (held.place,))
    uses = [(Use(*kind, units), window) for (*kind, window), units in amounts.items()]
    working.quota.add_all((use, (since, working.free_from(until))) for use, (since, until) in uses)
    return uses


def _take(working: "Working", held: Held, name: str, window: Window) -> None:
    places, of_host = (held.place,), (held.cores, held.memory)
    working.calendars[name].lay(places, *window)
    working.hosts.lay(places, of_host, window)
    working.sharers.lay(places, held.owner, window)
    if working.firm and held.booking not in working.running:
        # Firm is what nobody can be paused for.
        if working.firm_hosts is not None:
            working.firm_hosts.lay(places, of_host, window)
        if name in working.firm:
            working.firm[name].lay(places, *window)
