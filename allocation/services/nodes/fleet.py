"""The life of a node: enrolment, approval, key rotation, lock-out."""

import hashlib
import logging
import re
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F

import wire
from allocation.models import (
    EngineAgent,
    EnrolmentToken,
    Gpu,
    GpuEvent,
    Node,
    NodeExamination,
    PolicyVersion,
    Rack,
    SolverState,
)
from allocation.rules.nodes.node_policy import NodePolicy, node_policy_of
from allocation.services.nodes.inventories import inventory_apply, inventory_of
from allocation.services.nodes.reach import Operator, id_of, nodes_check
from allocation.services.nodes.redis_accounts import (
    account_password,
    account_url,
    agent_account_replace,
    engine_account_later,
)
from allocation.words.fleet import FleetText, fleet_text
from allocation.words.refusals import refusal_text
from tenants.audit import platform_record
from tenants.models import User, set_by_valid_token
from tenants.outbox import task_request
from tenants.platform.database.compiled import Compiled
from tenants.platform.database.look import ASKED_AT
from tenants.platform.errors import Refused, invalid
from tenants.platform.wall import operator_tx, require_operators_process

logger = logging.getLogger(__name__)

NODE_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,58}[a-z0-9])?")
TOKEN_LIFETIME = timedelta(minutes=15)


def enrolment_token_create(
    *,
    node_name: str,
    rack_name: str,
    now: datetime,
    operator: User | None = None,
    made_with: UUID | None = None,
    lifetime: timedelta = TOKEN_LIFETIME,
) -> str:
    """Creates a token that enrols one agent as `node_name` within 15 minutes, or a `lifetime` that a
    machine needs to boot. Shown once. Made with an operator's token, it ends with it.

    Raises:
        Refused: `node_name_invalid`, for a name that could match other nodes' keys in Redis.
    """
    if not NODE_NAME.fullmatch(node_name):
        raise invalid(
            "node_name_invalid",
            refusal_text("node_name_invalid"),
            "node_name",
        )
    clear = f"gpup_enrol_{secrets.token_urlsafe(24)}"
    with transaction.atomic():
        rack, _ = Rack.objects.get_or_create(name=rack_name)
        node, _ = Node.objects.get_or_create(
            name=node_name, defaults={"rack": rack, **escalation_of_policy()}
        )
        EnrolmentToken.objects.create(
            digest=hashlib.sha256(clear.encode()).digest(),
            node=node,
            made_with_id=made_with,
            expires=now + lifetime,
        )
        after = {"rack": node.rack.name, "token_expires": (now + lifetime).isoformat()}
        node_audit(operator, node, "node.enrolment_token_made", now, after=after)
    return clear


_live_document = Compiled(
    lambda _now, _keys: PolicyVersion.objects.filter(state=PolicyVersion.State.LIVE).values_list(
        "document", flat=True
    )
)


def node_policy() -> NodePolicy:
    """The node policy of the live version, or the defaults if there is none."""
    return node_policy_of(next(iter(_live_document(ASKED_AT)), {}))


def escalation_of_policy() -> dict[str, int | None]:
    policy = node_policy()
    return {
        "unbooked_warn_after": policy.unbooked_warn_after or None,
        "unbooked_end_after": policy.unbooked_end_after or None,
    }


