"""What the operator's policy says of nodes that do not answer. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """Seconds. A node that was not heard for `silent_after` gets nothing new, until it has been
    heard for `heard_again` on end; what is planned there is placed elsewhere after `silent_limit`.
    Who starts is told when a node has not answered for `start_slow`.
    """

    silent_after: int = 45
    heard_again: int = 30
    silent_limit: int = 600
    start_slow: int = 60


NODE_ENTRIES = tuple(field.name for field in fields(NodePolicy))


def node_policy_of(document: Mapping[str, object]) -> NodePolicy:
    """What a policy document says of nodes; what it leaves out, or says badly, has its default:
    nodes must be watched whatever became of the document."""
    values = {name: document.get(name) for name in NODE_ENTRIES}
    return NodePolicy(
        **{name: each for name, each in values.items() if type(each) is int and each > 0}
    )
