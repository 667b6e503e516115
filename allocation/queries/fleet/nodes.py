"""One node for operators: its agent, its examination, and the links between its GPUs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from allocation.models import EnrolmentToken, Gpu, Node, NodeExamination
from allocation.rules.nodes.health import ESSENTIAL
from allocation.rules.nodes.pcie import PATHS
from allocation.words.fleet import check_text, escalation_actions


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """The agent of one node. `skew` is its clock minus the portal's in seconds, None before the
    first heartbeat. `throttled` are seconds of rate limiting, `implausible` contradictory readings,
    `conflicts` reports that contradict the portal's record of a run, `refunded_seconds` GPU time
    not charged because of reported hardware failures. Unbooked processes are warned and ended after
    so many minutes, None for never: by the node's own rules (`own_escalation`) or by the policy."""

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
        """The actions on unbooked processes, in words."""
        return escalation_actions(self.warn_minutes, self.end_minutes)

    @property
    def refunded(self) -> str:
        """The GPU time that was not charged, in hours."""
        return f"{self.refunded_seconds / 3600:.1f} GPU-hours"

    @property
    def clock(self) -> str:
        """The clock's difference from the portal's, in words."""
        if self.skew is None:
            return "unknown"
        if not self.skew:
            return "correct"
        return f"{abs(self.skew)} s {'ahead' if self.skew > 0 else 'behind'}"


@dataclass(frozen=True, slots=True)
class EngineAgentNow:
    """An agent that serves many nodes with one identity."""

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EngineNow:
    """Who gives the GPUs of its nodes to bookings. `withheld`: GPUs on which nothing new starts;
    `agents`: those that serve many nodes with one identity, each with its nodes."""

    name: str
    granularity: str
    versions: tuple[str, ...]
    nodes: tuple[str, ...]
    gpus: int
    withheld: int
    agents: tuple[EngineAgentNow, ...]


def engines_now() -> list[EngineNow]:
    """The engines that have nodes, by name, and for each who chooses what: a scheduler of which some nodes
    are a pool has two rows."""
    nodes: dict[tuple[str, str], list[Node]] = defaultdict(list)
    for node in Node.objects.order_by("name"):
        nodes[node.engine, _granularity(node)].append(node)
    engines = {node.id: key for key, found in nodes.items() for node in found}
    gpus, withheld = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for node_id, text in Gpu.objects.values_list("node_id", "health_text"):
        gpus[engines[node_id]] += 1
        withheld[engines[node_id]] += (text or {}).get("fleet") == "withheld"
    return [
        EngineNow(
            name=name,
            granularity=granularity,
            versions=tuple(sorted({node.driver for node in found} - {""})),
            nodes=tuple(node.name for node in found),
            gpus=gpus[name, granularity],
            withheld=withheld[name, granularity],
            agents=_agents_of(found),
        )
        for (name, granularity), found in sorted(nodes.items())
    ]


def _granularity(node: Node) -> str:
    if node.engine == Node.Engine.DEVICE:
        return "device"
    return "pool" if node.engine_pool else "node"


def _agents_of(nodes: Iterable[Node]) -> tuple[EngineAgentNow, ...]:
    served: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if node.engine_agent_id is not None:
            served[node.engine_agent_id].append(node.name)
    return tuple(EngineAgentNow(name, tuple(found)) for name, found in sorted(served.items()))


@dataclass(frozen=True, slots=True)
class EnrolmentProgress:
    """The progress of a node since its enrolment token was created, which expires at `until`."""

    node: str
    state: str
    reason: str
    gpus: int
    arrived_at: datetime | None
    until: datetime | None

    @property
    def tone(self) -> str:
        """The colour of the state: waiting, arrived, or needs approval."""
        if self.arrived_at is None:
            return "wait"
        return "risk" if self.state == "quarantined" else "ok"


def agent_status_of(node_id: UUID) -> AgentStatus:
    """The state of a node's agent. Runs inside `operator_tx`."""
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
        differences=node.difference_words,
        warn_minutes=_minutes(node.unbooked_warn_after),
        end_minutes=_minutes(node.unbooked_end_after),
        own_escalation=node.unbooked_override,
    )


def _minutes(seconds: int | None) -> int | None:
    return None if seconds is None else seconds // 60