def node_enrol(*, token: str, inventory: object, now: datetime) -> dict[str, object]:
    """Enrols an agent and returns its name, key and address.

    A GPU that another node has reported quarantines the node instead of moving to it. An agent
    that was enrolled as this node before is locked out.

    Raises:
        Refused: `enrolment_refused` (wrong, used or old token), `inventory_invalid`, `host_of_engine`.
    """
    try:
        found = wire.inventory_from_plain(inventory)
    except wire.WireError as error:
        raise invalid(
            "inventory_invalid", refusal_text("inventory_invalid", error=error), "inventory"
        ) from error
    digest = hashlib.sha256(token.encode()).digest()
    token_check(digest, now)
    password, link_digest = account_password()
    with operator_tx():
        token_use(digest, now)
        node = Node.objects.filter(enrolmenttoken__digest=digest).first()
        if node is None:
            # It is the token of an engine.
            raise enrolment_refused()
        if found.engine != "device":
            raise Refused("host_of_engine", refusal_text("host_of_engine", portal=settings.PUBLIC_URL))
        node = _left_engine(node)
        agent_renew(node, link_digest)
        inventory_apply(node=node, inventory=found, now=now)
        node_audit(None, node, "node.enrolled", now, after={"key_version": node.key_version})
        epoch = epoch_of_site()
    agent_account_replace(node.name, link_digest)
    task_request("allocation.publish")
    task_request("allocation.cycle")
    return {
        "node": node.name,
        "key": node_key(node).hex(),
        "key_version": node.key_version,
        "epoch": epoch,
        "redis_url": account_url(node.name, password),
    }


def epoch_of_site() -> int:
    """The oldest epoch of documents that a new agent accepts."""
    return SolverState.objects.get_or_create(id=1)[0].epoch


def agent_renew(node: Node, link_digest: bytes) -> None:
    """Makes a new key and account for a new agent of the node. Not saved."""
    node.key_version += 1
    node.key_confirmed = node.key_version
    node.link_digest = link_digest
    # A new agent numbers its messages from one; its new key invalidates the old messages.
    node.report_seq = node.heartbeat_seq = node.telemetry_seq = node.inventory_seq = 0
    node.ahead_epoch, node.clock_wrong = None, False
    node.unreachable_since, node.long_unreachable = None, False
    node.published_generation = -1
    node.observed_generation = -1
    # The new agent examines the node again.
    NodeExamination.objects.filter(node=node).delete()


def _left_engine(node: Node) -> Node:
    """Returns the locked node, which is no host of an engine any more. Engines are locked before nodes."""
    engine = EngineAgent.objects.select_for_update(of=("self",)).filter(nodes=node).first()
    node = Node.objects.select_for_update().get(id=node.id)
    if engine is not None and node.engine_agent_id == engine.name:
        Node.objects.filter(id=node.id).update(engine_agent=None)
        node.engine_agent = None
        engine_account_later(engine, left=[node.name])
    return node


def token_check(digest: bytes, now: datetime) -> None:
    """Refuses an unknown token before the request reaches the operators' process."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT portal_enrolment_open(%s, %s)", [digest, now])
        if not cursor.fetchone()[0]:
            raise enrolment_refused()


def token_use(digest: bytes, now: datetime) -> None:
    """Uses the token up; only the first caller succeeds."""
    unused = EnrolmentToken.objects.filter(digest=digest, used_at=None, expires__gt=now)
    unused = unused.filter(set_by_valid_token(now))
    if not unused.update(used_at=now):
        raise enrolment_refused()


def enrolment_refused() -> Refused:
    """The refusal of a token that is wrong, used or too old."""
    return Refused(
        "enrolment_refused",
        refusal_text("enrolment_refused"),
        "denied",
        "token",
    )


def node_key(node: Node, version: int | None = None) -> bytes:
    """The node's signing key of a version, by default the newest; derived and never stored.

    Web processes have no master key: there it raises ServedElsewhere.
    """
    require_operators_process()
    version = node.key_version if version is None else version
    return wire.node_key(settings.AGENTS_MASTER_KEY.encode(), node.name, version)


def node_approve(*, operator: User, node: Node, now: datetime) -> None:
    """Returns a drained or quarantined node to service with its current hardware.

    Raises:
        Refused: `node_locked_out`, when its agent has no account; `node_not_enrolled`, when it never
            had one; `models_unknown`, when no GPU of the node has a model in the catalogue.
    """
    if node.is_locked_out:
        raise not_enrolled(node)
    inventory = inventory_of(node)
    if inventory is None and not node.was_enrolled and not node.gpus.exists():
        raise Refused("node_not_enrolled", refusal_text("node_not_enrolled", node=node.name))
    if inventory is not None and inventory.gpus and not node.gpus.exists():
        names = sorted({item.name for item in inventory.gpus})
        raise Refused(
            "models_unknown",
            refusal_text("models_unknown", node=node.name, names=", ".join(names)),
        )
    known = list(node.difference_words)
    before = {"state": node.state, "differences": known}
    node.differences = []
    node.save(update_fields=["differences"])
    approved = fleet_text("approved", operator=operator.username, at=f"{now:%d %b %H:%M}")
    node_state_set(node, Node.State.READY, approved)
    after = {"state": node.state, "differences": []}
    node_audit(operator, node, "node.approved", now, before=before, after=after)


def node_audit(
    operator: Operator | None,
    node: Node,
    action: str,
    now: datetime,
    *,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None,
) -> None:
    """Writes an operator's action on a node, or an enrolment, to the platform's log.

    Raises:
        Refused: `not_your_nodes` if the operator's role does not reach the node; undoes the action.
    """
    nodes_check(operator, Node.objects.filter(id=node.id))
    platform_record(
        operator_id=id_of(operator),
        action=action,
        target=("node", node.name),
        now=now,
        before=before,
        after=after,
    )


def node_state_set(node: Node, state: str, reason: FleetText, drain_by: datetime | None = None) -> None:
    """Sets a node's state and reason; with `drain_by`, the time by which work must have left."""
    node.state_set(state, reason)
    node.drain_by = drain_by
    node.save(update_fields=[*Node.STATE_FIELDS, "drain_by"])
    task_request("allocation.cycle")


