"""What the engine and the portal say to each other about its hosts."""

import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import wire
from agent.engine.identity import EngineIdentity, identity_save
from agent.ports.gpu import GpuError
from agent.state import enrol

log = logging.getLogger("agent")

SENT_AT_ONCE = 200_000
"""Bytes of inventories in one message: the portal takes 1 MiB, and quotes double."""


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
        news = {name: found for name in names if name not in served and (found := self._read(name))}
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
        raw = json.loads(enrol.portal_post(self.identity.portal, "agents/engines/hosts", body))
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
            identity_save(self._folder, kept)
            self.identity = kept
