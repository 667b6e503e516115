"""The Redis account of each node, or of the engine of many: its rights, its creation and removal.

An account reads its node's document and lease, writes its reports and listens to its wake-ups,
nothing more; that of an engine does so for each of its hosts. Redis does not store accounts with
its data: a restarted server has lost them. So the database keeps the digest of each password, and
`agent_accounts_ensure` restores the accounts.
"""

import hashlib
import logging
import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import UUID

import redis
from django.conf import settings
from django.db import transaction

import wire
from allocation.models import EngineAgent, Node
from tenants.platform.stores.redis_servers import redis_client

logger = logging.getLogger(__name__)

PREFIX = "agent-"
_COMMANDS = "-@all +hello +auth +ping +client|setname +get +xadd +subscribe +unsubscribe +quit"
# Client libraries send it on connect. Redis 7.0 refuses an account with an unknown command; without
# this right nothing else is lost.
_INTRODUCTION = "+client|setinfo"
# Flags that every account has and that give no rights.
_PLAIN = ("on", "off", "sanitize-payload", "resetchannels")


@cache
def agents_redis() -> "redis.Redis":
    """The connection to the agents' server."""
    return redis_client(settings.AGENTS_REDIS_URL, socket_timeout=2, redis_connect_func=_never_evict)


def _never_evict(connection: Any) -> None:  # noqa: ANN401 (redis has no types)
    """Exempts the portal's connections from eviction when clients use too much memory."""
    connection.on_connect()
    connection.send_command("CLIENT", "NO-EVICT", "ON")
    connection.read_response()


def account_user(account: str) -> str:
    """The user of an account, which has the name of its node, or `wire.engine_account`."""
    return f"{PREFIX}{account}"


def account_password() -> tuple[str, bytes]:
    """A new password of 256 random bits, which is sent once, and its SHA-256, which is stored."""
    password = secrets.token_hex(32)
    return password, hashlib.sha256(password.encode()).digest()


def account_url(name: str, password: str) -> str:
    """The public address for an agent, with its own account."""
    parts = urlsplit(settings.AGENTS_REDIS_PUBLIC_URL)
    account = f"{quote(account_user(name))}:{quote(password)}"
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{account}@{place}"))


def agent_account_open(account: str, digest: bytes, hosts: Iterable[str] | None = None) -> None:
    """Creates or repairs the account of a node, or that of an engine for its `hosts`; open connections
    stay.

    Raises redis.RedisError.
    """
    keys = _rules_of([account] if hosts is None else hosts)
    rights = f"reset on #{digest.hex()} {' '.join(keys)} {_COMMANDS}"
    server: Any = agents_redis()
    user = account_user(account)
    try:
        server.execute_command("ACL SETUSER", user, *rights.split(), _INTRODUCTION)
    except redis.ResponseError as error:
        if "setinfo" not in str(error):
            raise
        server.execute_command("ACL SETUSER", user, *rights.split())


def _rules_of(names: Iterable[str]) -> list[str]:
    return [rule for name in names for rule in _key_rules(name)]


def _key_rules(node_name: str) -> tuple[str, ...]:
    """Account rules for the keys and the channel of one node."""
    return (
        f"%R~{wire.desired_key(node_name)}",
        f"%R~{wire.lease_key(node_name)}",
        f"%W~{wire.report_stream(node_name)}",
        f"&{wire.wake_channel(node_name)}",
    )


def agent_account_replace(node_name: str, digest: bytes | None) -> None:
    """Removes the node's account and its connections; with a `digest` creates it again.

    The node's stored lease is removed, because its new key can't verify it. If the server does not
    answer, `agent_accounts_ensure` does it later.
    """
    try:
        _close(account_user(node_name))
        agents_redis().delete(wire.lease_key(node_name))
        if digest is not None:
            agent_account_open(node_name, digest)
    except redis.RedisError as error:
        logger.warning("The account of %s waits until Redis answers: %s", node_name, error)


def _close(user: str) -> None:
    # Switching an account off keeps its open connections; removing it ends them. Taking its rights
    # first stops commands that are in flight.
    server: Any = agents_redis()
    with server.pipeline(transaction=True) as pipe:
        pipe.execute_command("ACL SETUSER", user, "off", "resetkeys", "resetchannels", "-@all")
        pipe.execute_command("CLIENT KILL", "USER", user)
        pipe.execute_command("ACL DELUSER", user)
        pipe.execute()


