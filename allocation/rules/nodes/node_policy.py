"""What the operator's policy says of nodes that do not answer. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """Seconds. A node that was not heard for `silent_after` gets nothing new, until it has been
    heard for `heard_again` on end; what is planned there is placed elsewhere after `silent_limit`.
    Who starts is told when a node has not answered for `start_slow`. Who uses what nobody gave them
    is warned `unbooked_warn_after`, and ended `unbooked_end_after` after they were first seen; 0:
    never. A node may have an own ladder.
    """

    silent_after: int = 45
    heard_again: int = 30
    silent_limit: int = 600
    start_slow: int = 60
    unbooked_warn_after: int = 0
    unbooked_end_after: int = 0

    @property
    def is_escalation_valid(self) -> bool:
        """Whether nobody is ended without a warning, and time to read it."""
        return is_escalation_valid(
            self.unbooked_warn_after or None, self.unbooked_end_after or None
        )


WARNING_LEAD_SECONDS = 60


def is_escalation_valid(warn_after: int | None, end_after: int | None) -> bool:
    """Whether nobody is ended without a warning, and time to read it; None is never."""
    if end_after is None:
        return True
    return warn_after is not None and end_after >= warn_after + WARNING_LEAD_SECONDS


# The most that each may be; all are whole numbers above zero.
NODE_POLICY_MAX = {
    "silent_after": 3_600,
    "heard_again": 3_600,
    "silent_limit": 86_400,
    "start_slow": 3_600,
    "unbooked_warn_after": 604_800,
    "unbooked_end_after": 604_800,
}


def node_policy_of(document: Mapping[str, object]) -> NodePolicy:
    """What a policy document says of nodes; what it leaves out, or says badly, has its default:
    nodes must be watched whatever became of the document."""
    values = ((name, document.get(name), most) for name, most in NODE_POLICY_MAX.items())
    return NodePolicy(
        **{name: each for name, each, most in values if type(each) is int and 1 <= each <= most}
    )
