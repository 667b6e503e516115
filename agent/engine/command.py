"""Serves many nodes of another scheduler in one process.

Each node has a folder below `--state`, a key and a loop of its own, in a thread. They share what the
scheduler says, and one enrolment: the engine reports its hosts, and the portal hands over the keys of
those that an operator has approved. Nodes that version 1.0 enrolled one by one are served with the
identities that they have until the engine is enrolled.
"""

import argparse
import contextlib
import dataclasses
import logging
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import wire
from agent.assembly import IDENTITY
from agent.engine.identity import EngineIdentity, HostReport, engine_identity_ensure, is_enrolled
from agent.engine.serving import Engine, ServedNode, Serving
from agent.hardware import NodeHardware
from agent.ports.gpu import GpuError
from agent.state.enrol import (
    EnrolmentRefused,
    Identity,
    PortalUnreachable,
    identity_load,
    identity_save,
)
from agent.state.store import StoreError, folder_locked

log = logging.getLogger("agent")

REPORT_EVERY_S = 15.0
_ELSEWHERE = ("cdi", "data", "mps_units", "metrics")


def main(options: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Returns 0 after a stop, 1 when the nodes can't be served."""
    try:
        _refuse_elsewhere(options)
        with contextlib.ExitStack() as stack:
            stack.enter_context(folder_locked(options.state))
            engine = Engine(options, environment)
            names = _enrolled_alone(options)
            if names and not options.command and not is_enrolled(options.state):
                _serve_alone(engine, names)
                return 0
            hosts = _Hosts(engine, engine_identity_ensure(options, engine.scheduler.kind))
            if options.command:
                hosts.enrolled()
            else:
                hosts.serve()
    except (EnrolmentRefused, GpuError, StoreError, OSError, ValueError) as error:
        log.error("%s", error)  # noqa: TRY400 - the message says it all
        return 1
    return 0


def _refuse_elsewhere(options: argparse.Namespace) -> None:
    """Raises ValueError for options that need the agent on the node itself."""
    wrong = [name for name in _ELSEWHERE if getattr(options, name)]
    if options.device_permissions != "off":
        wrong.append("device_permissions")
    if options.cgroup != "off":
        wrong.append("cgroup")
    if wrong:
        raise ValueError(f"there is no --{wrong[0].replace('_', '-')} with --engine {options.engine}")


def _enrolled_alone(options: argparse.Namespace) -> list[str]:
    """Returns the nodes that have an identity of their own: before 1.1 each could be enrolled by itself."""
    found = _enrolled_before(options.state)
    return [name for name in found if name in options.nodes] if options.nodes else found


def _enrolled_before(state: Path) -> list[str]:
    """Returns the hosts that have an identity on disk."""
    return sorted(path.parent.name for path in state.glob(f"*/{IDENTITY}"))


def _serve_alone(engine: Engine, names: list[str]) -> None:
    """Serves nodes that have an identity each, until a signal asks to end or one of them fails."""
    with Serving(lambda name, stack: engine.opened(name, _identity_alone, stack), engine.alive) as serving:
        for name in names:
            serving.start(name)
        log.warning("serving %d nodes that were enrolled one by one: enrol the engine as one", len(names))
        engine.run(serving.reap)
    log.info("stopped; what runs on the nodes continues")


def _identity_alone(own: argparse.Namespace, hardware: NodeHardware) -> Identity:
    found = identity_load(own.state / IDENTITY)
    if found is None:
        raise ValueError(f"{own.state / IDENTITY} is lost: enrol the engine")
    return found


class _Hosts:
    """The hosts of an engine that has one identity: they come and go while it runs."""

    def __init__(self, engine: Engine, identity: EngineIdentity) -> None:
        self._engine = engine
        self._serving = Serving(self._opened, engine.alive)
        folder = engine.options.state
        self._report = HostReport(folder, identity, self._inventory)
        self._due = time.monotonic()
        self._said = ""
        self._unnamed: set[str] = set()

    def enrolled(self) -> None:
        """Reports the hosts once, so that an operator sees them, and says so."""
        names = self._names()
        self._report.turn(names)
        identity = self._report.identity
        sys.stdout.write(
            f"The engine {identity.engine} is enrolled and has reported {len(names)} hosts. Approve them at"
            f" {identity.portal.rstrip('/')}/ops/engines/{identity.engine}\n"
        )

    def serve(self) -> None:
        """Serves the hosts until a signal asks to end, or one of them fails, which it raises."""
        with self._serving:
            log.info("serving as engine %s", self._report.identity.engine)
            for node in self._report.identity.hosts:
                self._start(self._host_of(node, ()))
            self._engine.run(self._turn)
        log.info("stopped; what runs on the nodes continues")

    def _turn(self) -> None:
        self._serving.reap()
        if time.monotonic() >= self._due:
            problem = self._follow()
            if problem and problem != self._said:
                log.error("%s; what runs on the hosts continues", problem)
            self._said = problem
            self._due = time.monotonic() + REPORT_EVERY_S

    def _follow(self) -> str:
        """Reports the hosts and serves those that are the engine's. Returns why not, empty: it did."""
        try:
            names = self._names()
            keys = self._report.turn(names)
        except (EnrolmentRefused, PortalUnreachable, GpuError, ValueError) as error:
            return f"the hosts were not reported: {error}"
        hosts = {self._host_of(key.node, names): key for key in keys}
        for host, key in hosts.items():
            self._key_keep(host, key)
            self._start(host)
        for name in self._serving.names - hosts.keys():
            self._serving.leave(name)
        return ""

    def _names(self) -> list[str]:
        """The hosts by the scheduler's names, but for those that no message can have."""
        found = self._engine.options.nodes or self._engine.scheduler.nodes()
        wrong = {name for name in found if not wire.is_name(name)}
        for name in sorted(wrong - self._unnamed):
            log.error("%s can't be served: its name is longer than 64 characters or is no host's", name)
        self._unnamed = wrong
        return [name for name in found if name not in wrong]

    def _host_of(self, node: str, names: Iterable[str]) -> str:
        """The scheduler's name of a node: the portal has names without capitals and dots."""
        like = [name for name in names if wire.node_name(name) == node]
        known = [
            name for name in _enrolled_before(self._engine.options.state) if wire.node_name(name) == node
        ]
        both = [name for name in known if name in like]
        return next(iter((*both, *(name for name in like if name == node), *like, *known)), node)

    def _inventory(self, name: str) -> wire.Inventory:
        return self._engine.scheduler.hardware(self._engine.options_of(name)).inventory()

    def _key_keep(self, host: str, key: wire.HostKey) -> None:
        """Has the key on disk with which the portal signs the host's documents. The newest old one stays
        until a document with the new one is on disk. Newer keys come with documents."""
        path = self._engine.options.state / host / IDENTITY
        found = identity_load(path)
        if found is not None and found.signing_version >= key.key_version:
            return
        self._serving.stop(host)
        found = identity_load(path)
        keys = {key.key_version: bytes.fromhex(key.hidden)}
        if found is not None:
            keys[found.signing_version] = found.keys[found.signing_version]
        own = self._report.identity
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        identity_save(path, Identity(key.node, keys, own.epoch, own.redis_url))

    def _start(self, name: str) -> None:
        """Starts the agent of a host, unless it runs; one that the scheduler does not know comes later."""
        if name in self._serving.names:
            return
        try:
            self._serving.start(name)
        except GpuError as error:
            log.warning("%s is not served: %s", name, error)

    def _opened(self, name: str, stack: contextlib.ExitStack) -> ServedNode:
        return self._engine.opened(name, self._identity, stack)

    def _identity(self, own: argparse.Namespace, hardware: NodeHardware) -> Identity:
        """The identity of a host, with the account of the engine."""
        path, account = own.state / IDENTITY, self._report.identity.redis_url
        found = identity_load(path)
        if found is None:
            raise ValueError(f"{path} is lost: enrol the engine again")
        if found.redis_url != account:
            found = dataclasses.replace(found, redis_url=account)
            identity_save(path, found)
        return found
