"""Each node's own account at Redis: what it may reach, and that it is there and nowhere else.

An account reads its node's document and lease, writes its reports and listens to its wake-ups,
nothing more. Accounts are no data of Redis: a server that restarts has forgotten them. So the
database keeps the digest of each password, and `agent_accounts_ensure` makes the server be what it
says.
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

from allocation import wire
from allocation.models import Node

logger = logging.getLogger(__name__)

PREFIX = "agent-"
_COMMANDS = "-@all +hello +auth +ping +client|setname +get +xadd +subscribe +unsubscribe +quit"
# Client libraries introduce themselves with it. Redis 7.0 does not know it, and refuses an account
# with a command that it does not know; without the right nothing else is lost.
_INTRODUCTION = "+client|setinfo"
# What a server says of every account and gives no rights.
_PLAIN = ("on", "off", "sanitize-payload", "resetchannels")


@cache
def agents_redis() -> "redis.Redis":
    """The connection to the server that agents read from."""
    return redis.Redis.from_url(
        settings.AGENTS_REDIS_URL, socket_timeout=2, redis_connect_func=_never_evict
    )


def _never_evict(connection: Any) -> None:  # noqa: ANN401 (redis has no types)
    """The server ends the largest connections when all hold too much: never the portal's own."""
    connection.on_connect()
    connection.send_command("CLIENT", "NO-EVICT", "ON")
    connection.read_response()


def account_user(node_name: str) -> str:
    """The name of a node's account."""
    return f"{PREFIX}{node_name}"


def account_password() -> tuple[str, bytes]:
    """A new password of 256 random bits, to be told once, and its SHA-256, to be kept."""
    password = secrets.token_hex(32)
    return password, hashlib.sha256(password.encode()).digest()


def account_url(node_name: str, password: str) -> str:
    """The address that an agent is told: the public one, with its own account."""
    parts = urlsplit(settings.AGENTS_REDIS_PUBLIC_URL)
    account = f"{quote(account_user(node_name))}:{quote(password)}"
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{account}@{place}"))


def agent_account_open(node_name: str, digest: bytes) -> None:
    """Makes the account, or brings it back as it should be; open connections stay.

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
    """The keys and the channel of one node, as rules of its account."""
    return (
        f"%R~{wire.desired_key(node_name)}",
        f"%R~{wire.lease_key(node_name)}",
        f"%W~{wire.report_stream(node_name)}",
        f"&{wire.wake_channel(node_name)}",
    )


def agent_account_replace(node_name: str, digest: bytes | None) -> None:
    """Ends the node's account with every connection made with it; a `digest` opens it anew.

    The lease that the node has there is removed, as its new key can't open it.

    A server that does not answer is left to `agent_accounts_ensure`.
    """
    try:
        _close(account_user(node_name))
        agents_redis().delete(wire.lease_key(node_name))
        if digest is not None:
            agent_account_open(node_name, digest)
    except redis.RedisError as error:
        logger.warning("The account of %s waits until Redis answers: %s", node_name, error)


def _close(user: str) -> None:
    # An account that is only switched off goes on on the connections that are open. Removing it
    # ends them; closing its rights first leaves no moment for a command that is on its way.
    server: Any = agents_redis()
    with server.pipeline(transaction=True) as pipe:
        pipe.execute_command("ACL SETUSER", user, "off", "resetkeys", "resetchannels", "-@all")
        pipe.execute_command("CLIENT KILL", "USER", user)
        pipe.execute_command("ACL DELUSER", user)
        pipe.execute()


def agent_accounts_ensure() -> int:
    """Makes the accounts at the server be those of enrolled nodes; returns how many were changed.

    Whatever was lost with a restart comes back, what an older portal made reaches what it should,
    and what was revoked while the server was away goes. Raises redis.RedisError.
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
    lost = [
        identifier
        for user, (identifier, rules) in wanted.items()
        if not rules <= there.get(user, set())
    ]
    for user in stray:
        _close(user)
    for identifier in lost:
        _account_restore(identifier)
    if stray or lost:
        logger.warning("Accounts of nodes at Redis: %d made, %d ended", len(lost), len(stray))
    return len(stray) + len(lost)


def _accounts() -> dict[str, set[str]]:
    """The rules of each node's account that the server has."""
    server: Any = agents_redis()
    lines = [line.split() for line in server.acl_list()]
    return {rules[1]: set(rules[2:]) for rules in lines if rules[1].startswith(PREFIX)}


def excess_rights(acl_lines: Sequence[str]) -> dict[str, set[str]]:
    """Of each node's account the rules that its node does not need; the lines are of ACL LIST."""
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
    """Locked, so that an account that is being revoked does not come back by an older look."""
    with transaction.atomic():
        node = Node.objects.select_for_update().get(id=node_id)
        if node.link_digest is not None:
            agent_account_open(node.name, bytes(node.link_digest))
