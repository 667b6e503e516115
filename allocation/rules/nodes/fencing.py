"""What the portal believes of a node's report: its own end of the fence. Pure."""

from dataclasses import dataclass

from allocation.wire import Heartbeat, Report

STARTED = ("starting", "active")
# A report tells of everything on its node, most of it known: only what is in one of these states
# learns something from a word, and only its booking is locked and looked at.
CHANGED_BY: dict[str, frozenset[str]] = {
    "ready": frozenset({"starting"}),
    "empty": frozenset((*STARTED, "releasing")),
    "failed": frozenset(STARTED),
}


@dataclass(frozen=True, slots=True)
class PortalState:
    """What the portal has of a node: its restore fence, the newest generation of the node's
    assignment, and the number of the last report that was believed."""

    epoch: int
    generation: int
    seq: int


def is_stale(report: Report, known: PortalState) -> bool:
    """True for a report that must change nothing: heard before, or overtaken, or of another epoch.

    An agent that has followed no document yet can't know the epoch and is heard all the same.
    """
    of_now = report.epoch == known.epoch or report.observed_generation < 0
    return not of_now or is_ahead(report, known) or report.seq <= known.seq


def is_ahead(report: Report, known: PortalState) -> bool:
    """Whether the node has a word of ours that we do not know: our database was restored."""
    return report.seq > known.seq and follows_newer(report, known.epoch, known.generation)


def follows_newer(said: Report | Heartbeat, epoch: int, generation: int) -> bool:
    """Whether a node follows a word of ours that is newer than the newest we know."""
    return (said.epoch, said.observed_generation) > (epoch, generation)


def is_proof(report: Report, known: PortalState) -> bool:
    """Whether what the report says is empty stays so.

    An agent that has yet to read the newest document may find the same work in it again, with a
    later end, and take it up once more.
    """
    return report.observed_generation == known.generation


def is_change(said: str, state: str) -> bool:
    """Whether an agent's word about an allocation can change one that is in `state`."""
    return state in CHANGED_BY.get(said, frozenset())
