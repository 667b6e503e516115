"""The life of an engine, one agent for many hosts: enrolment, its hosts, key rotation, lock-out.

The identity is the engine's: it has one key and one account. Each host that an operator approves is a
node with a key of its own, which the engine gets hidden under its key; all that follows, documents,
leases, reports and receipts, is that of any node. An engine that is not a host's gets neither its key
nor its account, so it can't speak for it.
"""

import hashlib
import json
import logging
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import transaction

import wire
from allocation.models import EngineAgent, EngineHost, EnrolmentToken, Node, Rack
from allocation.models.fleet.engines import KIND_LENGTH
from allocation.services.nodes.fleet import (
    NODE_NAME,
    TOKEN_LIFETIME,
    agent_renew,
    engine_lock_out,
    enrolment_refused,
    epoch_of_site,
    escalation_of_policy,
    node_approve,
    node_audit,
    node_key,
    node_key_rotate,
    node_revoke,
    token_check,
    token_use,
)
from allocation.services.nodes.health import gpus_withhold
from allocation.services.nodes.inventories import inventory_apply
from allocation.services.nodes.redis_accounts import account_password, account_url, engine_account_later
from allocation.words.fleet import fleet_text
from allocation.words.refusals import refusal_text
from tenants.audit import platform_record
from tenants.models import User
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.wall import operator_tx, require_operators_process

logger = logging.getLogger(__name__)

TOKEN_PREFIX = "gpup_engine_"  # noqa: S105 (how a token begins)
_OF_KUBERNETES = {"kubernetes", "quota", "volcano"}
SCHEDULERS = ("slurm", *sorted(_OF_KUBERNETES))
_WANTED_AT_ONCE = 64
_GONE = "its engine no longer reports the host"


# Enrolment.


def engine_token_create(
    *, engine: str, rack: str, now: datetime, operator: User | None = None, made_with: UUID | None = None
) -> str:
    """Creates a token that enrols one agent as the engine within 15 minutes. Shown once. `rack` is that of
    hosts that join. Made with an operator's token, it ends with it.

    Raises:
        Refused: `engine_name_invalid`.
    """
    if len(engine) > 40 or not NODE_NAME.fullmatch(engine):
        raise invalid("engine_name_invalid", refusal_text("engine_name_invalid"), "engine")
    clear = f"{TOKEN_PREFIX}{secrets.token_urlsafe(24)}"
    with transaction.atomic():
        place, _ = Rack.objects.get_or_create(name=rack)
        row, made = EngineAgent.objects.get_or_create(name=engine, defaults={"rack": place, "created": now})
        if not made and row.rack_id != place.id:
            EngineAgent.objects.filter(name=engine).update(rack=place)
        EnrolmentToken.objects.create(
            digest=hashlib.sha256(clear.encode()).digest(),
            engine_agent=row,
            made_with_id=made_with,
            expires=now + TOKEN_LIFETIME,
        )
        after = {"rack": rack, "token_expires": (now + TOKEN_LIFETIME).isoformat()}
        _audit(operator, row, "engine.enrolment_token_made", now, after=after)
    return clear


