"""What both Valkeys themselves say: memory, persistence, who may do what."""

from collections.abc import Iterator
from typing import Any

import redis
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from allocation.services.nodes.redis_accounts import excess_rights

STORES = {"REDIS_URL": "BROKER_REDIS_URL", "AGENTS_REDIS_URL": "AGENTS_REDIS_URL"}
SETTINGS_HINT = "docs/operator.md, The agents' server, has the settings of both."
TIMEOUT_SECONDS = 3


def valkey_check(**_: object) -> list[CheckMessage]:
    """Everything about both servers; one finding for each that does not answer."""
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
                    f"The server of {name} could not be asked: {error}",
                    hint=f"Look at {name}, its password, and whether the server is up.",
                    id="portal.E201",
                )
            )
    if len(runs) == 2 and runs[0] == runs[1]:
        found.append(
            Error(
                "REDIS_URL and AGENTS_REDIS_URL are the same server by two names: a node that"
                " fills it stops tasks, pages and sign-in.",
                hint="Give nodes a server of their own.",
                id="portal.E202",
            )
        )
    return found


def client_of(url: str) -> Any:  # noqa: ANN401 (redis answers with either kind)
    """A client that does not wait long."""
    options = {"socket_timeout": TIMEOUT_SECONDS, "socket_connect_timeout": TIMEOUT_SECONDS}
    return redis.Redis.from_url(url, decode_responses=True, **options)


def _bounds(name: str, server: Any) -> Iterator[CheckMessage]:  # noqa: ANN401
    shown = server.config_get("maxmemory*", "appendonly", "databases")
    if int(shown["maxmemory"]) == 0:
        yield Error(
            f"The server of {name} has no maxmemory: it can take the machine's memory.",
            hint=f"maxmemory 512mb. {SETTINGS_HINT}",
            id="portal.E203",
        )
    if shown["maxmemory-policy"] != "noeviction":
        yield Error(
            f"The server of {name} throws data away when it is full"
            f" ({shown['maxmemory-policy']}): tasks and documents get lost without a word.",
            hint=f"maxmemory-policy noeviction. {SETTINGS_HINT}",
            id="portal.E204",
        )
    if shown["appendonly"] != "yes":
        yield Warning(
            f"The server of {name} forgets everything when it restarts: waiting tasks, sign-in"
            " limits, reports on their way.",
            hint=f"appendonly yes. {SETTINGS_HINT}",
            id="portal.W205",
        )
    if "on" in server.acl_getuser("default")["flags"]:
        yield Error(
            f"The server of {name} lets in whoever has the password of its default user.",
            hint="user default off, and a user of the portal's own with ~* &* +@all.",
            id="portal.E206",
        )


def _agents(server: Any) -> Iterator[CheckMessage]:  # noqa: ANN401
    shown = server.config_get("databases", "maxmemory-clients")
    if int(shown["databases"]) != 1:
        yield Warning(
            f"The agents' server has {shown['databases']} databases.",
            hint=f"databases 1: there is nothing to select. {SETTINGS_HINT}",
            id="portal.W207",
        )
    if shown.get("maxmemory-clients", "0") == "0":
        yield Warning(
            "The agents' server sets no limit to what connections hold.",
            hint=f"maxmemory-clients 64mb. {SETTINGS_HINT}",
            id="portal.W208",
        )
    for user, rules in excess_rights(server.acl_list()).items():
        yield Error(
            f"The account {user} may do more than its node needs: {' '.join(sorted(rules))}.",
            hint="Lock the agent out and enrol the node again, and find out who changed it.",
            id="portal.E209",
        )
    names = {line.split()[1] for line in server.acl_list()}
    own = server.acl_whoami()
    others = sorted(name for name in names - {own, "default"} if not name.startswith("agent-"))
    for name in others:
        yield Warning(
            f"The agents' server knows the user {name}, neither the portal's nor a node's.",
            hint="ACL DELUSER, unless it is your monitoring's and may only read figures.",
            id="portal.W210",
        )
