"""Enforcement against unbooked processes: what nodes may do, and what they have done."""

import logging
from datetime import UTC, datetime

from django.db import transaction

import wire
from allocation.models import GpuEvent, Node
from allocation.rules.nodes.node_policy import NodePolicy, is_escalation_valid
from allocation.services.nodes.fleet import (
    agent_supports,
    agent_too_old,
    node_audit,
    node_policy,
    operator_event,
)
from allocation.services.record.counters import counter_add
from allocation.words.fleet import escalation_text, fleet_text
from allocation.words.refusals import refusal_text
from tenants.models import User
from tenants.outbox import task_request
from tenants.platform.errors import invalid

logger = logging.getLogger(__name__)

_CODES = {"warned": "process_warned", "asked": "process_asked", "killed": "process_killed"}


def escalation_of(node: Node) -> wire.Escalation | None:
    """The escalation in a node's document; None if it only reports, or its agent is too old."""
    if node.unbooked_warn_after is None or not agent_supports(node, wire.ESCALATION_SINCE):
        return None
    return wire.Escalation(warn_after=node.unbooked_warn_after, end_after=node.unbooked_end_after)


def escalation_set(
    *, operator: User, node: Node, warn_after: int | None, end_after: int | None, now: datetime
) -> None:
    """Sets after how many seconds unbooked processes on the node are warned and ended; None means
    never. The node no longer follows the policy.

    Raises:
        Refused: `ends_without_warning`, `agent_too_old`.
    """
    if not is_escalation_valid(warn_after, end_after):
        raise invalid(
            "ends_without_warning",
            refusal_text("ends_without_warning"),
            "unbooked_end_after",
        )
    with transaction.atomic():
        node = Node.objects.select_for_update().get(id=node.id)
        if warn_after is not None and not agent_supports(node, wire.ESCALATION_SINCE):
            raise agent_too_old(node, "only reports processes", wire.ESCALATION_SINCE)
        before = _escalation(node)
        _escalation_write(node, warn_after, end_after, own=True)
        escalation = escalation_text(warn_after, end_after)
        text = fleet_text("escalation_set", operator=operator.username, escalation=escalation)
        operator_event(node, None, text, now)
        node_audit(operator, node, "node.ladder_set", now, before=before, after=_escalation(node))
    logger.warning("%s changed the escalation of %s", operator.username, node.name)
    task_request("allocation.publish")


def escalation_follow_policy(*, operator: User, node: Node, now: datetime) -> None:
    """Makes the node follow the policy again."""
    policy = node_policy()
    warn_after, end_after = policy.unbooked_warn_after or None, policy.unbooked_end_after or None
    with transaction.atomic():
        node = Node.objects.select_for_update().get(id=node.id)
        before = _escalation(node)
        _escalation_write(node, warn_after, end_after, own=False)
        facts = {
            "operator": operator.username,
            "escalation": escalation_text(warn_after, end_after),
        }
        operator_event(node, None, fleet_text("escalation_follows_policy", **facts), now)
        after = _escalation(node)
        node_audit(operator, node, "node.ladder_follows_policy", now, before=before, after=after)
    task_request("allocation.publish")


def escalations_from_policy(policy: NodePolicy, now: datetime) -> None:
    """Applies a new policy to the nodes without their own escalation."""
    warn_after, end_after = policy.unbooked_warn_after or None, policy.unbooked_end_after or None
    nodes = Node.objects.select_for_update().filter(unbooked_override=False).order_by("id")
    for node in nodes:
        if (node.unbooked_warn_after, node.unbooked_end_after) != (warn_after, end_after):
            _escalation_write(node, warn_after, end_after, own=False)
            escalation = escalation_text(warn_after, end_after)
            operator_event(node, None, fleet_text("escalation_by_policy", escalation=escalation), now)
    task_request("allocation.publish")


def _escalation(node: Node) -> dict[str, object]:
    return {
        "warn_after": node.unbooked_warn_after,
        "end_after": node.unbooked_end_after,
        "by": "node" if node.unbooked_override else "policy",
    }


def _escalation_write(node: Node, warn_after: int | None, end_after: int | None, *, own: bool) -> None:
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


def enforcement_apply(node: Node, report: wire.Report, now: datetime) -> None:
    """Records the enforcement actions of a report that are new."""
    if not report.deeds:
        return
    gpus = {gpu.uuid: gpu for gpu in node.gpus.filter(uuid__in={a.gpu for a in report.deeds})}
    for action in report.deeds:
        gpu = gpus.get(action.gpu)
        if gpu is None or not 0 < action.pid <= 0x7FFFFFFF:
            continue
        key = {
            "gpu": gpu,
            "kind": action.step,
            "code": action.pid,
            "instance": "",
            "at": datetime.fromtimestamp(min(max(action.at, 0), int(now.timestamp()) + 300), UTC),
        }
        if GpuEvent.objects.filter(**key).exists():
            continue
        who = action.user[:60] or fleet_text("unknown_user")
        text = fleet_text(_CODES[action.step], pid=action.pid, user=who)
        GpuEvent.objects.create(node=node, slot=action.slot, **GpuEvent.text_columns(text), **key)
        counter_add(f"unbooked_{action.step}")
        logger.warning("%s GPU %d: %s", node.name, gpu.index, text)
