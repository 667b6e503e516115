"""A plan without what the solver fails on: one request must not stop all other decisions."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from allocation.services.policy.policies import SOLVER_FAULTS
from solver import Plan, Request, Snapshot

logger = logging.getLogger(__name__)

MOST_TRIES = 24
"""Plans that are tried in one turn: enough to find one of a thousand requests, or two of fifty."""


def decided_without(snapshot: Snapshot, decide: Callable[[Snapshot], Plan]) -> tuple[Snapshot, Plan] | None:
    """Returns a plan for a part of the snapshot, and the part; None if there is none.

    Set aside are requests without a planned start, changes, and later ends: dates of a series, and
    changes of a group, together. They wait for the next turn. What has a planned start stays,
    because without it others would get its place.
    """
    names = _askers(snapshot)
    part = _only(snapshot, ())
    try:
        found = part, decide(part)
    except SOLVER_FAULTS:
        return None
    kept: list[str] = []
    halves = [names] if len(names) == 1 else [names[len(names) // 2 :], names[: len(names) // 2]]
    for _ in range(MOST_TRIES):
        if not halves:
            break
        some = halves.pop()
        part = _only(snapshot, (*kept, *some))
        try:
            found = part, decide(part)
        except SOLVER_FAULTS:
            middle = len(some) // 2
            halves += [some[middle:], some[:middle]] if middle else []
        else:
            kept += some
    aside = [name for name in names if name not in kept]
    logger.error("Decided without %s, on which the solver failed", ", ".join(aside))
    return found


def _askers(snapshot: Snapshot) -> list[str]:
    """What can be set aside, the oldest first, each once."""
    asked = [(each.submitted, each.series or each.booking) for each in _new(snapshot)]
    asked += [(each.target.submitted, each.group or each.target.booking) for each in snapshot.changes]
    asked += [
        (each.request.submitted if each.request else snapshot.now, each.booking)
        for each in snapshot.extensions
    ]
    return list(dict.fromkeys(name for _, name in sorted(asked)))


def _new(snapshot: Snapshot) -> list[Request]:
    return [each for each in snapshot.requests if _is_new(each)]


def _is_new(request: Request) -> bool:
    return request.planned is None and not request.paused


def _only(snapshot: Snapshot, names: Iterable[str]) -> Snapshot:
    """The snapshot with these askers, and everything that can't be set aside."""
    kept = frozenset(names)
    return replace(
        snapshot,
        requests=tuple(
            each for each in snapshot.requests if not _is_new(each) or (each.series or each.booking) in kept
        ),
        changes=tuple(each for each in snapshot.changes if (each.group or each.target.booking) in kept),
        extensions=tuple(each for each in snapshot.extensions if each.booking in kept),
    )
