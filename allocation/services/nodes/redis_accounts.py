"""Each node's own Redis account: its rights, and its creation and removal.

An account reads its node's document and lease, writes its reports and listens to its wake-ups,
nothing more. Redis does not store accounts with its data: a restarted server has lost them. So the
database keeps the digest of each password, and `agent_accounts_ensure` restores the accounts.
"""

import hashlib
import logging
import secrets
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import UUID

import redis
from django.conf import settings
from django.db import transaction

import wire
from allocation.models import Node
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


def account_user(node_name: str) -> str:
    """The name of a node's account."""
    return f"{PREFIX}{node_name}"


def account_password() -> tuple[str, bytes]:
    """A new password of 256 random bits, which is sent once, and its SHA-256, which is stored."""
    password = secrets.token_hex(32)
    return password, hashlib.sha256(password.encode()).digest()


def account_url(node_name: str, password: str) -> str:
    """The public address for an agent, with its own account."""
    parts = urlsplit(settings.AGENTS_REDIS_PUBLIC_URL)
    account = f"{quote(account_user(node_name))}:{quote(password)}"
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{account}@{place}"))


def agent_account_open(node_name: str, digest: bytes) -> None:
    """Creates or repairs the account; open connections stay.

    Raises redis.RedisError.
    """
    rights = f"reset on #{digest.hex()} {' '.join(_key_rules(node_name))} {_COMMANDS}"
    server: Any = agents_redis()
    user = account_user(node_name)
    try:
        server.execute_command("ACL SETUSER", user, *rights.split(), _INTRODUCTION)
    except redis.ResponseError as error:
        if "setinfo" not in str(error):
            raise
        server.execute_command("ACL SETUSER", user, *rights.split())


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


def agent_accounts_ensure() -> int:
    """Makes the server's accounts match the enrolled nodes; returns how many were changed.

    Restores accounts after a restart, updates rights that an older portal set, and removes accounts
    that were revoked while the server was away. Raises redis.RedisError.
    """
    there = _accounts()
    rows = Node.objects.filter(link_digest__isnull=False)
    wanted = {
        account_user(name): (
            identifier,
            {"on", f"#{bytes(digest or b'').hex()}", *_key_rules(name)},
        )
        for identifier, name, digest in rows.values_list("id", "name", "link_digest")
    }
    stray = there.keys() - wanted.keys()
    lost = [identifier for user, (identifier, rules) in wanted.items() if not rules <= there.get(user, set())]
    for user in stray:
        _close(user)
    for identifier in lost:
        _account_restore(identifier)
    if stray or lost:
        logger.warning("Redis accounts of nodes: %d created, %d removed", len(lost), len(stray))
    return len(stray) + len(lost)


def _accounts() -> dict[str, set[str]]:
    """The rules of each node's account at the server."""
    server: Any = agents_redis()
    lines = [line.split() for line in server.acl_list()]
    return {rules[1]: set(rules[2:]) for rules in lines if rules[1].startswith(PREFIX)}


def excess_rights(acl_lines: Sequence[str]) -> dict[str, set[str]]:
    """Rules of each node's account that the node does not need, from lines of ACL LIST."""
    beyond = {}
    for line in acl_lines:
        user, *rules = line.split()[1:]
        if user.startswith(PREFIX):
            needed = {
                *_key_rules(user.removeprefix(PREFIX)),
                *_COMMANDS.split(),
                _INTRODUCTION,
                *_PLAIN,
            }
            extra = {rule for rule in rules if rule[0] not in "#-"} - needed
            if extra:
                beyond[user] = extra
    return beyond


def _account_restore(node_id: UUID) -> None:
    """Restores one account. The lock keeps a revoked account from coming back."""
    with transaction.atomic():
        node = Node.objects.select_for_update().get(id=node_id)
        if node.link_digest is not None:
            agent_account_open(node.name, bytes(node.link_digest))
