"""What is known of a node's agent: how well it is heard, and what keeps its node from new work."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from allocation.models import EnrolmentToken, Node
from allocation.words.fleet import escalation_actions


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """One node's agent, for operators. `skew` is its clock less ours in seconds, None before the
    first heartbeat. `throttled` counts seconds in which it said too much, `implausible`
    readings whose values can't be true together, `conflicts` words against the portal's record of
    a run, `refunded_seconds` GPU time not charged for hardware that it said failed. Strangers are
    warned and ended after so many minutes, None for never; by an `own_escalation`, or by the
    policy."""

    skew: int | None
    clock_wrong: bool
    restored: bool
    stale_dropped: int
    refused: int
    throttled: int
    implausible: int
    conflicts: int
    refunded_seconds: int
    differences: tuple[str, ...]
    warn_minutes: int | None = None
    end_minutes: int | None = None
    own_escalation: bool = False

    @property
    def escalation(self) -> str:
        """What happens to processes without a booking, in words."""
        return escalation_actions(self.warn_minutes, self.end_minutes)

    @property
    def refunded(self) -> str:
        """GPU time that was not charged, in hours."""
        return f"{self.refunded_seconds / 3600:.1f} GPU-hours"

    @property
    def clock(self) -> str:
        """How far its clock is from ours, in words."""
        if self.skew is None:
            return "not known"
        if not self.skew:
            return "right"
        return f"{abs(self.skew)} s {'ahead' if self.skew > 0 else 'behind'}"


@dataclass(frozen=True, slots=True)
class EnrolmentProgress:
    """How far a node has come since a token was made for it. `until` is when the token ends."""

    node: str
    state: str
    reason: str
    gpus: int
    arrived_at: datetime | None
    until: datetime | None

    @property
    def tone(self) -> str:
        """How it looks: it waits, it is there, or it is there and needs approval."""
        if self.arrived_at is None:
            return "wait"
        return "risk" if self.state == "quarantined" else "ok"


def agent_status_of(node_id: UUID) -> AgentStatus:
    """For operators: inside `operator_tx`."""
    node = Node.objects.get(id=node_id)
    return AgentStatus(
        skew=node.clock_skew_seconds,
        clock_wrong=node.clock_wrong,
        restored=node.ahead_epoch is not None,
        stale_dropped=node.stale_dropped,
        refused=node.refused,
        throttled=node.throttled,
        implausible=node.implausible,
        conflicts=node.conflicts,
        refunded_seconds=node.refunded_seconds,
        differences=tuple(node.differences),
        warn_minutes=_minutes(node.unbooked_warn_after),
        end_minutes=_minutes(node.unbooked_end_after),
        own_escalation=node.unbooked_override,
    )


def _minutes(seconds: int | None) -> int | None:
    return None if seconds is None else seconds // 60


def enrolment_progress(node_name: str, now: datetime) -> EnrolmentProgress | None:
    """Whether the agent that the newest token lets in has come; None without node or token."""
    token = (
        EnrolmentToken.objects.filter(node__name=node_name)
        .select_related("node")
        .order_by("-expires")
        .first()
    )
    if token is None:
        return None
    return EnrolmentProgress(
        node=node_name,
        state=token.node.state,
        reason=token.node.state_reason,
        gpus=token.node.gpus.count(),
        arrived_at=token.used_at,
        until=token.expires if token.expires > now else None,
    )


def no_new_work_reason(node: Node) -> str:
    """Why a node that is in service gets nothing new all the same; empty when it does."""
    if node.ahead_epoch is not None:
        return "It follows a newer word than the portal has: the portal was restored from a backup."
    if node.clock_wrong:
        return "Its clock is wrong: nothing new is placed there until it is right."
    if node.partitioned:
        return "It was cut off: nothing new is placed there until it has caught up."
    if node.unreachable_since is not None:
        return "It does not answer: nothing new is placed there until it has for a while."
    return ""
