"""The model's silent nodes: see allocation/services/inbox/heartbeats.py."""

from allocation.rules.nodes.node_policy import NodePolicy
from allocation.rules.nodes.unreachable import AnswerWatch, Beat
from tests.simulation.tables.rows import Tables

POLICY = NodePolicy()


def mark(tables: Tables, watch: AnswerWatch[str], now: float) -> None:
    """See signs_read and silence_mark."""
    signs = {
        name: Beat(node.heartbeat_seq, node.observed, behind=node.observed < node.published)
        for name, node in tables.nodes.items()
        if node.heartbeat_seq > 0
    }
    verdict = watch.turn(signs, now, POLICY)
    for name, node in tables.nodes.items():
        if name in verdict.unreachable and node.unreachable_since is None:
            node.unreachable_since = now if node.heartbeat_at is None else node.heartbeat_at
        if name in verdict.long_unreachable and node.unreachable_since is not None:
            node.long_unreachable = True
        if name in verdict.reachable:
            node.unreachable_since, node.long_unreachable = None, False
