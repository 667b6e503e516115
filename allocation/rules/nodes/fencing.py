"""The portal's side of fencing: which reports of a node it accepts. Pure."""

from dataclasses import dataclass

from wire import Heartbeat, Report

STARTED = ("starting", "active")
# A report lists every allocation on its node, and most of it is known already. Only these states
# can change, so that only their bookings are locked and read.
CHANGED_BY: dict[str, frozenset[str]] = {
    "ready": frozenset({"starting"}),
    "empty": frozenset((*STARTED, "releasing")),
    "failed": frozenset(STARTED),
}


@dataclass(frozen=True, slots=True)
class PortalState:
    """The portal's record of a node: its restore epoch, the newest generation of the assignment,
    and the sequence number of the last accepted report."""

    epoch: int
    generation: int
    seq: int


def is_stale(report: Report, known: PortalState) -> bool:
    """Whether a report must be ignored: a duplicate, out of order, or of another epoch.

    An agent that has applied no assignment yet can't know the epoch, and its reports are accepted.
    """
    of_now = report.epoch == known.epoch or report.observed_generation < 0
    return not of_now or is_ahead(report, known) or report.seq <= known.seq


def is_ahead(report: Report, known: PortalState) -> bool:
    """Whether the node has a newer assignment than the portal: the database was restored."""
    return report.seq > known.seq and follows_newer(report, known.epoch, known.generation)


def follows_newer(said: Report | Heartbeat, epoch: int, generation: int) -> bool:
    """Whether a node applies an assignment that is newer than the portal's newest."""
    return (said.epoch, said.observed_generation) > (epoch, generation)


def is_proof(report: Report, known: PortalState) -> bool:
    """Whether allocations that the report calls empty stay empty.

    An agent that has not read the newest assignment may find the same work in it with a later end,
    and start it again.
    """
    return report.observed_generation == known.generation


def is_change(said: str, state: str) -> bool:
    """Whether the reported state can change an allocation in `state`."""
    return state in CHANGED_BY.get(said, frozenset())
