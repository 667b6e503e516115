"""Step one of every cycle: what is held goes on the calendars, all of it at once."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from allocation.solver.quota import Use
from allocation.solver.types import Held, Place, Snapshot

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

    Answers with what is used of quota: what is of one kind and period in one row.
    """
    gangs: dict[_Gang, list[Place]] = {}
    for held in rows:
        name = working.class_of(held.place.gpu)
        if name is not None:
            gangs.setdefault(_gang(held, name), []).append(held.place)
    amounts: dict[tuple[tuple[str, ...], str, str, Window], int] = {}
    for gang, places in gangs.items():
        window = (gang.starts, working.free_from(gang.ends))
        _take(working, gang, places, window)
        kind = (gang.owners, gang.tier, gang.gpu_class, (gang.starts, gang.ends))
        amounts[kind] = amounts.get(kind, 0) + working.units(gang.gpu_class, places)
    uses = [
        (Use(owners, tier, name, units), window)
        for (owners, tier, name, window), units in amounts.items()
    ]
    working.quota.add_all((use, (since, working.free_from(until))) for use, (since, until) in uses)
    return uses


class _Gang(NamedTuple):
    """Rows of a booking that differ by their place only."""

    booking: str
    owners: tuple[str, str]
    owner: str
    tier: str
    gpu_class: str
    starts: int
    ends: int
    of_host: tuple[int, int]


def _gang(held: Held, gpu_class: str) -> _Gang:
    return _Gang(
        held.booking,
        (held.tenant, held.project),
        held.owner,
        held.tier,
        gpu_class,
        held.starts,
        held.ends,
        (held.cores, held.memory),
    )


def _take(working: "Working", gang: _Gang, places: list[Place], window: Window) -> None:
    name = gang.gpu_class
    working.calendars[name].lay(places, *window)
    working.hosts.lay(places, gang.of_host, window)
    working.sharers.lay(places, gang.owner, window)
    if gang.booking not in working.running:
        # Firm is what nobody can be told to leave.
        if working.firm_hosts is not None:
            working.firm_hosts.lay(places, gang.of_host, window)
        if name in working.firm:
            working.firm[name].lay(places, *window)