def engine_enrol(*, token: str, scheduler: str, agent: str, now: datetime) -> dict[str, object]:
    """Enrols an agent as an engine; returns its name, key and address.

    An agent that was enrolled as this engine before is locked out. Its hosts are the new one's, with new
    keys: those that were locked out wait for an operator.

    Raises:
        Refused: `enrolment_refused` (wrong, used or old token), `engine_other`, which another scheduler has.
    """
    digest = hashlib.sha256(token.encode()).digest()
    token_check(digest, now)
    password, link_digest = account_password()
    with operator_tx():
        token_use(digest, now)
        tokens = EnrolmentToken.objects.filter(digest=digest, engine_agent__isnull=False)
        named = EngineAgent.objects.filter(name__in=tokens.values("engine_agent"))
        engine = named.select_for_update().first()
        if engine is None:
            raise enrolment_refused()
        if engine.nodes.exists() and not is_like(engine.engine, scheduler):
            text = refusal_text("engine_other", engine=engine.name, scheduler=engine.engine)
            raise Refused("engine_other", text)
        engine.engine, engine.agent_version = scheduler, agent[:40]
        engine.key_version += 1
        engine.key_confirmed = engine.key_version
        engine.link_digest, engine.seq = link_digest, 0
        engine.save()
        for node in engine.nodes.select_for_update(of=("self",)).order_by("id"):
            agent_renew(node, link_digest)
            node.save()
        _audit(None, engine, "engine.enrolled", now, after={"key_version": engine.key_version})
        epoch = epoch_of_site()
        hosts = list(engine.nodes.values_list("name", flat=True))
        engine_account_later(engine, cut=True, left=hosts)
        key = engine_key(engine).hex()
    task_request("allocation.publish")
    task_request("allocation.cycle")
    return {
        "engine": engine.name,
        "key": key,
        "key_version": engine.key_version,
        "epoch": epoch,
        "redis_url": account_url(wire.engine_account(engine.name), password),
    }


def engine_key(engine: EngineAgent, version: int | None = None) -> bytes:
    """The engine's signing key of a version, by default the newest; derived and never stored.

    Web processes have no master key: there it raises ServedElsewhere.
    """
    require_operators_process()
    version = engine.key_version if version is None else version
    return wire.node_key(settings.AGENTS_MASTER_KEY.encode(), wire.engine_account(engine.name), version)


# What it says.


def engine_hosts_take(*, password: str, envelope: wire.Envelope, now: datetime) -> wire.Envelope:
    """Takes in which hosts an engine has, and returns the signed answer for it.

    New hosts wait for an operator. Those that are reported no more are forgotten, or gone if they are
    nodes; nothing else of a node changes here.

    Raises:
        Refused: `engine_locked_out`, when the account is no more; `engine_message_invalid`, when the key or
            the message is wrong; `engine_message_old`.
    """
    digest = hashlib.sha256(password.encode()).digest()
    if not EngineAgent.objects.filter(link_digest=digest).exists():
        raise _locked_out()
    with operator_tx():
        engine = EngineAgent.objects.select_for_update().filter(link_digest=digest).first()
        if engine is None:
            raise _locked_out()
        message = _opened(engine, envelope)
        if message.seq <= engine.seq:
            raise Refused("engine_message_old", refusal_text("engine_message_old", engine=engine.name))
        engine.seq, engine.last_seen = message.seq, now
        engine.key_confirmed = max(engine.key_confirmed, envelope.key_version)
        engine.save(update_fields=["seq", "last_seen", "key_confirmed"])
        _hosts_store(engine, message, now)
        return _answer(engine, message)


def _opened(engine: EngineAgent, envelope: wire.Envelope) -> wire.EngineHosts:
    valid = range(engine.key_confirmed, engine.key_version + 1)
    try:
        message = wire.open_engine_hosts(envelope, {v: engine_key(engine, v) for v in valid})
    except wire.WireError as error:
        logger.warning("A message of engine %s was refused: %s", engine.name, error)
        raise _invalid(str(error)) from error
    names = set(message.names)
    if len(message.names) > wire.HOSTS_MAX or len(names) != len(message.names):
        raise _invalid(f"a host twice, or more than {wire.HOSTS_MAX}")
    for each in message.inventories:
        if each.hostname not in names or each.engine != engine.engine:
            raise _invalid(f"{each.hostname} is no host of {engine.engine or 'it'}")
        if len(json.dumps(wire.inventory_to_plain(each))) > wire.HOST_INVENTORY_MAX:
            raise _invalid(f"the inventory of {each.hostname} is too large")
    return message


