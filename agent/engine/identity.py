"""The engine's own identity: enrolment exchanges a one-time token for a name, a key and an account. With
it the engine reports its hosts, and gets the keys of those that are its own."""

import argparse
import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterable
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import agent
import wire
from agent.ports.gpu import GpuError
from agent.state.enrol import PortalUnreachable, portal_post
from agent.state.store import write_synced

log = logging.getLogger("agent")

FILE = "engine.json"
SENT_AT_ONCE = 200_000
"""Bytes of inventories in one message: the portal takes 1 MiB, and quotes double."""
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


def is_enrolled(folder: Path) -> bool:
    """Whether the engine has an identity."""
    return (folder / FILE).exists()


def engine_identity_save(folder: Path, identity: EngineIdentity) -> None:
    """Writes the identity, readable by this account only, and syncs it. Raises OSError."""
    keys = {str(version): key.hex() for version, key in identity.keys.items()}
    write_synced(folder / FILE, json.dumps({**dataclasses.asdict(identity), "keys": keys}).encode())


def engine_identity_load(folder: Path) -> EngineIdentity | None:
    """Returns the identity, None before the enrolment. Raises OSError, ValueError if damaged."""
    if not is_enrolled(folder):
        return None
    return _identity(json.loads((folder / FILE).read_bytes()))


def engine_identity_ensure(options: argparse.Namespace, scheduler: str) -> EngineIdentity:
    """Returns the saved identity, or enrols the engine, with retries while the portal is unreachable.

    Raises EnrolmentRefused, OSError, ValueError.
    """
    found = engine_identity_load(options.state)
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
        engine_identity_save(options.state, identity)
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


class HostReport:
    """Reports the hosts of a scheduler, and takes in which of them are the engine's. `inventory_of`
    raises GpuError."""

    def __init__(
        self, folder: Path, identity: EngineIdentity, inventory_of: Callable[[str], wire.Inventory]
    ) -> None:
        self.identity = identity
        self._folder = folder
        self._inventory_of = inventory_of
        self._said: dict[str, wire.Inventory] = {}
        # Starting from the clock keeps numbers rising over restarts.
        self._seq = int(time.time() * 1000)

    def turn(self, names: Iterable[str]) -> tuple[wire.HostKey, ...]:
        """Reports these hosts; returns the keys of those that are the engine's, in clear.

        Raises EnrolmentRefused when the portal refuses, PortalUnreachable, OSError, and ValueError for an
        answer that is not the portal's.
        """
        names = sorted(set(names))[: wire.HOSTS_MAX]
        served = set(self.identity.hosts)
        new = (name for name in names if wire.node_name(name) not in served)
        news = {name: found for name in new if (found := self._read(name))}
        fresh = [name for name, found in news.items() if self._said.get(name) != found]
        while True:
            some = self._some(fresh, news)
            answer, keys = self._ask(names, [news[name] for name in some])
            fresh = fresh[len(some) :]
            self._said |= {name: news[name] for name in some}
            if not fresh:
                break
        # What the portal lacks all the same, such as after it was restored, is said again next time.
        known = news.keys() - set(answer.wanted)
        self._said = {name: said for name, said in self._said.items() if name in known}
        return keys

    def _read(self, name: str) -> wire.Inventory | None:
        try:
            return self._inventory_of(name)
        except GpuError as error:
            log.warning("no inventory of %s: %s", name, error)
            return None

    def _some(self, names: list[str], news: dict[str, wire.Inventory]) -> list[str]:
        """As many of the first names as fit into a message, at least one if there is one."""
        size, some = 0, list[str]()
        for name in names:
            size += len(json.dumps(wire.inventory_to_plain(news[name])))
            if some and size > SENT_AT_ONCE:
                break
            some.append(name)
        return some

    def _ask(
        self, names: list[str], inventories: list[wire.Inventory]
    ) -> tuple[wire.EngineAnswer, tuple[wire.HostKey, ...]]:
        self._seq = max(self._seq + 1, int(time.time() * 1000))
        version = self.identity.signing_version
        message = wire.EngineHosts(seq=self._seq, names=tuple(names), inventories=tuple(inventories))
        sealed = wire.seal(message, key=self.identity.keys[version], key_version=version)
        body = {
            "password": self.identity.password,
            "body": sealed.body.decode(),
            "key": sealed.key_version,
            "mac": sealed.mac,
        }
        raw = json.loads(portal_post(self.identity.portal, "agents/engines/hosts", body))
        try:
            return self._taken(wire.Envelope(str(raw["body"]).encode(), int(raw["key"]), str(raw["mac"])))
        except (wire.WireError, LookupError, TypeError) as error:
            raise ValueError(f"the portal's answer is refused: {error}") from error

    def _taken(self, sealed: wire.Envelope) -> tuple[wire.EngineAnswer, tuple[wire.HostKey, ...]]:
        """Returns a verified answer, and the keys in it. Raises WireError, OSError."""
        answer = wire.open_engine_answer(sealed, self.identity.keys)
        if answer.engine != self.identity.engine or answer.seq != self._seq:
            raise wire.WireError("malformed", "an answer to another message")
        key = self.identity.keys[sealed.key_version]
        clear = tuple(
            dataclasses.replace(
                host,
                hidden=wire.key_unwrap(
                    old=key, hidden=host.hidden, node=host.node, version=host.key_version
                ).hex(),
            )
            for host in answer.hosts
        )
        self._keep(answer, sealed.key_version)
        return answer, clear

    def _keep(self, answer: wire.EngineAnswer, signed_by: int) -> None:
        """Has the hosts on disk, and a new key before it is used; forgets keys that no longer sign."""
        keys = {version: key for version, key in self.identity.keys.items() if version >= signed_by}
        rotation = answer.rotation
        if rotation is not None and rotation.version > signed_by:
            account = wire.engine_account(self.identity.engine)
            keys[rotation.version] = wire.key_unwrap(
                old=keys[signed_by], hidden=rotation.hidden, node=account, version=rotation.version
            )
        hosts = tuple(host.node for host in answer.hosts)
        kept = dataclasses.replace(self.identity, keys=keys, hosts=hosts, epoch=answer.epoch)
        if kept != self.identity:
            engine_identity_save(self._folder, kept)
            self.identity = kept
