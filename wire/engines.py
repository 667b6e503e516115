"""What the agent of many hosts and the portal say to each other about which hosts there are."""

import dataclasses
import hashlib
import re
from typing import ClassVar

from wire.desired import Rotation
from wire.fields import NAME_PATTERN, VERSION, Name
from wire.reports import Inventory

HOSTS_MAX = 1024
"""The number of hosts of one engine at most."""
HOST_INVENTORY_MAX = 1 << 18
"""Bytes of the inventory of one host at most."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineHosts:
    """The names of all hosts that the scheduler has set aside for the portal, and inventories of some of
    them, each with its host's name as `hostname`. `seq` rises with each message."""

    kind: ClassVar[str] = "engine_hosts"
    seq: int
    names: tuple[Name, ...] = ()
    inventories: tuple[Inventory, ...] = ()
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostKey:
    """A host that the engine serves, with its signing key of this version as only a holder of the
    engine's key can read it (`key_unwrap`)."""

    node: Name
    key_version: int
    hidden: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineAnswer:
    """The answer to the message of this `seq`: the hosts that are the engine's, and those whose
    inventory the portal lacks. `rotation` has a new key of the engine."""

    kind: ClassVar[str] = "engine_answer"
    engine: Name
    seq: int
    epoch: int
    hosts: tuple[HostKey, ...] = ()
    wanted: tuple[Name, ...] = ()
    rotation: Rotation | None = None
    version: int = VERSION


def is_name(text: str) -> bool:
    """Whether it can be the name of a host in a message."""
    return NAME_PATTERN.fullmatch(text) is not None


NODE_NAME_MAX = 60
RACK_NAME_MAX = 40
_HASH = 8


def node_name(host: str) -> str:
    """Returns the portal's name of a host: small letters, digits and hyphens. Of two hosts with one name
    only one can join."""
    return _plain_name(host, NODE_NAME_MAX)


def rack_name(text: str) -> str:
    """Returns the portal's name of a rack that a scheduler names, empty where it names none."""
    return _plain_name(text, RACK_NAME_MAX)


def _plain_name(text: str, longest: int) -> str:
    plain = re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")
    if len(plain) <= longest:
        return plain
    return f"{plain[: longest - _HASH - 1].rstrip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:_HASH]}"


def engine_account(engine: str) -> str:
    """The name by which an engine has its key and its account. No node's name has a dot."""
    return f"engine.{engine}"
