"""What the live policy says of nodes that do not answer."""

from allocation.models import PolicyVersion
from allocation.rules.nodes.node_policy import NodePolicy, node_policy_of


def node_policy() -> NodePolicy:
    """The defaults before there is one."""
    live = PolicyVersion.objects.filter(state=PolicyVersion.State.LIVE)
    return node_policy_of(live.values_list("document", flat=True).first() or {})
