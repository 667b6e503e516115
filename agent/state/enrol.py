"""The node's identity: enrolment exchanges a one-time token for a name and a signing key."""

import contextlib
import dataclasses
import itertools
import json
import logging
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import wire
from agent.state.store import write_synced

log = logging.getLogger("agent")

_TIMEOUT_S = 20.0
_LONGEST_RETRY_S = 30
_MAX_ANSWER = 2 << 20


class EnrolmentRefused(Exception):
    """The portal refused the enrolment; a retry with the same token is useless."""


class PortalUnreachable(Exception):
    """The portal did not answer or failed; a retry may succeed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """`keys` maps key versions to keys; the highest signs. `epoch` is the oldest one accepted."""

    node: str
    keys: dict[int, bytes]
    epoch: int
    redis_url: str

    @property
    def signing_version(self) -> int:
        return max(self.keys)


def identity_save(path: Path, identity: Identity) -> None:
    """Writes the identity, readable by this account only, and syncs it. Raises OSError."""
    keys = {str(version): key.hex() for version, key in identity.keys.items()}
    data = {**dataclasses.asdict(identity), "keys": keys}
    write_synced(path, json.dumps(data).encode())


def identity_load(path: Path) -> Identity | None:
    """Returns the identity, None before the enrolment. Raises OSError, ValueError if damaged."""
    if not path.exists():
        return None
    return _identity(json.loads(path.read_bytes()))


def identity_ensure(
    path: Path, portal: str | None, token: str | None, inventory: Callable[[], wire.Inventory], *, again: bool
) -> Identity:
    """Returns the saved identity, or enrols the node, with retries while the portal is unreachable.

    `again`: enrols although there is one. Raises EnrolmentRefused, OSError, ValueError, and what
    `inventory` raises.
    """
    found = identity_load(path)
    if found is not None and not again:
        return found
    if not portal or not token:
        raise ValueError("to enrol this node, give --portal and --token once")
    taken = inventory()
    for pause in itertools.chain((1, 2, 4, 8, 16), itertools.repeat(_LONGEST_RETRY_S)):
        try:
            return enrol(portal=portal, token=token, inventory=taken, path=path)
        except PortalUnreachable as error:
            log.warning("%s; next try in %d s", error, pause)
            time.sleep(pause)
    raise AssertionError("unreachable: the pauses never end")


def enrol(*, portal: str, token: str, inventory: wire.Inventory, path: Path) -> Identity:
    """Enrols and keeps the identity at `path`. A node that was enrolled before keeps its newest
    old key until a document with the new one is on disk: it must still read the saved one.

    Raises EnrolmentRefused, PortalUnreachable, OSError.
    """
    body = {"token": token, "inventory": wire.inventory_to_plain(inventory)}
    answer = portal_post(portal, "agents/enrol", body)
    try:
        identity = _identity(json.loads(answer))
    except ValueError as error:
        raise EnrolmentRefused(f"the portal's answer makes no sense: {error}") from error
    with contextlib.suppress(ValueError):
        before = identity_load(path)
        if before is not None:
            newest = before.signing_version
            identity.keys.setdefault(newest, before.keys[newest])
    identity_save(path, identity)
    return identity


def portal_post(portal: str, path: str, body: dict[str, Any]) -> bytes:
    """Sends JSON to the portal's REST; returns the answer's body.

    Raises EnrolmentRefused for a refusal, PortalUnreachable.
    """
    url = f"{portal.rstrip('/')}/api/v1/{path}"
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise EnrolmentRefused(f"{portal} is no http or https address")
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked
        url, data=json.dumps(body).encode(), headers=headers, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310
            raw: bytes = response.read(_MAX_ANSWER)
            return raw
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(2000).decode(errors="replace")
        if error.code >= 500 or error.code == 429:
            raise PortalUnreachable(f"the portal answers {error.code}") from error
        raise EnrolmentRefused(f"the portal answers {error.code}: {text}") from error
    except OSError as error:
        raise PortalUnreachable(str(error)) from error


def _identity(data: dict[str, Any]) -> Identity:
    try:
        # The portal's answer names one key, our own file all of them.
        versions = data["keys"] if "keys" in data else {data["key_version"]: data["key"]}
        keys = {int(version): bytes.fromhex(key) for version, key in versions.items()}
        node, epoch, url = str(data["node"]), int(data["epoch"]), str(data["redis_url"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"lacks {error}") from error
    if not keys or not all(keys.values()) or not node:
        raise ValueError("an empty key or name")
    return Identity(node, keys, epoch, url)
