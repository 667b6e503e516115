"""Step one of every cycle: what is held goes on the calendars, all of it at once."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from allocation.solver.quota import Use
from allocation.solver.space import Space
from allocation.solver.types import Held, Place, Snapshot

Window = tuple[int, int]
End = Callable[[int], int]
"""When room is free again whose time is over at an instant."""


def instants_of(space: Space, snapshot: Snapshot, free_from: End) -> dict[str, set[int]]:
    """By class, when something that is held or promised begins or ends."""
    found: dict[str, set[int]] = {name: set() for name in space.pools}
    for held in snapshot.held:
        name = space.class_of(held.place.gpu)
        if name is not None:
            found[name] |= {held.starts, free_from(held.ends)}
    for request in snapshot.requests:
        if request.promise is not None and request.promise.places:
            name = space.class_of(request.promise.places[0].gpu)
            if name is not None:
                starts = max(request.promise.starts, space.now)
                found[name] |= {starts, starts + request.length_on(name)}
    return found


def lay_held(
    space: Space, rows: Iterable[Held], free_from: End, may_leave: Callable[[str], bool]
) -> list[tuple[Use, Window]]:
    """Take room, and what comes with it, for what is held; it is true, asked or not.

    All but who `may_leave`, paused for others, is laid on what is firm too. Answers with what is
    used of quota: what is of one kind and period in one row.
    """
    gangs: dict[_Gang, list[Place]] = {}
    for held in rows:
        name = space.class_of(held.place.gpu)
        if name is not None:
            gangs.setdefault(_gang(held, name), []).append(held.place)
    amounts: dict[tuple[Use, Window], int] = {}
    for gang, places in gangs.items():
        window = (gang.starts, free_from(gang.ends))
        _take(space, gang, places, window, is_firm=not may_leave(gang.booking))
        kind = (Use(gang.owners, gang.tier, gang.gpu_class, 0), (gang.starts, gang.ends))
        amounts[kind] = amounts.get(kind, 0) + space.units(gang.gpu_class, places)
    return [(use._replace(units=units), window) for (use, window), units in amounts.items()]


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


def _take(space: Space, gang: _Gang, places: list[Place], window: Window, *, is_firm: bool) -> None:
    name = gang.gpu_class
    space.calendars[name].lay(places, *window)
    space.hosts.lay(places, gang.of_host, window)
    space.sharers.lay(places, gang.owner, window)
    if is_firm and space.firm_hosts is not None:
        space.firm_hosts.lay(places, gang.of_host, window)
    if is_firm and name in space.firm:
        space.firm[name].lay(places, *window)
