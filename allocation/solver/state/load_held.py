"""Step one of every cycle: what is held goes on the calendars, all of it at once."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, NamedTuple

from allocation.solver.model.inputs import Held, Place, Request
from allocation.solver.quota.quota import Use
from allocation.solver.state.space import Space

Window = tuple[int, int]
End = Callable[[int], int]
"""When room is free again whose time is over at an instant."""


class Gang(NamedTuple):
    """Places of a booking that differ in nothing else."""

    gpu_class: str
    booking: str
    tenant: str
    project: str
    owner: str
    tier: str
    starts: int
    ends: int
    cores: int
    memory: int


Gangs = list[tuple[Gang, list[Place]]]
_fields = attrgetter(*Gang._fields[1:])


def gangs_of(space: Space, rows: Iterable[Held]) -> Gangs:
    """What is held on GPUs that the fleet has."""
    gangs: dict[tuple[Any, ...], list[Place]] = {}
    for held in rows:
        place = held.place
        name = space.class_of(place.gpu)
        if name is not None:
            gangs.setdefault((name, *_fields(held)), []).append(place)
    return [(Gang._make(fields), places) for fields, places in gangs.items()]


def instants_of(
    space: Space, gangs: Gangs, requests: Iterable[Request], free_from: End
) -> dict[str, set[int]]:
    """By class, when something that is held or promised begins or ends."""
    found: dict[str, set[int]] = {name: set() for name in space.pools}
    for gang, _ in gangs:
        found[gang.gpu_class].update((gang.starts, free_from(gang.ends)))
    for request in requests:
        if request.promise is not None and request.promise.places:
            name = space.class_of(request.promise.places[0].gpu)
            if name is not None:
                starts = max(request.promise.starts, space.now)
                found[name].update((starts, starts + request.length_on(name)))
    return found


def load_held_rows(
    space: Space, gangs: Gangs, free_from: End, may_leave: Callable[[str], bool]
) -> list[tuple[Use, Window]]:
    """Take room, and what comes with it, for what is held; it is true, asked or not.

    All but who `may_leave`, paused for others, is laid on what is firm too. Answers with what is
    used of quota: what is of one kind and period in one row.
    """
    amounts: dict[tuple[str, str, str, str, int, int], int] = {}
    for gang, places in gangs:
        window = (gang.starts, free_from(gang.ends))
        _take(space, gang, places, window, is_firm=not may_leave(gang.booking))
        kind = (gang.tenant, gang.project, gang.tier, gang.gpu_class, gang.starts, gang.ends)
        amounts[kind] = amounts.get(kind, 0) + space.units(gang.gpu_class, places)
    return [
        (Use((tenant, project), tier, gpu_class, units), (starts, ends))
        for (tenant, project, tier, gpu_class, starts, ends), units in amounts.items()
    ]


def _take(space: Space, gang: Gang, places: list[Place], window: Window, *, is_firm: bool) -> None:
    name, of_host = gang.gpu_class, (gang.cores, gang.memory)
    space.calendars[name].add(places, *window)
    space.hosts.add(places, of_host, window)
    space.sharers.add(places, gang.owner, window)
    space.modes.add(space.pools[name], places, window)
    if is_firm and space.firm_hosts is not None:
        space.firm_hosts.add(places, of_host, window)
    if is_firm and name in space.firm:
        space.firm[name].add(places, *window)