def _hosts_store(engine: EngineAgent, message: wire.EngineHosts, now: datetime) -> None:
    known = {row.name: row for row in engine.reported.all()}
    nodes = {each.host_name or each.name: each.id for each in engine.nodes.all()}
    found = {each.hostname: each for each in message.inventories}
    names = set(message.names)
    EngineHost.objects.bulk_create(
        [
            EngineHost(engine=engine, name=name, since=now, **_columns(found.get(name)))
            for name in sorted(names - known.keys())
        ]
    )
    for name in sorted(found.keys() & known.keys()):
        engine.reported.filter(name=name).update(**_columns(found[name]))
    engine.reported.filter(name__in=names, gone__isnull=False).update(gone=None)
    left = known.keys() - names
    engine.reported.filter(name__in=left - nodes.keys()).delete()
    gone = engine.reported.filter(name__in=left & nodes.keys(), gone=None)
    ids = [nodes[name] for name in gone.values_list("name", flat=True)]
    for node in Node.objects.select_for_update().filter(id__in=ids).order_by("id"):
        # Its agent may know nothing of it any more; when the host is back, it gives the GPUs again.
        gpus_withhold(node, dict.fromkeys(node.gpus.values_list("uuid", flat=True), _GONE))
    gone.update(gone=now)


def _columns(found: wire.Inventory | None) -> dict[str, object]:
    if found is None:
        return {}
    plain = wire.inventory_to_plain(found)
    return {"inventory": plain, "kind": kind_of(found)}


def kind_of(inventory: wire.Inventory) -> str:
    """The GPUs of a host in words: hosts of one kind can be approved at once."""
    counts = Counter(gpu.name for gpu in inventory.gpus)
    words = ", ".join(f"{count} × {name}" for name, count in sorted(counts.items()))
    return (words or "no GPUs")[:KIND_LENGTH]


def _answer(engine: EngineAgent, message: wire.EngineHosts) -> wire.Envelope:
    """What the engine has to know, signed by the key that it is known to have."""
    signs = engine.key_confirmed
    key = engine_key(engine, signs)
    lacking = engine.reported.filter(inventory__isnull=True, gone=None).values_list("name", flat=True)
    answer = wire.EngineAnswer(
        engine=engine.name,
        seq=message.seq,
        epoch=epoch_of_site(),
        hosts=tuple(_host_key(node, key) for node in engine.nodes.order_by("name")),
        wanted=tuple(lacking[:_WANTED_AT_ONCE]),
        rotation=_rotation(engine, key) if engine.key_version > signs else None,
    )
    return wire.seal(answer, key=key, key_version=signs)


def _host_key(node: Node, key: bytes) -> wire.HostKey:
    """The key that signs the host's documents; a newer one comes with these."""
    version = node.key_confirmed
    new = node_key(node, version)
    hidden = wire.key_wrap(old=key, new=new, node=node.name, version=version)
    return wire.HostKey(node=node.name, key_version=version, hidden=hidden)


def _rotation(engine: EngineAgent, key: bytes) -> wire.Rotation:
    version, account = engine.key_version, wire.engine_account(engine.name)
    hidden = wire.key_wrap(old=key, new=engine_key(engine), node=account, version=version)
    return wire.Rotation(version=version, hidden=hidden)


# What operators do.


def engine_hosts_approve(
    *,
    operator: User,
    engine_name: str,
    names: Iterable[str] = (),
    kind: str = "",
    rack: str = "",
    now: datetime,
) -> list[str]:
    """Makes hosts of the engine nodes of the portal: those with these `names`, and all of a `kind` that
    wait and whose names are new to the portal. They stand in the `rack`, else in that of the scheduler,
    else in the engine's; a host that is a node already moves to a `rack`. Returns the nodes' names.

    A host with differences, such as a GPU that another node has, is quarantined as any node. One that has an
    identity of its own of the same scheduler, as version 1.0 made them, moves to the engine by name.

    Raises:
        Refused: `not_found` (engine or host), `host_taken`, when the node has another identity,
            `no_host_of_kind`, `not_enrolled` or what `node_approve` raises.
    """
    with transaction.atomic():
        engine = _locked(engine_name)
        if engine.link_digest is None:
            raise _not_enrolled(engine)
        wanted = set(names)
        if kind:
            wanted |= _of_kind(engine, kind)
        place = Rack.objects.get_or_create(name=rack)[0] if rack else None
        nodes = [_host_approve(operator, engine, name, place, now) for name in sorted(wanted)]
        engine_account_later(engine)
    task_request("allocation.publish")
    task_request("allocation.cycle")
    return nodes