def node_revoke(*, operator: User, node: Node, now: datetime) -> None:
    """Locks the node's agent out permanently: its account, connections, key and tokens.

    The node is quarantined. Running work continues to its end by the agent's own clock. The agent
    returns by a new enrolment and an operator's approval. A host of an engine leaves it: the engine keeps
    its other hosts, and this one returns when an operator approves it there again.

    Raises:
        Refused: `node_not_enrolled` or, when it is locked out already, `node_locked_out`.
    """
    node = _left_engine(node)
    if node.link_digest is None:
        raise not_enrolled(node)
    before = {"state": node.state, "key_version": node.key_version}
    why = fleet_text("locked_out", operator=operator.username, at=f"{now:%d %b %H:%M}")
    _lock_out(node, why, now)
    after = {"state": node.state, "key_version": node.key_version}
    node_audit(operator, node, "node.locked_out", now, before=before, after=after)


def node_leave(node: Node, why: FleetText, now: datetime) -> None:
    """Removes the agent's account of a node whose machine is given back; another machine may be
    expected under its name. The caller has proof that nothing runs on it.
    """
    node = _left_engine(node)
    _agent_end(node, now)
    node_state_set(node, Node.State.EXPECTED, why)
    name = node.name
    transaction.on_commit(lambda: agent_account_replace(name, None))


def node_flooded(*, node_name: str, lock_out: bool, now: datetime) -> None:
    """Counts a second in which the node's agent exceeded its message rate; may lock it out, with all
    hosts that share its identity."""
    with transaction.atomic():
        engine = EngineAgent.objects.select_for_update(of=("self",)).filter(nodes__name=node_name).first()
        node = Node.objects.select_for_update().get(name=node_name)
        node.throttled += 1
        node.save(update_fields=["throttled"])
        if lock_out and engine is not None and node.engine_agent_id == engine.name:
            engine_lock_out(engine, _rate_exceeded(now), now)
        elif lock_out and node.link_digest is not None:
            _lock_out(node, _rate_exceeded(now), now)
    logger.warning("%s exceeds its message rate%s", node_name, ": locked out" if lock_out else "")


def engine_flooded(*, engine_name: str, now: datetime) -> None:
    """Locks an engine out that exceeds its share of the agents' server."""
    with transaction.atomic():
        engine = EngineAgent.objects.select_for_update().get(name=engine_name)
        if engine.link_digest is not None:
            engine_lock_out(engine, _rate_exceeded(now), now)


def _rate_exceeded(now: datetime) -> FleetText:
    return fleet_text("rate_exceeded", at=f"{now:%d %b %H:%M}")


