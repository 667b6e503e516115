"""The classes that somebody asks for: a cycle that reports decisions alone needs room in no others."""

from collections.abc import Iterable, Iterator

from solver.model.inputs import Held, Request, Snapshot

_ALL_CLASSES = ("unneeded", "notices", "orders", "pending", "entries", "idle")
"""Sections that may concern held work of any class."""


def asked_classes(snapshot: Snapshot) -> frozenset[str] | None:
    """The classes in which a plan may change something; None: any.

    These are what requests, changes and later ends ask for, and classes that are connected with one of
    these: by a node, by a mixed booking, or by work that may resume there when it is paused.
    """
    if any(getattr(snapshot, section) for section in _ALL_CLASSES):
        return None
    class_of = {gpu.id: gpu.gpu_class for gpu in snapshot.gpus}
    asked = set(_asked(snapshot, class_of))
    links = _links(snapshot, class_of)
    reached: set[str] = set()
    while asked - reached:
        name = (asked - reached).pop()
        reached.add(name)
        asked |= links.get(name, set())
    return frozenset(reached)


def _asked(snapshot: Snapshot, class_of: dict[str, str]) -> Iterator[str]:
    longer = (each.request for each in snapshot.extensions if each.request is not None)
    targets = (each.target for each in snapshot.changes)
    for request in (*snapshot.requests, *targets, *longer):
        yield from _classes_of(request, class_of)
    bookings = {each.booking for each in snapshot.changes} | {each.booking for each in snapshot.extensions}
    for row in snapshot.held if bookings else ():
        if row.booking in bookings and row.place.gpu in class_of:
            yield class_of[row.place.gpu]


def _classes_of(request: Request, class_of: dict[str, str]) -> Iterator[str]:
    yield from request.ask.all_classes
    places = () if request.planned is None else request.planned.places
    yield from (class_of[place.gpu] for place in (*places, *request.home) if place.gpu in class_of)


def _links(snapshot: Snapshot, class_of: dict[str, str]) -> dict[str, set[str]]:
    """By class, those that are connected with it."""
    found: dict[str, set[str]] = {}
    by_node: dict[str, set[str]] = {}
    for gpu in snapshot.gpus:
        by_node.setdefault(gpu.node, set()).add(gpu.gpu_class)
    _join(found, by_node.values())
    mixed: dict[str, set[str]] = {}
    for row in snapshot.held:
        if row.mixed and row.place.gpu in class_of:
            mixed.setdefault(row.booking, set()).add(class_of[row.place.gpu])
    _join(found, mixed.values())
    several = {each.booking: set(_classes_of(each, class_of)) for each in snapshot.running}
    _join(found, _with_held(several, snapshot.held, class_of))
    return found


def _with_held(
    several: dict[str, set[str]], held: Iterable[Held], class_of: dict[str, str]
) -> Iterable[set[str]]:
    """The classes that may-be-paused bookings have and may resume in."""
    for row in held:
        if row.booking in several and row.place.gpu in class_of:
            several[row.booking].add(class_of[row.place.gpu])
    return several.values()


def _join(found: dict[str, set[str]], groups: Iterable[set[str]]) -> None:
    for group in groups:
        if len(group) > 1:
            for name in group:
                found.setdefault(name, set()).update(group)