def hosts_waiting(engine: EngineAgent) -> list[EngineHost]:
    """The present hosts that an approval of their kind takes: those that are new to the portal, and
    those of the engine that were locked out with it."""
    rows = engine.reported.filter(gone=None, inventory__isnull=False).defer("inventory").order_by("name")
    names = {row.name: wire.node_name(row.name) for row in rows}
    nodes = {each.name: each for each in Node.objects.filter(name__in=names.values())}
    # Of two hosts with one name in the portal none joins with all of a kind.
    once = Counter(names.values())
    return [row for row in rows if once[names[row.name]] == 1 and _waits(engine, nodes.get(names[row.name]))]


def _waits(engine: EngineAgent, node: Node | None) -> bool:
    is_back = node is not None and node.engine_agent_id == engine.name and not node.differences
    return node is None or (is_back and node.state == Node.State.QUARANTINED)


def is_alone(engine: EngineAgent, node: Node) -> bool:
    """Whether a node of such a scheduler has an identity of its own, as version 1.0 made them."""
    own = node.link_digest is not None and node.engine_agent_id is None
    return own and node.engine in SCHEDULERS and is_like(engine.engine, node.engine)


def is_like(scheduler: str, other: str) -> bool:
    """Whether these are one scheduler."""
    return scheduler == other or {scheduler, other} <= _OF_KUBERNETES


def _of_kind(engine: EngineAgent, kind: str) -> set[str]:
    found = {row.name for row in hosts_waiting(engine) if row.kind == kind}
    if not found:
        raise Refused("no_host_of_kind", refusal_text("no_host_of_kind", kind=kind), "conflict", "kind")
    return found


def _host_approve(
    operator: User, engine: EngineAgent, host_name: str, rack: Rack | None, now: datetime
) -> str:
    host = engine.reported.filter(name=host_name, gone=None, inventory__isnull=False).first()
    if host is None:
        raise missing("host", "hosts")
    name = wire.node_name(host_name)
    inventory = wire.inventory_from_plain(host.inventory)
    defaults = {"rack": rack or _rack_of(engine, inventory), **escalation_of_policy()}
    Node.objects.get_or_create(name=name, defaults=defaults)
    node = Node.objects.select_for_update().get(name=name)
    if node.engine_agent_id != engine.name or (node.host_name or node.name) != host_name:
        _host_join(operator, engine, node, inventory, now)
    if rack is not None and node.rack_id != rack.id:
        _rack_set(operator, node, rack, now)
    if not node.differences:
        node_approve(operator=operator, node=node, now=now)
    return name


def _rack_of(engine: EngineAgent, inventory: wire.Inventory) -> Rack:
    if not inventory.rack:
        return engine.rack
    return Rack.objects.get_or_create(name=inventory.rack)[0]


def _rack_set(operator: User, node: Node, rack: Rack, now: datetime) -> None:
    before, node.rack = {"rack": node.rack.name}, rack
    node.save(update_fields=["rack"])
    node_audit(operator, node, "node.rack_set", now, before=before, after={"rack": rack.name})


