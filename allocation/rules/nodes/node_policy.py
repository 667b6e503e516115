"""The policy for unreachable nodes and unbooked processes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """Times in seconds.

    A node without a heartbeat for `silent_after` gets no new work until it has sent heartbeats for
    `heard_again`. After `silent_limit`, bookings that are planned there move. The owner of a
    starting booking is notified when its node has not answered for `start_slow`. An unbooked
    process is warned `unbooked_warn_after` and ended `unbooked_end_after` it was first seen; 0
    means never. A node can have its own times for unbooked processes.
    """

    silent_after: int = 45
    heard_again: int = 30
    silent_limit: int = 600
    start_slow: int = 60
    unbooked_warn_after: int = 0
    unbooked_end_after: int = 0

    @property
    def is_escalation_valid(self) -> bool:
        """Whether every process gets a warning, and time to read it, before it is ended."""
        return is_escalation_valid(self.unbooked_warn_after or None, self.unbooked_end_after or None)


WARNING_LEAD_SECONDS = 60


def is_escalation_valid(warn_after: int | None, end_after: int | None) -> bool:
    """Whether every process gets a warning, and time to read it, before it is ended. None means
    never."""
    if end_after is None:
        return True
    return warn_after is not None and end_after >= warn_after + WARNING_LEAD_SECONDS


# Upper bounds. All values are whole numbers above zero.
NODE_POLICY_MAX = {
    "silent_after": 3_600,
    "heard_again": 3_600,
    "silent_limit": 86_400,
    "start_slow": 3_600,
    "unbooked_warn_after": 604_800,
    "unbooked_end_after": 604_800,
}


def node_policy_of(document: Mapping[str, object]) -> NodePolicy:
    """Reads the policy document. Missing and invalid values have their defaults, so that nodes are
    watched whatever the document holds."""
    values = ((name, document.get(name), most) for name, most in NODE_POLICY_MAX.items())
    return NodePolicy(
        **{name: each for name, each, most in values if type(each) is int and 1 <= each <= most}
    )
