"""Who took the places of others in a walk, and which classes compete for the same requests."""

from collections.abc import Iterable

from allocation.solver.cycle.order.queue import Turn
from allocation.solver.model.demand import Fit
from allocation.solver.model.inputs import Place, Request


class Takers:
    """Who took which places since the walk began."""

    def __init__(self) -> None:
        self._on: dict[str, list[tuple[Fit, Place, Turn]]] = {}
        self._last: dict[tuple[str, str], Turn] = {}

    def add(self, found: Fit, cause: Turn) -> None:
        """The places of `found` were taken because of `cause`."""
        for place in found.places:
            self._on.setdefault(place.gpu, []).append((found, place, cause))
        for each in found.demand.parts:
            name = each.gpu_class
            self._last[name, found.demand.owners[0]] = self._last[name, ""] = cause

    def of(self, old: Fit, request: Request) -> Turn | None:
        """The booking for which the places or the quota of an old start were taken."""
        near = [
            (not _meets(place, other), cause.key, cause)
            for place in old.places
            for found, other, cause in self._on.get(place.gpu, ())
            if found.starts < old.ends and old.starts < found.ends
        ]
        if near:
            return min(near, key=lambda each: each[:2])[2]
        name = old.demand.gpu_class
        return self._last.get((name, request.tenant)) or self._last.get((name, ""))


def _meets(one: Place, other: Place) -> bool:
    return one.start < other.start + other.size and other.start < one.start + one.size


def connected_classes(turns: Iterable[Turn]) -> dict[str, str]:
    """For each class the name of all that requests connect with it: the smallest of them."""
    parts: dict[str, str] = {}
    for classes in sorted({turn.request.ask.all_classes for turn in turns}):
        names = {parts.get(name, name) for name in classes}
        least = min(names, default="")
        for name in classes:
            parts[name] = least
        for name, part in parts.items():
            if part in names:
                parts[name] = least
    return parts