def engine_account_later(engine: EngineAgent, *, cut: bool = False, left: Sequence[str] = ()) -> None:
    """Gives the engine's account, after the commit, the rights to its hosts and no other; with `cut` its
    connections end first. Without a digest or hosts there is no account. `left` are hosts whose key is
    no more, so that their stored lease is removed.

    If the server does not answer, `agent_accounts_ensure` does it later.
    """
    name, digest = engine.name, engine.link_digest
    hosts = list(engine.nodes.order_by("name").values_list("name", flat=True))

    def change() -> None:
        try:
            if cut or digest is None or not hosts:
                engine_account_close(name)
            if digest is not None and hosts:
                agent_account_open(wire.engine_account(name), bytes(digest), hosts)
            for host in left:
                agents_redis().delete(wire.lease_key(host))
        except redis.RedisError as error:
            logger.warning("The account of engine %s waits until Redis answers: %s", name, error)

    transaction.on_commit(change)


def engine_account_close(engine_name: str) -> None:
    """Ends the account and its connections. Raises redis.RedisError."""
    _close(account_user(wire.engine_account(engine_name)))


def agent_accounts_ensure() -> int:
    """Makes the server's accounts match the enrolled nodes; returns how many were changed.

    Restores accounts after a restart, updates rights that an older portal set, and removes accounts
    that were revoked while the server was away. Raises redis.RedisError.
    """
    there = _accounts()
    rows = Node.objects.filter(link_digest__isnull=False)
    own: dict[str, UUID] = {}
    wanted: dict[str, set[str]] = {}
    engines: dict[str, str] = {}
    hosts: dict[str, list[str]] = defaultdict(list)
    for node in rows.only("id", "name", "engine_agent_id", "link_digest"):
        user = account_user(node.name)
        if node.engine_agent_id is None:
            own[user] = node.id
        else:
            user = account_user(wire.engine_account(node.engine_agent_id))
            engines[user] = node.engine_agent_id
            hosts[user].append(node.name)
        digest = bytes(node.link_digest or b"").hex()
        wanted.setdefault(user, {"on", f"#{digest}"}).update(_key_rules(node.name))
    stray = there.keys() - wanted.keys()
    lost = [user for user, rules in wanted.items() if not rules <= there.get(user, set())]
    # A host that left while the server was away.
    beyond = [user for user in engines if user not in lost and _keys_in(there[user]) > len(hosts[user])]
    for user in stray:
        _close(user)
    for user in [*lost, *beyond]:
        if user in engines:
            _engine_account_restore(engines[user])
        else:
            _account_restore(own[user])
    if stray or lost or beyond:
        logger.warning("Redis accounts: %d created or corrected, %d removed", len(lost + beyond), len(stray))
    return len(stray) + len(lost) + len(beyond)


def _keys_in(rules: Iterable[str]) -> int:
    """To how many streams an account may write."""
    return sum(rule.startswith("%W~") for rule in rules)


def _accounts() -> dict[str, set[str]]:
    """The rules of each node's account at the server."""
    server: Any = agents_redis()
    lines = [line.split() for line in server.acl_list()]
    return {rules[1]: set(rules[2:]) for rules in lines if rules[1].startswith(PREFIX)}


def excess_rights(acl_lines: Sequence[str]) -> dict[str, set[str]]:
    """Rules of each account that no node needs, from lines of ACL LIST. Which hosts an engine has is kept
    by `agent_accounts_ensure`."""
    beyond = {}
    for line in acl_lines:
        user, *rules = line.split()[1:]
        if user.startswith(PREFIX):
            needed = {*_rules_of(_names_in(user, rules)), *_COMMANDS.split(), _INTRODUCTION, *_PLAIN}
            extra = {rule for rule in rules if rule[0] not in "#-"} - needed
            if extra:
                beyond[user] = extra
    return beyond


def _names_in(user: str, rules: Iterable[str]) -> list[str]:
    """The nodes whose keys an account may have: the hosts whose streams an engine may write."""
    account = user.removeprefix(PREFIX)
    if not account.startswith(wire.engine_account("")):
        return [account]
    found = (re.fullmatch(r"%W~agent:([a-z0-9-]+):report", rule) for rule in rules)
    return [each[1] for each in found if each]


def _account_restore(node_id: UUID) -> None:
    """Restores one account. The lock keeps a revoked account from coming back."""
    with transaction.atomic():
        node = Node.objects.select_for_update().get(id=node_id)
        if node.link_digest is not None and node.engine_agent_id is None:
            agent_account_open(node.name, bytes(node.link_digest))


def _engine_account_restore(engine_name: str) -> None:
    """As `_account_restore`, for all hosts of an engine."""
    with transaction.atomic():
        engine = EngineAgent.objects.select_for_update().get(name=engine_name)
        hosts = list(engine.nodes.order_by("name").values_list("name", flat=True))
        if engine.link_digest is None or not hosts:
            engine_account_close(engine_name)
        else:
            agent_account_open(wire.engine_account(engine_name), bytes(engine.link_digest), hosts)
