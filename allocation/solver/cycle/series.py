"""Bookings that repeat: all dates of a series are placed in one cycle, or none of them."""

from collections.abc import Iterable

from allocation.reasons.reason import reason
from allocation.solver.model.inputs import Request
from allocation.solver.model.plan import Refuse


def series_of(requests: Iterable[Request]) -> dict[str, tuple[Request, ...]]:
    """The fixed windows of each series that is had whole or not at all, by date."""
    found: dict[str, list[Request]] = {}
    for request in requests:
        if request.series is not None and request.fixed:
            found.setdefault(request.series, []).append(request)
    return {
        name: tuple(sorted(members, key=lambda each: (each.earliest, each.booking)))
        for name, members in found.items()
    }


def all_or_none(members: Iterable[Request], refused: Iterable[Refuse]) -> list[Refuse]:
    """Refusals for every member: those that can't be had keep their reasons, the others say that
    it is because of them."""
    failed = {refusal.booking: refusal for refusal in refused}
    members = tuple(members)
    first = min(each.earliest for each in members if each.booking in failed)
    because = reason(
        "series_conflict",
        conflicts=len(failed),
        of=len(members),
        first_conflict=first,
    )
    return [failed.get(each.booking) or Refuse(each.booking, (because,)) for each in members]
