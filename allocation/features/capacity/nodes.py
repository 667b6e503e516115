"""Nodes of rented machines: expected with a one-time token, looked at, drained, and gone."""

import shlex
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db.models import Q

from allocation.features.capacity.models import CapacityMachine
from allocation.features.capacity.providers import Provider, ProviderFailed
from allocation.models import Allocation, Node, NodeExamination, Occupancy
from allocation.rules.nodes.health import essential_failed
from allocation.services.nodes.fleet import (
    enrolment_token_create,
    node_audit,
    node_leave,
    node_state_set,
)
from allocation.services.runs.interrupt import Interruption, drain_notify
from allocation.words.events import event_text
from allocation.words.fleet import fleet_text

# A machine boots in at most so long after it was requested; its token ends then.
TOKEN_LIFETIME = timedelta(hours=1)


def node_expect(machine: CapacityMachine, now: datetime) -> str:
    """Makes the node of a machine and a token that enrols its agent once. In the caller's transaction."""
    assert machine.plan is not None  # noqa: S101 (an orphan has no node)
    token = enrolment_token_create(
        node_name=machine.node, rack_name=machine.zone, now=now, lifetime=TOKEN_LIFETIME
    )
    node = Node.objects.select_for_update().get(name=machine.node)
    node.pool = machine.plan.pool
    node.save(update_fields=["pool"])
    node_state_set(node, Node.State.EXPECTED, fleet_text("machine_expected", provider=machine.provider))
    return token


def fault_of(machine: CapacityMachine) -> str | None:
    """What keeps a machine's node from taking work; "" is nothing, None that it is not known yet."""
    node = Node.objects.filter(name=machine.node).first()
    if node is None or node.link_digest is None or node.last_seen is None:
        return None
    if node.last_seen < machine.requested:
        return None
    if node.state == Node.State.QUARANTINED:
        return node.state_words or "It is quarantined."
    found = NodeExamination.objects.filter(node=node).first()
    if found is None:
        return None
    failed = essential_failed(found.checks)
    if failed:
        return f"doctor: {', '.join(sorted(failed))}"
    return "" if node.takes_work and node.gpus.filter(health="ok").exists() else None


def node_drain_at(
    machine: CapacityMachine, by: datetime | None, now: datetime, *, notifies: bool = True
) -> None:
    """Takes the node of a machine out of service; with `by` its work has to leave by then, which may be
    earlier than it was."""
    node = Node.objects.select_for_update().filter(name=machine.node).first()
    if node is None or node.state == Node.State.EXPECTED:
        return
    is_sooner = by is not None and (node.drain_by is None or by < node.drain_by)
    if node.state == Node.State.DRAINING and not is_sooner:
        return
    why = fleet_text("machine_leaves", provider=machine.provider, why=machine.note)
    node_state_set(node, Node.State.DRAINING, why, by)
    after = {"state": Node.State.DRAINING.value, "reason": str(why)}
    node_audit(None, node, "node.drained", now, after=after)
    if by is not None and notifies:
        text = event_text("node_drained", node=node.name, why=why)
        drain_notify(Q(gpu__node=node), by, Interruption("R63", text), now)


def is_empty(machine: CapacityMachine) -> bool:
    """Whether nothing is planned or runs on the node of a machine, by proof of its agent."""
    on_it = Q(gpu__node__name=machine.node)
    if Occupancy.objects.filter(on_it, closed=None).exists():
        return False
    return not Allocation.objects.filter(on_it, state__in=Allocation.LIVE).exists()


def node_gone(machine: CapacityMachine, now: datetime) -> None:
    """Removes the account of a machine's agent."""
    node = Node.objects.select_for_update().filter(name=machine.node).first()
    if node is None or (node.link_digest is None and node.state == Node.State.EXPECTED):
        return
    node_leave(node, fleet_text("machine_gone", provider=machine.provider), now)
    node_audit(None, node, "node.locked_out", now, after={"state": node.state})


_SCRIPT = """#!/bin/sh
set -eu
umask 077
GPU_AGENT_PORTAL={portal}
GPU_AGENT_NAME={name}
GPU_AGENT_TOKEN={token}
export GPU_AGENT_PORTAL GPU_AGENT_NAME GPU_AGENT_TOKEN
/usr/bin/python3 -m venv /opt/gpu-agent
/opt/gpu-agent/bin/pip install --quiet {agent}
exec /opt/gpu-agent/bin/gpu-agent
"""


def boot_script(provider: Provider, node: str, token: str) -> str:
    """The script of a machine. Raises ProviderFailed if the provider's own can't be read."""
    script = _SCRIPT
    if provider.boot_file:
        try:
            script = Path(provider.boot_file).read_text(encoding="utf-8")
        except OSError as error:
            raise ProviderFailed(f"{provider.boot_file} can't be read: {error.strerror}.") from None
    values = {
        "portal": provider.portal or settings.PUBLIC_URL,
        "name": node,
        "token": token,
        "agent": provider.agent,
    }
    for name, value in values.items():
        script = script.replace("{" + name + "}", shlex.quote(value))
    return script
