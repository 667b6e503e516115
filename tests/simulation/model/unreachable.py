"""The model's silent nodes: see allocation/services/nodes/unreachable.py."""

from allocation.rules.nodes.node_policy import NodePolicy
from allocation.rules.nodes.unreachable import Sign, SilenceWatch
from tests.simulation.tables.rows import Tables

POLICY = NodePolicy()


def mark(tables: Tables, watch: SilenceWatch[str], now: float) -> None:
    """See signs_read and silence_mark."""
    signs = {
        name: Sign(node.heartbeat_seq, node.observed, behind=node.observed < node.published)
        for name, node in tables.nodes.items()
        if node.heartbeat_seq > 0
    }
    verdict = watch.turn(signs, now, POLICY)
    for name, node in tables.nodes.items():
        if name in verdict.silent and node.silent_since is None:
            node.silent_since = now if node.heartbeat_at is None else node.heartbeat_at
        if name in verdict.long_silent and node.silent_since is not None:
            node.long_silent = True
        if name in verdict.heard:
            node.silent_since, node.long_silent = None, False