def enrolment_progress(node_name: str, now: datetime) -> EnrolmentProgress | None:
    """The progress of the newest enrolment token. None without a node or a token."""
    token = (
        EnrolmentToken.objects.filter(node__name=node_name)
        .select_related("node")
        .order_by("-expires")
        .first()
    )
    node = token.node if token is not None else None
    if token is None or node is None:
        return None
    return EnrolmentProgress(
        node=node_name,
        state=node.state,
        reason=node.state_words,
        gpus=node.gpus.count(),
        arrived_at=token.used_at,
        until=token.expires if token.expires > now else None,
    )


def no_new_work_reason(node: Node) -> str:
    """Why a node in service gets no new work. Empty if it does."""
    if node.is_locked_out:
        return "Its agent is locked out. It gets no new work until it is enrolled again."
    if node.ahead_epoch is not None:
        return (
            "It has a newer assignment than the portal, which was restored from a backup. Neither "
            "follows the other until an operator raises the epoch."
        )
    if node.unreachable_since is not None:
        lost = " Its leases ran out: that work starts elsewhere." * node.partitioned
        return (
            f"It is unreachable.{lost} Running work continues to its end by the agent's own clock. "
            "It gets no new work until it has answered for 30 s."
        )
    if node.clock_wrong:
        return "Its clock is wrong. It gets no new work until the clock is correct."
    if node.partitioned:
        return (
            "It was cut off until its leases ran out. It gets no new work until its agent has "
            "applied the newest assignment."
        )
    return ""


@dataclass(frozen=True, slots=True)
class ExaminationCheck:
    """One check. A node with a failed essential check gets no new work until it is approved."""

    name: str
    state: str
    seen: str
    do: str
    seen_code: str = ""
    do_code: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def seen_text(self) -> str:
        """What was seen, in the reader's language."""
        return check_text(self.seen_code, self.facts, self.seen)

    @property
    def do_text(self) -> str:
        """What the operator can do, in the reader's language; empty if the check passed."""
        return check_text(self.do_code, self.facts, self.do)

    @property
    def essential(self) -> bool:
        """Whether a failure quarantines the node."""
        return self.name in ESSENTIAL


@dataclass(frozen=True, slots=True)
class Examination:
    """All checks in order, and when they ran."""

    at: datetime
    checks: tuple[ExaminationCheck, ...]

    def of(self, state: str) -> Sequence[ExaminationCheck]:
        """The checks with this result."""
        return [check for check in self.checks if check.state == state]

    @property
    def failed(self) -> Sequence[ExaminationCheck]:
        """The failed checks."""
        return self.of("fail")

    @property
    def warned(self) -> Sequence[ExaminationCheck]:
        """The checks with warnings."""
        return self.of("warn")

    @property
    def unknown(self) -> Sequence[ExaminationCheck]:
        """The checks without a result."""
        return self.of("unknown")

    @property
    def fine(self) -> Sequence[ExaminationCheck]:
        """The passed checks."""
        return self.of("ok")


def examination_of(node_id: UUID) -> Examination | None:
    """The latest examination of a node, or None. Runs inside `operator_tx`."""
    stored = NodeExamination.objects.filter(node=node_id).first()
    if stored is None:
        return None
    return Examination(stored.at, tuple(ExaminationCheck(**check) for check in stored.checks))


@dataclass(frozen=True, slots=True)
class GpuLink:
    """The link between two GPUs: the number of NVLinks, and where their PCIe paths meet ("" if
    unknown)."""

    nvlinks: int
    path: str


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """One GPU and its links to each GPU of the node, in order. None for itself and if unknown."""

    index: int
    links: tuple[GpuLink | None, ...]


def gpu_links_of(node_id: UUID) -> list[GpuLinks]:
    """The link matrix of a node. Empty if the agent reported none."""
    found = dict(Gpu.objects.filter(node_id=node_id).values_list("index", "peers"))
    if not any(found.values()):
        return []
    return [
        GpuLinks(
            index,
            tuple(
                next((GpuLink(n, PATHS.get(path, "")) for i, n, path in peers if i == other), None)
                for other in sorted(found)
            ),
        )
        for index, peers in sorted(found.items())
    ]
