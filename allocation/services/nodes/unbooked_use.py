"""Programs on GPUs that were not given to them: what nodes may do about it, and what they did."""

import logging
from datetime import UTC, datetime

from django.db import transaction

from allocation import wire
from allocation.models import GpuEvent, Node
from allocation.rules.nodes.node_policy import NodePolicy, is_escalation_valid
from allocation.services.nodes.fleet import agent_supports, node_audit
from allocation.services.nodes.node_policies import node_policy
from allocation.services.record.counters import counter_add
from tenants.models import User
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid

logger = logging.getLogger(__name__)

_WORDS = {
    "warned": "was told on its terminals that it has no booking there",
    "asked": "was asked to end",
    "killed": "was ended",
}


def escalation_of(node: Node) -> wire.Escalation | None:
    """What the node is told to do besides telling; nothing an agent would not understand."""
    if node.unbooked_warn_after is None or not agent_supports(node, wire.ESCALATION_SINCE):
        return None
    return wire.Escalation(warn_after=node.unbooked_warn_after, end_after=node.unbooked_end_after)


def escalation_set(
    *, operator: User, node: Node, warn_after: int | None, end_after: int | None, now: datetime
) -> None:
    """Says after how many seconds strangers on the node are warned, and ended; None: never. From
    now on it is the node's own, whatever the policy says.

    Raises:
        Refused: `ends_without_warning`, `agent_too_old`.
    """
    if not is_escalation_valid(warn_after, end_after):
        raise invalid(
            "ends_without_warning",
            "Programs are ended only after a warning, a minute later at the soonest.",
            "unbooked_end_after",
        )
    with transaction.atomic():
        node = Node.objects.select_for_update().get(id=node.id)
        if warn_after is not None and not agent_supports(node, wire.ESCALATION_SINCE):
            raise Refused(
                "agent_too_old",
                f"The agent of {node.name} ({node.agent_version or 'version not known'}) only"
                f" tells. Upgrade it to {'.'.join(map(str, wire.ESCALATION_SINCE))} or later"
                " first.",
            )
        before = _escalation(node)
        _escalation_write(node, warn_after, end_after, own=True)
        _note(node, f"{operator.username} set: {escalation_words(warn_after, end_after)}", now)
        node_audit(operator, node, "node.ladder_set", now, before=before, after=_escalation(node))
    logger.warning("%s changed what %s does about strangers", operator.username, node.name)
    task_request("allocation.publish")


def escalation_follow_policy(*, operator: User, node: Node, now: datetime) -> None:
    """The node does again what the policy says."""
    policy = node_policy()
    warn_after, end_after = policy.unbooked_warn_after or None, policy.unbooked_end_after or None
    with transaction.atomic():
        node = Node.objects.select_for_update().get(id=node.id)
        before = _escalation(node)
        _escalation_write(node, warn_after, end_after, own=False)
        words = escalation_words(warn_after, end_after)
        _note(node, f"{operator.username} set: as the policy says. {words}", now)
        after = _escalation(node)
        node_audit(operator, node, "node.ladder_follows_policy", now, before=before, after=after)
    task_request("allocation.publish")


def escalations_from_policy(policy: NodePolicy, now: datetime) -> None:
    """A new policy is told to the nodes that have no ladder of their own and do otherwise."""
    warn_after, end_after = policy.unbooked_warn_after or None, policy.unbooked_end_after or None
    nodes = Node.objects.select_for_update().filter(unbooked_override=False).order_by("id")
    for node in nodes:
        if (node.unbooked_warn_after, node.unbooked_end_after) != (warn_after, end_after):
            _escalation_write(node, warn_after, end_after, own=False)
            _note(node, f"The policy changed. {escalation_words(warn_after, end_after)}", now)
    task_request("allocation.publish")


def _escalation(node: Node) -> dict[str, object]:
    return {
        "warn_after": node.unbooked_warn_after,
        "end_after": node.unbooked_end_after,
        "by": "node" if node.unbooked_override else "policy",
    }


def _escalation_write(
    node: Node, warn_after: int | None, end_after: int | None, *, own: bool
) -> None:
    node.unbooked_warn_after, node.unbooked_end_after = warn_after, end_after
    node.unbooked_override, node.generation = own, node.generation + 1
    node.save(
        update_fields=[
            "unbooked_warn_after",
            "unbooked_end_after",
            "unbooked_override",
            "generation",
        ]
    )


def _note(node: Node, sentence: str, now: datetime) -> None:
    GpuEvent.objects.create(node=node, kind=GpuEvent.Kind.OPERATOR, at=now, sentence=sentence)


def escalation_words(warn_after: int | None, end_after: int | None) -> str:
    """`Use without a booking is told of, warned after 2 min, ended after 10 min.`"""
    parts = ["told of"]
    if warn_after is not None:
        parts.append(f"warned after {warn_after // 60} min")
    if end_after is not None:
        parts.append(f"ended after {end_after // 60} min")
    return f"Use without a booking is {', '.join(parts)}."


def enforcement_apply(node: Node, report: wire.Report, now: datetime) -> None:
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
        counter_add(f"unbooked_{deed.step}")
        logger.warning("%s GPU %d: %s", node.name, gpu.index, sentence)