def _host_join(
    operator: User, engine: EngineAgent, node: Node, inventory: wire.Inventory, now: datetime
) -> None:
    if is_alone(engine, node):
        node_revoke(operator=operator, node=node, now=now)
        node.refresh_from_db()
    if node.engine_agent_id is not None or node.link_digest is not None:
        whose = f"engine {node.engine_agent_id}" if node.engine_agent_id else "an agent of its own"
        text = refusal_text("host_taken", node=node.name, whose=whose)
        raise Refused("host_taken", text, "conflict", "hosts")
    agent_renew(node, bytes(engine.link_digest or b""))
    node.engine_agent = engine
    node.host_name = "" if inventory.hostname == node.name else inventory.hostname
    inventory_apply(node=node, inventory=inventory, now=now)
    EnrolmentToken.objects.filter(node=node, used_at=None).update(used_at=now)
    after = {"engine": engine.name, "key_version": node.key_version}
    node_audit(operator, node, "node.joined_engine", now, after=after)


def engine_revoke(*, operator: User, engine_name: str, now: datetime) -> EngineAgent:
    """Locks the engine out permanently, and all of its hosts with it: their account, connections, keys and
    tokens. Running work continues to its end by the engine's own clock. The engine returns by a new
    enrolment, and each host by an operator's approval.

    Raises:
        Refused: `not_found`, `engine_not_enrolled`.
    """
    with transaction.atomic():
        engine = _locked(engine_name)
        if engine.link_digest is None:
            raise _not_enrolled(engine)
        before = {"key_version": engine.key_version, "hosts": engine.nodes.count()}
        why = fleet_text("locked_out", operator=operator.username, at=f"{now:%d %b %H:%M}")
        engine_lock_out(engine, why, now)
        for node in engine.nodes.all():
            node_audit(operator, node, "node.locked_out", now, after={"state": node.state})
        after = {"key_version": engine.key_version}
        _audit(operator, engine, "engine.locked_out", now, before=before, after=after)
    return engine


def engine_key_rotate(*, operator: User, engine_name: str, now: datetime) -> EngineAgent:
    """Gives the engine and each of its hosts a new key; old ones stay valid until new ones are used.

    Raises:
        Refused: `not_found`, `engine_not_enrolled`, `rotation_running`.
    """
    with transaction.atomic():
        engine = _locked(engine_name)
        if engine.link_digest is None:
            raise _not_enrolled(engine)
        hosts = list(engine.nodes.select_for_update(of=("self",)).order_by("id"))
        busy = [each.name for each in hosts if each.key_confirmed < each.key_version]
        if engine.key_confirmed < engine.key_version:
            busy.insert(0, engine.name)
        if busy:
            raise Refused("rotation_running", refusal_text("rotation_running", node=busy[0]))
        engine.key_version += 1
        engine.save(update_fields=["key_version"])
        for node in hosts:
            node_key_rotate(operator=operator, node=node, now=now)
        before, after = ({"key_version": engine.key_version - back} for back in (1, 0))
        _audit(operator, engine, "engine.key_rotated", now, before=before, after=after)
    return engine


def _locked(name: str) -> EngineAgent:
    engines = EngineAgent.objects.select_for_update(of=("self",)).select_related("rack")
    engine = engines.filter(name=name).first()
    if engine is None:
        raise missing("engine")
    return engine


def _audit(
    operator: User | None,
    engine: EngineAgent,
    action: str,
    now: datetime,
    *,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object],
) -> None:
    platform_record(
        operator_id=operator.id if operator else None,
        action=action,
        target=("engine", engine.name),
        now=now,
        before=before,
        after=after,
    )


def _locked_out() -> Refused:
    return Refused("engine_locked_out", refusal_text("engine_locked_out"), "conflict")


def _not_enrolled(engine: EngineAgent) -> Refused:
    return Refused("engine_not_enrolled", refusal_text("engine_not_enrolled", engine=engine.name))


def _invalid(why: str) -> Refused:
    return invalid("engine_message_invalid", refusal_text("engine_message_invalid", why=why), "envelope")
