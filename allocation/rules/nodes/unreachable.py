"""Which nodes are unreachable, and which answer again, on a monotonic clock. Pure."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from allocation.rules.nodes.node_policy import NodePolicy

N = TypeVar("N", bound=Hashable)

# Heartbeats come every five seconds. A longer gap interrupts a node's contact.
GAP_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Beat:
    """A node's newest heartbeat, the generation that it has applied, and whether a newer one
    exists. A node that sends but does not receive is unreachable, too."""

    seq: int
    observed: int
    behind: bool

    def is_answer(self, before: "Beat") -> bool:
        """Whether it proves that the node both sends and receives."""
        return self.seq != before.seq and (not self.behind or self.observed != before.observed)


@dataclass(frozen=True, slots=True)
class _LastAnswer:
    """The last heartbeat that was an answer, when it was seen, and since when there is no gap."""

    sign: Beat
    at: float
    since: float | None = None


@dataclass(frozen=True)
class AnswerStates(Generic[N]):
    """Nodes that do not answer, that have not answered for long, and that answer reliably again."""

    unreachable: frozenset[N]
    long_unreachable: frozenset[N]
    reachable: frozenset[N]


class AnswerWatch(Generic[N]):
    """Tracks the answers of each node. A new watch knows of no node as unreachable or answering."""

    def __init__(self) -> None:
        self._nodes: dict[N, _LastAnswer] = {}

    def turn(self, signs: Mapping[N, Beat], steady_now: float, policy: NodePolicy) -> AnswerStates[N]:
        """Updates the watch with the newest heartbeats and returns the nodes by state."""
        self._nodes = {node: each for node, each in self._nodes.items() if node in signs}
        for node, sign in signs.items():
            known = self._nodes.setdefault(node, _LastAnswer(sign, steady_now))
            if sign.is_answer(known.sign):
                is_gap = known.since is None or steady_now - known.at > GAP_SECONDS
                since = steady_now if is_gap else known.since
                self._nodes[node] = _LastAnswer(sign, steady_now, since)
        reachable = (
            node
            for node, each in self._nodes.items()
            if each.since is not None
            and steady_now - each.at <= GAP_SECONDS
            and steady_now - each.since >= policy.heard_again
        )
        return AnswerStates(
            unreachable=self._unanswered(steady_now - policy.silent_after),
            long_unreachable=self._unanswered(steady_now - policy.silent_limit),
            reachable=frozenset(reachable),
        )

    def _unanswered(self, since: float) -> frozenset[N]:
        return frozenset(node for node, each in self._nodes.items() if each.at < since)
