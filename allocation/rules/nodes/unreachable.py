"""Who does not answer, and who answers again, counted on a steady clock. Pure."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from allocation.rules.nodes.node_policy import NodePolicy

N = TypeVar("N", bound=Hashable)

# Heartbeats come every five seconds: with a longer gap a node was not heard on end.
GAP_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Beat:
    """A node's newest heartbeat, the newest word of ours that it acts on, and whether there is a
    newer one: who speaks and does not hear must get nothing new either."""

    seq: int
    observed: int
    behind: bool

    def is_answer(self, before: "Beat") -> bool:
        """Whether it shows that the node both speaks and hears."""
        return self.seq != before.seq and (not self.behind or self.observed != before.observed)


@dataclass(frozen=True, slots=True)
class _Heard:
    """The last sign that was an answer, when we saw it, and since when they come without a gap."""

    sign: Beat
    at: float
    since: float | None = None


@dataclass(frozen=True)
class AnswerStates(Generic[N]):
    """Nodes that do not answer, or have not for long, and those that have for a while."""

    silent: frozenset[N]
    long_unreachable: frozenset[N]
    heard: frozenset[N]


class AnswerWatch(Generic[N]):
    """Of each node. One that begins knows of no silence yet, and of nobody's being heard."""

    def __init__(self) -> None:
        self._nodes: dict[N, _Heard] = {}

    def turn(
        self, signs: Mapping[N, Beat], steady_now: float, policy: NodePolicy
    ) -> AnswerStates[N]:
        """Of the nodes with their newest signs."""
        self._nodes = {node: each for node, each in self._nodes.items() if node in signs}
        for node, sign in signs.items():
            known = self._nodes.setdefault(node, _Heard(sign, steady_now))
            if sign.is_answer(known.sign):
                is_gap = known.since is None or steady_now - known.at > GAP_SECONDS
                since = steady_now if is_gap else known.since
                self._nodes[node] = _Heard(sign, steady_now, since)
        heard = (
            node
            for node, each in self._nodes.items()
            if each.since is not None
            and steady_now - each.at <= GAP_SECONDS
            and steady_now - each.since >= policy.heard_again
        )
        return AnswerStates(
            silent=self._unheard(steady_now - policy.silent_after),
            long_unreachable=self._unheard(steady_now - policy.silent_limit),
            heard=frozenset(heard),
        )

    def _unheard(self, since: float) -> frozenset[N]:
        return frozenset(node for node, each in self._nodes.items() if each.at < since)
