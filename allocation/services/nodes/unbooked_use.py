"""Programs on GPUs that were not given to them: what nodes may do about it, and what they did."""

import logging
from datetime import UTC, datetime

from django.db import transaction

from allocation import wire
from allocation.models import GpuEvent, Node
from allocation.rules.nodes.node_policy import NodePolicy, is_ladder
from allocation.services.nodes.fleet import node_note, reads
from allocation.services.nodes.node_policies import node_policy
from allocation.services.record.counters import tally
from tenants.models import User
from tenants.outbox import nudge
from tenants.platform.errors import Refused, invalid

logger = logging.getLogger(__name__)

_WORDS = {
    "warned": "was told on its terminals that it has no booking there",
    "asked": "was asked to end",
    "killed": "was ended",
}


def ladder_of(node: Node) -> wire.Ladder | None:
    """What the node is told to do besides telling; nothing an agent would not understand."""
    if node.foreign_warn_after is None or not reads(node, wire.LADDER_SINCE):
        return None
    return wire.Ladder(warn_after=node.foreign_warn_after, end_after=node.foreign_end_after)


def ladder_set(
    *, operator: User, node: Node, warn_after: int | None, end_after: int | None, now: datetime
) -> None:
    """Says after how many seconds strangers on the node are warned, and ended; None: never. From
    now on it is the node's own, whatever the policy says.

    Raises:
        Refused: `ends_without_warning`, `agent_too_old`.
    """
    if not is_ladder(warn_after, end_after):
        raise invalid(
            "ends_without_warning",
            "Programs are ended only after a warning, a minute later at the soonest.",
            "strangers_end_after",
        )
    with transaction.atomic():
        node = Node.objects.select_for_update().get(id=node.id)
        if warn_after is not None and not reads(node, wire.LADDER_SINCE):
            raise Refused(
                "agent_too_old",
                f"The agent of {node.name} ({node.agent_version or 'version not known'}) only"
                f" tells. Upgrade it to {'.'.join(map(str, wire.LADDER_SINCE))} or later first.",
            )
        before = _ladder(node)
        _ladder_write(node, warn_after, end_after, own=True)
        _note(node, f"{operator.username} set: {ladder_words(warn_after, end_after)}", now)
        node_note(operator, node, "node.ladder_set", now, before=before, after=_ladder(node))
    logger.warning("%s changed what %s does about strangers", operator.username, node.name)
    nudge("allocation.publish")


def ladder_follow(*, operator: User, node: Node, now: datetime) -> None:
    """The node does again what the policy says."""
    policy = node_policy()
    warn_after, end_after = policy.strangers_warn_after or None, policy.strangers_end_after or None
    with transaction.atomic():
        node = Node.objects.select_for_update().get(id=node.id)
        before = _ladder(node)
        _ladder_write(node, warn_after, end_after, own=False)
        words = ladder_words(warn_after, end_after)
        _note(node, f"{operator.username} set: as the policy says. {words}", now)
        after = _ladder(node)
        node_note(operator, node, "node.ladder_follows_policy", now, before=before, after=after)
    nudge("allocation.publish")


def ladder_by_policy(policy: NodePolicy, now: datetime) -> None:
    """A new policy is told to the nodes that have no ladder of their own and do otherwise."""
    warn_after, end_after = policy.strangers_warn_after or None, policy.strangers_end_after or None
    nodes = Node.objects.select_for_update().filter(foreign_own=False).order_by("id")
    for node in nodes:
        if (node.foreign_warn_after, node.foreign_end_after) != (warn_after, end_after):
            _ladder_write(node, warn_after, end_after, own=False)
            _note(node, f"The policy changed. {ladder_words(warn_after, end_after)}", now)
    nudge("allocation.publish")


def _ladder(node: Node) -> dict[str, object]:
    return {
        "warn_after": node.foreign_warn_after,
        "end_after": node.foreign_end_after,
        "by": "node" if node.foreign_own else "policy",
    }


def _ladder_write(node: Node, warn_after: int | None, end_after: int | None, *, own: bool) -> None:
    node.foreign_warn_after, node.foreign_end_after = warn_after, end_after
    node.foreign_own, node.generation = own, node.generation + 1
    node.save(
        update_fields=["foreign_warn_after", "foreign_end_after", "foreign_own", "generation"]
    )


def _note(node: Node, sentence: str, now: datetime) -> None:
    GpuEvent.objects.create(node=node, kind=GpuEvent.Kind.OPERATOR, at=now, sentence=sentence)


def ladder_words(warn_after: int | None, end_after: int | None) -> str:
    """`Use without a booking is told of, warned after 2 min, ended after 10 min.`"""
    parts = ["told of"]
    if warn_after is not None:
        parts.append(f"warned after {warn_after // 60} min")
    if end_after is not None:
        parts.append(f"ended after {end_after // 60} min")
    return f"Use without a booking is {', '.join(parts)}."


def deeds_apply(node: Node, report: wire.Report, now: datetime) -> None:
    """Writes down what the agent has done and was not heard of before."""
    if not report.deeds:
        return
    gpus = {gpu.uuid: gpu for gpu in node.gpus.filter(uuid__in={d.gpu for d in report.deeds})}
    for deed in report.deeds:
        gpu = gpus.get(deed.gpu)
        if gpu is None or not 0 < deed.pid <= 0x7FFFFFFF:
            continue
        key = {
            "gpu": gpu, "kind": deed.step, "code": deed.pid, "instance": "",
            "at": datetime.fromtimestamp(min(max(deed.at, 0), int(now.timestamp()) + 300), UTC),
        }  # fmt: skip
        if GpuEvent.objects.filter(**key).exists():
            continue
        who = deed.user[:60] or "somebody not known"
        sentence = f"Process {deed.pid} of {who} {_WORDS[deed.step]}."
        GpuEvent.objects.create(node=node, slot=deed.slot, sentence=sentence, **key)
        tally(f"strangers_{deed.step}")
        logger.warning("%s GPU %d: %s", node.name, gpu.index, sentence)
