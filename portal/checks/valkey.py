"""Checks of both Valkeys: memory, persistence, users."""

from collections.abc import Iterator
from typing import Any

import redis
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from allocation.services.nodes.redis_accounts import excess_rights
from tenants.platform.stores.redis_servers import redis_client

STORES = {"REDIS_URL": "BROKER_REDIS_URL", "AGENTS_REDIS_URL": "AGENTS_REDIS_URL"}
SETTINGS_HINT = "docs/guides/nodes.md, The agents' server, has the settings of both."
TIMEOUT_SECONDS = 3


def valkey_check(**_: object) -> list[CheckMessage]:
    """All findings about both servers; a single one for a server that does not answer."""
    found: list[CheckMessage] = []
    runs: list[str] = []
    for name, setting in STORES.items():
        try:
            with client_of(getattr(settings, setting)) as server:
                runs.append(server.info("server")["run_id"])
                found += _bounds(name, server)
                found += _agents(server) if name == "AGENTS_REDIS_URL" else ()
        except redis.RedisError as error:
            found.append(
                Error(
                    f"The server of {name} did not answer: {error}",
                    hint=f"Check {name}, its password, and whether the server is up.",
                    id="portal.E201",
                )
            )
    if len(runs) == 2 and runs[0] == runs[1]:
        found.append(
            Error(
                "REDIS_URL and AGENTS_REDIS_URL name the same server: a node that fills it stops"
                " tasks, pages and sign-in.",
                hint="Run a separate server for nodes.",
                id="portal.E202",
            )
        )
    return found


def client_of(url: str) -> Any:  # noqa: ANN401 (redis answers with either kind)
    """A client with short time-outs."""
    options = {"socket_timeout": TIMEOUT_SECONDS, "socket_connect_timeout": TIMEOUT_SECONDS}
    return redis_client(url, decode_responses=True, **options)


def _bounds(name: str, server: Any) -> Iterator[CheckMessage]:  # noqa: ANN401
    shown = server.config_get("maxmemory*", "appendonly", "databases")
    if int(shown["maxmemory"]) == 0:
        yield Error(
            f"The server of {name} has no maxmemory: it can use up the machine's memory.",
            hint=f"maxmemory 512mb. {SETTINGS_HINT}",
            id="portal.E203",
        )
    if shown["maxmemory-policy"] != "noeviction":
        yield Error(
            f"The server of {name} evicts data when it is full"
            f" ({shown['maxmemory-policy']}): tasks and documents get lost without an error.",
            hint=f"maxmemory-policy noeviction. {SETTINGS_HINT}",
            id="portal.E204",
        )
    if shown["appendonly"] != "yes":
        yield Warning(
            f"The server of {name} loses everything when it restarts: queued tasks, sign-in limits,"
            " unread reports.",
            hint=f"appendonly yes. {SETTINGS_HINT}",
            id="portal.W205",
        )
    if "on" in server.acl_getuser("default")["flags"]:
        yield Error(
            f"The server of {name} admits its default user.",
            hint="user default off, and a separate user for the portal with ~* &* +@all.",
            id="portal.E206",
        )


def _agents(server: Any) -> Iterator[CheckMessage]:  # noqa: ANN401
    shown = server.config_get("databases", "maxmemory-clients")
    if int(shown["databases"]) != 1:
        yield Warning(
            f"The agents' server has {shown['databases']} databases.",
            hint=f"databases 1: no other database is used. {SETTINGS_HINT}",
            id="portal.W207",
        )
    if shown.get("maxmemory-clients", "0") == "0":
        yield Warning(
            "The agents' server does not limit the memory of connections.",
            hint=f"maxmemory-clients 64mb. {SETTINGS_HINT}",
            id="portal.W208",
        )
    for user, rules in excess_rights(server.acl_list()).items():
        yield Error(
            f"The account {user} may do more than its node needs: {' '.join(sorted(rules))}.",
            hint="Revoke the agent's access, enrol the node again, and find out who changed it.",
            id="portal.E209",
        )
    names = {line.split()[1] for line in server.acl_list()}
    own = server.acl_whoami()
    others = sorted(name for name in names - {own, "default"} if not name.startswith("agent-"))
    for name in others:
        yield Warning(
            f"The agents' server has the user {name}, which belongs to neither portal nor node.",
            hint="ACL DELUSER, unless it is your monitoring's and may only read statistics.",
            id="portal.W210",
        )
