"""The engine's own identity: enrolment exchanges a one-time token for a name, a key and an account, which
all hosts of the engine share."""

import argparse
import dataclasses
import json
import logging
import time
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import agent
from agent.state.enrol import PortalUnreachable, portal_post
from agent.state.store import write_synced

log = logging.getLogger("agent")

FILE = "engine.json"
TOKEN = "gpup_engine_"  # noqa: S105 (how tokens of engines begin)
_LONGEST_RETRY_S = 30


@dataclasses.dataclass(frozen=True, slots=True)
class EngineIdentity:
    """`keys` maps key versions to keys; the highest signs. `hosts` are the hosts that the portal named
    last: they are served while it does not answer."""

    engine: str
    keys: dict[int, bytes]
    epoch: int
    redis_url: str
    portal: str
    hosts: tuple[str, ...] = ()

    @property
    def signing_version(self) -> int:
        return max(self.keys)

    @property
    def password(self) -> str:
        """The secret of the account."""
        return urlsplit(self.redis_url).password or ""


def is_one_identity(options: argparse.Namespace) -> bool:
    """Whether the engine has, or is to get, an identity of its own: else each node has one."""
    return (options.state / FILE).exists() or (options.token or "").startswith(TOKEN)


def identity_save(folder: Path, identity: EngineIdentity) -> None:
    """Writes the identity, readable by this account only, and syncs it. Raises OSError."""
    keys = {str(version): key.hex() for version, key in identity.keys.items()}
    write_synced(folder / FILE, json.dumps({**dataclasses.asdict(identity), "keys": keys}).encode())


def identity_load(folder: Path) -> EngineIdentity | None:
    """Returns the identity, None before the enrolment. Raises OSError, ValueError if damaged."""
    if not (folder / FILE).exists():
        return None
    return _identity(json.loads((folder / FILE).read_bytes()))


def engine_identity_ensure(options: argparse.Namespace, scheduler: str) -> EngineIdentity:
    """Returns the saved identity, or enrols the engine, with retries while the portal is unreachable.

    Raises EnrolmentRefused, OSError, ValueError.
    """
    found = identity_load(options.state)
    if found is not None and not options.enrol_again:
        portal = options.portal or found.portal
        return found if portal == found.portal else dataclasses.replace(found, portal=portal)
    if not options.portal or not (options.token or "").startswith(TOKEN):
        raise ValueError("to enrol this engine, give --portal and the engine's --token once")
    body = {"token": options.token, "engine": scheduler, "agent": agent.VERSION}
    for pause in chain((1, 2, 4, 8, 16), repeat(_LONGEST_RETRY_S)):
        try:
            answer = json.loads(portal_post(options.portal, "agents/engines", body))
        except PortalUnreachable as error:
            log.warning("%s; next try in %d s", error, pause)
            time.sleep(pause)
            continue
        hosts = found.hosts if found is not None else ()
        identity = _identity({**answer, "portal": options.portal, "hosts": hosts})
        identity_save(options.state, identity)
        return identity
    raise AssertionError("unreachable: the pauses never end")


def _identity(data: dict[str, Any]) -> EngineIdentity:
    """Raises ValueError."""
    try:
        # The portal's answer names one key, our own file all of them.
        versions = data["keys"] if "keys" in data else {data["key_version"]: data["key"]}
        keys = {int(version): bytes.fromhex(key) for version, key in versions.items()}
        texts = (str(data[name]) for name in ("engine", "redis_url", "portal"))
        engine, redis_url, portal = texts
        epoch, hosts = int(data["epoch"]), tuple(str(each) for each in data["hosts"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"lacks {error}") from error
    if not keys or not all(keys.values()) or not engine:
        raise ValueError("an empty key or name")
    return EngineIdentity(engine, keys, epoch, redis_url, portal, hosts)