def engine_lock_out(engine: EngineAgent, why: FleetText, now: datetime) -> None:
    """Locks out a locked engine, and its hosts with it."""
    engine.link_digest = None
    engine.key_version += 1
    engine.key_confirmed = engine.key_version
    engine.save(update_fields=["link_digest", "key_version", "key_confirmed"])
    EnrolmentToken.objects.filter(engine_agent=engine, used_at=None).update(used_at=now)
    hosts = list(engine.nodes.select_for_update(of=("self",)).order_by("id"))
    for node in hosts:
        _agent_end(node, now)
        node_state_set(node, Node.State.QUARANTINED, why)
    engine_account_later(engine, left=[node.name for node in hosts])


def _lock_out(node: Node, why: FleetText, now: datetime) -> None:
    _agent_end(node, now)
    node_state_set(node, Node.State.QUARANTINED, why)
    name = node.name
    transaction.on_commit(lambda: agent_account_replace(name, None))


def _agent_end(node: Node, now: datetime) -> None:
    """Ends the key, the account and the tokens of the node's agent."""
    node.link_digest = None
    node.key_version += 1
    node.key_confirmed = node.key_version
    node.save(update_fields=["link_digest", "key_version", "key_confirmed"])
    EnrolmentToken.objects.filter(node=node, used_at=None).update(used_at=now)


def node_key_rotate(*, operator: User, node: Node, now: datetime) -> None:
    """Gives the node's agent a new key; the old one stays valid until the agent signs with the new.

    Raises:
        Refused: `node_not_enrolled`, `node_locked_out`, `rotation_running`, `agent_too_old`.
    """
    node = Node.objects.select_for_update().get(id=node.id)
    if node.link_digest is None:
        raise not_enrolled(node)
    if node.key_confirmed < node.key_version:
        raise Refused(
            "rotation_running",
            refusal_text("rotation_running", node=node.name),
        )
    if not agent_supports(node, wire.ADDED_FIELDS_SINCE):
        raise agent_too_old(node, "can't change its key", wire.ADDED_FIELDS_SINCE)
    node.key_version += 1
    node.generation += 1
    node.save(update_fields=["key_version", "generation"])
    before, after = ({"key_version": node.key_version - back} for back in (1, 0))
    node_audit(operator, node, "node.key_rotated", now, before=before, after=after)
    logger.warning("%s rotates %s to key %d", operator.username, node.name, node.key_version)
    task_request("allocation.publish")


def key_confirm(node: Node, version: int) -> None:
    """Records that the agent has signed with `version`: older keys are invalid from now on."""
    changed = Node.objects.filter(id=node.id, key_version=version, key_confirmed__lt=version).update(
        key_confirmed=version, generation=F("generation") + 1
    )
    if changed:
        task_request("allocation.publish")


def agent_supports(node: Node, since: tuple[int, int]) -> bool:
    """Whether the node's agent has this version or a later one."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})", node.agent_version)
    return found is not None and (int(found[1]), int(found[2])) >= since


def agent_too_old(node: Node, limit: str, since: tuple[int, int]) -> Refused:
    """The refusal of an action that the node's agent supports only from version `since` on."""
    version = node.agent_version or "version not known"
    needed = ".".join(map(str, since))
    return Refused(
        "agent_too_old",
        refusal_text("agent_too_old", node=node.name, version=version, limit=limit, needed=needed),
    )


def operator_event(node: Node, gpu: Gpu | None, text: FleetText, now: datetime) -> None:
    """Adds an operator's action to the history of a node or one of its GPUs."""
    GpuEvent.objects.create(
        node=node, gpu=gpu, kind=GpuEvent.Kind.OPERATOR, at=now, **GpuEvent.text_columns(text)
    )


def not_enrolled(node: Node) -> Refused:
    """The refusal for a node without an agent: it never had one, or has to be enrolled again."""
    if node.is_locked_out:
        text = refusal_text("node_locked_out", node=node.name, portal=settings.PUBLIC_URL)
        return Refused("node_locked_out", text)
    return Refused(
        "node_not_enrolled",
        refusal_text("node_not_enrolled", node=node.name),
        "conflict",
    )
